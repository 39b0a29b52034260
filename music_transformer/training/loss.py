"""Cross entropy in nats, summed over real targets.

The sum is returned with no mean taken: the loop divides by the number of real targets of the whole
update, so that neither padding nor accumulation nor the number of ranks changes the result.
"""

import torch
from torch import Tensor
from torch.nn import functional as F


def summed_cross_entropy(
    logits: Tensor, targets: Tensor, *, pad: int, label_smoothing: float = 0.0
) -> Tensor:
    """The sum of the negative log likelihoods of all targets that are not ``pad``.

    Args:
        logits: (B, L, V).
        targets: (B, L) int64.
    """
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
    """Input ids of which a random share reads ``hidden``; ids that are ``kept`` stay.

    Source: Gal and Ghahramani 2016, "A theoretically grounded application of dropout in recurrent
    neural networks", section 4.2 (word dropout); here each place is drawn by itself.

    Args:
        ids: (B, L) int64.
        share: probability in [0, 1) of each id to be hidden; 0 draws nothing.
        hidden: the id that is read instead.
        kept: an id that is never hidden.
    """
    if share == 0.0:
        return ids
    drawn = torch.rand(ids.shape, device=ids.device) < share  # (B, L)
    return ids.masked_fill(drawn & (ids != kept), hidden)
