"""Which note an id is part of."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from music_transformer.errors import TokenError
from music_transformer.notes import to_steps
from music_transformer.representations import ChoraleTokenizer, PerformanceTokenizer

PIANO, CHORALE = PerformanceTokenizer(), ChoraleTokenizer()


def test_the_parts_of_a_note_are_its_on_its_off_and_the_velocity_before_it() -> None:
    """The golden example of the tokenizers: C4, E4, G4 held, then F4 in another velocity."""
    ids = [376, 60, 305, 64, 305, 67, 355, 188, 192, 195, 305, 381, 65, 305, 193]
    parts = PIANO.note_of_event(ids)
    assert parts.note.tolist() == [0, 0, -1, 1, -1, 2, -1, 0, 1, 2, -1, 3, 3, -1, 3]
    assert parts.onset.tolist() == [1, 3, 5, 12]


def test_an_off_belongs_to_the_onset_before_it_and_time_to_none() -> None:
    ids = [376, 60, 64, 305, 188, 60, 265, 188, 192, 135]
    parts = PIANO.note_of_event(ids)
    assert parts.note.tolist() == [0, 0, 1, -1, 0, 2, -1, 2, 1, -1]
    assert parts.onset.tolist() == [1, 2, 5]


def test_two_onsets_of_a_pitch_in_one_step_are_one_note() -> None:
    parts = PIANO.note_of_event([60, 188, 376, 60, 265, 188])
    assert parts.note.tolist() == [0, 0, 0, 0, -1, 0]
    assert parts.onset.tolist() == [0]


@pytest.mark.parametrize("before", [388, 389, 390, 391, 392])
def test_only_a_velocity_is_part_of_the_note_after_it(before: int) -> None:
    """PAD, START, END and the pedal have larger ids than any velocity."""
    parts = PerformanceTokenizer("events").note_of_event([before, 60, 387, 64])
    assert parts.note.tolist() == [-1, 0, 1, 1]


def test_a_chorale_whose_last_row_is_not_full_has_its_notes() -> None:
    parts = CHORALE.note_of_event([72, 67, 64, 128, 72, 69, 64, 48, 71, 69])
    assert parts.note.tolist() == [2, 1, 0, -1, 2, 4, 0, 3, 5, 4]
    assert parts.onset.tolist() == [2, 1, 0, 7, 5, 8]


def test_the_parts_of_a_chorales_note_are_its_sixteenths() -> None:
    ids = [131, 67, 62, 128, 45, 67, 64, 128, 45, 67, 62, 128, 43, 130]
    parts = CHORALE.note_of_event(ids)
    assert CHORALE.decode(ids).pitch.tolist() == [45, 62, 67, 64, 43, 62]
    assert parts.note.tolist() == [-1, 2, 1, -1, 0, 2, 3, -1, 0, 2, 5, -1, 4, -1]
    assert parts.onset.tolist() == [4, 2, 1, 6, 12, 10]


def test_orphans_and_what_is_not_music_are_part_of_none() -> None:
    assert PIANO.note_of_event([389, 188, 260, 370, 260, 60, 188, 188, 390]).note.tolist() == [
        *[-1] * 5,
        0,
        0,
        -1,
        -1,
    ]
    assert PIANO.note_of_event([]).note.tolist() == []
    with pytest.raises(TokenError, match="outside the vocabulary"):
        PIANO.note_of_event([400])


@given(st.lists(st.sampled_from([*range(60, 64), *range(188, 192), 256, 299, 360, 380, 388, 391])))
def test_the_rows_are_those_of_decode(ids: list[int]) -> None:
    tokenizer = PerformanceTokenizer("events")
    notes, parts = tokenizer.decode(ids), tokenizer.note_of_event(ids)
    assert len(parts.onset) == len(notes)
    assert [ids[index] for index in parts.onset] == notes.pitch.tolist()
    assert parts.note[parts.onset].tolist() == list(range(len(notes)))
    shifts = [i - 255 if 256 <= i < 356 else 0 for i in ids]
    begin = [sum(shifts[:index]) for index in parts.onset]
    assert begin == to_steps(notes.start).tolist()


@given(st.lists(st.sampled_from([60, 61, 62, 128, 129, 130, 131])))
def test_the_rows_are_those_of_decode_for_chorales(ids: list[int]) -> None:
    notes, parts = CHORALE.decode(ids), CHORALE.note_of_event(ids)
    assert [ids[index] for index in parts.onset] == notes.pitch.tolist()
    cells = [index for index, i in enumerate(ids) if i <= 128]
    assert [cells.index(index) % 4 for index in parts.onset] == notes.track.tolist()
    assert [cells.index(index) // 4 * 0.1875 for index in parts.onset] == notes.start.tolist()
