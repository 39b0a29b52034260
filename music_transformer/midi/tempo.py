"""Ticks to seconds, and back.

With a *metrical* division a tick is a fraction of a quarter, as long as the tempo events of all
tracks together say; with an *SMPTE* division it is a fraction of a film frame. Seconds are exact:
ticks times microseconds per quarter are summed as whole numbers and divided once, so a time that
two files write with different divisions is the same float.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike

from music_transformer.errors import MidiError
from music_transformer.notes import FloatArray, IntArray, Tempos

DEFAULT_TEMPO = 500_000  # microseconds per quarter: 120 bpm
MAX_TEMPO = 2**24 - 1  # a tempo event has three bytes

# frames per second as (numerator, denominator); -29 stands for 29.97
_SMPTE_RATES = {-24: (24, 1), -25: (25, 1), -29: (30_000, 1001), -30: (30, 1)}


@dataclass(frozen=True, eq=False)
class TempoMap:
    """The tempo of a file: from `ticks[i]` on, a quarter lasts `tempos[i]` microseconds.

    `ticks` starts at 0 and rises; `units[i]` is the time at `ticks[i]`, of which there are
    `units_per_second`. In SMPTE time there is one row and `metrical` is False.
    """

    ticks: IntArray
    tempos: IntArray
    units: FloatArray
    units_per_second: float
    metrical: bool = True

    @classmethod
    def of_division(cls, division: int, changes: list[tuple[int, int]]) -> TempoMap:
        """From the division in a header and the tempo changes of all tracks; MidiError for one
        without time.
        """
        if division < 0x8000:
            if division == 0:
                raise MidiError("a division of 0 ticks per quarter has no time")
            return cls.metric(division, changes)
        if division & 0xFF == 0:
            raise MidiError("a division of 0 ticks per frame has no time")
        return cls.smpte((division >> 8) - 256, division & 0xFF)

    @classmethod
    def metric(cls, ticks_per_quarter: int, changes: list[tuple[int, int]]) -> TempoMap:
        """From (tick, microseconds per quarter) pairs; of several at one tick the last holds."""
        rows = [(0, DEFAULT_TEMPO)]
        for tick, tempo in sorted(changes, key=lambda change: change[0]):
            if tick == rows[-1][0]:
                rows.pop()
            if not rows or tempo != rows[-1][1]:
                rows.append((tick, tempo))
        units = [0]
        for (tick, tempo), (next_tick, _) in pairwise(rows):
            units.append(units[-1] + (next_tick - tick) * tempo)
        return cls(
            ticks=np.array([tick for tick, _ in rows], np.int64),
            tempos=np.array([tempo for _, tempo in rows], np.int64),
            units=np.array(units, np.float64),
            units_per_second=1e6 * ticks_per_quarter,
        )

    @classmethod
    def smpte(cls, frame_code: int, ticks_per_frame: int) -> TempoMap:
        """From the two bytes of an SMPTE division; MidiError for a rate that does not exist."""
        if frame_code not in _SMPTE_RATES:
            raise MidiError(f"SMPTE frame rate {frame_code} does not exist (-24, -25, -29, -30 do)")
        frames, seconds = _SMPTE_RATES[frame_code]
        return cls(
            ticks=np.zeros(1, np.int64),
            tempos=np.full(1, seconds, np.int64),
            units=np.zeros(1),
            units_per_second=float(frames * ticks_per_frame),
            metrical=False,
        )

    @classmethod
    def from_seconds(cls, tempos: Tempos, ticks_per_quarter: int) -> TempoMap:
        """From a map in seconds, each change put on the nearest tick; empty: 120 bpm."""
        changes = [(0, DEFAULT_TEMPO)]
        second = 0.0  # of the last change, as a reader will compute it
        for wanted, quarter in zip(
            tempos.seconds.tolist(), tempos.seconds_per_quarter.tolist(), strict=True
        ):
            tick, tempo = changes[-1]
            ticks_per_second = ticks_per_quarter * 1e6 / tempo
            elapsed = max(int((wanted - second) * ticks_per_second + 0.5), 0)
            second += elapsed / ticks_per_second
            changes.append((tick + elapsed, min(max(round(quarter * 1e6), 1), MAX_TEMPO)))
        return cls.metric(ticks_per_quarter, changes)

    def seconds(self, ticks: IntArray) -> FloatArray:
        """(N,) seconds of (N,) ticks."""
        row = np.searchsorted(self.ticks, ticks, side="right") - 1
        elapsed = (ticks - self.ticks[row]).astype(np.float64) * self.tempos[row]
        seconds: FloatArray = (self.units[row] + elapsed) / self.units_per_second
        return seconds

    def in_seconds(self) -> Tempos:
        """The map as `NoteSequence.tempos`; empty in SMPTE time, which has no beat."""
        if not self.metrical:
            return Tempos()
        division = round(self.units_per_second / 1e6)
        return Tempos(self.seconds(self.ticks), self.tempos / 1e6, division)

    def changes(self, rows: list[tuple[int, int, int]]) -> tuple[ArrayLike, ArrayLike, ArrayLike]:
        """(tick, a, b) as columns, ticks in seconds; of several at one tick the last holds."""
        last = {row[0]: row for row in rows}
        rows = [last[tick] for tick in sorted(last)]
        ticks, first, second = np.array(rows, np.int64).reshape(-1, 3).T
        return self.seconds(ticks), first, second

    def nearest_ticks(self, seconds: FloatArray) -> IntArray:
        """(N,) the ticks nearest to (N,) seconds; halves go up."""
        starts = self.seconds(self.ticks)
        row = np.maximum(np.searchsorted(starts, seconds, side="right") - 1, 0)
        ticks_per_second = self.units_per_second / self.tempos[row]
        elapsed = np.floor((seconds - starts[row]) * ticks_per_second + (0.5 + 1e-6))
        ticks: IntArray = self.ticks[row] + elapsed.astype(np.int64)
        return ticks
