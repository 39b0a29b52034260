"""Openings: the ids up to a time, those after it, and nothing lost between."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from music_transformer.errors import ConfigError, MidiError
from music_transformer.notes import NoteSequence
from music_transformer.representations import ChoraleTokenizer, PerformanceTokenizer

PIANO, CHORALE = PerformanceTokenizer(), ChoraleTokenizer()
SCALE = NoteSequence(
    pitch=range(60, 80),
    velocity=[80] * 20,
    start=2 + np.arange(20) / 2,
    end=2.4 + np.arange(20) / 2,
)


@given(st.floats(0.01, 9.0))
def test_both_parts_together_are_the_piece_and_the_first_lasts_as_asked(seconds: float) -> None:
    opening, after = PIANO.split_opening(SCALE, seconds=seconds, events=7)
    assert PIANO.duration_seconds(opening) == pytest.approx(seconds, abs=0.006)
    assert len(after) == 7
    whole = PIANO.decode(PIANO.encode(SCALE, keep_silence=False))
    joined = PIANO.decode([*opening, *after])
    begun = len(joined)
    assert begun
    assert joined.start.tolist() == whole.start[:begun].tolist()
    assert joined.pitch.tolist() == whole.pitch[:begun].tolist()


def test_a_note_at_the_cut_belongs_to_what_comes_after() -> None:
    opening, after = PIANO.split_opening(SCALE, seconds=0.5, events=2)
    assert PIANO.symbols(opening)[-1] == "TIME_SHIFT 10"
    assert PIANO.symbols(after) == ["NOTE_ON 61", "TIME_SHIFT 40"]


def test_a_rest_past_the_cut_is_parted_in_two() -> None:
    opening, after = PIANO.split_opening(SCALE, seconds=0.45, events=2)
    assert PIANO.symbols(opening)[-1] == "TIME_SHIFT 5"
    assert PIANO.symbols(after) == ["TIME_SHIFT 5", "NOTE_ON 61"]


def test_a_chorale_is_cut_between_sixteenths() -> None:
    notes = NoteSequence(
        pitch=[48, 55, 60, 64], velocity=[80] * 4, start=[0] * 4, end=[10] * 4, track=[3, 2, 1, 0]
    )
    opening, after = CHORALE.split_opening(notes, seconds=0.75, events=7)
    assert opening == [64, 60, 55, 48] * 4
    assert after == [64, 60, 55, 48] * 2


def test_a_piece_that_is_too_short_says_by_how_much() -> None:
    with pytest.raises(MidiError, match=r"7 events after its first 9 s, 512 are needed"):
        PIANO.split_opening(SCALE, seconds=9.0, events=512)
    with pytest.raises(MidiError, match="no notes"):
        PIANO.split_opening(
            NoteSequence(pitch=[], velocity=[], start=[], end=[]), seconds=1, events=1
        )
    with pytest.raises(ConfigError, match="choose more than 0"):
        PIANO.split_opening(SCALE, seconds=0, events=1)
