"""A rule at sampling time: parallel fifths and octaves are made unlikely.

Four-part harmony avoids two voices that move the same way from one perfect fifth, or octave, to
another; a model that is good in nats per note still writes some twenty times as many as its data:
a few in a thousand notes hardly show in a mean. So when a voice is drawn, the probability of every
pitch that would make such a parallel with a voice already drawn in this sixteenth is multiplied by
a factor; what is taken away, the other pitches share in proportion. It is a rule of the sampler,
not something the model knows: NLL, and the ranking of `accompany`, are those of the model alone.

A parallel here is what `evaluation.statistics.parallels` counts: both voices move from the
sixteenth before to this one, the same way, and their interval is a fifth (octave, unison) in both,
up to octaves. Voices are drawn from the soprano down, so the rule binds the lower voice of a pair.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from music_transformer.errors import ConfigError
from music_transformer.representations.chorale.grid import SILENCE

#: The factor unless another is asked for; docs/chorales.md says how it was chosen.
DEFAULT_PARALLELS = 0.005

_PERFECT = (0, 7)  # octave or unison, fifth: semitones modulo 12

Ints = NDArray[np.int64]


def check_parallels(factor: float) -> None:
    """Raise ConfigError where the factor is outside [0, 1]."""
    if not 0 <= factor <= 1:
        raise ConfigError(
            f"parallels={factor:g}; choose one from 0 (no parallel fifth or octave) to 1 (as many "
            "as the model makes)."
        )


def discourage_parallels(
    logits: Tensor, before: Ints, drawn: Ints, factors: Sequence[float]
) -> Tensor:
    """The logits (B, V) with the pitches of `makes_parallel` made ``factor`` times as probable.

    Applied before temperature and filters. Holding the pitch, silence and contrary motion are never
    touched, so no row loses all its ids.

    Args:
        logits: (B, V).
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


def makes_parallel(before: Ints, drawn: Ints) -> NDArray[np.bool_]:
    """(B, 128) bool, True = this pitch of the next voice makes a parallel fifth or octave.

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
