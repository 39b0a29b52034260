"""Attention of and to an encoder: to both sides, and to keys on a clock.

**To both sides**, with the paper's relative term:

    logits[i, j] = (q_i . k_j + q_i . E[i - j]) / sqrt(D)      |i - j| <= M - 1
                 = (q_i . k_j) / sqrt(D)                       farther apart

`ops/skew.py` knows distances 0 and up; here they run from -(M - 1), a key that comes later, to
M - 1. The skew is the same idea with rows twice as long: query times embedding, (L, 2L - 1) with
the farthest past first, read with a row stride that is one shorter, is indexed by key. It is a
view, and unlike the causal one it has no left-overs to hide.

Source: Huang et al. 2018, "Memory efficient implementation of relative position-based attention";
Shaw et al. 2018 for both sides.

**To keys on a clock**, one a step, from queries whose time is known. A decoder's events are no
clock: between two of them no time passes, or a second. But the time of each is known, so the
relative term can be taken over time instead of position:

    logits[i, j] = (q_i . k_j + q_i . E[d]) / sqrt(D) + b[d]      d = j - step_i, within -(M-1)..M-1

j is the step of the key, step_i that of the query; farther keys share the row of M - 1, as in Shaw
et al. 2018. One number a head and distance, b, lets a head find "now" whatever its query is. It is
past the paper, whose models for melodies have no such term.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from music_transformer.errors import ShapeError


def bidirectional_skew(rel_logits: Tensor) -> Tensor:
    """Move logits (B, H, L, 2L - 1) indexed by distance to logits (B, H, L, L) indexed by key.

    ``out[..., i, j] == rel_logits[..., i, L - 1 - i + j]``: the first column is distance L - 1, the
    middle one 0, the last -(L - 1). The result is a view.

    Raises:
        ShapeError: another number of columns.
    """
    batch, heads, length, columns = rel_logits.shape
    if columns != 2 * length - 1:
        raise ShapeError(
            f"bidirectional_skew: rel_logits is {tuple(rel_logits.shape)}, expected "
            f"(B, H, L, {2 * length - 1}): one column for each distance from {length - 1} down."
        )
    if length == 1:
        return rel_logits
    flat = rel_logits.reshape(batch, heads, length * columns)
    rows = flat[:, :, length - 1 : length - 1 + length * (columns - 1)]
    return rows.view(batch, heads, length, columns - 1)[..., :length]  # (B, H, L, L)


def bidirectional_logits(query: Tensor, rel_embedding: Tensor) -> Tensor:
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
    return bidirectional_skew(by_distance)


def bidirectional_attention(
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
        rel_embedding: (H or 1, 2M - 1, D) as in `bidirectional_logits`; None adds nothing.
        keep: (B, L) bool, True = may be attended to; None keeps all. A sequence that keeps nothing
            gets the mean of its values.

    Returns:
        (B, H, L, D).
    """
    logits = query @ key.transpose(-2, -1)  # (B, H, L, L)
    if rel_embedding is not None:
        logits = logits + bidirectional_logits(query, rel_embedding)
    weights = masked_softmax(logits / math.sqrt(query.shape[3]), keep)  # (B, H, L, L)
    return weights @ value


def masked_softmax(logits: Tensor, keep: Tensor | None) -> Tensor:
    """Softmax of (B, H, L, S) over the keys with ``keep`` (B, S) True; over all where none is."""
    if keep is not None:
        # Not -inf: where no key is kept, that would be 0 / 0.
        logits = logits.masked_fill(~keep[:, None, None], torch.finfo(logits.dtype).min)
    return logits.softmax(dim=-1)


def time_relative_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    step: Tensor,
    tables: tuple[Tensor, Tensor],
    keep: Tensor | None = None,
) -> Tensor:
    """Attention with the relative term over time; memory O(L S), never an (L, S, D) tensor.

    Args:
        query: (B, H, L, D).
        key: (B or 1, H, S, D), one a step, step 0 first.
        value: (B or 1, H, S, D).
        step: (B, L) int64, at which step each query is.
        tables: rel_embedding (H, 2M - 1, D), whose row r belongs to steps r - (M - 1) from the
            query's, and rel_bias (H, 2M - 1).
        keep: (B or 1, S) bool, True = may be attended to.

    Returns:
        (B, H, L, D).
    """
    rel_embedding, rel_bias = tables
    farthest, keys = rel_embedding.shape[1] // 2, key.shape[2]
    scale = 1.0 / math.sqrt(query.shape[3])
    query = query * scale
    by_distance = query @ rel_embedding.transpose(-2, -1) + rel_bias[:, None]  # (B, H, L, 2M - 1)
    at = torch.arange(keys, device=step.device)  # (S,)
    row = (at - step[..., None]).clamp(-farthest, farthest) + farthest  # (B, L, S)
    rel_logits = by_distance.gather(3, row[:, None].expand(-1, query.shape[1], -1, -1))
    logits = query @ key.transpose(-2, -1) + rel_logits  # (B, H, L, S)
    return masked_softmax(logits, keep) @ value
