"""Attention beside the paper's: without a positional term, with a bias, with Shaw's vectors.

All of it reads query (B, H, L, D), the last L of the S positions, key and value (B, H, S, D), and
gives (B, H, L, D). ``block`` is N of local attention, None for global; ``dropout`` is on weights.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from music_transformer.ops.reference import causal_mask


def plain_attention(
    query: Tensor, key: Tensor, value: Tensor, *, block: int | None = None, dropout: float = 0.0
) -> Tensor:
    """Causal attention without any positional term (PyTorch's fused kernel).

    An order is still known: the first query sees one key, the second two ("NoPE").
    """
    queries, keys = query.shape[2], key.shape[2]
    if block is None and queries == 1:
        return F.scaled_dot_product_attention(query, key, value, dropout_p=dropout)
    if block is None and queries == keys:
        return F.scaled_dot_product_attention(query, key, value, dropout_p=dropout, is_causal=True)
    mask = causal_mask(queries, keys, block=block, device=query.device)  # (L, S)
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=dropout)


def biased_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor,
    *,
    block: int | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """Causal attention with a number added to each logit: softmax(Q K^T / sqrt(D) + bias) V.

    ``bias`` is (H or 1, L, S), not scaled, and shared by the batch; see `ops/positions.py`.
    """
    queries, keys = query.shape[2], key.shape[2]
    bias = bias.to(query.dtype)
    if queries > 1 or block is not None:
        mask = causal_mask(queries, keys, block=block, device=query.device)  # (L, S)
        bias = bias.masked_fill(~mask, -math.inf)  # (H or 1, L, S)
    return F.scaled_dot_product_attention(
        query, key, value, attn_mask=bias[None], dropout_p=dropout
    )


def clipped_rows(queries: int, keys: int, *, clip_distance: int) -> Tensor:
    """Distance of each pair of positions, query minus key, from 0 (or less) to K: (L, S) int64."""
    position = torch.arange(keys)
    distance = position[keys - queries :, None] - position[None, :]  # (L, S)
    return distance.clamp(0, clip_distance)


def relative_logits_by_clipping(query: Tensor, rel_embedding: Tensor, rows: Tensor) -> Tensor:
    """Query times the vector of each clipped distance, gathered after the product, not scaled."""
    by_distance = query @ rel_embedding.mT  # (B, H, L, R)
    return by_distance.gather(-1, rows.expand(*query.shape[:2], -1, -1))  # (B, H, L, S)


def relative_values_by_clipping(weights: Tensor, rel_embedding: Tensor, rows: Tensor) -> Tensor:
    """Sum of the vectors of clipped distances by weights (B, H, L, S): (B, H, L, D)."""
    by_distance = weights.new_zeros(*weights.shape[:3], rel_embedding.shape[1])  # (B, H, L, R)
    index = rows.expand_as(weights)  # (B, H, L, S)
    return by_distance.scatter_add(-1, index, weights) @ rel_embedding  # (B, H, L, D)


def shaw_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_embedding: Tensor,
    value_embedding: Tensor,
    *,
    clip_distance: int,
    block: int | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """Causal attention with vectors of clipped distance, min(i - j, K) = c, on keys and values:

        logits[i, j] = q_i . (k_j + a_K[c]) / sqrt(D)
        out[i] = sum_j weights[i, j] (v_j + a_V[c])

    There are few vectors, so nothing is gathered per pair: the *products* with the query are, and
    weights are summed by distance first. Memory O(K D), not O(L S D), and O(L S) for the logits.

    Source: Shaw et al. 2018, "Self-Attention with Relative Position Representations", equations 3
    to 5. Huang et al. 2018 drop the vectors on values and do not clip.

    Args:
        key_embedding, value_embedding: (H or 1, K + 1, D).
        clip_distance: K.
    """
    queries, keys, d_head = query.shape[2], key.shape[2], query.shape[3]
    rows = clipped_rows(queries, keys, clip_distance=clip_distance).to(query.device)  # (L, S)
    query = query / math.sqrt(d_head)
    logits = query @ key.mT  # (B, H, L, S)
    logits = logits + relative_logits_by_clipping(query, key_embedding, rows)
    if queries > 1 or block is not None:
        mask = causal_mask(queries, keys, block=block, device=query.device)  # (L, S)
        logits = logits.masked_fill(~mask, -math.inf)
    weights = F.dropout(logits.softmax(dim=-1), dropout)  # (B, H, L, S)
    return weights @ value + relative_values_by_clipping(weights, value_embedding, rows)
