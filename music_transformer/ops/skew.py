"""Relative attention as the paper computes it: pad, reshape, slice.

The relative logits are first indexed by distance, (B, H, L, S) = query times embedding, then
"skewed" so that they are indexed by key. Memory: O(S D) for the embeddings (the gathered form of
`ops/reference.py` needs O(L S D)) and still O(L S) for the logits, which `ops/blockwise.py`
avoids.
"""

import math

from torch import Tensor
from torch.nn import functional as F

from music_transformer.errors import ShapeError
from music_transformer.ops.masks import causal_mask
from music_transformer.ops.products import dot_products
from music_transformer.ops.relational import (
    Relational,
    pitch_columns,
    query_times_table,
    time_rows,
    times_by_distance,
)


def skew(rel_logits: Tensor) -> Tensor:
    """Move logits indexed by distance to logits indexed by key position.

    ``out[..., i, j] == rel_logits[..., i, L - 1 - i + j]``: the last column is distance 0, and
    query i stands at position S - L + i. Entries with ``j > S - L + i`` are left-overs of the
    reshape; the caller's causal mask hides them. With L = S this is the paper's procedure, step by
    step; with L < S the queries are the last of the positions.

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


def relative_logits_by_skew(
    query: Tensor, rel_embedding: Tensor, keys: int, relational: Relational | None = None
) -> Tensor:
    """Relative logits by one matrix product and the skew.

    Args:
        query: (B, H, L, D), the last L of the S positions.
        rel_embedding: (H or 1, M, D); row d belongs to distance d. Beyond M - 1 nothing is added.
        keys: S.
        relational: relative time and pitch, of one ``first_voice``.

    Returns:
        (B, H, L, S), not scaled; arbitrary where the key lies after the query.
    """
    table = rel_embedding[:, :keys]  # (H or 1, min(M, S), D)
    if relational is not None and relational.time_embedding is not None:
        by_distance = query_times_table(query, table) + _time_logits(
            query, relational, table.shape[1]
        )
        by_distance = by_distance.flip(-1)  # (B, H, L, min(M, S)), farthest first
    elif query.shape[2] < query.shape[3]:  # farthest first: turn the smaller, logits or table
        by_distance = query_times_table(query, table).flip(-1)  # (B, H, L, min(M, S))
    else:
        by_distance = query_times_table(query, table.flip(1))  # (B, H, L, min(M, S))
    far = keys - table.shape[1]
    if far:
        by_distance = F.pad(by_distance, (far, 0))  # (B, H, L, S)
    rel_logits = by_distance if query.shape[2] == 1 else skew(by_distance)  # (B, H, L, S)
    if relational is None or relational.pitch is None or relational.pitch_embedding is None:
        return rel_logits
    columns = pitch_columns(query, relational.pitch_embedding, relational.pitch.rows)
    keyed = relational.pitch.key_columns  # (B, S, P)
    return rel_logits + (columns if keyed is None else columns @ keyed[:, None].mT)


def _time_logits(query: Tensor, relational: Relational, distances: int) -> Tensor:
    """Query times the vector of the time that belongs to each distance: (B, H, L, distances)."""
    assert relational.time_embedding is not None
    assert isinstance(relational.first_voice, int)
    times = time_rows(distances, relational.voices)
    by_time = query_times_table(query, relational.time_embedding[:, :times])  # (B, H, L, T)
    return times_by_distance(
        by_time, distances, voices=relational.voices, first_voice=relational.first_voice
    )


def skew_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    rel_embedding: Tensor,
    *,
    relational: Relational | None = None,
    block: int | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """Causal relative attention with skewed logits; cost O(L S) memory, O(L S D) time.

    Source: Huang et al. 2018, equation 3 and "Memory efficient implementation of relative
    position-based attention".

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
    rel_logits = relative_logits_by_skew(query, rel_embedding, keys, relational)  # (B, H, L, S)
    logits = (dot_products(query, key) + rel_logits) / math.sqrt(d_head)  # (B, H, L, S)
    if queries > 1 or block is not None:
        mask = causal_mask(queries, keys, block=block, device=query.device)  # (L, S)
        logits = logits.masked_fill(~mask, -math.inf)
    weights = logits.softmax(dim=-1)  # (B, H, L, S)
    return F.dropout(weights, dropout) @ value  # (B, H, L, D)
