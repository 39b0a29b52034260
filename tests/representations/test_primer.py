"""What of a primer the model reads: all of it or its last part, with its closing rest."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from music_transformer.errors import MidiError, TokenError
from music_transformer.notes import NoteSequence, Pedals, Tempos
from music_transformer.representations import ChoraleTokenizer, PerformanceTokenizer, Representation
from music_transformer.representations.base import Primer
from music_transformer.representations.performance.grammar import PerformanceGrammar
from music_transformer.representations.performance.primer import last_part
from music_transformer.representations.performance.vocabulary import (
    NOTE_OFF,
    NOTE_ON,
    PEDAL_OFF,
    PEDAL_ON,
    TIME_SHIFT,
    VELOCITY,
)

PERFORMANCE = PerformanceTokenizer()
CHORALE = ChoraleTokenizer()
SILENCE = [128] * 4


def on(pitch: int) -> int:
    return NOTE_ON + pitch


def off(pitch: int) -> int:
    return NOTE_OFF + pitch


def shift(steps: int) -> int:
    return TIME_SHIFT + steps - 1


def velocity(velocity_bin: int) -> int:
    return VELOCITY + velocity_bin


def two_notes(start: float = 0.0, end_time: float | None = None) -> NoteSequence:
    """A long note, velocity 42, and a short one on top, velocity 82, that ends with it."""
    return NoteSequence(
        pitch=[48, 60],
        velocity=[42, 82],
        start=[start, start + 1.5],
        end=[start + 2.0, start + 2.0],
        end_time=end_time,
    )


WHOLE = [velocity(10), on(48), shift(100), shift(50), velocity(20), on(60), shift(50)]
WHOLE += [off(48), off(60)]


def test_a_primer_is_read_whole() -> None:
    assert PERFORMANCE.read_primer(two_notes()) == Primer(WHOLE, end=2.0)
    assert PERFORMANCE.read_primer(None) == PERFORMANCE.read_primer([]) == Primer([])


def test_a_closing_rest_counts() -> None:
    assert PERFORMANCE.read_primer(two_notes(end_time=4.3)).ids == [
        *WHOLE,
        shift(100),
        shift(100),
        shift(30),
    ]


def test_leading_silence_goes_unless_it_is_kept() -> None:
    assert PERFORMANCE.read_primer(two_notes(0.25)).ids == WHOLE
    assert PERFORMANCE.read_primer(two_notes(0.25), keep_silence=True).ids == [shift(25), *WHOLE]
    assert PERFORMANCE.read_primer([shift(25), *WHOLE]).ids == WHOLE


def test_a_note_that_sounds_at_the_cut_begins_there() -> None:
    assert PERFORMANCE.read_primer(two_notes(), last_seconds=0.7).ids == [
        velocity(10),
        on(48),
        shift(20),
        velocity(20),
        on(60),
        shift(50),
        off(48),
        off(60),
    ]


def test_a_cut_where_a_note_begins_takes_it_whole_and_one_that_ends_there_not_at_all() -> None:
    notes = NoteSequence(pitch=[60, 62], velocity=[80, 80], start=[0, 1], end=[1, 2])
    assert PERFORMANCE.read_primer(notes, last_seconds=1.0).ids == [
        velocity(20),
        on(62),
        shift(100),
        off(62),
    ]


def test_a_cut_before_the_beginning_changes_nothing() -> None:
    assert PERFORMANCE.read_primer(two_notes(), last_seconds=2.0).ids == WHOLE
    assert PERFORMANCE.read_primer(two_notes(), last_seconds=99.0).ids == WHOLE


def test_the_closing_rest_belongs_to_the_last_part() -> None:
    ids = PERFORMANCE.read_primer(two_notes(end_time=3.0), last_seconds=1.2).ids
    struck = [velocity(10), on(48), velocity(20), on(60)]
    assert ids == [*struck, shift(20), off(48), off(60), shift(100)]


def test_silence_after_the_cut_goes_unless_it_is_kept() -> None:
    notes = NoteSequence(pitch=[60, 62], velocity=[80, 80], start=[0, 3], end=[1, 4])
    kept = [velocity(20), on(62), shift(100), off(62)]
    assert PERFORMANCE.read_primer(notes, last_seconds=2.5).ids == kept
    whole = PERFORMANCE.read_primer(notes, last_seconds=2.5, keep_silence=True).ids
    assert whole == [shift(100), shift(50), *kept]


def test_a_last_part_without_a_note_is_refused() -> None:
    with pytest.raises(MidiError, match=r"the last 0\.5 s of the primer have no note"):
        PERFORMANCE.read_primer(two_notes(end_time=3.0), last_seconds=0.5)
    with pytest.raises(MidiError, match=r"the last 0\.5 s of the primer have no note"):
        CHORALE.read_primer(two_notes(end_time=3.0), last_seconds=0.5)


def test_open_notes_of_ids_stay_open_to_the_model() -> None:
    ids = WHOLE[:-1]  # 60 has no NOTE_OFF yet
    assert PERFORMANCE.read_primer(ids).ids == ids
    assert PERFORMANCE.read_primer(ids, last_seconds=0.7).ids == [
        velocity(10),
        on(48),
        shift(20),
        velocity(20),
        on(60),
        shift(50),
        off(48),
    ]
    assert PERFORMANCE.read_primer([*ids, shift(30)], last_seconds=0.1).ids == [
        velocity(20),
        on(60),
        shift(10),
    ]


def test_a_pedal_that_is_down_at_both_ends_of_the_last_part_is_kept() -> None:
    tokenizer = PerformanceTokenizer("events")
    ids = [PEDAL_ON, velocity(20), on(60), shift(100), off(60), on(62), shift(50)]
    assert tokenizer.read_primer(ids, last_seconds=1.2).ids == [
        PEDAL_ON,
        velocity(20),
        on(60),
        shift(70),
        off(60),
        on(62),
        shift(50),
    ]
    lifted = [*ids, PEDAL_OFF, off(62)]
    assert tokenizer.read_primer(lifted, last_seconds=0.5).ids == [
        PEDAL_ON,
        velocity(20),
        on(62),
        shift(50),
        PEDAL_OFF,
        off(62),
    ]


@given(seed=st.integers(0, 2**32), share=st.floats(0.01, 0.99), pedal=st.booleans())
def test_the_last_part_of_anything_lasts_as_long_as_asked(
    seed: int, share: float, pedal: bool
) -> None:
    tokenizer = PerformanceTokenizer("events" if pedal else "sustain")
    grammar = PerformanceGrammar(tokenizer.vocab_size)
    rng, ids = np.random.default_rng(seed), []
    for _ in range(60):
        ids.append(grammar.clip(int(rng.choice(np.flatnonzero(grammar.mask(2))))))
        grammar.advance(ids[-1])
    steps = max(1, round(share * grammar.step))
    try:
        part = last_part(tokenizer, ids, steps)
    except MidiError:
        return
    after = PerformanceGrammar(tokenizer.vocab_size)
    after.read(part)
    assert after.step == steps
    assert after.sounding == grammar.sounding
    assert after.pedal_is_down == grammar.pedal_is_down


def test_the_pedal_lengthens_the_notes_of_a_primer_before_the_cut() -> None:
    notes = NoteSequence(
        pitch=[60, 62],
        velocity=[80, 80],
        start=[0.0, 2.0],
        end=[0.5, 2.5],
        pedals=Pedals([0], [0.2], [2.5]),
    )
    assert PERFORMANCE.read_primer(notes, last_seconds=1.0).ids[:2] == [velocity(20), on(60)]


def test_markers_among_ids_are_skipped() -> None:
    assert PERFORMANCE.read_primer([389, *WHOLE, 390, 388]).ids == WHOLE
    assert CHORALE.read_primer([130, 60, 55, 52, 48, 131]).ids == [60, 55, 52, 48]


@pytest.mark.parametrize("tokenizer", [PERFORMANCE, CHORALE])
def test_ids_outside_the_vocabulary_are_refused(tokenizer: Representation) -> None:
    for bad in (-1, tokenizer.vocab_size, 10**9):
        with pytest.raises(TokenError, match=f"id {bad} at position 1"):
            tokenizer.read_primer([60, bad])


@pytest.mark.parametrize("tokenizer", [PERFORMANCE, CHORALE])
def test_a_closing_rest_of_days_is_refused(tokenizer: Representation) -> None:
    with pytest.raises(MidiError, match="ends with a rest of 259198 s"):
        tokenizer.read_primer(two_notes(end_time=3 * 86400.0))


def four_voices(rows: int, lead: int = 0, tail: int = 0) -> NoteSequence:
    """Quarters of 0.5 s, pitches rising by one a quarter, after and before silent quarters."""
    starts = 0.5 * (lead + np.arange(rows))
    return NoteSequence(
        pitch=np.concatenate([base + np.arange(rows) for base in (67, 62, 59, 45)]),
        velocity=[80] * (4 * rows),
        start=np.tile(starts, 4),
        end=np.tile(starts + 0.5, 4),
        track=np.repeat(np.arange(4), rows),
        end_time=0.5 * (lead + rows + tail),
        tempos=Tempos([0.0], [0.5]),
    )


def quarter(index: int) -> list[int]:
    return [67 + index, 62 + index, 59 + index, 45 + index] * 4


def test_a_chorale_is_read_on_its_own_beat_with_its_closing_rest() -> None:
    assert CHORALE.read_primer(four_voices(2)) == Primer(
        [*quarter(0), *quarter(1)], 0, 0.5, 0.0, 1.0
    )
    assert CHORALE.read_primer(four_voices(1, tail=1)).ids == [*quarter(0), *(SILENCE * 4)]


def test_leading_silence_of_a_chorale_goes_unless_it_is_kept() -> None:
    assert CHORALE.read_primer(four_voices(1, lead=1)) == Primer(quarter(0), 0, 0.5, 0.0, 1.0)
    kept = CHORALE.read_primer(four_voices(1, lead=1), keep_silence=True)
    assert kept.ids == [*(SILENCE * 4), *quarter(0)]


def test_a_chorale_that_begins_within_a_beat_keeps_its_place_in_the_beat() -> None:
    upbeat = CHORALE.read_primer([*(SILENCE * 6), *quarter(0)])  # a beat and a half of silence
    assert (upbeat.ids, upbeat.first_place) == (quarter(0), 8)


def test_the_last_part_of_a_chorale_keeps_its_place_in_the_piece() -> None:
    notes = four_voices(3, lead=1)
    assert CHORALE.read_primer(notes, last_seconds=0.5) == Primer(quarter(2), 32, 0.5, 1.5, 2.0)
    assert CHORALE.read_primer(notes, last_seconds=99.0).first_place == 0
    assert CHORALE.read_primer(quarter(0) + quarter(1), last_seconds=0.75).first_place == 16


def test_a_primer_whose_beat_has_next_to_no_length_is_refused() -> None:
    notes = NoteSequence(
        pitch=[60], velocity=[64], start=[0.0], end=[1e-3], tempos=Tempos([0.0], [1e-6])
    )
    with pytest.raises(MidiError, match=r"beat lasts 1e-06 s, expected 0\.05 or more"):
        CHORALE.read_primer(notes)


def test_a_closing_rest_of_millions_of_sixteenths_is_refused_before_it_is_made() -> None:
    notes = NoteSequence(
        pitch=[60],
        velocity=[64],
        start=[0],
        end=[1],
        end_time=9.0,
        tempos=Tempos([0, 6], [1, 1e-6]),
    )
    with pytest.raises(TokenError, match="cut the silence, or check the tempo"):
        CHORALE.read_primer(notes)
