"""What the events of a performance already say: which notes sound, for how long, what may come.

388 events hide simple facts behind counting, and attention counts badly. All facts here are of the
ids of the window so far, so a cached step equals the full pass. They enter the model three times:
terms added to the embedding, terms added to the logits, and a mask, part of the distribution, over
what a canonical stream cannot have next. All terms are zero at first.

| fact | in the embedding | in the logits |
| --- | --- | --- |
| sounding, age | by pitch: sounds, log(1 + age) / 5, unknown; count | NOTE_OFF by age |
| since: time since the last onset | by pitch and its class: two decays | NOTE_ON by since |
| last: pitch of the last onset | | NOTE_ON by interval |
| rhythm of clusters of onsets | elapsed, last interval, the one before | TIME_SHIFT by ratio |
| velocity that is set | one row each | SET_VELOCITY by difference |

A window that begins inside a piece does not know what sounds: a pitch is *unknown* until its first
event, and its NOTE_ON and NOTE_OFF are both allowed. START makes all silent, PAD (a hidden id) and
END make all unknown again. Any ids are accepted. The order within a step is judged by the last
note event, so an event that broke it is where the order goes on from; a forbidden event costs
`PENALTY` nats, never infinitely many; and some id is always allowed.

`read_window` reads a whole window, `StateReader` one id after another; they give the same `State`.
Times are in steps of 10 ms.
"""

import math
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

# The ids of the performance vocabulary; a test holds them against the tokenizer's.
N_PITCHES = 128
NOTE_OFF, TIME_SHIFT, VELOCITY, PAD, START, END, N_IDS = 128, 256, 356, 388, 389, 390, 391
N_SHIFTS, N_VELOCITIES = VELOCITY - TIME_SHIFT, PAD - VELOCITY

PENALTY = 1024.0  # what a forbidden id's logit loses
CLUSTER_GAP = 4  # steps: an onset later than this after the last one begins a cluster
MAX_INTERVAL = 36  # semitones; larger ones share a bucket, at either end
MAX_COUNT = 31  # so many sounding notes, or more
FAST, SLOW = 50.0, 500.0  # steps in which the two decays fall to 1 / e
TIME_BUCKETS, SINCE_BUCKETS, RATIO_REACH = 40, 25, 24
AGE_EDGES = np.unique(np.round(np.geomspace(1, 1500, 23)).astype(np.int64))

# Rows of the input table: velocity (the last: none), count, elapsed, interval, the one before.
_COUNT = N_VELOCITIES + 1
_ELAPSED = _COUNT + MAX_COUNT + 1
_INTERVAL, _BEFORE = _ELAPSED + TIME_BUCKETS, _ELAPSED + 2 * TIME_BUCKETS
INPUT_ROWS = _BEFORE + TIME_BUCKETS
# Columns of the input: sounding, age, unknown, two decays by pitch, two by pitch class.
INPUT_COLUMNS = 5 * N_PITCHES + 2 * 12
# Rows of the output table: interval (the last: none), since, age, ratio, difference of velocity.
_SINCE = 2 * MAX_INTERVAL + 2
_AGE = _SINCE + SINCE_BUCKETS + 1
_RATIO = _AGE + len(AGE_EDGES) + 1
_DIFFERENCE = _RATIO + 2 * RATIO_REACH + 2
OUTPUT_ROWS = _DIFFERENCE + 2 * N_VELOCITIES
_NOTHING = OUTPUT_ROWS  # a column of zeros behind them

_NEVER = -(1 << 40)  # a time before all others
_FOLD = np.eye(12)[np.arange(N_PITCHES) % 12]  # (128, 12), pitch to pitch class


class State(NamedTuple):
    """What the ids up to each position say, laid out for the terms.

    Attributes:
        columns: (B, L, INPUT_COLUMNS), what the rows of the dense input table are multiplied by.
        rows: (B, L, 5) int64, which rows of the sparse input table are added.
        slots: (B, L, PAD + 128) int64, the row of the output table for the logit of each event;
            NOTE_ON has two, the second behind all others.
        forbidden: (B, L, N_IDS) bool, True = cannot come next.
    """

    columns: Tensor
    rows: Tensor
    slots: Tensor
    forbidden: Tensor


class PerformanceState(nn.Module):
    """The terms of the state in the input and in the logits; see the module's text."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        # No nn.Linear: like other tables, these stay float32 and belong to AdamW, undecayed.
        self.input_columns = nn.Parameter(torch.zeros(INPUT_COLUMNS, d_model))
        self.input_rows = nn.Parameter(torch.zeros(INPUT_ROWS, d_model))
        self.output_rows = nn.Parameter(torch.zeros(OUTPUT_ROWS, d_model))
        self.output_bias = nn.Parameter(torch.zeros(OUTPUT_ROWS))

    def read(self, ids: Tensor, new: int, reader: "StateReader | None") -> State:
        """The state after each of the last ``new`` ids of the window.

        Args:
            ids: (B, S), all ids of the window so far.
            new: L; the others were read before.
            reader: that of the cache they were read with, None without a cache.
        """
        dtype = self.input_columns.dtype
        if new == 1 and reader is not None:
            return reader.read(ids, dtype)
        return State(*(part[:, -new:] for part in read_window(ids, dtype)))

    def input_terms(self, state: State) -> Tensor:
        """What is added to the embeddings: (B, L, d_model)."""
        dense = state.columns @ self.input_columns  # (B, L, d_model)
        sparse = F.embedding(state.rows, self.input_rows).sum(-2)  # (B, L, d_model)
        out: Tensor = (dense + sparse) * self.input_rows.shape[1] ** 0.5
        return out

    def logits(self, x: Tensor, logits: Tensor, state: State) -> Tensor:
        """Logits (B, L, V) with the terms of x (B, L, d_model) added and the mask taken off."""
        by_row = F.linear(x, self.output_rows, self.output_bias)  # (B, L, OUTPUT_ROWS)
        terms = F.pad(by_row, (0, 1)).gather(-1, state.slots)  # (B, L, PAD + 128)
        first, second = terms[..., :PAD], terms[..., PAD:]
        terms = F.pad(first, (0, N_IDS - PAD)) + F.pad(second, (0, N_IDS - N_PITCHES))
        return logits + terms - PENALTY * state.forbidden


def without_mask(logits: Tensor) -> Tensor:
    """The logits as they were before the mask; those of a model without one as they are."""
    return torch.where(logits < -PENALTY / 2, logits + PENALTY, logits)


@torch.compiler.disable  # type: ignore[untyped-decorator]
@torch.no_grad()
def read_window(ids: Tensor, dtype: torch.dtype = torch.float32) -> State:
    """The state after each of the ids (B, L) of a window.

    Args:
        ids: int64, below N_IDS.
        dtype: of the columns.
    """
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

    pitch = (ids % N_PITCHES)[..., None]  # (B, L, 1)
    none = torch.full((*ids.shape, N_PITCHES), -1, dtype=torch.int32, device=device)
    onsets = torch.where(is_on, time, -1).int()[..., None]
    onsets = none.scatter(2, pitch, onsets).cummax(1).values  # (B, L, 128), time of the last onset
    code = torch.where(is_note, 2 * index + is_on, -1).int()[..., None]
    code = none.scatter_(2, pitch, code).cummax(1).values  # (B, L, 128), of the last note event
    seen = code >= 2 * (begin + 1).int()[..., None]
    sounding = seen & (code % 2 == 1)
    unknown = ~(seen | known[..., None])
    since = time.int()[..., None] - onsets
    never = onsets < _at(time, begin, 0).int()[..., None]
    since = since.masked_fill_(never, -1)  # (B, L, 128)

    age = torch.where(sounding, since, 0)
    some = since.to(dtype).masked_fill_(never, math.inf)
    decays = torch.stack([torch.exp(some / -FAST), torch.exp(some / -SLOW)], 2)  # (B, L, 2, 128)
    weight = torch.from_numpy(_FOLD).to(device, dtype)
    folded = decays @ weight / torch.tensor([[2.0], [4.0]], device=device, dtype=dtype)
    columns = [sounding.to(dtype), torch.log1p(age.to(dtype)) / 5, unknown.to(dtype)]
    columns += [decays.flatten(2), folded.flatten(2)]

    def bucket(steps: Tensor) -> Tensor:
        return (4 * torch.log2(1.0 + steps)).round().long().clamp(max=TIME_BUCKETS - 1)

    count = sounding.sum(-1).clamp(max=MAX_COUNT)
    rows = [velocity, _COUNT + count, _ELAPSED + bucket(elapsed)]
    rows += [_INTERVAL + bucket(interval), _BEFORE + bucket(earlier)]

    pitches = torch.arange(N_PITCHES, device=device)
    away = (pitches - last[..., None]).clamp(-MAX_INTERVAL, MAX_INTERVAL) + MAX_INTERVAL
    away = torch.where((last < 0)[..., None], _SINCE - 1, away)  # (B, L, 128)
    edges = torch.from_numpy(AGE_EDGES).to(device)
    ages = torch.where(sounding, _AGE + torch.bucketize(age, edges, right=True), _NOTHING)
    halves = (2 * torch.log2(1.0 + since)).round().clamp(max=SINCE_BUCKETS - 1)
    sinces = _SINCE + torch.where(never, SINCE_BUCKETS, halves).long()  # (B, L, 128)
    shifts = torch.arange(1, N_SHIFTS + 1, device=device)
    ratio = (elapsed[..., None] + shifts).double() / interval.clamp(min=1)[..., None]
    ratio = (8 * torch.log2(ratio)).round_().clamp_(-RATIO_REACH, RATIO_REACH) + RATIO_REACH
    none_yet = (interval == 0)[..., None]
    ratios = _RATIO + torch.where(none_yet, 2 * RATIO_REACH + 1, ratio.long())  # (B, L, 100)
    unset = (velocity == N_VELOCITIES)[..., None]
    bins = torch.arange(N_VELOCITIES, device=device)
    differences = bins - velocity[..., None] + N_VELOCITIES - 1  # (B, L, 32)
    differences = _DIFFERENCE + torch.where(unset, 2 * N_VELOCITIES - 1, differences)
    slots = torch.cat([away, ages, ratios, differences, sinces], -1)

    on = ~sounding & (pitches + N_PITCHES > rank[..., None])
    can_start = on.any(-1)
    free = ~(is_velocity & can_start)[..., None]
    off = (sounding | unknown) & (pitches > rank[..., None]) & free
    shift = ((~is_shift | (ids == VELOCITY - 1))[..., None] & free).expand(-1, -1, N_SHIFTS)
    change = (bins != velocity[..., None]) & can_start[..., None] & free
    never_next = torch.zeros_like(free)
    allowed = torch.cat([on, off, shift, change, never_next, never_next, free], -1)
    return State(torch.cat(columns, -1), torch.stack(rows, -1), slots, ~allowed)


def _at(values: Tensor, where: Tensor, default: int) -> Tensor:
    """``values[b, where[b, l]]`` for (B, L) each, and a default where that is negative."""
    return torch.where(where < 0, default, values.gather(1, where.clamp(min=0)))


def _before(values: Tensor, first: int) -> Tensor:
    """The values (B, L) of the position before each."""
    return F.pad(values, (1, 0), value=first)[:, :-1]


class StateReader:
    """The state of a window that grows by one id, or a few, at a time.

    It may be behind the window, and then reads what it has missed.
    """

    def __init__(self, batch: int) -> None:
        self._rows = [_Row() for _ in range(batch)]
        self.read_so_far = 0

    def read(self, ids: Tensor, dtype: torch.dtype) -> State:
        """The state after the last of the ids (B, S) of the window: (B, 1, ...)."""
        if self.read_so_far > ids.shape[1]:  # another window, or this one shortened
            self._rows, self.read_so_far = [_Row() for _ in self._rows], 0
        parts = []
        for row, events in zip(self._rows, ids[:, self.read_so_far :].tolist(), strict=True):
            for event in events:
                row.advance(event)
            parts.append(row.state())
        self.read_so_far = ids.shape[1]
        columns, rows, slots, forbidden = (
            torch.from_numpy(np.stack(part)[:, None]).to(ids.device)
            for part in zip(*parts, strict=True)
        )
        return State(columns.to(dtype), rows, slots, forbidden)


_Array = NDArray[np.int64]
_Laid = tuple[NDArray[np.float64], _Array, _Array, NDArray[np.bool_]]


class _Row:
    """The state of one sequence; all of it since the last PAD, START or END."""

    def __init__(self) -> None:
        self._begin(known=False)

    def _begin(self, *, known: bool) -> None:
        self.time = 0
        self.event = PAD
        self.onset = np.full(N_PITCHES, -np.inf)  # time of the last onset of each pitch
        self.sounding = np.zeros(N_PITCHES, dtype=bool)
        self.unknown = np.full(N_PITCHES, not known)
        self.last = -1
        self.velocity = N_VELOCITIES
        self.rank = -1
        self.last_onset = self.cluster = float("-inf")
        self.interval = self.earlier = 0

    def advance(self, event: int) -> None:
        """Follow one id."""
        if event >= PAD:
            self._begin(known=event == START)
        elif event >= VELOCITY:
            self.velocity = event - VELOCITY
        elif event >= TIME_SHIFT:
            self.time += event - TIME_SHIFT + 1
            self.rank = -1
        else:
            pitch = event % N_PITCHES
            self.unknown[pitch] = False
            self.sounding[pitch] = event < NOTE_OFF
            self.rank = pitch
            if event < NOTE_OFF:
                self._note_on(pitch)
        self.event = event

    def _note_on(self, pitch: int) -> None:
        if self.time - self.last_onset > CLUSTER_GAP:
            began = self.cluster
            self.earlier = self.interval
            self.interval = self.time - int(began) if began >= 0 else 0
            self.cluster = self.time
        self.last_onset = self.time
        self.onset[pitch] = self.time
        self.last = pitch
        self.rank = N_PITCHES + pitch

    def state(self) -> _Laid:
        """The four fields of a `State` for one position."""
        since = self.time - self.onset  # (128,), inf for never
        sounding = np.flatnonzero(self.sounding)
        ages = since[sounding]
        columns = np.zeros(INPUT_COLUMNS)
        columns[sounding] = 1.0
        columns[N_PITCHES + sounding] = np.log1p(ages) / 5
        columns[2 * N_PITCHES : 3 * N_PITCHES] = self.unknown
        decays = np.exp(since / [[-FAST], [-SLOW]])  # (2, 128)
        columns[3 * N_PITCHES : 5 * N_PITCHES] = decays.ravel()
        columns[5 * N_PITCHES :] = (decays @ _FOLD / [[2.0], [4.0]]).ravel()

        elapsed = self.time - int(self.cluster) if self.cluster >= 0 else 0
        buckets = [_bucket(elapsed), _bucket(self.interval), _bucket(self.earlier)]
        firsts = (_ELAPSED, _INTERVAL, _BEFORE)
        rows = [self.velocity, _COUNT + min(len(sounding), MAX_COUNT)]
        rows += [first + bucket for first, bucket in zip(firsts, buckets, strict=True)]

        slots = np.full(PAD + N_PITCHES, _NOTHING)
        pitches = np.arange(N_PITCHES)
        away = np.clip(pitches - self.last, -MAX_INTERVAL, MAX_INTERVAL) + MAX_INTERVAL
        slots[:NOTE_OFF] = away if self.last >= 0 else _SINCE - 1
        slots[NOTE_OFF + sounding] = _AGE + np.searchsorted(AGE_EDGES, ages, "right")
        ratio = 2 * RATIO_REACH + 1
        slots[TIME_SHIFT:VELOCITY] = _RATIO + ratio
        if self.interval:
            ratios = 8 * np.log2((elapsed + np.arange(1, N_SHIFTS + 1)) / self.interval)
            ratios = np.clip(np.round(ratios), -RATIO_REACH, RATIO_REACH) + RATIO_REACH
            slots[TIME_SHIFT:VELOCITY] = _RATIO + ratios
        none = _DIFFERENCE + 2 * N_VELOCITIES - 1
        slots[VELOCITY:PAD] = none
        if self.velocity < N_VELOCITIES:
            slots[VELOCITY:PAD] = np.arange(N_VELOCITIES) + (none - N_VELOCITIES - self.velocity)
        halves = np.minimum(np.round(2 * np.log2(1 + since)), SINCE_BUCKETS - 1)
        slots[PAD:] = _SINCE + np.where(np.isinf(since), SINCE_BUCKETS, halves)
        return columns, np.array(rows), slots, self._forbidden()

    def _forbidden(self) -> NDArray[np.bool_]:
        forbidden = np.ones(N_IDS, dtype=bool)
        first_on = max(0, self.rank - N_PITCHES + 1)
        forbidden[first_on:NOTE_OFF] = self.sounding[first_on:]
        can_start = not forbidden[:NOTE_OFF].all()
        if VELOCITY <= self.event < PAD and can_start:
            return forbidden
        first_off = min(self.rank + 1, N_PITCHES)
        off = self.sounding[first_off:] | self.unknown[first_off:]
        forbidden[NOTE_OFF + first_off : TIME_SHIFT] = ~off
        forbidden[TIME_SHIFT:VELOCITY] = TIME_SHIFT <= self.event < VELOCITY - 1
        forbidden[VELOCITY:PAD] = not can_start
        if self.velocity < N_VELOCITIES:
            forbidden[VELOCITY + self.velocity] = True
        forbidden[END] = False
        return forbidden


def _bucket(steps: int) -> int:
    """One of TIME_BUCKETS for a time of 0 steps or more."""
    return min(TIME_BUCKETS - 1, round(4 * math.log2(1 + steps)))
