"""Attention to both sides with the paper's relative term, for an encoder.

    logits[i, j] = (q_i . k_j + q_i . E[i - j]) / sqrt(D)      |i - j| <= M - 1
                 = (q_i . k_j) / sqrt(D)                       farther apart

`ops/skew.py` knows distances 0 and up; here they run from -(M - 1), a key that comes later, to
M - 1. The skew is the same idea with rows twice as long: query times embedding, (L, 2L - 1) with
the farthest past first, read with a row stride that is one shorter, is indexed by key. It is a
view, and unlike the causal one it has no left-overs to hide.

Source: Huang et al. 2018, "Memory efficient implementation of relative position-based attention";
Shaw et al. 2018 for both sides.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from music_transformer.errors import ShapeError


def two_sided_skew(rel_logits: Tensor) -> Tensor:
    """Move logits indexed by distance to logits indexed by key.

    ``out[..., i, j] == rel_logits[..., i, L - 1 - i + j]``: the first column is distance L - 1, the
    middle one 0, the last -(L - 1).

    Args:
        rel_logits: (B, H, L, 2L - 1), contiguous.

    Returns:
        (B, H, L, L), a view.

    Raises:
        ShapeError: another number of columns.
    """
    batch, heads, length, columns = rel_logits.shape
    if columns != 2 * length - 1:
        raise ShapeError(
            f"two_sided_skew: rel_logits is {tuple(rel_logits.shape)}, expected "
            f"(B, H, L, {2 * length - 1}): one column for each of the distances "
            f"{length - 1} to {1 - length}."
        )
    if length == 1:
        return rel_logits
    flat = rel_logits.reshape(batch, heads, length * columns)
    rows = flat[:, :, length - 1 : length - 1 + length * (columns - 1)]
    return rows.view(batch, heads, length, columns - 1)[..., :length]  # (B, H, L, L)


def two_sided_logits(query: Tensor, rel_embedding: Tensor) -> Tensor:
    """Relative logits of every pair of positions, by one matrix product and the skew.

    Args:
        query: (B, H, L, D).
        rel_embedding: (H or 1, 2M - 1, D); row r belongs to distance r - (M - 1), the position of
            the query less that of the key. Farther apart nothing is added.

    Returns:
        (B, H, L, L), not scaled. Memory: O(L^2) for the logits, O(L D) for the embeddings.
    """
    length, known = query.shape[2], rel_embedding.shape[1] // 2 + 1  # M
    near = min(known, length)
    table = rel_embedding[:, known - near : known + near - 1].flip(1)  # (H or 1, 2 near - 1, D)
    by_distance = query @ table.transpose(-2, -1)  # (B, H, L, 2 near - 1), farthest past first
    by_distance = F.pad(by_distance, (length - near, length - near))  # (B, H, L, 2L - 1)
    return two_sided_skew(by_distance)


def two_sided_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    rel_embedding: Tensor | None,
    *,
    keep: Tensor | None = None,
) -> Tensor:
    """Attention of every position to every position that is kept.

    Args:
        query, key, value: (B, H, L, D).
        rel_embedding: (H or 1, 2M - 1, D) as in `two_sided_logits`; None adds nothing.
        keep: (B, L) bool, True = may be attended to; None keeps all. A sequence that keeps nothing
            gets the mean of its values.

    Returns:
        (B, H, L, D).
    """
    logits = query @ key.transpose(-2, -1)  # (B, H, L, L)
    if rel_embedding is not None:
        logits = logits + two_sided_logits(query, rel_embedding)
    weights = masked_softmax(logits / math.sqrt(query.shape[3]), keep)  # (B, H, L, L)
    return weights @ value


def masked_softmax(logits: Tensor, keep: Tensor | None) -> Tensor:
    """Softmax of (B, H, L, S) over the keys with ``keep`` (B, S) True; over all where none is."""
    if keep is not None:
        # Not -inf: where no key is kept, that would be 0 / 0.
        logits = logits.masked_fill(~keep[:, None, None], torch.finfo(logits.dtype).min)
    return logits.softmax(dim=-1)
