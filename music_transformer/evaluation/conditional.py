"""How much a model listens: its NLL with the right melodies, and with those of other pieces.

A model that writes an accompaniment is told a melody. Whether it uses it shows when the melodies
are exchanged among the pieces: what it is told is then as much a melody as before, but the wrong
one. The difference of the two NLLs, on the same events, is what the right melody is worth in nats
per event; its interval is that of `paired`, a bootstrap over pieces.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from music_transformer.datasets.pairs import evaluation_pairs, shuffled_pairs
from music_transformer.evaluation.nll import (
    EventModel,
    NllReport,
    Progress,
    event_losses,
    piece_nlls,
)
from music_transformer.evaluation.paired import PairedDifference, paired_difference

if TYPE_CHECKING:
    from music_transformer.datasets import PreparedData

SEED = 0  # of the exchange


@dataclass(frozen=True)
class ShuffledNll:
    """The NLL with exchanged melodies, and how much worse it is than with the right ones.

    Attributes:
        nll: over all events, with the melodies of other pieces.
        difference: that minus the NLL with the right ones; above 0 the model listens.
        seed: of the exchange.
    """

    nll: float
    difference: PairedDifference
    seed: int

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "nll_shuffled": self.nll,
            "difference": self.difference.mean,
            "interval": [self.difference.low, self.difference.high],
            "worse_on": self.difference.pieces - self.difference.better_on,
            "shuffled_seed": self.seed,
        }


def shuffled_nll(
    model: EventModel,
    data: "PreparedData",
    split: str,
    report: NllReport,
    *,
    device: str | torch.device | None = None,
    context: int | None = None,
    batch_size: int = 8,
    seed: int = SEED,
    progress: Progress | None = None,
) -> ShuffledNll:
    """The NLL of an accompaniment model with the melodies exchanged among pieces.

    Args:
        report: of the same model on the same data with the right melodies; the other arguments are
            those it was made with, see `evaluate_nll`.
        seed: of the exchange.

    Raises:
        ConfigError: the split has fewer than two pieces.
        DatasetError: the data have no melodies.
    """
    length = int(model.config.context) if context is None else context
    losses = event_losses(
        model,
        data,
        split,
        device=device,
        context=context,
        batch_size=batch_size,
        windows=shuffled_pairs(evaluation_pairs(data, split, length), seed),
        progress=progress,
    )
    difference = paired_difference(
        [piece.nll for piece in piece_nlls(losses)],
        [piece.nll for piece in report.by_piece],
        [piece.events for piece in report.by_piece],
    )
    return ShuffledNll(float(losses.loss.mean()), difference, seed)
