"""Music that a model got stuck in is told from music."""

import json

import numpy as np
import pytest

from music_transformer.generation.report import GenerationReport, degeneracies
from music_transformer.generation.run import _long_notes
from music_transformer.notes import NoteSequence


def line(pitches: list[int], seconds: float = 0.25, end_time: float | None = None) -> NoteSequence:
    """The pitches one after another."""
    start = np.arange(len(pitches)) * seconds
    return NoteSequence(
        pitch=pitches,
        velocity=[80] * len(pitches),
        start=start,
        end=start + seconds,
        end_time=end_time,
    )


def test_ordinary_music_has_no_warning() -> None:
    scale = [60, 62, 64, 65, 67, 69, 71, 72, 74]
    assert degeneracies(line(scale * 8)) == []
    assert degeneracies(line([60] * 23)) == []
    assert degeneracies(line([])) == []


@pytest.mark.parametrize(
    ("notes", "warning"),
    [
        (line([], end_time=3.0), "has no notes"),
        (line([60] * 40), "repeats one note"),
        (line([50, 52, *[60, 64, 67] * 12]), "repeats the same 3 notes"),
        (line([60, 62], end_time=11.0), "is silent for 10.5 s"),
    ],
)
def test_what_is_stuck_is_named(notes: NoteSequence, warning: str) -> None:
    [found] = degeneracies(notes)
    assert warning in found


def test_a_report_is_json() -> None:
    report = GenerationReport(0, 7, 5, 1, 1.0, 2, 0, 0.0, 0, 0, 1, 0, 0.1, 50.0, ("loud",))
    values = json.loads(json.dumps(report.to_dict()))
    assert values["seed"] == 7
    assert values["warnings"] == ["loud"]


def test_notes_that_had_to_be_closed_are_a_warning() -> None:
    assert _long_notes(0) == []
    assert _long_notes(1) == ["1 note had to be closed after 20 s"]
    assert _long_notes(3) == ["3 notes had to be closed after 20 s"]
