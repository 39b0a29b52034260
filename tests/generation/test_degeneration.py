"""Music that a model got stuck in is told from music, rule by rule."""

import numpy as np
import pytest

from music_transformer.generation.degeneration import broken_rules, degeneracies
from music_transformer.notes import NoteSequence


def line(
    pitches: list[int],
    seconds: float = 0.25,
    *,
    held: float | None = None,
    end_time: float | None = None,
) -> NoteSequence:
    """The pitches one after another, each held as long as said."""
    start = np.arange(len(pitches)) * seconds
    return NoteSequence(
        pitch=pitches,
        velocity=[80] * len(pitches),
        start=start,
        end=start + (seconds if held is None else held),
        end_time=end_time,
    )


def wandering(notes: int) -> list[int]:
    """Pitches without a pattern."""
    return np.random.default_rng(3).integers(40, 85, notes).tolist()


@pytest.mark.parametrize(
    "notes",
    [
        line(wandering(480)),  # two minutes
        line([60] * 19),
        line(wandering(8), 2.6),
        line(wandering(40), 3.0, held=7.9),
        line(wandering(4), end_time=14.9),
        line([]),
    ],
)
def test_ordinary_music_breaks_no_rule(notes: NoteSequence) -> None:
    assert broken_rules(notes) == {}
    assert degeneracies(notes) == []


@pytest.mark.parametrize(
    ("notes", "rule", "text"),
    [
        (line([], end_time=3.0), "empty", "has no notes"),
        (line(wandering(4), end_time=17.0), "silent", "silent for 16.0 s"),
        (
            line(wandering(4), 5.5, held=5.5),
            "sparse",
            "stops: 3 notes begin from its second 1 to 21",
        ),
        (line([60, *wandering(1)] * 20 + [60] * 40), "one_pitch", "one note: "),
        (
            line([50, 52] * 45),
            "trill",
            "between two pitches: 100% of the notes from its second 0 to",
        ),
        (
            line([*wandering(80), *[60, 64, 67] * 20]),
            "loop",
            "the same 3 notes for 14.8 s after 20",
        ),
        (line(wandering(30) * 3, 0.1), "loop", "the same 30 notes"),
        (line(wandering(15), 4.0, held=14.0), "stuck_notes", "holds notes too long"),
    ],
)
def test_what_is_stuck_is_named(notes: NoteSequence, rule: str, text: str) -> None:
    found = broken_rules(notes)
    assert text in found[rule]


@pytest.mark.parametrize(
    ("rule", "below", "above"),
    [
        ("silent", line(wandering(4), end_time=15.9), line(wandering(4), end_time=16.1)),
        ("sparse", line(wandering(12), 3.9), line(wandering(12), 5.1)),
        (
            "one_pitch",
            line([60, 60, 60, *wandering(2)] * 12),
            line([60, 60, 60, 60, *wandering(2)] * 10),
        ),
        ("trill", line([60, 64, *[60, 64] * 5, 50, 45] * 10), line([60, 64] * 45)),
        ("loop", line(wandering(32) * 2, 0.2), line(wandering(32) * 3, 0.2)),
        ("loop", line([60, 64, 67, 72] * 12, 0.2), line([60, 64, 67, 72] * 13, 0.2)),
        ("stuck_notes", line(wandering(20), 4.0, held=9.9), line(wandering(20), 4.0, held=10.2)),
    ],
)
def test_a_rule_has_its_threshold(rule: str, below: NoteSequence, above: NoteSequence) -> None:
    assert rule not in broken_rules(below)
    assert rule in broken_rules(above)


def test_notes_struck_together_are_compared_from_the_bottom_up() -> None:
    chord = line([67, 60, 64] * 40, 0.5)
    together = NoteSequence(
        pitch=chord.pitch,
        velocity=chord.velocity,
        start=np.repeat(np.arange(40) * 0.5, 3),
        end=np.repeat(np.arange(40) * 0.5, 3) + 0.4,
    )
    assert "the same 3 notes" in broken_rules(together)["loop"]


def test_a_short_continuation_cannot_be_sparse() -> None:
    assert broken_rules(line([60], 2.0)) == {}
    assert broken_rules(line([60, 62], 8.0)) == {}
