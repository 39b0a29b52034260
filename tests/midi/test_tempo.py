"""Ticks to seconds: exact, and the same as adding up tick by tick."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from music_transformer.errors import MidiError
from music_transformer.midi.tempo import TempoMap
from music_transformer.notes import Tempos

CHANGES = st.lists(st.tuples(st.integers(0, 5000), st.integers(1, 2**24 - 1)), max_size=5)


def slow_seconds(tick: int, division: int, changes: list[tuple[int, int]]) -> Fraction:
    tempo, now, seconds = 500_000, 0, Fraction(0)
    for change_tick, next_tempo in sorted(changes, key=lambda change: change[0]):
        if change_tick > tick:
            break
        seconds += Fraction((change_tick - now) * tempo, division * 1_000_000)
        tempo, now = next_tempo, change_tick
    return seconds + Fraction((tick - now) * tempo, division * 1_000_000)


@given(CHANGES, st.integers(1, 2**15 - 1), st.lists(st.integers(0, 10_000), max_size=10))
def test_seconds_are_the_exact_sum_rounded_once(
    changes: list[tuple[int, int]], division: int, ticks: list[int]
) -> None:
    tempo_map = TempoMap.metric(division, changes)
    expected = [float(slow_seconds(tick, division, changes)) for tick in ticks]
    assert tempo_map.seconds(np.array(ticks, np.int64)).tolist() == expected


def test_of_several_tempos_at_one_tick_the_last_holds() -> None:
    tempo_map = TempoMap.metric(100, [(0, 400_000), (50, 1), (50, 600_000), (60, 600_000)])
    assert tempo_map.ticks.tolist() == [0, 50]
    assert tempo_map.tempos.tolist() == [400_000, 600_000]


def test_29_is_29_97_frames_a_second() -> None:
    tempo_map = TempoMap.smpte(-29, 100)
    assert tempo_map.seconds(np.array([3_000_000]))[0] == 1001.0
    with pytest.raises(MidiError, match="frame rate -128"):
        TempoMap.smpte(-128, 4)


@given(CHANGES, st.lists(st.integers(0, 10_000), max_size=10))
def test_nearest_ticks_undo_seconds(changes: list[tuple[int, int]], ticks: list[int]) -> None:
    # a tick of less than a microsecond is finer than what seconds can tell apart after hours
    changes = [(tick, max(tempo, 1000)) for tick, tempo in changes]
    tempo_map = TempoMap.metric(480, changes)
    wanted = np.array(ticks, np.int64)
    assert tempo_map.nearest_ticks(tempo_map.seconds(wanted)).tolist() == ticks


@given(CHANGES)
def test_a_map_survives_seconds(changes: list[tuple[int, int]]) -> None:
    changes = [(tick, max(tempo, 1000)) for tick, tempo in changes]
    tempo_map = TempoMap.metric(480, changes)
    again = TempoMap.from_seconds(tempo_map.in_seconds(), 480)
    assert again.ticks.tolist() == tempo_map.ticks.tolist()
    assert again.tempos.tolist() == tempo_map.tempos.tolist()


def test_quarters_are_counted_on_the_map() -> None:
    tempos = Tempos([1.0, 3.0], [1.0, 0.25])
    wanted = [0.0, 0.5, 1.0, 2.5, 3.0, 4.0]
    assert tempos.quarters(wanted).tolist() == [0.0, 1.0, 2.0, 3.5, 4.0, 8.0]
    assert Tempos().quarters([[1.0]]).tolist() == [[2.0]]
