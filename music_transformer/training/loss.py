"""Cross entropy in nats, summed over real targets, and token dropout.

The loop divides by the number of real targets of the whole update, so that neither padding nor
accumulation nor the number of ranks changes the result.
"""

import torch
from torch import Tensor
from torch.nn import functional as F


def summed_cross_entropy(
    logits: Tensor, targets: Tensor, *, pad: int, label_smoothing: float = 0.0
) -> Tensor:
    """The sum of the negative log likelihoods of all targets (B, L) that are not ``pad``."""
    return F.cross_entropy(
        logits.flatten(0, 1).float(),  # (B*L, V)
        targets.flatten(),  # (B*L,)
        ignore_index=pad,
        reduction="sum",
        label_smoothing=label_smoothing,
    )


def count_targets(targets: Tensor, pad: int) -> int:
    """How many targets are real."""
    return int(torch.count_nonzero(targets != pad))


def drop_tokens(ids: Tensor, share: float, *, hidden: int, kept: int) -> Tensor:
    """Ids (B, L) of which a random share reads ``hidden``, but never those that are ``kept``.

    Source: Gal and Ghahramani 2016, "A theoretically grounded application of dropout in recurrent
    neural networks", section 4.2 (word dropout); here each place is drawn by itself.
    """
    if share == 0.0:
        return ids
    drawn = torch.rand(ids.shape, device=ids.device) < share  # (B, L)
    return ids.masked_fill(drawn & (ids != kept), hidden)
