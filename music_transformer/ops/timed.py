"""Attention to keys that stand on a clock, from queries that know what time it is.

A decoder of performance events meets the steps of a melody. Its events are no clock: between two of
them no time passes, or a second. But the time of each is known, so the relative term of the paper
can be taken over time instead of position:

    logits[i, j] = (q_i . k_j + q_i . E[d]) / sqrt(D) + b[d]      d = j - step_i, within -(M-1)..M-1

j is the step of the key, step_i that of the query; farther keys share the row of M - 1, as in Shaw
et al. 2018. One number a head and distance, b, lets a head find "now" whatever its query is.

Past the paper, whose models for melodies have no such term.
"""

import math

import torch
from torch import Tensor

from music_transformer.ops.two_sided import masked_softmax


def timed_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    step: Tensor,
    rel_embedding: Tensor,
    rel_bias: Tensor,
    keep: Tensor | None = None,
) -> Tensor:
    """Attention with the relative term over time; memory O(L S), never an (L, S, D) tensor.

    Args:
        query: (B, H, L, D).
        key: (B or 1, H, S, D), one a step, step 0 first.
        value: (B or 1, H, S, D).
        step: (B, L) int64, at which step each query is.
        rel_embedding: (H, 2M - 1, D); row r belongs to steps r - (M - 1) from the query's.
        rel_bias: (H, 2M - 1).
        keep: (B or 1, S) bool, True = may be attended to.

    Returns:
        (B, H, L, D).
    """
    farthest, keys = rel_embedding.shape[1] // 2, key.shape[2]
    scale = 1.0 / math.sqrt(query.shape[3])
    query = query * scale
    by_distance = query @ rel_embedding.transpose(-2, -1) + rel_bias[:, None]  # (B, H, L, 2M - 1)
    at = torch.arange(keys, device=step.device)  # (S,)
    row = (at - step[..., None]).clamp(-farthest, farthest) + farthest  # (B, L, S)
    rel_logits = by_distance.gather(3, row[:, None].expand(-1, query.shape[1], -1, -1))
    logits = query @ key.transpose(-2, -1) + rel_logits  # (B, H, L, S)
    return masked_softmax(logits, keep) @ value
