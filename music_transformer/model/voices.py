"""What a voice did last, for ids that take turns in V voices (chorales).

The id at place p is there to predict event p, which belongs to voice p mod V. The last event of the
same voice is event p - V: it was read V - 1 positions before. Two things are made of it:

- `held_steps`: for how many steps the voice has kept what it has, an input label. Attention cannot
  count well, and how long a note has lasted says much about whether it ends;
- `IntervalOutput`: logits of the interval from the voice's last pitch, added to those of the pitch
  itself. What is learned of a step upwards then holds for all pitches at once.

Source: the count of repetitions as an input is that of Peracha 2019, "Improving polyphonic music
models with feature-rich encoding"; the output is our own.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from music_transformer.ops.relational import (
    INTERVALS,
    N_PITCHES,
    NO_PITCH,
    interval_rows,
    pitches_of,
)

NOTHING_READ = -1


def last_of_voice(ids: Tensor, voices: int) -> Tensor:
    """The last id of the voice whose turn comes after each id; `NOTHING_READ` where there is none.

    Args:
        ids: (B, S) int64, from the first that was read.
        voices: V.

    Returns:
        (B, S) int64.
    """
    return F.pad(ids, (voices - 1, 0), value=NOTHING_READ)[:, : ids.shape[1]]


def held_steps(ids: Tensor, voices: int, most: int) -> Tensor:
    """For how many steps in a row the voice whose turn comes next has had its last id.

    Args:
        ids: (B, S) int64, from the first that was read; what came before does not count.
        voices: V.
        most: where counting stops.

    Returns:
        (B, S) int64, 0 (nothing of the voice was read) to ``most``.
    """
    last = last_of_voice(ids, voices)  # (B, S)
    reach = (most - 1) * voices
    before = F.pad(last, (reach, 0), value=NOTHING_READ)  # (B, reach + S)
    turns = before.unfold(1, reach + 1, 1)[..., ::voices]  # (B, S, most), the last one last
    same = (turns == last[..., None]) & (last != NOTHING_READ)[..., None]
    return same.flip(-1).cumprod(-1).sum(-1)


class IntervalOutput(nn.Module):
    """Logits by interval from the voice's last pitch; zero at first, so nothing is added."""

    def __init__(self, d_model: int, vocab_size: int) -> None:
        super().__init__()
        self.vocab_size = vocab_size
        # No nn.Linear: what adds to logits stays float32 where the layers are in bfloat16.
        self.interval_vectors = nn.Parameter(torch.zeros(INTERVALS, d_model))
        self.interval_bias = nn.Parameter(torch.zeros(INTERVALS))

    def forward(self, x: Tensor, last: Tensor) -> Tensor:
        """What to add to the logits.

        Args:
            x: (B, L, d_model).
            last: (B, L) int64, from `last_of_voice`; one without a pitch adds nothing.

        Returns:
            (B, L, V); zero for ids that are no pitch.
        """
        to = torch.arange(self.vocab_size, device=x.device)
        to = torch.where(to < N_PITCHES, to, NO_PITCH)  # (V,)
        rows = interval_rows(to, pitches_of(last)[..., None])  # (B, L, V)
        by_interval = F.linear(x, self.interval_vectors, self.interval_bias)  # (B, L, INTERVALS)
        return F.pad(by_interval, (0, 1)).gather(-1, rows)  # the last column: no interval
