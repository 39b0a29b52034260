"""Relative attention by its definition: slow, obvious, what the other files are checked against.

    logits[i, j] = (q_i . k_j + q_i . E_r[i - j]) / sqrt(D)      distance i - j in 0..M-1
                 = (q_i . k_j) / sqrt(D)                         distance M and beyond

The relative embeddings are gathered for every pair, as in Shaw et al. 2018: O(L S D) memory for the
gathered embeddings beside O(L S) for the logits. Huang et al. 2018 print 8.5 GB for it at L = 2048
and D = 512; `ops/skew.py` and `ops/blockwise.py` give the same numbers without it.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from music_transformer.ops.masks import causal_mask
from music_transformer.ops.relational import Relational, relational_logits_by_gather


def relative_logits_by_gather(query: Tensor, rel_embedding: Tensor, keys: int) -> Tensor:
    """Relative logits, with the embedding of each pair of positions gathered first.

    Source: Shaw et al. 2018, "Self-Attention with Relative Position Representations", equation 4.

    Args:
        query: (B, H, L, D), the last L of the S positions.
        rel_embedding: (H or 1, M, D); row d belongs to distance d. Beyond M - 1 nothing is added.
        keys: S.

    Returns:
        (B, H, L, S), not scaled; 0 where the key lies after the query.
    """
    queries = query.shape[2]
    position = torch.arange(keys, device=query.device)  # (S,)
    distance = position[keys - queries :, None] - position[None, :]  # (L, S)
    known = (distance >= 0) & (distance < rel_embedding.shape[1])  # (L, S)
    gathered = rel_embedding[:, torch.where(known, distance, 0)]  # (H or 1, L, S, D)
    rel_logits = torch.einsum("bhid,hijd->bhij", query, gathered)  # (B, H, L, S)
    return rel_logits * known


def reference_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    rel_embedding: Tensor,
    *,
    relational: Relational | None = None,
    block: int | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """Causal relative attention by definition; cost O(L S D) in memory and time.

    Args:
        query: (B, H, L, D), the last L of the S positions.
        key: (B, H, S, D).
        value: (B, H, S, D).
        rel_embedding: (H or 1, M, D), by distance.
        relational: relative time and pitch, of one ``first_voice``.
        block: N for local attention in blocks, None for global.
        dropout: probability with which an attention weight is dropped.

    Returns:
        (B, H, L, D).
    """
    queries, keys, d_head = query.shape[2], key.shape[2], query.shape[3]
    rel_logits = relative_logits_by_gather(query, rel_embedding, keys)  # (B, H, L, S)
    if relational is not None:
        distances = rel_embedding.shape[1]
        further = relational_logits_by_gather(query, relational, keys, distances)
        rel_logits = rel_logits + further  # (B, H, L, S)
    logits = (query @ key.transpose(-2, -1) + rel_logits) / math.sqrt(d_head)  # (B, H, L, S)
    mask = causal_mask(queries, keys, block=block, device=query.device)  # (L, S)
    weights = logits.masked_fill(~mask, -math.inf).softmax(dim=-1)  # (B, H, L, S)
    return F.dropout(weights, dropout) @ value  # (B, H, L, D)
