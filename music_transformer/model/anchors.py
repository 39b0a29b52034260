"""Anchors: onsets at known times that the music is written to, and how far off they are now.

It knows of each position the last anchor and the next one, times in steps of 10 ms:

| fact | in the embedding | in the logits |
| --- | --- | --- |
| time since the last, until the next, between them | by logarithm | |
| phase: where between the two, in 48ths | now | TIME_SHIFT by where it would land |
| until the next | | TIME_SHIFT by how far before or after it it would land |
| pitch of the last, of the next | | NOTE_ON by interval to each |

An encoder-decoder gives the onsets of its melody with the `Reading`. A window of in-filling is
``later part, END, earlier part``: the later part is on the clock of the earlier one, opens with a
rest as long as the earlier part and the gap, and its onsets are the anchors from END on.
"""

import functools
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from music_transformer.model.config import ModelConfig
from music_transformer.model.performance_state import MAX_INTERVAL, MAX_STEPS
from music_transformer.model.performance_term import (
    END,
    N_IDS,
    N_PITCHES,
    N_SHIFTS,
    NOTE_OFF,
    TIME_SHIFT,
    VELOCITY,
    PerformanceTerm,
    check_vocabulary,
)
from music_transformer.model.positions import NO_TIME, Reading

TIME_BUCKETS = 40  # four an octave
PHASES = 48
EXACT, REACH = 8, 24  # steps that have a row each before and after the anchor; rows in all

# Rows of the input: since, until, interval, phase; the one behind them is nothing.
_UNTIL, _INTERVAL, _PHASE = TIME_BUCKETS, 2 * TIME_BUCKETS, 3 * TIME_BUCKETS
INPUT_ROWS = _PHASE + PHASES + 2
# Rows of the output: landing, phase, interval to the last anchor, interval to the next.
_LANDING_PHASE = 2 * REACH + 1
_LAST = _LANDING_PHASE + PHASES + 2
_NEXT = _LAST + 2 * MAX_INTERVAL + 1
OUTPUT_ROWS = _NEXT + 2 * MAX_INTERVAL + 1


class AnchorState(NamedTuple):
    """Rows of the two tables, int64."""

    rows: Tensor  # (B, L, 4), of the input
    slots: Tensor  # (B, L, 2 * (N_PITCHES + N_SHIFTS)), of the output: NOTE_ON, TIME_SHIFT, twice


class Anchors(PerformanceTerm):
    """The terms of the anchors in the input and in the logits; see the module's text."""

    input_rows, output_rows = INPUT_ROWS, OUTPUT_ROWS

    @staticmethod
    def check(config: ModelConfig) -> None:
        """Refuse another vocabulary."""
        check_vocabulary(config, "anchors", "they are for", "them")

    def read(self, reading: Reading, kept: dict[str, Any] | None) -> AnchorState:
        """The rows at each of the new ids."""
        ids, new = reading.ids, reading.queries
        is_shift = (ids >= TIME_SHIFT) & (ids < VELOCITY)
        now = torch.where(is_shift, ids - (TIME_SHIFT - 1), 0).cumsum(1)  # (B, S)
        if reading.anchors is not None:
            times, pitches = reading.anchors
            return anchor_state(times, pitches, now[:, -new:])
        index, length = torch.arange(ids.shape[1], device=ids.device), ids.shape[1]
        end = torch.where(ids == END, index, length).amin(1, keepdim=True)  # (B, 1), the first
        times = torch.where((ids < NOTE_OFF) & (index < end), now, NO_TIME)
        times, order = times.sort(dim=1, stable=True)
        now = torch.where(index < end, -1, now - now.gather(1, end.clamp(max=length - 1)))
        return anchor_state(times, ids.gather(1, order), now[:, -new:])

    def embed(self, x: Tensor, state: AnchorState) -> Tensor:
        """x (B, L, d_model) with the terms of the anchors added."""
        table = F.pad(self.input_table, (0, 0, 0, 1))
        added: Tensor = F.embedding(state.rows, table).sum(2) * table.shape[1] ** 0.5
        return x + added

    def logits(self, x: Tensor, logits: Tensor, state: AnchorState) -> Tensor:
        """Logits (B, L, V) with the terms of x (B, L, d_model) added."""
        by_row = F.pad(F.linear(x, self.output_table, self.output_table_bias), (0, 1))
        first, second = by_row.gather(-1, state.slots).chunk(2, -1)  # (B, L, 228) each
        terms = first + second
        on, shift = terms[..., :N_PITCHES], terms[..., N_PITCHES:]
        logits = logits + F.pad(on, (0, N_IDS - N_PITCHES))
        return logits + F.pad(shift, (TIME_SHIFT, N_IDS - VELOCITY))


@torch.no_grad()
def anchor_state(times: Tensor, pitches: Tensor, now: Tensor) -> AnchorState:
    """The rows at the times ``now`` (B, L), -1 where there are no anchors.

    ``times`` (B or 1, N) rise, those that are `NO_TIME` last; ``pitches`` are as many.
    """
    landings, buckets, intervals = (table.to(now.device) for table in _tables())
    times, pitches = (each.expand(len(now), -1) for each in (times, pitches))
    times = F.pad(F.pad(times, (1, 0), value=-1), (0, 1), value=NO_TIME)
    pitches = F.pad(pitches % N_PITCHES, (1, 1))  # those without a time are any ids
    last = torch.searchsorted(times, now.contiguous(), right=True) - 1  # (B, L), 0 for none
    last = torch.where(now < 0, 0, last)
    before, after = times.gather(1, last), times.gather(1, last + 1)  # (B, L)
    after = torch.where(now < 0, NO_TIME, after)
    no_last, no_next = before < 0, after == NO_TIME
    since, until = (t.clamp(max=MAX_STEPS) for t in (now - before, after - now))
    between = (since + until).clamp(max=MAX_STEPS)
    steps = torch.arange(N_SHIFTS + 1, device=now.device)
    phase = ((since[..., None] + steps) * (2 * PHASES) + between[..., None]) // (
        2 * between[..., None]
    )  # (B, L, 101), rounded
    phase = phase.clamp(max=PHASES + 1)
    nowhere, nothing = no_last | no_next, (INPUT_ROWS, OUTPUT_ROWS)
    rows = torch.stack(
        [
            buckets[since].masked_fill(no_last, nothing[0]),
            (_UNTIL + buckets[until]).masked_fill(no_next, nothing[0]),
            (_INTERVAL + buckets[between]).masked_fill(nowhere, nothing[0]),
            (_PHASE + phase[..., 0]).masked_fill(nowhere, nothing[0]),
        ],
        -1,
    )
    landing = landings.unfold(0, N_SHIFTS, 1)[MAX_STEPS - until]  # (B, L, 100)
    parts = [
        (F.embedding(pitches.gather(1, last), intervals) + _LAST, no_last),
        (landing, no_next),
        (F.embedding(pitches.gather(1, last + 1), intervals) + _NEXT, no_next),
        (phase[..., 1:] + _LANDING_PHASE, nowhere),
    ]
    slots = [part.masked_fill(none[..., None], nothing[1]) for part, none in parts]
    return AnchorState(rows, torch.cat(slots, -1))


@functools.cache
def _tables() -> tuple[Tensor, Tensor, Tensor]:
    """Rows of a landing from 1 - MAX_STEPS to 100 steps late, of a time, of two pitches."""
    late = torch.arange(1 - MAX_STEPS, N_SHIFTS + 1)
    far = EXACT + (4 * (late.abs().clamp(min=EXACT).double() / EXACT).log2()).round().long()
    landing = torch.where(late.abs() <= EXACT, late, late.sign() * far.clamp(max=REACH)) + REACH
    bucket = (4 * torch.arange(1.0, MAX_STEPS + 2).double().log2()).round().long()
    pitch = torch.arange(N_PITCHES)
    interval = (pitch - pitch[:, None]).clamp(-MAX_INTERVAL, MAX_INTERVAL) + MAX_INTERVAL
    return landing, bucket.clamp(max=TIME_BUCKETS - 1), interval
