"""Relative time and relative pitch, for chorales: two tables beside that of the distance.

    logits[i, j] = q_i . (k_j + E_r[i - j] + E_t[step_i - step_j] + E_p[pitch_i - pitch_j])

divided by sqrt(D). Neither needs a vector for each pair of positions, nor even a gather of L x S
numbers:

- **time**: ids take turns in V voices, so ``step_i - step_j`` is ceil((d - v) / V) for the distance
  d = i - j and the voice v of the *query*. The term is a table of distances for each voice,
  ``E_r[d] + E_t[ceil((d - v) / V)]``, and costs nothing beyond the relative term itself;
- **pitch**: ``q_i . E_p[pitch_i - p]`` is gathered for the P pitches p that occur among the keys,
  P columns more for the query; the key has a one there where its pitch stands, and zeros. One
  product of D + P columns gives both terms. Only the D columns meet the table of distances.

An interval beyond `LARGEST_INTERVAL` semitones shares the vector of that interval. An id without
a pitch (silence, PAD, START, END) has no pitch term, as query or as key. Time is told apart as far
as the table of distances reaches, and nothing is added beyond.

Source: Huang et al. 2018, the last row of Table 2 (relative pitch and time); the way it is computed
here is our own.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from music_transformer.ops.products import dot_products

N_PITCHES = 128  # ids 0-127 are pitches
LARGEST_INTERVAL = 36
INTERVALS = 2 * LARGEST_INTERVAL + 1  # rows of the table of pitch, for -36 to 36
NO_PITCH = -1


class PitchPairs(NamedTuple):
    """What all layers share of one pass: which rows of the pitch table meet which keys.

    Attributes:
        pitches: (B, S) int64, `NO_PITCH` where an id has none.
        rows: (B, 1, L, P) int64, row for query i and column p; `INTERVALS` means no term.
        key_columns: (B, S, P), one where the key's pitch is that of the column; None where each
            key has a column of its own, P = S.
    """

    pitches: Tensor
    rows: Tensor
    key_columns: Tensor | None

    def of_sequences(self, index: Tensor) -> "PitchPairs":
        """Those of some sequences of the batch."""
        columns = None if self.key_columns is None else self.key_columns[index]
        return PitchPairs(self.pitches[index], self.rows[index], columns)


class Relational(NamedTuple):
    """The two further terms of `ops.attention.relative_attention`; what is None is not added.

    Attributes:
        time_embedding: (H or 1, T, D), by distance in steps; see `time_rows` for T.
        voices: V, ids of one step.
        first_voice: voice of the first query, 0..V-1; one for the batch or one for each sequence.
        pitch_embedding: (H or 1, INTERVALS, D), by interval, query minus key, from the lowest.
        pitch: from `pitch_pairs`, with the pitch table.
    """

    time_embedding: Tensor | None = None
    voices: int = 1
    first_voice: int | tuple[int, ...] = 0
    pitch_embedding: Tensor | None = None
    pitch: PitchPairs | None = None


def time_rows(distances: int, voices: int) -> int:
    """T, the distances in steps that ``distances`` positions from 0 on span."""
    return (distances - 2 + voices) // voices + 1


def pitches_of(ids: Tensor) -> Tensor:
    """The pitch of each id, `NO_PITCH` where it has none; any shape."""
    return torch.where(ids < N_PITCHES, ids, NO_PITCH)


def interval_rows(query: Tensor, key: Tensor) -> Tensor:
    """Row of the pitch table for two pitches; `INTERVALS` where one of them is none."""
    row = (query - key).clamp(-LARGEST_INTERVAL, LARGEST_INTERVAL) + LARGEST_INTERVAL
    return torch.where((query >= 0) & (key >= 0), row, INTERVALS)


def pitch_pairs(
    pitches: Tensor, queries: int, *, dtype: torch.dtype, by_key: bool | None = None
) -> PitchPairs:
    """Columns for the pitches that occur, or one for each key where that is cheaper.

    Args:
        pitches: (B, S) int64, of all keys.
        queries: L, the last of the S positions.
        dtype: of the key columns.
        by_key: a column for each key: no product, but a gather of L x S numbers. By default for
            one query only.
    """
    query = pitches[:, None, -queries:, None]  # (B, 1, L, 1)
    if queries == 1 if by_key is None else by_key:
        rows = interval_rows(query, pitches[:, None, None, :])  # (B, 1, L, S)
        return PitchPairs(pitches, rows, None)
    batch, keys = pitches.shape
    slot = torch.where(pitches >= 0, pitches, N_PITCHES)  # (B, S)
    occurs = pitches.new_zeros(batch, N_PITCHES + 1).scatter_(1, slot, 1)  # (B, 129)
    occurs[:, N_PITCHES] = 0
    width = -(-max(1, int(occurs.sum(1).max())) // 4) * 4  # P; whole vectors multiply faster
    column = torch.where(occurs > 0, occurs.cumsum(1) - 1, width)  # (B, 129)
    key_columns = torch.zeros(batch, keys, width + 1, dtype=dtype, device=pitches.device)
    key_columns.scatter_(2, column.gather(1, slot)[..., None], 1)  # (B, S, P+1)
    pitch = torch.arange(N_PITCHES + 1, device=pitches.device).expand(batch, -1)  # (B, 129)
    of_column = pitches.new_full((batch, width + 1), NO_PITCH).scatter_(1, column, pitch)
    rows = interval_rows(query, of_column[:, None, None, :width])  # (B, 1, L, P)
    return PitchPairs(pitches, rows, key_columns[..., :width].contiguous())


def query_times_table(query: Tensor, table: Tensor) -> Tensor:
    """Query (B, H, L, D) times table (H or 1, M, D): (B, H, L, M), one product a head.

    A broadcast product would first copy the table for each sequence of the batch: at batch 8 that
    made decoding an event five times slower.
    """
    batch, heads, queries, d_head = query.shape
    if batch == 1 or table.shape[0] != heads:
        return dot_products(query, table)
    by_head = query.transpose(0, 1).reshape(heads, batch * queries, d_head)  # (H, B*L, D)
    product = (by_head @ table.mT).view(heads, batch, queries, -1)  # (H, B, L, M)
    return product.transpose(0, 1)  # (B, H, L, M)


def pitch_columns(query: Tensor, pitch_embedding: Tensor, rows: Tensor) -> Tensor:
    """Query times the vector of the interval to each column: P numbers a query.

    Args:
        query: (B, H, L, D).
        pitch_embedding: (H or 1, INTERVALS, D).
        rows: (B, 1, L, P), from `pitch_pairs`.

    Returns:
        (B, H, L, P), not scaled.
    """
    by_interval = query_times_table(query, pitch_embedding)  # (B, H, L, INTERVALS)
    by_interval = F.pad(by_interval, (0, 1))  # no term: the last column
    return by_interval.gather(-1, rows.expand(-1, query.shape[1], -1, -1))  # (B, H, L, P)


def times_by_distance(by_time: Tensor, distances: int, *, voices: int, first_voice: int) -> Tensor:
    """Query times E_t by distance in steps, spread over distances in positions.

    Args:
        by_time: (B, H, L, T).
        distances: M: distances 0 to M - 1 are given back.
        voices: V.
        first_voice: of the first query.

    Returns:
        (B, H, L, M).
    """
    batch, heads, queries, times = by_time.shape
    spread = by_time[..., None].expand(-1, -1, -1, -1, voices).flatten(3)  # (B, H, L, T*V)
    first = [voices - 1 - (first_voice + i) % voices for i in range(min(voices, queries))]
    if queries == 1:
        return spread[..., first[0] : first[0] + distances]  # (B, H, 1, M)
    groups = -(-queries // voices)
    padded = F.pad(spread, (0, 0, 0, groups * voices - queries))
    padded = padded.view(batch, heads, groups, voices, times * voices)
    turns = [
        padded[:, :, :, turn, start : start + distances]  # (B, H, groups, M)
        for turn, start in enumerate(first + [0] * (voices - len(first)))
    ]
    return torch.stack(turns, dim=3).flatten(2, 3)[:, :, :queries]  # (B, H, L, M)


def tables_by_voice(
    rel_embedding: Tensor, time_embedding: Tensor, distances: int, *, voices: int
) -> Tensor:
    """E_r[d] + E_t[ceil((d - v) / V)] for each voice v of the query.

    Args:
        rel_embedding: (H or 1, M, D), by distance.
        time_embedding: (H or 1, T, D), by distance in steps.
        distances: as many rows are given back; zero from M on.
        voices: V.

    Returns:
        (V, H or 1, distances, D), farthest first.
    """
    near = rel_embedding[:, :distances].flip(1)  # (H or 1, M, D), from here on M <= distances
    rows = near.shape[1]
    steps = time_embedding[:, : time_rows(rows, voices)].flip(1)  # (H or 1, T, D)
    spread = steps[:, :, None].expand(-1, -1, voices, -1).flatten(1, 2)  # (H or 1, T*V, D)
    skip = spread.shape[1] - (rows + voices - 1)  # times of distances that no voice asks for
    by_voice = [near + spread[:, skip + v : skip + v + rows] for v in range(voices)]
    return F.pad(torch.stack(by_voice), (0, 0, distances - rows, 0))  # (V, H or 1, distances, D)


def relational_logits_by_gather(
    query: Tensor, relational: Relational, keys: int, distances: int
) -> Tensor:
    """Both terms by their definition, the vectors of each pair gathered first: O(B L S D) memory.

    Args:
        query: (B, H, L, D), the last L of the S positions.
        relational: the terms, of one ``first_voice``.
        keys: S.
        distances: M, the reach of the relative table, which is the reach of time too.

    Returns:
        (B, H, L, S), not scaled.
    """
    queries, voices = query.shape[2], relational.voices
    logits = query.new_zeros(*query.shape[:3], keys)  # (B, H, L, S)
    if relational.time_embedding is not None:
        assert isinstance(relational.first_voice, int)
        position = torch.arange(keys, device=query.device)  # (S,)
        step = (position + (relational.first_voice - (keys - queries)) % voices) // voices
        distance = position[keys - queries :, None] - position  # (L, S)
        known = (distance >= 0) & (distance < distances)
        time = torch.where(known, step[keys - queries :, None] - step, 0)  # (L, S)
        gathered = relational.time_embedding[:, time]  # (H or 1, L, S, D)
        logits = logits + torch.einsum("bhid,hijd->bhij", query, gathered) * known
    if relational.pitch_embedding is not None and relational.pitch is not None:
        pitches = relational.pitch.pitches  # (B, S)
        rows = interval_rows(pitches[:, -queries:, None], pitches[:, None])  # (B, L, S)
        table = F.pad(relational.pitch_embedding, (0, 0, 0, 1))  # a row of zeros: no term
        gathered = table[:, rows]  # (H or 1, B, L, S, D)
        logits = logits + torch.einsum("bhid,hbijd->bhij", query, gathered)
    return logits
