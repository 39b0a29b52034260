"""Relative attention as the paper computes it: pad, reshape, slice.

Memory O(S D) for the embeddings and still O(L S) for the logits, which `ops/blockwise.py` avoids.
"""

import math

from torch import Tensor
from torch.nn import functional as F

from music_transformer.errors import ShapeError
from music_transformer.ops.reference import causal_mask


def skew(rel_logits: Tensor) -> Tensor:
    """Move logits indexed by distance to logits indexed by key position.

    ``out[..., i, j] == rel_logits[..., i, L - 1 - i + j]``: the last column is distance 0, and
    query i stands at position S - L + i. Entries with ``j > S - L + i`` are left-overs of the
    reshape; the caller's causal mask hides them. With L = S this is the paper's procedure.

    Source: Huang et al. 2018, "Memory efficient implementation of relative position-based
    attention".

    Args:
        rel_logits: (B, H, L, S), query times distance embedding, distances S-1 down to 0.

    Returns:
        (B, H, L, S), same dtype; one padded copy, never the (L, S, D) tensor.

    Raises:
        ShapeError: more queries than keys.
    """
    batch, heads, queries, keys = rel_logits.shape
    if queries > keys:
        raise ShapeError(
            f"skew: rel_logits is {tuple(rel_logits.shape)}, expected (B, H, L, S) with L <= S: "
            f"pass one column for each of the {queries} or more distances."
        )
    padded = F.pad(rel_logits, (1, 0))  # (B, H, L, 1+S)
    return padded.flatten(2)[:, :, queries:].view(batch, heads, queries, keys)  # (B, H, L, S)


def relative_logits_by_skew(query: Tensor, tables: Tensor, keys: int, *, first: int = 0) -> Tensor:
    """Relative logits (B, H, L, S) of query (B, H, L, D) by a product a table and the skew.

    Not scaled; arbitrary where the key lies after the query. Tables as in `relative_attention`.
    """
    near = tables[:, :, :keys]  # (V, H or 1, min(M, S), D)
    turns, queries = tables.shape[0], query.shape[2]
    if turns == 1:
        by_distance = _by_distance(query, near[0])  # (B, H, L, min(M, S))
    else:
        by_distance = query.new_empty(*query.shape[:3], near.shape[2])
        for turn in range(min(turns, queries)):
            rows = query[:, :, turn::turns]  # (B, H, ceil((L - turn) / V), D)
            by_distance[:, :, turn::turns] = _by_distance(rows, near[(first + turn) % turns])
    if near.shape[2] < keys:
        by_distance = F.pad(by_distance, (keys - near.shape[2], 0))  # (B, H, L, S)
    return by_distance if queries == 1 else skew(by_distance)


def _by_distance(query: Tensor, table: Tensor) -> Tensor:
    """Query (B, H, L, D) times table (H or 1, M, D), farthest first: (B, H, L, M)."""
    if query.shape[2] < query.shape[3]:  # L < D: the logits are smaller than the table, turn them
        return query_times_table(query, table).flip(-1)
    return query_times_table(query, table.flip(1))


def skew_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    tables: Tensor,
    *,
    first: int = 0,
    block: int | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """Causal relative attention with skewed logits; cost O(L S) memory, O(L S D) time.

    Arguments and result as in `ops.relative.relative_attention`.
    """
    rel_query = query[..., : tables.shape[3]]  # (B, H, L, D)
    rel_logits = relative_logits_by_skew(rel_query, tables, key.shape[2], first=first)
    return attention_with(rel_logits, query, key, value, block=block, dropout=dropout)


def attention_with(
    rel_logits: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    block: int | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """Causal attention, softmax((Q K^T + rel_logits) / sqrt(D)) V; D is the width of ``value``.

    ``rel_logits`` are (B, H, L, S) and indexed by key; all else as in `skew_attention`.
    """
    queries, keys = rel_logits.shape[2:]
    logits = (dot_products(query, key) + rel_logits) / math.sqrt(value.shape[3])  # (B, H, L, S)
    if queries > 1 or block is not None:
        mask = causal_mask(queries, keys, block=block, device=query.device)  # (L, S)
        logits = logits.masked_fill(~mask, -math.inf)
    weights = logits.softmax(dim=-1)  # (B, H, L, S)
    return F.dropout(weights, dropout) @ value  # (B, H, L, D)


def dot_products(query: Tensor, rows: Tensor) -> Tensor:
    """``query @ rows.mT``, (..., L, D) and (..., S, D) -> (..., L, S).

    A single query is the right-hand side, as a column: a CPU reads the rows 1.4 times as fast then.
    """
    if query.shape[-2] == 1:
        return (rows @ query.mT).mT
    return query @ rows.mT


def query_times_table(query: Tensor, table: Tensor) -> Tensor:
    """Query (B, H, L, D) times table (H or 1, M, D): (B, H, L, M), one product a head.

    A broadcast product would copy the table for each sequence: at batch 8, five times slower.
    """
    batch, heads, queries, d_head = query.shape
    if batch == 1 or table.shape[0] != heads:
        return dot_products(query, table)
    by_head = query.transpose(0, 1).reshape(heads, batch * queries, d_head)  # (H, B*L, D)
    product = (by_head @ table.mT).view(heads, batch, queries, -1)  # (H, B, L, M)
    return product.transpose(0, 1)  # (B, H, L, M)
