"""Relative attention by its definition: slow, obvious, what the other files are checked against.

    logits[i, j] = (q_i . k_j + q_i . E[i - j]) / sqrt(D)      distance i - j in 0..M-1
                 = (q_i . k_j) / sqrt(D)                       distance M and beyond

for every key j that query i may attend to. Embeddings are gathered for every pair, as in Shaw et
al. 2018: O(L S D) memory, 8.5 GB at L = 2048 and D = 512 as Huang et al. 2018 print.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional as F


def causal_mask(
    queries: int, keys: int, *, block: int | None = None, device: torch.device | None = None
) -> Tensor:
    """Which key a query may attend to: (L, S) bool, True = may attend.

    Queries are the last L of S positions. Global: every key up to the query itself. Local
    (``block`` = N): of those, the query's own block of N positions and the whole block before it.

    Source: Huang et al. 2018, "Relative local attention".
    """
    key_position = torch.arange(keys, device=device)  # (S,)
    query_position = key_position[keys - queries :, None]  # (L, 1)
    mask = key_position <= query_position  # (L, S)
    if block is not None:
        mask = mask & (key_position // block >= query_position // block - 1)  # (L, S)
    return mask


def relative_logits_by_gather(
    query: Tensor, tables: Tensor, keys: int, *, first: int = 0
) -> Tensor:
    """As `ops.skew.relative_logits_by_skew`, with the embedding of each pair of positions gathered.

    0 where the key lies after the query. Source: Shaw et al. 2018, equation 4.
    """
    queries = query.shape[2]
    position = torch.arange(keys, device=query.device)  # (S,)
    distance = position[keys - queries :, None] - position[None, :]  # (L, S)
    known = (distance >= 0) & (distance < tables.shape[2])  # (L, S)
    turn = (first + torch.arange(queries, device=query.device)) % tables.shape[0]  # (L,)
    gathered = tables[turn[:, None], :, torch.where(known, distance, 0)]  # (L, S, H or 1, D)
    return torch.einsum("bhid,ijhd->bhij", query, gathered) * known  # (B, H, L, S)


def reference_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    tables: Tensor,
    *,
    first: int = 0,
    block: int | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """Causal relative attention by definition; cost O(L S D) in memory and time.

    Arguments and result as in `ops.relative.relative_attention`.
    """
    queries, keys, d_head = query.shape[2], key.shape[2], tables.shape[3]
    rel_logits = relative_logits_by_gather(query[..., :d_head], tables, keys, first=first)
    logits = (query @ key.transpose(-2, -1) + rel_logits) / math.sqrt(d_head)  # (B, H, L, S)
    mask = causal_mask(queries, keys, block=block, device=query.device)  # (L, S)
    weights = logits.masked_fill(~mask, -math.inf).softmax(dim=-1)  # (B, H, L, S)
    return F.dropout(weights, dropout) @ value  # (B, H, L, D)
