"""From logits to logits: what is done to a model's distribution before an id is drawn.

A processor is called with logits (A, V), after the grammar has removed what may not follow, and
with the samples of its rows (`loop.Sample`). It gives back new logits of the same shape, at least
one finite in every row. Each setting of `sampling.Sampling` has its processor in `PROCESSORS`,
which are applied in their order. NLL is that of the model alone: no processor has a part in it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from music_transformer.generation.steering import key_of, steer
from music_transformer.notes import STEPS_PER_SECOND
from music_transformer.representations.chorale.grid import SILENCE
from music_transformer.representations.performance.vocabulary import (
    NOTE_OFF,
    NOTE_ON,
    TIME_SHIFT,
    VELOCITY,
)

if TYPE_CHECKING:
    import numpy.typing as npt
    from torch import Tensor

    from music_transformer.generation.loop import Sample

    Processor = Callable[[Tensor, Sequence[Sample]], Tensor]
    Ints = npt.NDArray[np.int64]

_REJECTED = -math.inf
_PERFECT = (0, 7)  # octave or unison, fifth: semitones modulo 12
_END_BIAS, _TRIAD_BIAS, _LET_GO = 12.0, 6.0, 5.0  # added to logits when the time for an end is over
_RELUCTANCE = 2.0  # by how much END, where it may come, is less likely than what is likeliest
_AT_HOME = 0.4  # of that time: then notes outside the triad are as rare as they become
_HOME_EVENTS = 200  # so many before the end say in which key it is


def by_value(name: str, change: Callable[[Tensor, Any], Tensor]) -> Processor:
    """The processor that calls ``change(logits, value)`` for samples of one value; None: leaves."""

    def process(logits: Tensor, samples: Sequence[Sample]) -> Tensor:
        values = [getattr(sample.settings, name) for sample in samples]
        if values.count(values[0]) == len(values):
            return logits if values[0] is None else change(logits, values[0])
        result = logits.clone()
        for value in dict.fromkeys(values):
            rows = [row for row, other in enumerate(values) if other == value]
            if value is not None:
                result[rows] = change(logits[rows], value)
        return result

    return process


def apply_temperature(logits: Tensor, temperature: float) -> Tensor:
    """The logits divided by the temperature; at 0 only the likeliest id (the first of equals)."""
    if temperature == 0:
        return _only(logits, logits.argmax(dim=-1, keepdim=True))
    # The likeliest is moved to 0 first: a tiny temperature then cannot overflow.
    return (logits - logits.amax(dim=-1, keepdim=True)) / temperature


def keep_top_k(logits: Tensor, top_k: int) -> Tensor:
    """The logits of the k likeliest ids of each row, exactly k: of equals the lower id stays."""
    order = logits.argsort(dim=-1, descending=True, stable=True)  # (B, V)
    return _only(logits, order[:, :top_k])


def keep_top_p(logits: Tensor, top_p: float) -> Tensor:
    """The logits of the smallest set of likeliest ids whose probabilities reach top_p.

    Source: Holtzman et al. 2020, "The Curious Case of Neural Text Degeneration".
    """
    if top_p == 1:
        return logits
    ordered, order = logits.sort(dim=-1, descending=True, stable=True)  # (B, V)
    probabilities = ordered.softmax(dim=-1)
    before = probabilities.cumsum(dim=-1) - probabilities  # (B, V) what the likelier ones hold
    rejected = before >= top_p
    rejected[:, 0] = False
    return logits.masked_fill(rejected.gather(-1, order.argsort(dim=-1)), _REJECTED)


def keep_min_p(logits: Tensor, min_p: float) -> Tensor:
    """The logits of ids at least min_p times as likely as the likeliest of their row.

    Source: Nguyen et al. 2024, "Turning Up the Heat: Min-p Sampling".
    """
    if min_p == 0:
        return logits
    least = logits.amax(dim=-1, keepdim=True) + math.log(min_p)
    return logits.masked_fill(logits < least, _REJECTED)


def _only(logits: Tensor, kept: Tensor) -> Tensor:
    """The logits with all but the ids in ``kept`` (B, K) rejected."""
    result = torch.full_like(logits, _REJECTED)
    return result.scatter_(-1, kept, logits.gather(-1, kept))


def age_held_notes(logits: Tensor, ages: Ints, hold_seconds: Sequence[float]) -> Tensor:
    """The logits with the ends of long notes made likelier.

    ``out[b, NOTE_OFF + p] == logits[b, NOTE_OFF + p] + log(max(1, age / hold))``. The model ends
    old notes too seldom, from 2 s on at three quarters of the true rate (docs/piano.md); then it
    reads its own held notes as a thick texture, and goes on with it. Source: our own.

    Args:
        logits: (B, V).
        ages: (B, 128) steps that each pitch has sounded; negative where it does not.
        hold_seconds: of each row; inf leaves its logits alone.
    """
    hold = np.array(hold_seconds)[:, None] * STEPS_PER_SECOND  # (B, 1)
    factor = np.maximum(ages / hold, 1.0)  # (B, 128)
    if (factor == 1).all():
        return logits
    result = logits.clone()
    result[:, NOTE_OFF:TIME_SHIFT] += torch.from_numpy(np.log(factor))  # (B, 128)
    return result


def _age_notes(logits: Tensor, samples: Sequence[Sample]) -> Tensor:
    """`age_held_notes` where the grammar counts ages: performances."""
    ages = [each for sample in samples if (each := sample.grammar.ages) is not None]
    if not ages:
        return logits
    holds = [sample.settings.hold_seconds or math.inf for sample in samples]
    return age_held_notes(logits, np.stack(ages), holds)


def discourage_parallels(
    logits: Tensor, before: Ints, drawn: Ints, factors: Sequence[float]
) -> Tensor:
    """The logits (B, V) with the pitches of `makes_parallel` made ``factor`` times as probable.

    A model that is good in nats per note still writes some twenty times as many parallels as its
    data. Holding the pitch, silence and contrary motion are never touched, so no row loses all its
    ids.

    Args:
        before, drawn: as for `makes_parallel`.
        factors: of each row, in [0, 1]; 1 changes nothing, 0 forbids.
    """
    if drawn.shape[1] == 0 or all(factor == 1 for factor in factors):
        return logits
    parallel = torch.from_numpy(makes_parallel(before, drawn)).to(logits.device)  # (B, 128)
    log_factor = torch.tensor(factors, dtype=logits.dtype, device=logits.device).log()  # (B,)
    result = logits.clone()  # (B, V)
    result[:, :SILENCE] += torch.where(parallel, log_factor[:, None], 0.0)  # (B, 128)
    return result


def _avoid_parallels(logits: Tensor, samples: Sequence[Sample]) -> Tensor:
    """`discourage_parallels` in chorales; the samples are at the same voice."""
    chords = [both for sample in samples if (both := sample.grammar.chords) is not None]
    if not chords:
        return logits
    before = np.array([whole for whole, _ in chords])  # (B, 4)
    drawn = np.array([begun for _, begun in chords], dtype=np.int64)  # (B, v)
    factors = [sample.settings.parallels for sample in samples]
    return discourage_parallels(logits, before, drawn, [1 if f is None else f for f in factors])


def makes_parallel(before: Ints, drawn: Ints) -> npt.NDArray[np.bool_]:
    """(B, 128) bool, True = this pitch of the next voice makes a parallel fifth or octave.

    Both voices move from the sixteenth before to this one, the same way, and their interval is a
    fifth (octave, unison) in both, up to octaves.

    Args:
        before: (B, 4) ids of the sixteenth before, S A T B.
        drawn: (B, v) ids of the first v voices of this one, v from 0 to 3; v is drawn next.
    """
    voice = drawn.shape[1]
    pitch = np.arange(SILENCE)  # (128,)
    own = before[:, voice, None]  # (B, 1)
    found = np.zeros((len(before), SILENCE), dtype=bool)
    for other in range(voice):
        was, now = before[:, other, None], drawn[:, other, None]  # both (B, 1)
        moved = (own < SILENCE) & (was < SILENCE) & (now < SILENCE) & (now != was)  # (B, 1)
        interval = np.abs(was - own) % 12
        alike = np.sign(pitch - own) == np.sign(now - was)  # (B, 128); not where pitch is held
        kept = np.abs(now - pitch) % 12 == interval  # (B, 128)
        found |= moved & np.isin(interval, _PERFECT) & alike & kept
    return found


def come_to_an_end(logits: Tensor, samples: Sequence[Sample]) -> Tensor:
    """The logits (A, V) with END made likelier the later it is, where the grammar allows it.

    In performances notes outside the triad of the tonic become rarer and shorter too, and while the
    last chord rings its notes end the sooner. Source: our own.
    """
    ending = [
        (row, late) for row, one in enumerate(samples) if (late := one.grammar.ending) is not None
    ]
    result = logits.clone() if ending else logits
    for row, late in ending:
        sample = samples[row]
        least = logits[row].amax() - _RELUCTANCE
        end = logits[row, sample.end]
        if bool(end.isfinite()):
            result[row, sample.end] = torch.maximum(end, least) + _END_BIAS * late
        if sample.grammar.ages is None:
            continue
        if sample.away is None:
            tonic, mode = key_of(sample.ids[-_HOME_EVENTS:])
            triad = (0, 4 if mode == "major" else 3, 7)
            away = ~np.isin((np.arange(SILENCE) - tonic) % 12, triad)  # (128,)
            sample.away = torch.from_numpy(away.astype(np.float64))
        strange = _TRIAD_BIAS * min(late / _AT_HOME, 1.0) * sample.away
        result[row, NOTE_ON:NOTE_OFF] -= strange
        result[row, NOTE_OFF:TIME_SHIFT] += strange / 2
        if sample.grammar.rings:
            result[row, NOTE_OFF:TIME_SHIFT] += _LET_GO * late
    return result


def _keep_time(logits: Tensor, samples: Sequence[Sample]) -> Tensor:
    """The logits with the TIME_SHIFTs that are `on_time` ``in_time`` nats higher."""
    result = logits
    for row, sample in enumerate(samples):
        on_time, nats = sample.on_time(), sample.settings.in_time
        if on_time is not None and nats:
            result = result.clone() if result is logits else result
            result[row, TIME_SHIFT:VELOCITY] += nats * on_time
    return result


PROCESSORS: list[Processor] = [
    _avoid_parallels,
    _keep_time,
    _age_notes,
    steer,
    come_to_an_end,
    by_value("temperature", apply_temperature),
    by_value("top_k", keep_top_k),
    by_value("top_p", keep_top_p),
    by_value("min_p", keep_min_p),
]


def process(logits: Tensor, samples: Sequence[Sample]) -> Tensor:
    """The logits (A, V) of as many samples after all processors."""
    for processor in PROCESSORS:
        logits = processor(logits, samples)
    return logits
