"""What the events of a performance already say: which notes sound, for how long, what may come.

docs/design.md has the table of these facts and how they enter the model. All are of the ids of the
window so far, so a cached step equals the full pass; times are in steps of 10 ms.

A pitch is *unknown* until its first event: NOTE_ON and NOTE_OFF are both allowed. START makes all
silent, PAD (a hidden id) and END make all unknown again. The order within a step is judged by the
last note event; a forbidden event costs `PENALTY` nats; some id is always allowed.
`read_window` reads a whole window, `StateReader` one id after another; they give the same `State`.
"""

import functools
import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from music_transformer.model.config import ModelConfig
from music_transformer.model.performance_term import (
    END,
    N_IDS,
    N_PITCHES,
    N_SHIFTS,
    N_VELOCITIES,
    NOTE_OFF,
    PAD,
    START,
    TIME_SHIFT,
    VELOCITY,
    PerformanceTerm,
    check_vocabulary,
)
from music_transformer.model.positions import Reading
from music_transformer.model.terms import PENALTY

CLUSTER_GAP = 4  # steps: an onset later than this after the last one begins a cluster
MAX_INTERVAL = 36  # semitones; larger ones share a bucket, at either end
MAX_COUNT = 31  # so many sounding notes, or more
MAX_STEPS = 1 << 14  # longer times count as this, 164 s
FAST, SLOW = 50.0, 500.0  # steps in which the two decays fall to 1 / e
TIME_BUCKETS, SINCE_BUCKETS, RATIO_REACH = 40, 25, 24

# Columns of the input: sounding, log of the age, unknown and two decays by pitch, both decays by
# pitch class, then one-hot velocity (the last: none), count, elapsed, interval, the one before.
_FOLDED = 5 * N_PITCHES
_ONE_HOT = _FOLDED + 2 * 12
_COUNT = N_VELOCITIES + 1
_ELAPSED = _COUNT + MAX_COUNT + 1
_INTERVAL, _EARLIER = _ELAPSED + TIME_BUCKETS, _ELAPSED + 2 * TIME_BUCKETS
INPUT_ROWS = _ONE_HOT + _EARLIER + TIME_BUCKETS
# Rows of the output: interval (the last: none), since (the last: never), age, ratio (the last:
# none), difference of velocity (the last: none).
_AGE_EDGES = np.unique(np.round(np.geomspace(1, 1500, 23))).astype(np.int64)
_SINCE = 2 * MAX_INTERVAL + 2
_AGE = _SINCE + SINCE_BUCKETS + 1
_RATIO = _AGE + len(_AGE_EDGES) + 1
_DIFFERENCE = _RATIO + 2 * RATIO_REACH + 2
OUTPUT_ROWS = _DIFFERENCE + 2 * N_VELOCITIES
_NOTHING = OUTPUT_ROWS  # a column of zeros behind them

_NEVER = -(1 << 40)  # a time before all others
_FOLD = np.eye(12)[np.arange(N_PITCHES) % 12]  # (128, 12), pitch to pitch class
_Array = NDArray[np.int64]
_Floats = NDArray[np.float64]


class _Tables(NamedTuple):
    """What becomes of a number of steps, 0 to MAX_STEPS; those of a pitch begin with *never*."""

    fast: _Floats  # (1 + MAX_STEPS + 1,)
    slow: _Floats
    log_age: _Floats
    age_row: _Array
    since_row: _Array
    bucket: _Array  # (MAX_STEPS + 1,)
    log2: _Floats  # (MAX_STEPS + N_SHIFTS,), of 1 and up
    interval_row: _Array  # (129, 128), of each pitch after none or a last pitch
    velocity_row: _Array  # (33, 32), of each bin after a bin or none


@functools.cache
def _tables() -> _Tables:
    steps = np.arange(MAX_STEPS + 1)
    pitches, bins = np.arange(N_PITCHES), np.arange(N_VELOCITIES)
    reach, most = MAX_INTERVAL, SINCE_BUCKETS - 1
    fast = np.exp(-steps / FAST)
    fast[fast < 1e-30] = 0.0  # no denormal numbers, which are slow
    age = _AGE + np.searchsorted(_AGE_EDGES, steps, "right")
    since = _SINCE + np.minimum(most, np.round(2 * np.log2(1 + steps))).astype(np.int64)
    bucket = np.minimum(TIME_BUCKETS - 1, np.round(4 * np.log2(1 + steps))).astype(np.int64)
    interval = np.clip(pitches - pitches[:, None], -reach, reach) + reach
    none = np.full((1, N_PITCHES), _SINCE - 1)
    difference = _DIFFERENCE + bins - bins[:, None] + N_VELOCITIES - 1
    unset = np.full((1, N_VELOCITIES), OUTPUT_ROWS - 1)
    return _Tables(
        fast=np.concatenate([[0.0], fast]),
        slow=np.concatenate([[0.0], np.exp(-steps / SLOW)]),
        log_age=np.concatenate([[0.0], np.log1p(steps) / 5]),
        age_row=np.concatenate([[_NOTHING], age]),
        since_row=np.concatenate([[_AGE - 1], since]),
        bucket=bucket,
        log2=np.log2(np.arange(1, MAX_STEPS + N_SHIFTS + 1)),
        interval_row=np.concatenate([none, interval]),
        velocity_row=np.concatenate([difference, unset]),
    )


class State(NamedTuple):
    """What the ids up to each position say, laid out for the terms."""

    columns: Tensor  # (B, L, INPUT_ROWS), what each row of the input table is multiplied by
    slots: Tensor  # (B, L, PAD + 128) int64, rows of the output; a second one of NOTE_ON is last
    forbidden: Tensor  # (B, L, N_IDS) bool, True = cannot come next


class PerformanceState(PerformanceTerm):
    """The terms of the state in the input and in the logits; see the module's text."""

    input_rows, output_rows = INPUT_ROWS, OUTPUT_ROWS

    @staticmethod
    def check(config: ModelConfig) -> None:
        """Refuse another vocabulary."""
        check_vocabulary(config, "performance_state", "it knows", "it")

    def read(self, reading: Reading, kept: dict[str, Any] | None) -> State:
        """The state after each of the new ids."""
        dtype, new = self.input_table.dtype, reading.queries
        if new == 1 and kept is not None:
            if "state_reader" not in kept:
                kept["state_reader"] = StateReader(reading.ids.shape[0])
            reader: StateReader = kept["state_reader"]
            return reader.read(reading.ids, dtype)
        if kept is not None:
            kept.pop("state_reader", None)  # the next one reads it all again
        return State(*(part[:, -new:] for part in read_window(reading.ids, dtype)))

    def embed(self, x: Tensor, state: State) -> Tensor:
        """x (B, L, d_model) with the terms of the state added."""
        added: Tensor = state.columns @ self.input_table * self.input_table.shape[1] ** 0.5
        return x + added

    def logits(self, x: Tensor, logits: Tensor, state: State) -> Tensor:
        """Logits (B, L, V) with the terms of x (B, L, d_model) added and the mask taken off."""
        by_row = F.linear(x, self.output_table, self.output_table_bias)  # (B, L, OUTPUT_ROWS)
        terms = F.pad(by_row, (0, 1)).gather(-1, state.slots)  # (B, L, PAD + 128)
        first, second = terms[..., :PAD], terms[..., PAD:]
        logits = logits + F.pad(first, (0, N_IDS - PAD)) + F.pad(second, (0, N_IDS - N_PITCHES))
        return logits - PENALTY * state.forbidden


@torch.no_grad()
def read_window(ids: Tensor, dtype: torch.dtype = torch.float32) -> State:
    """The state after each of the ids (B, L), int64 below N_IDS; ``dtype`` is of the columns."""
    length, device = ids.shape[1], ids.device
    index = torch.arange(length, device=device)  # (L,)
    breaks = ids >= PAD
    is_on, is_note = ids < NOTE_OFF, ids < TIME_SHIFT
    is_shift, is_velocity = (ids >= TIME_SHIFT) & (ids < VELOCITY), (ids >= VELOCITY) & ~breaks
    shift_steps = torch.where(is_shift, ids - TIME_SHIFT + 1, 0)
    time = (shift_steps + breaks).cumsum(1)  # what came before a break is earlier than it
    begin = torch.where(breaks, index, -1).cummax(1).values

    def latest(mark: Tensor) -> Tensor:
        """(B, L), where the last marked id since the beginning is, -1 for nowhere."""
        found = torch.where(mark, index, -1).cummax(1).values
        return torch.where(found > begin, found, -1)

    known = _at(ids, begin, PAD) == START
    velocity = _at(ids, latest(is_velocity), VELOCITY + N_VELOCITIES) - VELOCITY
    onset, note = latest(is_on), latest(is_note)
    last = _at(ids, onset, -1)
    rank = (_at(ids, note, 0) + N_PITCHES) % TIME_SHIFT  # NOTE_OFF 0-127, NOTE_ON 128-255
    rank = torch.where(note > latest(is_shift), rank, -1)

    onset_time = _at(time, onset, _NEVER)
    new = is_on & (time - _before(onset_time, _NEVER) > CLUSTER_GAP)
    cluster = latest(new)
    start = _at(time, cluster, _NEVER)
    started = new & (_before(start, _NEVER) > _NEVER)
    interval = _at(torch.where(started, time - _before(start, 0), 0), cluster, 0)
    earlier = _at(_before(interval, 0), cluster, 0)
    elapsed = torch.where(cluster >= 0, time - start, 0)

    code = torch.where(is_note, 2 * index + is_on, -1)
    events = torch.stack([torch.where(is_on, time, -1), code])
    marks = torch.full((*ids.shape, 2, N_PITCHES), -1, dtype=torch.int32, device=device)
    pitch = (ids % N_PITCHES)[..., None, None].expand(-1, -1, 2, 1)
    marks.scatter_(3, pitch, events.movedim(0, -1).int()[..., None])
    onsets, code = _running_max(marks).unbind(2)  # (B, L, 128), of the last onset, the last event
    seen = code >= 2 * (begin + 1).int()[..., None]
    sounding = seen & (code % 2 == 1)
    unknown = ~(seen | known[..., None])
    since = (time.int()[..., None] - onsets).clamp_(max=MAX_STEPS).add_(1)
    since.masked_fill_(onsets < _at(time, begin, 0).int()[..., None], 0)  # never
    age = since * sounding

    floats, rows = _tables_on(device, dtype), _tables_on(device, torch.int64)
    decays = [_look_up(table, since) for table in (floats.fast, floats.slow)]
    fold = torch.from_numpy(_FOLD).to(device, dtype)
    columns = torch.zeros(*ids.shape, INPUT_ROWS, dtype=dtype, device=device)
    parts = [sounding, _look_up(floats.log_age, age), unknown, *decays]
    parts += [decays[0] @ fold / 2, decays[1] @ fold / 4]
    first = 0
    for part in parts:
        columns[..., first : first + part.shape[-1]] = part
        first += part.shape[-1]
    count = (columns[..., :N_PITCHES].sum(-1)).long().clamp(max=MAX_COUNT)
    elapsed, interval, earlier = (x.clamp(max=MAX_STEPS) for x in (elapsed, interval, earlier))
    buckets = rows.bucket[torch.stack([elapsed, interval, earlier])]
    hot = torch.stack([velocity, _COUNT + count, *buckets], -1)  # (B, L, 5)
    hot[..., 2:] += torch.tensor([_ELAPSED, _INTERVAL, _EARLIER], device=device)
    columns.scatter_(2, _ONE_HOT + hot, 1.0)

    log2 = torch.from_numpy(_tables().log2).to(device)
    ratio = log2.unfold(0, N_SHIFTS, 1)[elapsed] - torch.log2(interval.double())[..., None]
    ratio = ratio.mul_(8).round_().clamp_(-RATIO_REACH, RATIO_REACH).add_(_RATIO + RATIO_REACH)
    slots = torch.empty(*ids.shape, PAD + N_PITCHES, dtype=torch.int64, device=device)
    slots[..., :NOTE_OFF] = F.embedding(last + 1, rows.interval_row)
    slots[..., NOTE_OFF:TIME_SHIFT] = _look_up(rows.age_row, age)
    none = (interval == 0)[..., None]
    slots[..., TIME_SHIFT:VELOCITY] = ratio.masked_fill_(none, _DIFFERENCE - 1)
    slots[..., VELOCITY:PAD] = F.embedding(velocity, rows.velocity_row)
    slots[..., PAD:] = _look_up(rows.since_row, since)

    pitches = torch.arange(N_PITCHES, device=device)
    bins = torch.arange(N_VELOCITIES, device=device)
    rank = rank[..., None]
    on = ~sounding & (pitches + N_PITCHES > rank)
    can_start = on.any(-1, keepdim=True)
    free = ~(is_velocity[..., None] & can_start)
    forbidden = torch.ones(*ids.shape, N_IDS, dtype=torch.bool, device=device)
    forbidden[..., :NOTE_OFF] = ~on
    forbidden[..., NOTE_OFF:TIME_SHIFT] = ~((sounding | unknown) & (pitches > rank) & free)
    forbidden[..., TIME_SHIFT:VELOCITY] = ~((~is_shift | (ids == VELOCITY - 1))[..., None] & free)
    forbidden[..., VELOCITY:PAD] = ~((bins != velocity[..., None]) & can_start & free)
    forbidden[..., END:] = ~free
    return State(columns, slots, forbidden)


def _running_max(marks: Tensor) -> Tensor:
    """The maximum along dimension 1 so far; ``marks`` is overwritten."""
    if marks.device.type != "cpu":
        return marks.cummax(1).values
    for before, now in pairwise(marks.unbind(1)):  # cummax walks down columns: 10 times slower
        torch.maximum(before, now, out=now)
    return marks


def _tables_on(device: torch.device, dtype: torch.dtype) -> Any:
    """The tables as tensors; those of rows are for int64, the others for floats."""
    return _Tables(*(torch.from_numpy(table).to(device, dtype) for table in _tables()))  # type: ignore[arg-type]


def _look_up(table: Tensor, index: Tensor) -> Tensor:
    """``table[index]``; int32 will do."""
    return table.index_select(0, index.reshape(-1)).view(index.shape)


def _at(values: Tensor, where: Tensor, default: int) -> Tensor:
    """``values[b, where[b, l]]`` for (B, L) each, and a default where that is negative."""
    return torch.where(where < 0, default, values.gather(1, where.clamp(min=0)))


def _before(values: Tensor, first: int) -> Tensor:
    """The values (B, L) of the position before each."""
    return F.pad(values, (1, 0), value=first)[:, :-1]


class StateReader:
    """The state of a window that grows by one id, or a few, at a time; in numpy, for speed."""

    def __init__(self, batch: int) -> None:
        self._onset = np.empty((batch, N_PITCHES), dtype=np.int64)  # time of the last, or _NEVER
        self._sounding = np.empty((batch, N_PITCHES), dtype=bool)
        self._unknown = np.empty((batch, N_PITCHES), dtype=bool)
        self._rows = [_Row() for _ in range(batch)]
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self._read_so_far = 0
        for row in range(len(self._rows)):
            self._begin(row, known=False)

    def read(self, ids: Tensor, dtype: torch.dtype) -> State:
        """The state after the last of the ids (B, S) of the window: (B, 1, ...)."""
        if self._read_so_far >= ids.shape[1]:  # the window was shortened
            self.clear()
        for row, events in enumerate(ids[:, self._read_so_far :].tolist()):
            for event in events:
                self._advance(row, event)
        self._read_so_far = ids.shape[1]
        columns, slots, forbidden = (torch.from_numpy(part[:, None]) for part in self._state())
        device = ids.device
        return State(columns.to(device, dtype), slots.to(device), forbidden.to(device))

    def _begin(self, row: int, *, known: bool) -> None:
        self._onset[row], self._sounding[row], self._unknown[row] = _NEVER, False, not known
        self._rows[row] = _Row()

    def _advance(self, row: int, event: int) -> None:
        """Follow one id."""
        if event >= PAD:
            self._begin(row, known=event == START)
            return
        now = self._rows[row]
        now.event = event
        if event < TIME_SHIFT:
            pitch = event % N_PITCHES
            now.rank = pitch
            self._unknown[row, pitch] = False
            self._sounding[row, pitch] = event < NOTE_OFF
            if event < NOTE_OFF:
                self._onset[row, pitch] = now.time
                now.note_on(pitch)
        elif event < VELOCITY:
            now.time += event - TIME_SHIFT + 1
            now.rank = -1
        else:
            now.velocity = event - VELOCITY

    def _state(self) -> tuple[_Floats, _Array, NDArray[np.bool_]]:
        """The fields of `State` for this one position."""
        tables, rows = _tables(), self._rows
        time = np.array([row.time for row in rows])[:, None]
        since = np.where(self._onset < 0, 0, np.minimum(time - self._onset, MAX_STEPS) + 1)
        age = since * self._sounding
        fast, slow = tables.fast[since], tables.slow[since]
        columns = np.zeros((len(rows), INPUT_ROWS))
        parts = (self._sounding, tables.log_age[age], self._unknown, fast, slow)
        np.concatenate((*parts, fast @ _FOLD / 2, slow @ _FOLD / 4), 1, out=columns[:, :_ONE_HOT])
        slots = np.empty((len(rows), PAD + N_PITCHES), dtype=np.int64)
        slots[:, NOTE_OFF:TIME_SHIFT] = tables.age_row[age]
        slots[:, PAD:] = tables.since_row[since]
        forbidden = np.ones((len(rows), N_IDS), dtype=bool)
        for n, row in enumerate(rows):
            count = min(int(np.count_nonzero(self._sounding[n])), MAX_COUNT)
            elapsed, interval, earlier = row.times()
            hot = [row.velocity, _COUNT + count, _ELAPSED + tables.bucket[elapsed]]
            hot += [_INTERVAL + tables.bucket[interval], _EARLIER + tables.bucket[earlier]]
            for one in hot:
                columns[n, _ONE_HOT + one] = 1.0
            slots[n, :NOTE_OFF] = tables.interval_row[row.last + 1]
            slots[n, VELOCITY:PAD] = tables.velocity_row[row.velocity]
            slots[n, TIME_SHIFT:VELOCITY] = _DIFFERENCE - 1
            if interval:
                ratio = 8 * (tables.log2[elapsed : elapsed + N_SHIFTS] - math.log2(interval))
                ratio = np.rint(ratio).clip(-RATIO_REACH, RATIO_REACH)
                slots[n, TIME_SHIFT:VELOCITY] = ratio + (_RATIO + RATIO_REACH)
            self._allow(forbidden[n], n)
        return columns, slots, forbidden

    def _allow(self, forbidden: NDArray[np.bool_], n: int) -> None:
        """Take what may come next in sequence n out of ``forbidden`` (N_IDS,), in place."""
        row, sounding, unknown = self._rows[n], self._sounding[n], self._unknown[n]
        first_on = max(0, row.rank - N_PITCHES + 1)
        forbidden[first_on:NOTE_OFF] = sounding[first_on:]
        can_start = not forbidden[first_on:NOTE_OFF].all()
        if row.event >= VELOCITY and can_start:
            return
        first_off = min(row.rank + 1, N_PITCHES)
        off = sounding[first_off:] | unknown[first_off:]
        forbidden[NOTE_OFF + first_off : TIME_SHIFT] = ~off
        forbidden[TIME_SHIFT:VELOCITY] = TIME_SHIFT <= row.event < VELOCITY - 1
        forbidden[VELOCITY:PAD] = not can_start
        if row.velocity < N_VELOCITIES:
            forbidden[VELOCITY + row.velocity] = True
        forbidden[END] = False


@dataclass(slots=True)
class _Row:
    """What is one number for each sequence; all of it since the last PAD, START or END."""

    event: int = -1
    time: int = 0
    last: int = -1
    velocity: int = N_VELOCITIES
    rank: int = -1
    last_onset: int = _NEVER
    cluster: int = _NEVER
    interval: int = 0
    earlier: int = 0

    def note_on(self, pitch: int) -> None:
        """Follow a NOTE_ON, which may begin a cluster."""
        if self.time - self.last_onset > CLUSTER_GAP:
            self.earlier = self.interval
            self.interval = self.time - self.cluster if self.cluster >= 0 else 0
            self.cluster = self.time
        self.last_onset, self.last, self.rank = self.time, pitch, N_PITCHES + pitch

    def times(self) -> tuple[int, int, int]:
        """Elapsed since the cluster began, the last interval, the one before."""
        elapsed = self.time - self.cluster if self.cluster >= 0 else 0
        return tuple(min(x, MAX_STEPS) for x in (elapsed, self.interval, self.earlier))  # type: ignore[return-value]
