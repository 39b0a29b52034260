"""Attention of and to an encoder: to both sides, and to keys on a clock.

It is past the paper, whose models for melodies have no relative term of either kind.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from music_transformer.errors import ShapeError


def bidirectional_skew(rel_logits: Tensor) -> Tensor:
    """Move logits (B, H, L, 2L - 1) by distance, L - 1 to -(L - 1), to (B, H, L, L) by key.

    ``out[..., i, j] == rel_logits[..., i, L - 1 - i + j]``: rows read with a stride that is one
    shorter. It is a view, and unlike the causal `skew` has no left-overs to hide.

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

    ``query`` is (B, H, L, D), ``rel_embedding`` (H or 1, 2M - 1, D), whose row r belongs to
    distance r - (M - 1), query less key. The result is (B, H, L, L), not scaled, 0 farther apart.
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
    """Attention of every position to every position that is kept, with the paper's relative term.

        logits[i, j] = (q_i . k_j + q_i . E[i - j]) / sqrt(D)      |i - j| <= M - 1

    Source: Huang et al. 2018; Shaw et al. 2018 for both sides. ``keep`` (B, L) bool is True where a
    position may be attended to; a sequence that keeps nothing gets the mean of its values. E is as
    in `bidirectional_logits`; None adds nothing.
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
    """Attention (B, H, L, D) with the relative term over time; memory O(L S).

    Events are no clock: between two of them no time passes, or a second. But the time of each is
    known, so the term can be that of d = j - step_i, clipped to -(M-1)..M-1 as in Shaw et al. 2018:

        logits[i, j] = (q_i . k_j + q_i . E[d]) / sqrt(D) + b[d]

    b lets a head find "now" whatever its query is.

    Args:
        query: (B, H, L, D).
        key, value: (B or 1, H, S, D), one a step, step 0 first.
        step: (B, L) int64, at which step each query is.
        tables: E (H, 2M - 1, D), whose row r belongs to d = r - (M - 1), and b (H, 2M - 1).
        keep: (B or 1, S) bool, True = may be attended to.
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
