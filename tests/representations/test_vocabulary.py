"""The table of events, ids at the door, rests."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from music_transformer.errors import ConfigError, TokenError
from music_transformer.notes import to_steps
from music_transformer.representations import (
    ChoraleTokenizer,
    PerformanceTokenizer,
    representation_from_config,
)
from music_transformer.representations.performance import vocabulary as v
from music_transformer.representations.performance.vocabulary import rest, without_leading_silence

ALL = [PerformanceTokenizer(), PerformanceTokenizer(pedal="events"), ChoraleTokenizer()]


def test_128_ons_128_offs_100_shifts_and_32_velocities_are_388_events():
    assert 128 + 128 + 100 + 32 == v.N_EVENTS == 388
    assert (v.NOTE_ON, v.NOTE_OFF, v.TIME_SHIFT, v.VELOCITY) == (0, 128, 256, 356)
    assert (v.PAD, v.START, v.END, v.PEDAL_ON, v.PEDAL_OFF) == (388, 389, 390, 391, 392)


def test_vocabularies_have_391_393_and_132_ids():
    assert [t.vocab_size for t in ALL] == [391, 393, 132]


def test_pad_start_and_end_are_388_to_390_and_for_chorales_129_to_131():
    assert [(t.pad, t.start, t.end) for t in ALL] == [(388, 389, 390)] * 2 + [(129, 130, 131)]


def test_the_first_and_last_id_of_each_kind_of_event_have_its_name():
    ids = [0, 127, 128, 255, 256, 355, 356, 387, 388, 389, 390, 391, 392]
    assert PerformanceTokenizer(pedal="events").symbols(ids) == [
        *("NOTE_ON 0", "NOTE_ON 127", "NOTE_OFF 0", "NOTE_OFF 127", "TIME_SHIFT 1"),
        *("TIME_SHIFT 100", "SET_VELOCITY 0", "SET_VELOCITY 31"),
        *("PAD", "START", "END", "PEDAL_ON", "PEDAL_OFF"),
    ]


@pytest.mark.parametrize("tokenizer", ALL, ids=["sustain", "events", "chorale"])
def test_every_id_has_its_own_name(tokenizer):
    names = tokenizer.symbols(range(tokenizer.vocab_size))
    assert len(set(names)) == tokenizer.vocab_size


@pytest.mark.parametrize("tokenizer", ALL, ids=["sustain", "events", "chorale"])
def test_an_unknown_id_is_an_error_that_names_position_and_id(tokenizer):
    for bad in (-1, tokenizer.vocab_size, 10**30):
        for method in (tokenizer.decode, tokenizer.symbols, tokenizer.duration_seconds):
            with pytest.raises(TokenError, match=rf"id {bad} at position 2 .*vocabulary 0\.\."):
                method([60, 62, bad, 64])


@pytest.mark.parametrize("bad", [1.5, "60", None, [60]])
def test_what_is_no_integer_is_an_error_that_names_position_and_value(bad):
    with pytest.raises(TokenError, match="at position 1 is not an id"):
        PerformanceTokenizer().decode([60, bad])


def test_ids_of_two_dimensions_are_refused():
    with pytest.raises(TokenError, match=r"shape \(2, 3\)"):
        PerformanceTokenizer().decode(np.zeros((2, 3), dtype=np.int64))


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.int32, np.uint64])
def test_arrays_of_any_integers_are_ids(dtype):
    ids = np.array([60, 188, 61], dtype=dtype)
    assert len(PerformanceTokenizer().decode(ids)) == 2


@pytest.mark.parametrize(
    ("seconds", "step"),
    [(0.0, 0), (0.00499, 0), (0.005, 1), (0.285, 29), (0.0149, 1), (1.0, 100), (3599.995, 360000)],
)
def test_a_step_is_the_floor_of_100_times_the_seconds_plus_a_half_and_a_millionth(seconds, step):
    assert to_steps(np.array([seconds])).tolist() == [step]


@given(st.integers(0, 10**6))
def test_whole_steps_in_seconds_are_the_same_steps(step):
    assert to_steps(np.array([step / 100])).tolist() == [step]


@pytest.mark.parametrize(
    ("steps", "ids"),
    [
        (0, []),
        (1, [256]),
        (100, [355]),
        (101, [355, 256]),
        (200, [355, 355]),
        (250, [355, 355, 305]),
    ],
)
def test_a_rest_is_as_many_hundreds_as_fit_then_what_is_left(steps, ids):
    assert rest(steps) == ids


def test_a_rest_of_negative_length_is_refused():
    with pytest.raises(TokenError, match="never runs back"):
        rest(-1)


@pytest.mark.parametrize(
    ("ids", "kept"),
    [
        ([389, 355, 305, 376, 60, 305, 188, 390], [389, 376, 60, 305, 188, 390]),
        ([355, 390], [355, 390]),
        ([355, 391, 355, 392, 391, 300, 376, 60], [391, 376, 60]),  # a pedal that stays down
        ([355, 391, 355, 392, 300, 376, 60], [376, 60]),
    ],
)
def test_leading_silence_is_dropped_up_to_the_first_note_on_and_no_further(ids, kept):
    assert without_leading_silence(np.array(ids)).tolist() == kept


@pytest.mark.parametrize("tokenizer", ALL, ids=["sustain", "events", "chorale"])
def test_a_tokenizer_made_from_its_configuration_is_equal(tokenizer):
    assert representation_from_config(tokenizer.to_config()) == tokenizer


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({}, "kind=None is unknown; try one of"),
        ({"kind": "melody"}, "kind='melody' is unknown"),
        ({"kind": "performance", "pedals": "events"}, "does not know 'pedals'"),
        ({"kind": "chorale", "pedal": "events"}, "does not know 'pedal'"),
        ({"kind": "performance", "pedal": "loud"}, "pedal='loud' is unknown"),
    ],
)
def test_an_unknown_configuration_is_refused(config, message):
    with pytest.raises(ConfigError, match=message):
        representation_from_config(config)
