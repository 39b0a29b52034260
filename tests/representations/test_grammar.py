"""Whatever the logits, what the grammar lets through is valid and canonical."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from music_transformer.notes import to_steps
from music_transformer.representations import PerformanceTokenizer
from music_transformer.representations.base import Limits, Primer
from music_transformer.representations.chorale.grammar import ChoraleGrammar
from music_transformer.representations.performance.grammar import (
    LONGEST_NOTE_STEPS,
    PerformanceGrammar,
)
from music_transformer.representations.performance.vocabulary import (
    END,
    N_EVENTS,
    NOTE_OFF,
    NOTE_ON,
    PAD,
    PEDAL_OFF,
    PEDAL_ON,
    START,
    TIME_SHIFT,
    VELOCITY,
)

PEDALS = ["sustain", "events"]


def on(pitch: int) -> int:
    return NOTE_ON + pitch


def off(pitch: int) -> int:
    return NOTE_OFF + pitch


def shift(steps: int) -> int:
    return TIME_SHIFT + steps - 1


def velocity(velocity_bin: int) -> int:
    return VELOCITY + velocity_bin


def grammar_after(ids: list[int], pedal: str = "sustain") -> PerformanceGrammar:
    grammar = PerformanceGrammar(PerformanceTokenizer(pedal).vocab_size, may_wait=True)
    grammar.read(ids)
    return grammar


def allowed(ids: list[int], pedal: str = "sustain") -> set[int]:
    return set(np.flatnonzero(grammar_after(ids, pedal).mask()).tolist())


def sample(
    grammar: PerformanceGrammar,
    rng: np.random.Generator,
    events: int,
    weights: np.ndarray | None = None,
) -> list[int]:
    """Ids drawn at random among those allowed, the closing ones included."""
    ids = []
    for drawn in range(events):
        if grammar.finished:
            break
        mask = grammar.mask(events - drawn)
        chances = mask * (np.ones(len(mask)) if weights is None else weights)
        chances = chances if chances.sum() > 0 else mask.astype(float)
        event_id = grammar.clip(int(rng.choice(len(mask), p=chances / chances.sum())))
        grammar.advance(event_id)
        ids.append(event_id)
    return ids + grammar.closing()


def kinds(rng: np.random.Generator, size: int) -> np.ndarray:
    """Weights that make some kinds of events common and others rare."""
    weights = np.zeros(size)
    for first, last in ((0, 128), (128, 256), (256, 356), (356, 388), (391, 393)):
        weights[first:last] = 10.0 ** rng.uniform(-3, 1) * rng.uniform(0, 1, size)[first:last] ** 4
    return weights


def without_closing_rest(ids: list[int]) -> list[int]:
    while ids and TIME_SHIFT <= ids[-1] < VELOCITY:
        ids = ids[:-1]
    return ids


@pytest.mark.parametrize("pedal", PEDALS)
@given(seed=st.integers(0, 2**32), may_wait=st.booleans(), events=st.integers(1, 400))
@settings(max_examples=60)
def test_what_is_sampled_is_canonical(pedal: str, seed: int, may_wait: bool, events: int) -> None:
    rng = np.random.default_rng(seed)
    tokenizer = PerformanceTokenizer(pedal)
    grammar = PerformanceGrammar(tokenizer.vocab_size, may_wait=may_wait)
    ids = sample(grammar, rng, events, kinds(rng, tokenizer.vocab_size))
    assert tokenizer.encode(tokenizer.decode(ids)) == without_closing_rest(ids)
    assert not {PAD, START, END} & set(ids)


@pytest.mark.parametrize("pedal", PEDALS)
@given(seed=st.integers(0, 2**32), events=st.integers(1, 200), cut=st.floats(0, 1))
@settings(max_examples=60)
def test_what_continues_a_canonical_primer_is_canonical(
    pedal: str, seed: int, events: int, cut: float
) -> None:
    rng = np.random.default_rng(seed)
    tokenizer = PerformanceTokenizer(pedal)
    weights = kinds(rng, tokenizer.vocab_size)
    primer = sample(grammar_after([], pedal), rng, events, weights)
    primer = primer[: int(cut * len(primer))]
    ids = primer + sample(grammar_after(primer, pedal), rng, events, kinds(rng, len(weights)))
    assert tokenizer.encode(tokenizer.decode(ids)) == without_closing_rest(ids)


@pytest.mark.parametrize("pedal", PEDALS)
@given(seed=st.integers(0, 2**32), primer=st.data())
@settings(max_examples=60)
def test_any_primer_can_be_continued_and_no_note_hangs(
    pedal: str, seed: int, primer: st.DataObject
) -> None:
    tokenizer = PerformanceTokenizer(pedal)
    given_ids = primer.draw(st.lists(st.integers(0, tokenizer.vocab_size - 1), max_size=60))
    grammar = grammar_after(given_ids, pedal)
    rng = np.random.default_rng(seed)
    sample(grammar, rng, 100, kinds(rng, tokenizer.vocab_size))  # an empty mask would raise
    assert not grammar.sounding
    assert not grammar.pedal_is_down


@pytest.mark.parametrize("pedal", PEDALS)
@given(seed=st.integers(0, 2**32), seconds=st.integers(1, 60))
@settings(max_examples=30)
def test_the_end_asked_for_is_met_exactly(pedal: str, seed: int, seconds: int) -> None:
    rng = np.random.default_rng(seed)
    tokenizer = PerformanceTokenizer(pedal)
    grammar = PerformanceGrammar(tokenizer.vocab_size)
    grammar.end_step = 100 * seconds
    weights = kinds(rng, tokenizer.vocab_size)
    weights[TIME_SHIFT:VELOCITY] += 0.05
    ids = sample(grammar, rng, 10**6, weights)
    assert tokenizer.decode(ids).end_time == seconds
    assert tokenizer.encode(tokenizer.decode(ids)) == without_closing_rest(ids)


def test_a_note_ends_after_20_seconds_and_is_counted() -> None:
    weights = np.full(391, 1e-9)
    weights[[velocity(20), on(60), on(64), shift(70), shift(100)]] = 1.0
    grammar = PerformanceGrammar(391)
    rng = np.random.default_rng(0)
    notes = PerformanceTokenizer().decode(sample(grammar, rng, 300, weights))
    steps = to_steps(notes.end) - to_steps(notes.start)
    assert steps.max() == LONGEST_NOTE_STEPS == 2000
    assert grammar.long_notes_closed == (steps == 2000).sum() > 0


def test_a_primer_note_older_than_20_seconds_is_closed_at_once() -> None:
    held = [velocity(20), on(60), *[shift(100)] * 25]
    assert allowed(held) == {off(60)}
    assert allowed([*held, on(70)]) == set(range(shift(1), shift(100) + 1))
    grammar = grammar_after([*held, on(70)])
    assert grammar.clip(shift(100)) == shift(1)


def test_a_time_shift_stops_where_the_longest_note_must_end() -> None:
    grammar = grammar_after([velocity(20), on(60), *[shift(100)] * 19, shift(30)])
    assert grammar.clip(shift(100)) == shift(70)
    assert grammar.clip(shift(12)) == shift(12)
    grammar.end_step = LONGEST_NOTE_STEPS - 50
    assert grammar.clip(shift(100)) == shift(20)


def test_golden_masks() -> None:
    ons, offs = set(range(128)), set(range(128, 256))
    shifts, velocities = set(range(256, 356)), set(range(356, 388))
    assert allowed([]) == velocities | shifts
    assert allowed([velocity(5)]) == ons
    struck = [velocity(5), on(60)]
    assert allowed(struck) == set(range(61, 128)) | shifts | velocities - {velocity(5)}
    assert allowed([*struck, shift(100)]) == ons - {on(60)} | {off(60)} | shifts | (
        velocities - {velocity(5)}
    )
    assert allowed([*struck, shift(99)]) == ons - {on(60)} | {off(60)} | velocities - {velocity(5)}
    two = [velocity(5), on(60), on(64), shift(10)]
    assert allowed([*two, off(64)]) == ons - {on(60)} | shifts | velocities - {velocity(5)}
    assert allowed([*two, off(60)]) & offs == {off(64)}
    assert allowed([*two, on(62)]) & (ons | offs) == set(range(63, 128)) - {on(64)}
    assert allowed([*two, velocity(6)]) == ons - {on(60), on(64)}
    assert allowed([*struck, on(127)]) == shifts


def test_without_waiting_music_begins_at_once() -> None:
    grammar = PerformanceGrammar(393)
    first = set(np.flatnonzero(grammar.mask()).tolist())
    assert first == set(range(VELOCITY, N_EVENTS)) | {PEDAL_ON}


def test_the_pedal_goes_down_and_up_in_turn_before_the_notes_of_its_step() -> None:
    pedal = {PEDAL_ON, PEDAL_OFF}
    assert allowed([], "events") & pedal == {PEDAL_ON}
    assert allowed([PEDAL_ON], "events") & pedal == set()
    assert allowed([PEDAL_ON, shift(5)], "events") & pedal == {PEDAL_OFF}
    assert allowed([PEDAL_ON, shift(5), PEDAL_OFF], "events") & pedal == {PEDAL_ON}
    assert allowed([PEDAL_ON, shift(5), velocity(3), on(60)], "events") & pedal == set()
    assert allowed([PEDAL_ON, shift(5)], "sustain") & pedal == set()


def test_closing_ends_what_sounds_in_order() -> None:
    struck = [velocity(5), on(60), on(64)]
    assert grammar_after([*struck, shift(9)]).closing() == [off(60), off(64)]
    assert grammar_after(struck).closing() == [shift(1), off(60), off(64)]
    assert grammar_after([*struck, shift(9), off(60)]).closing() == [off(64)]
    assert grammar_after([*struck, shift(9), off(64)]).closing() == [shift(1), off(60)]
    assert grammar_after([*struck, shift(9), PEDAL_ON], "events").closing() == [
        shift(1),
        PEDAL_OFF,
        off(60),
        off(64),
    ]
    assert grammar_after([]).closing() == []


def test_closed_notes_are_counted_as_cut() -> None:
    grammar = grammar_after([velocity(5), on(60), on(64), *[shift(100)] * 20])
    grammar.closing()
    assert (grammar.notes_cut, grammar.long_notes_closed) == (2, 0)


def test_the_last_event_is_no_velocity_without_a_note() -> None:
    grammar = grammar_after([velocity(5), on(60), shift(10)])
    assert not grammar.mask(1)[VELOCITY:N_EVENTS].any()
    assert grammar.mask(2)[VELOCITY:N_EVENTS].any()
    assert set(np.flatnonzero(PerformanceGrammar(391).mask(1))) == set(range(TIME_SHIFT, VELOCITY))


def test_a_chorale_is_made_of_pitches_and_silence() -> None:
    grammar = ChoraleGrammar(132, Primer([]), Limits())
    assert np.flatnonzero(grammar.mask()).tolist() == list(range(129))
    assert grammar.clip(60) == 60
    assert grammar.closing() == []
