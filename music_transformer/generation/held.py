"""Notes that a model forgets to end: the longer one has sounded, the likelier its end is made.

A model that is no better than ours ends young notes as often as pianists do, but old ones too
seldom: from 2 s on at three quarters of the true rate, those over 8 s hardly ever
(`scripts/studies/along_real_music.py`). On real music that costs little, there are few of
them. In a sample they stay, the model reads its own held notes as a thick texture, and goes on with
it.

The mend is the factor that the measurement asks for: from ``hold_seconds`` on, the odds of the end
of a note, as against all else, are multiplied by its age over ``hold_seconds``.

Source: our own.
"""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from music_transformer.errors import ConfigError
from music_transformer.notes import STEPS_PER_SECOND
from music_transformer.representations.performance.vocabulary import NOTE_OFF, TIME_SHIFT


def check_hold_seconds(hold_seconds: float | None) -> None:
    """Refuse what is no time.

    Raises:
        ConfigError: it is not above 0.
    """
    if hold_seconds is not None and not hold_seconds > 0:
        raise ConfigError(
            f"hold_seconds={hold_seconds:g}; choose more than 0, or inf to leave the model alone."
        )


def age_held_notes(
    logits: Tensor, ages: npt.NDArray[np.int64], hold_seconds: Sequence[float | None]
) -> Tensor:
    """The logits with the ends of long notes made likelier.

    ``out[b, NOTE_OFF + p] == logits[b, NOTE_OFF + p] + log(max(1, age / hold))``.

    Args:
        logits: (B, V).
        ages: (B, 128) steps that each pitch has sounded; negative where it does not.
        hold_seconds: of each row; None or inf leaves its logits alone.

    Returns:
        (B, V); `logits` itself where nothing is to be done.
    """
    hold = np.array([math.inf if one is None else one for one in hold_seconds])  # (B,)
    factor = np.maximum(ages / (hold[:, None] * STEPS_PER_SECOND), 1.0)  # (B, 128)
    if (factor == 1).all():
        return logits
    result = logits.clone()
    result[:, NOTE_OFF:TIME_SHIFT] += torch.from_numpy(np.log(factor))  # (B, 128)
    return result
