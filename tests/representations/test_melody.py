"""The melody of piano music, and its grid: which notes are taken, and what their ids are."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from music_transformer.errors import ConfigError, MidiError, TokenError
from music_transformer.midi import read_midi
from music_transformer.notes import NoteSequence, Pedals, to_steps
from music_transformer.representations import (
    AccompanimentTokenizer,
    MelodyTokenizer,
    PerformanceTokenizer,
    representation_from_config,
    split_melody,
)
from music_transformer.representations.accompaniment.skyline import as_performance, melody_rows

MELODY = MelodyTokenizer()
SILENCE, PAD = 256, 257
#: Notes as (pitch, start, end).
Rows = list[tuple[int, float, float]]


def _notes(rows: Rows, tracks: list[int] | None = None) -> NoteSequence:
    pitch, start, end = zip(*rows, strict=True) if rows else ((),) * 3
    return NoteSequence(pitch=pitch, velocity=[64] * len(rows), start=start, end=end, track=tracks)


def _melody(rows: Rows) -> list[int]:
    pitches: list[int] = split_melody(_notes(rows))[0].pitch.tolist()
    return pitches


seconds = st.integers(0, 800).map(lambda step: step / 100)
music = st.lists(
    st.tuples(st.integers(30, 90), seconds, st.floats(0.01, 2.0)).map(
        lambda row: (row[0], row[1], row[1] + row[2])
    ),
    max_size=40,
).map(_notes)
grids = st.lists(st.integers(0, 256), max_size=60)


def _one_row(notes: NoteSequence) -> list[tuple[int, float, float, int]]:
    columns = (notes.pitch, notes.start, notes.end, notes.velocity)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def test_a_note_starts_in_its_step_and_is_held_until_it_ends() -> None:
    assert MELODY.encode(_notes([(60, 0.1, 0.4), (62, 0.4, 0.6)])).tolist() == [
        SILENCE,
        60,
        128 + 60,
        128 + 60,
        62,
        128 + 62,
    ]


def test_a_repeated_note_is_no_held_note() -> None:
    assert MELODY.encode(_notes([(60, 0.0, 0.2), (60, 0.2, 0.4)])).tolist() == [60, 188, 60, 188]


def test_a_step_is_held_when_half_of_it_sounds() -> None:
    assert MELODY.encode(_notes([(60, 0.0, 0.14)]), steps=3).tolist() == [60, SILENCE, SILENCE]
    assert MELODY.encode(_notes([(60, 0.0, 0.15)]), steps=3).tolist() == [60, 188, SILENCE]
    assert MELODY.encode(_notes([(60, 0.09, 0.10)])).tolist() == [60]


def test_the_step_of_an_onset_is_the_one_that_holds_it() -> None:
    assert MELODY.encode(_notes([(60, 0.194, 0.3)])).tolist() == [SILENCE, 60, 188]
    assert MELODY.encode(_notes([(60, 0.2, 0.3)])).tolist() == [SILENCE, SILENCE, 60]
    assert MELODY.encode(_notes([(60, 0.196, 0.3)])).tolist() == [SILENCE, SILENCE, 60]
    assert MELODY.encode(_notes([(60, 3 * 0.1, 0.4)])).tolist() == [SILENCE] * 3 + [60]


def test_of_notes_in_one_step_the_longest_counts_then_the_highest() -> None:
    assert MELODY.encode(_notes([(60, 0.0, 0.3), (72, 0.05, 0.1)])).tolist() == [60, 188, 188]
    assert MELODY.encode(_notes([(60, 0.0, 0.2), (64, 0.0, 0.2)])).tolist() == [64, 192]


def test_a_later_note_ends_the_one_before() -> None:
    rows = [(60, 0.0, 0.5), (62, 0.2, 0.3)]
    assert MELODY.encode(_notes(rows), steps=4).tolist() == [60, 188, 62, SILENCE]


def test_steps_cut_or_lengthen_the_grid() -> None:
    notes = _notes([(60, 0.0, 0.3), (62, 0.3, 0.5)])
    assert MELODY.encode(notes, steps=2).tolist() == [60, 188]
    assert MELODY.encode(notes, steps=7).tolist() == [60, 188, 188, 62, 190, SILENCE, SILENCE]
    assert MELODY.encode(notes, steps=0).tolist() == []
    assert MELODY.encode(_notes([]), steps=2).tolist() == [SILENCE, SILENCE]
    assert MELODY.encode(notes).dtype == np.uint16


def test_a_grid_without_an_end_in_sight_is_refused() -> None:
    with pytest.raises(TokenError, match=r"a melody of -1 steps: expected 0 to 1,000,000\."):
        MELODY.encode(_notes([]), steps=-1)
    with pytest.raises(TokenError, match="expected 0 to 1,000,000"):
        MELODY.encode(_notes([(60, 2e5, 2e5 + 1)]))


def test_decoding_gives_notes_on_the_steps_and_keeps_closing_silence() -> None:
    notes = MELODY.decode([SILENCE, 60, 188, 62, SILENCE, 60, 60, PAD])
    assert _one_row(notes) == [
        (60, 0.1, 0.3, 80),
        (62, 0.3, 0.4, 80),
        (60, 0.5, 0.6, 80),
        (60, 0.6, 0.7, 80),
    ]
    assert MELODY.decode([60, SILENCE, SILENCE]).end_time == pytest.approx(0.3)


def test_a_held_pitch_without_a_start_begins_a_note() -> None:
    assert _one_row(MELODY.decode([188, 188, 190])) == [(60, 0.0, 0.2, 80), (62, 0.2, 0.3, 80)]


@settings(max_examples=60)
@given(grids)
def test_any_known_ids_decode_to_one_voice_that_encodes_to_itself(ids: list[int]) -> None:
    notes = MELODY.decode(ids)
    once = MELODY.encode(notes, steps=len(ids))
    assert np.array_equal(MELODY.encode(MELODY.decode(once), steps=len(ids)), once)
    assert all(end <= start for end, start in pairwise_times(notes))
    sounding = [i % 128 if i < SILENCE else -1 for i in ids]
    assert [i % 128 if i < SILENCE else -1 for i in once.tolist()] == sounding


def pairwise_times(notes: NoteSequence) -> list[tuple[float, float]]:
    ordered = list(zip(notes.start.tolist(), notes.end.tolist(), strict=True))
    return [(one[1], two[0]) for one, two in pairwise(ordered)]


def test_ids_have_names_and_a_length_and_unknown_ones_are_refused() -> None:
    with pytest.raises(TokenError, match="id 258 at position 1"):
        MELODY.decode([60, 258])


def test_the_highest_onset_of_a_step_is_taken() -> None:
    assert _melody([(60, 0.0, 0.5), (64, 0.02, 0.5), (67, 0.01, 0.5), (65, 0.5, 1.0)]) == [67, 65]


def test_what_moves_below_a_held_note_is_accompaniment() -> None:
    assert _melody([(72, 0.0, 1.0), (64, 0.25, 0.5), (67, 0.5, 0.75), (71, 1.0, 1.5)]) == [72, 71]


def test_a_legato_step_down_may_overlap_a_little() -> None:
    assert _melody([(72, 0.0, 1.09), (71, 1.0, 1.5)]) == [72, 71]
    assert _melody([(72, 0.0, 1.15), (71, 1.0, 1.5)]) == [72]


def test_a_higher_note_is_taken_whatever_is_held() -> None:
    assert _melody([(72, 0.0, 1.0), (76, 0.5, 0.7), (74, 0.8, 0.9)]) == [72, 76, 74]


def test_low_and_very_short_notes_are_accompaniment() -> None:
    assert _melody([(54, 0.0, 1.0), (55, 1.0, 2.0)]) == [55]
    assert _melody([(80, 0.0, 0.04), (72, 0.0, 0.5), (74, 1.0, 1.05)]) == [72, 74]


def test_a_note_far_below_the_line_waits_until_the_line_has_rested() -> None:
    line = [(79, 0.0, 0.5)]
    assert _melody([*line, (72, 0.6, 0.8)]) == [79, 72]  # a fifth is part of a melody
    assert _melody([*line, (71, 0.6, 0.8)]) == [79]
    assert _melody([*line, (71, 1.6, 1.8)]) == [79, 71]


def test_the_pedal_does_not_count() -> None:
    notes = NoteSequence(
        pitch=[72, 71],
        velocity=[64, 64],
        start=[0.0, 0.5],
        end=[0.4, 0.9],
        pedals=Pedals(channel=[0], start=[0.0], end=[3.0]),
    )
    assert split_melody(notes)[0].pitch.tolist() == [72, 71]


@settings(max_examples=40)
@given(music)
def test_melody_and_rest_are_the_music_each_note_once(notes: NoteSequence) -> None:
    melody, rest = split_melody(notes)
    assert sorted(_one_row(melody) + _one_row(rest)) == sorted(_one_row(notes))
    assert melody.end_time == rest.end_time == notes.end_time


@settings(max_examples=40)
@given(music)
def test_every_step_holds_one_onset_of_the_melody_at_most(notes: NoteSequence) -> None:
    melody, _ = split_melody(notes)
    steps = to_steps(melody.start) // 10
    assert len(np.unique(steps)) == len(steps)
    assert (MELODY.encode(melody) < 128).sum() == len(melody)


@settings(max_examples=40)
@given(music)
def test_the_melody_follows_the_music_through_keys(notes: NoteSequence) -> None:
    """Only the lowest pitch that counts is absolute."""
    high = notes.transposed(30)
    assert np.array_equal(melody_rows(high), melody_rows(high.transposed(3)))


def test_a_given_track_is_the_melody_as_it_is() -> None:
    notes = _notes([(40, 0.0, 1.0), (80, 0.0, 1.0), (42, 1.0, 2.0)], tracks=[2, 1, 2])
    melody, rest = split_melody(notes, track=2)
    assert melody.pitch.tolist() == [40, 42]
    assert rest.pitch.tolist() == [80]
    with pytest.raises(MidiError, match=r"no notes on track 0; tracks with notes: 1, 2\."):
        split_melody(notes, track=0)


def test_music_without_notes_has_no_melody() -> None:
    assert len(split_melody(_notes([]))[0]) == 0


def test_what_is_learned_keeps_keys_for_the_melody_and_the_pedal_for_the_rest() -> None:
    notes = NoteSequence(
        pitch=[48, 72, 48, 50],
        velocity=[64] * 4,
        start=[0.0, 0.0, 1.0, 2.0],
        end=[0.5, 0.5, 1.5, 2.2],
        pedals=Pedals(channel=[0], start=[0.1], end=[3.0]),
    )
    melody, rest = as_performance(notes)
    assert _one_row(melody) == [(72, 0.0, 0.5, 64)]
    assert _one_row(rest) == [(48, 0.0, 1.0, 64), (48, 1.0, 3.0, 64), (50, 2.0, 3.0, 64)]


def test_a_note_of_the_rest_ends_where_the_melody_strikes_its_key() -> None:
    notes = NoteSequence(
        pitch=[67, 72, 67],
        velocity=[64] * 3,
        start=[0.0, 0.0, 1.0],
        end=[0.3, 0.9, 1.5],
        pedals=Pedals(channel=[0], start=[0.1], end=[3.0]),
    )
    melody, rest = as_performance(notes)
    assert melody.pitch.tolist() == [72, 67]
    assert _one_row(rest) == [(67, 0.0, 1.0, 64)]


@settings(max_examples=40)
@given(music)
def test_what_is_learned_has_the_notes_of_the_divided_music(notes: NoteSequence) -> None:
    for learned, divided in zip(as_performance(notes), split_melody(notes), strict=True):
        assert [row[:2] for row in _one_row(learned)] == [row[:2] for row in _one_row(divided)]


def test_the_tokenizer_of_accompaniments_is_that_of_performances_with_a_melody() -> None:
    tokenizer = AccompanimentTokenizer()
    assert (tokenizer.kind, tokenizer.vocab_size) == ("accompaniment", 391)
    assert (tokenizer.pad, tokenizer.start, tokenizer.end) == (388, 389, 390)
    assert tokenizer.melody.vocab_size == 258
    assert representation_from_config(tokenizer.to_config()) == tokenizer
    notes = _notes([(60, 0.5, 1.0), (64, 0.7, 1.5)])
    ids = PerformanceTokenizer().encode(notes)
    assert tokenizer.encode(notes) == tokenizer.encode_array(notes).tolist() == ids
    assert tokenizer.decode(ids).equals(PerformanceTokenizer().decode(ids))
    assert tokenizer.symbols(ids) == PerformanceTokenizer().symbols(ids)
    assert tokenizer.duration_seconds(ids) == pytest.approx(1.5)
    with pytest.raises(ConfigError, match="does not know 'pedal'"):
        representation_from_config({"kind": "accompaniment", "pedal": "events"})


@pytest.mark.parametrize("name", ["ode_to_joy_melody", "twinkle_melody"])
def test_all_of_a_tune_is_melody(motifs: Path, name: str) -> None:
    notes = read_midi(motifs / f"{name}.mid")
    melody, rest = split_melody(notes)
    assert (len(melody), len(rest)) == (len(notes), 0)
    assert MELODY.decode(MELODY.encode(melody)).pitch.tolist() == notes.pitch.tolist()


def test_a_line_in_a_performance_is_a_part_of_it_and_lies_on_top(corpora: Path) -> None:
    path = corpora / "motifs" / "chopin_op10_no5_opening_maestro_validation.mid"
    if not path.is_file():
        pytest.skip("the corpora lack the opening of a performance of MAESTRO")
    melody, rest = split_melody(read_midi(path))
    assert 0.1 < len(melody) / (len(melody) + len(rest)) < 0.6
    assert melody.pitch.mean() > rest.pitch.mean() + 5
