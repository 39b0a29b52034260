"""Augmentation on ids equals decoding, changing and encoding the whole piece."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from music_transformer.midi import read_midi
from music_transformer.representations import ChoraleTokenizer, PerformanceTokenizer
from music_transformer.representations.performance.augment import STRETCHES, stretched_crop

SUSTAIN = PerformanceTokenizer()
CHORALE = ChoraleTokenizer()
EVENTS = PerformanceTokenizer(pedal="events")
Ids = npt.NDArray[np.integer[Any]]

# Streams that decode to dense music: few pitches, short shifts, chords that collide when squeezed.
_DENSE = st.lists(
    st.one_of(
        st.integers(60, 64),
        st.integers(188, 192),
        st.integers(256, 260),
        st.just(355),
        st.integers(370, 373),
    ),
    max_size=80,
)
_DENSE_WITH_PEDAL = st.lists(
    st.one_of(
        st.integers(60, 62),
        st.integers(188, 190),
        st.integers(256, 259),
        st.integers(370, 372),
        st.sampled_from([391, 392]),
    ),
    max_size=80,
)


def _canonical(tokenizer: PerformanceTokenizer, ids: list[int]) -> Ids:
    return tokenizer.encode_array(tokenizer.decode(ids))


def _whole(tokenizer: PerformanceTokenizer, ids: Ids, factor: float) -> Ids:
    """The slow, obvious way: the whole piece."""
    return tokenizer.encode_array(tokenizer.decode(ids).stretched(factor))


def _stands_in(crop: Ids, whole: Ids) -> bool:
    """Whether the crop is a run of the whole."""
    needle, hay = (ids.astype(np.uint16).tobytes() for ids in (crop, whole))
    found = hay.find(needle)
    while found % 2 and found >= 0:  # between two ids
        found = hay.find(needle, found + 1)
    return found >= 0


def _steps_before(ids: Ids) -> npt.NDArray[np.int64]:
    shifts = np.where((ids >= 256) & (ids < 356), ids.astype(np.int64) - 255, 0)
    return np.cumsum(shifts) - shifts


@given(_DENSE, st.sampled_from(STRETCHES))
@example([370, 60, 256, 188, 60, 256, 188], 0.95)
def test_a_crop_of_everything_is_the_whole_piece_stretched(ids: list[int], factor: float) -> None:
    events = _canonical(SUSTAIN, ids)
    crop, at_end = stretched_crop(SUSTAIN, events, first=0, length=1000, factor=factor)
    assert at_end
    assert crop.tolist() == _whole(SUSTAIN, events, factor).tolist()


@given(_DENSE, st.data())
def test_any_crop_is_a_run_of_the_whole_piece_stretched(
    ids: list[int], data: st.DataObject
) -> None:
    events = _canonical(SUSTAIN, ids)
    if not len(events):
        return
    factor = data.draw(st.sampled_from(STRETCHES))
    first = data.draw(st.integers(0, len(events) - 1))
    length = data.draw(st.integers(1, 30))
    crop, at_end = stretched_crop(SUSTAIN, events, first=first, length=length, factor=factor)
    whole = _whole(SUSTAIN, events, factor)
    assert 1 <= len(crop) <= length
    assert at_end or len(crop) == length
    assert _stands_in(crop, whole)
    if at_end:
        assert crop.tolist() == whole[len(whole) - len(crop) :].tolist()


@given(_DENSE_WITH_PEDAL, st.data())
def test_a_crop_with_pedal_events_is_a_run_of_the_whole_piece_stretched(
    ids: list[int], data: st.DataObject
) -> None:
    events = _canonical(EVENTS, ids)
    if not len(events):
        return
    factor = data.draw(st.sampled_from(STRETCHES))
    first = data.draw(st.integers(0, len(events) - 1))
    crop, _ = stretched_crop(EVENTS, events, first=first, length=20, factor=factor)
    assert len(crop) <= 20
    assert _stands_in(crop, _whole(EVENTS, events, factor))


def test_a_crop_begins_where_its_event_falls_in_stretched_time() -> None:
    # A note every 20 steps: 0.95 puts the tenth, at step 200, on step 190.
    events = np.array([370] + [60, 265, 188, 265] * 20, dtype=np.uint16)
    first = 1 + 4 * 10
    crop, _ = stretched_crop(SUSTAIN, events, first=first, length=8, factor=0.95)
    whole = _whole(SUSTAIN, events, 0.95)
    begin = int(np.searchsorted(_steps_before(whole), 190))
    assert crop.tolist() == whole[begin : begin + 8].tolist()
    assert crop[0] == 60


def test_a_note_that_sounds_at_the_edge_ends_where_it_ends_and_is_not_struck_again() -> None:
    events = np.array([370, 48, 60, 355, 188, 62, 355, 190, 355, 176], dtype=np.uint16)
    crop, at_end = stretched_crop(SUSTAIN, events, first=5, length=20, factor=1.05)
    assert at_end
    assert crop.tolist() == [62, 355, 260, 190, 355, 260, 176]  # 105 steps each


def test_a_long_rest_may_gain_a_shift_of_its_own() -> None:
    events = np.array([370, 60, 355, 355, 188], dtype=np.uint16)
    crop, _ = stretched_crop(SUSTAIN, events, first=0, length=9, factor=1.05)
    assert crop.tolist() == [370, 60, 355, 355, 265, 188]


def test_rounding_does_not_depend_on_where_the_crop_begins() -> None:
    # 37 steps stretched by 1.025 are 37.925: rounding differences would drift.
    events = np.array([370] + [60, 292, 188, 292] * 200, dtype=np.uint16)
    whole = _whole(SUSTAIN, events, 1.025)
    for first in range(1, 780, 13):
        crop, _ = stretched_crop(SUSTAIN, events, first=first, length=9, factor=1.025)
        assert crop.tolist() == whole[first : first + len(crop)].tolist()


@given(_DENSE, st.integers(-3, 3))
def test_transposing_ids_commutes_with_encoding(ids: list[int], semitones: int) -> None:
    events = _canonical(SUSTAIN, ids)
    transposed = SUSTAIN.encode_array(SUSTAIN.decode(events).transposed(semitones))
    assert SUSTAIN.transposed(events, semitones).tolist() == transposed.tolist()


def test_transposing_touches_pitches_only() -> None:
    ids = np.array([389, 370, 60, 300, 188, 390, 388], dtype=np.uint16)
    assert SUSTAIN.transposed(ids, -3).tolist() == [389, 370, 57, 300, 185, 390, 388]
    chorale = np.array([130, 60, 55, 128, 2, 131, 129], dtype=np.uint16)
    assert CHORALE.transposed(chorale, -2).tolist() == [130, 58, 53, 128, 0, 131, 129]


@pytest.mark.parametrize(
    ("pitches", "expected"),
    [
        ([60], [-3, -2, -1, 0, 1, 2, 3]),
        ([21, 108], [0]),
        ([22, 100], [-1, 0, 1, 2, 3]),
        ([60, 107], [-3, -2, -1, 0, 1]),
        ([20, 108], [-3, -2, -1, 0, 1, 2, 3]),
        ([1, 126], [-1, 0, 1]),
        ([], [0]),
    ],
)
def test_a_transposition_that_leaves_the_piano_is_not_used(
    pitches: list[int], expected: list[int]
) -> None:
    ids = np.array([event for pitch in pitches for event in (pitch, 355, pitch + 128)], np.uint16)
    assert SUSTAIN.transpositions(ids, {}) == expected


def test_every_voice_stays_in_its_training_range() -> None:
    ranges = [(60, 81), (52, 74), (46, 69), (36, 66)]
    events = np.array([62, 60, 50, 38, 70, 128, 60, 40], dtype=np.uint16)
    assert CHORALE.transpositions(events, {"voice_ranges": ranges}) == [
        -2,
        -1,
        0,
        1,
        2,
        3,
        4,
        5,
        6,
        7,
        8,
        9,
    ]
    silent = np.full(8, 128, dtype=np.uint16)
    assert CHORALE.transpositions(silent, {"voice_ranges": ranges}) == [0]
    outside = np.array([90, 60, 50, 20], dtype=np.uint16)
    assert CHORALE.transpositions(outside, {"voice_ranges": ranges}) == [0]


def test_what_is_struck_again_before_a_crop_does_not_change_its_velocities() -> None:
    # NOTE_OFF 85 and NOTE_ON 78 share a step with the end of a rest; 85 is what sounded before.
    events = np.array([380, 85] + [263, 213, 78, 264, 206, 82, 263, 210, 85] * 9, np.uint16)
    for first in range(len(events)):
        crop, _ = stretched_crop(SUSTAIN, events, first=first, length=6, factor=0.95)
        assert 380 not in crop or crop.tolist()[:2] == [380, 85]


@pytest.mark.corpus
def test_crops_of_a_real_performance_are_runs_of_it_stretched(corpora: Path) -> None:
    path = corpora / "motifs" / "chopin_op10_no5_score_asap.mid"
    if not path.is_file():
        pytest.skip(f"no {path.name} among the motifs")
    random = np.random.default_rng(0)
    for tokenizer in (SUSTAIN, EVENTS):
        events = tokenizer.encode_array(read_midi(path))
        for factor in STRETCHES:
            whole = _whole(tokenizer, events, factor)
            for first in random.integers(len(events), size=20).tolist():
                crop, at_end = stretched_crop(
                    tokenizer, events, first=first, length=257, factor=factor
                )
                assert at_end or len(crop) == 257
                assert _stands_in(crop, whole)
