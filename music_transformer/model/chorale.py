"""What a chorale model knows past the paper's operator: voices that take turns, steps, intervals.

The id at index p is the input that predicts event p, of voice p mod V. Relative time and pitch
(Huang et al. 2018, the last row of Table 2) are two tables beside that of the distance:

    logits[i, j] = q_i . (k_j + E_r[i - j] + E_t[step_i - step_j] + E_p[pitch_i - pitch_j])

divided by sqrt(D). ``step_i - step_j`` is ceil((d - v) / V) for the distance d and the voice v of
the *query*: each voice has a table of distances, and queries take turns with them. ``q_i . E_p`` is
gathered for the P pitches that occur among the keys, as P columns more; the key has a one there
where its pitch is. An id without a pitch (silence, PAD, START, END) has no pitch term.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from music_transformer.errors import ConfigError, ShapeError
from music_transformer.model.config import ModelConfig
from music_transformer.model.positions import QKV, Reading, Relative, TensorsByName
from music_transformer.model.terms import Term
from music_transformer.model.transformer import InputEmbedding, embedding_table
from music_transformer.ops.relative import in_float32, relative_attention
from music_transformer.ops.skew import attention_with, query_times_table

N_PITCHES = 128  # ids 0-127 are pitches
LARGEST_INTERVAL = 36
INTERVALS = 2 * LARGEST_INTERVAL + 1  # rows of the table of pitch, for -36 to 36
NO_PITCH = NOTHING_READ = -1


class PitchColumns(NamedTuple):
    """Which rows of the pitch table meet which keys."""

    rows: Tensor  # (B, 1, L, P) int64, for query i and column p; `INTERVALS` means no term
    # (B, S, P), one where the key's pitch is that of the column. None for a single query, where
    # each key has a column of its own, P = S: no product, but a gather of S numbers.
    keys: Tensor | None


class Turns(NamedTuple):
    """What the layers share of one pass: the voice of each sequence's first id, and the pitches."""

    first_voice: tuple[int, ...]
    pitch: PitchColumns | None


class Tables(NamedTuple):
    """The tables of one layer; what is None is not added."""

    distance: Tensor  # (H or 1, M, D), E_r
    time: Tensor | None  # (H or 1, T, D), E_t by distance in steps; see `time_rows` for T
    interval: Tensor | None  # (H or 1, INTERVALS, D), E_p by interval, query minus key
    voices: int  # V


class VoiceTurns(nn.Module):
    """`Turns` of a pass, what relative time and pitch need; it has no parameters."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config

    def forward(self, reading: Reading) -> Turns:
        """With relative time, places that are not consecutive are a `ShapeError`."""
        config, place = self.config, reading.place
        first_voice: tuple[int, ...] = (0,)
        if config.relative_time:
            if place.shape[-1] > 1 and not (place.diff(dim=-1) == 1).all():
                raise ShapeError(
                    "place does not go up by one from each id to the next, which relative time "
                    "counts on; read ids that are consecutive in their piece."
                )
            first_voice = tuple((place[..., 0] % config.voice_labels).reshape(-1).tolist())
        columns = None
        if config.relative_pitch:
            columns = pitch_columns(pitches_of(reading.ids), reading.queries)
        return Turns(first_voice, columns)


def chorale_attention(
    query: Tensor, key: Tensor, value: Tensor, tables: Tables, turns: Turns, **options: Any
) -> Tensor:
    """Causal attention with the terms of distance, time and pitch: (B, H, L, D).

    Sequences whose first queries are of different voices are computed a voice at a time.
    ``options`` are ``block``, ``dropout`` and ``implementation`` of `relative_attention`.
    """
    voices = sorted(set(turns.first_voice))
    if len(voices) == 1:
        with torch.autocast(query.device.type, enabled=False):
            return _of_one_voice(
                in_float32(query), in_float32(key), in_float32(value), tables, turns, options
            ).to(value.dtype)
    out = torch.empty_like(query)
    for voice in voices:
        rows = [row for row, first in enumerate(turns.first_voice) if first == voice]
        index = torch.tensor(rows, device=query.device)
        pitch = turns.pitch
        if pitch is not None:
            keys = None if pitch.keys is None else pitch.keys[index]
            pitch = PitchColumns(pitch.rows[index], keys)
        of_voice = Turns((voice,), pitch)
        parts = (query[index], key[index], value[index])
        out = out.index_copy(0, index, chorale_attention(*parts, tables, of_voice, **options))
    return out  # (B, H, L, D)


def _of_one_voice(
    query: Tensor, key: Tensor, value: Tensor, tables: Tables, turns: Turns, options: dict[str, Any]
) -> Tensor:
    """`chorale_attention` where all sequences begin with the same voice."""
    if query.shape[2] == 1:  # its logits are cheaper than tables for all voices
        options.pop("implementation", None)
        rel_logits = _logits_of_one_query(query, key.shape[2], tables, turns)
        return attention_with(rel_logits, query, key, value, **options)
    query, key, by_voice = operands(query, key, tables, turns)
    return relative_attention(query, key, value, by_voice, first=turns.first_voice[0], **options)


def operands(
    query: Tensor, key: Tensor, tables: Tables, turns: Turns
) -> tuple[Tensor, Tensor, Tensor]:
    """Query (B, H, L, D+P), key (B, H, S, D+P), tables (V or 1, H or 1, M, D) of the operator."""
    dtype = query.dtype
    by_voice = tables.distance[None, :, : key.shape[2]].to(dtype)  # (1, H or 1, min(M, S), D)
    if tables.time is not None:
        by_voice = tables_by_voice(by_voice[0], tables.time.to(dtype), voices=tables.voices)
    pitch = turns.pitch
    if tables.interval is not None and pitch is not None and pitch.keys is not None:
        added = query_times_intervals(query, tables.interval.to(dtype), pitch.rows)
        query = torch.cat([query, added], dim=-1)  # (B, H, L, D+P)
        by_head = pitch.keys[:, None].to(dtype).expand(-1, key.shape[1], -1, -1)  # (B, H, S, P)
        key = torch.cat([key, by_head], dim=-1)  # (B, H, S, D+P)
    return query, key, by_voice


def _logits_of_one_query(query: Tensor, keys: int, tables: Tables, turns: Turns) -> Tensor:
    """All terms but query times key, (B, H, 1, S), for ``query`` (B, H, 1, D)."""
    dtype, voices = query.dtype, tables.voices
    near = tables.distance[:, :keys].to(dtype)  # (H or 1, min(M, S), D)
    by_distance = query_times_table(query, near)  # (B, H, 1, min(M, S))
    if tables.time is not None:
        times = tables.time[:, : time_rows(near.shape[1], voices)].to(dtype)  # (H or 1, T, D)
        by_time = query_times_table(query, times)  # (B, H, 1, T)
        spread = by_time[..., None].expand(*by_time.shape, voices).flatten(3)  # (B, H, 1, T*V)
        skip = voices - 1 - turns.first_voice[0]
        by_distance = by_distance + spread[..., skip : skip + near.shape[1]]
    rel_logits = F.pad(by_distance.flip(-1), (keys - near.shape[1], 0))  # (B, H, 1, S)
    if tables.interval is None or turns.pitch is None:
        return rel_logits
    return rel_logits + query_times_intervals(query, tables.interval.to(dtype), turns.pitch.rows)


def time_rows(distances: int, voices: int) -> int:
    """T, the distances in steps that ``distances`` M positions span: ceil((M - 1) / V) + 1."""
    return -(-(distances - 1) // voices) + 1


def tables_by_voice(distance: Tensor, time: Tensor, *, voices: int) -> Tensor:
    """E_r[d] + E_t[ceil((d - v) / V)] for each voice v of the query: (V, H or 1, M, D).

    ``distance`` is (H or 1, M, D), ``time`` (H or 1, T, D).
    """
    rows = distance.shape[1]
    steps = time[:, : time_rows(rows, voices)]  # (H or 1, T, D)
    spread = steps[:, :, None].expand(-1, -1, voices, -1).flatten(1, 2)  # (H or 1, T*V, D)
    starts = range(voices - 1, -1, -1)  # voice v has v + 1 distances within its own step
    return torch.stack([distance + spread[:, start : start + rows] for start in starts])


def pitches_of(ids: Tensor) -> Tensor:
    """The pitch of each id, `NO_PITCH` where it has none; any shape."""
    return torch.where(ids < N_PITCHES, ids, NO_PITCH)


def interval_rows(query: Tensor, key: Tensor) -> Tensor:
    """Row of the pitch table for two pitches; `INTERVALS` where one of them is none."""
    row = (query - key).clamp(-LARGEST_INTERVAL, LARGEST_INTERVAL) + LARGEST_INTERVAL
    return torch.where((query >= 0) & (key >= 0), row, INTERVALS)


def pitch_columns(pitches: Tensor, queries: int) -> PitchColumns:
    """Columns for the pitches (B, S) that occur, or one for each key where L = ``queries`` is 1."""
    query = pitches[:, None, -queries:, None]  # (B, 1, L, 1)
    if queries == 1:
        return PitchColumns(interval_rows(query, pitches[:, None, None, :]), None)
    batch, keys = pitches.shape
    slot = torch.where(pitches >= 0, pitches, N_PITCHES)  # (B, S)
    occurs = pitches.new_zeros(batch, N_PITCHES + 1).scatter_(1, slot, 1)  # (B, 129)
    occurs[:, N_PITCHES] = 0
    width = -(-max(1, int(occurs.sum(1).max())) // 4) * 4  # P; whole vectors multiply faster
    column = torch.where(occurs > 0, occurs.cumsum(1) - 1, width)  # (B, 129)
    key_columns = torch.zeros(batch, keys, width + 1, device=pitches.device)
    key_columns.scatter_(2, column.gather(1, slot)[..., None], 1)  # (B, S, P+1)
    pitch = torch.arange(N_PITCHES + 1, device=pitches.device).expand(batch, -1)  # (B, 129)
    of_column = pitches.new_full((batch, width + 1), NO_PITCH).scatter_(1, column, pitch)
    rows = interval_rows(query, of_column[:, None, None, :width])  # (B, 1, L, P)
    return PitchColumns(rows, key_columns[..., :width].contiguous())


def query_times_intervals(query: Tensor, interval: Tensor, rows: Tensor) -> Tensor:
    """Query (B, H, L, D) times the vector of the interval to each column: (B, H, L, P).

    ``interval`` is (H or 1, INTERVALS, D), ``rows`` (B, 1, L, P) of `pitch_columns`.
    """
    by_interval = query_times_table(query, interval)  # (B, H, L, INTERVALS)
    by_interval = F.pad(by_interval, (0, 1))  # no term: the last column
    return by_interval.gather(-1, rows.expand(-1, query.shape[1], -1, -1))  # (B, H, L, P)


def last_of_voice(ids: Tensor, voices: int) -> Tensor:
    """The last id of the voice whose turn comes after each id (B, S); else `NOTHING_READ`."""
    return F.pad(ids, (voices - 1, 0), value=NOTHING_READ)[:, : ids.shape[1]]


def held_steps(ids: Tensor, voices: int, most: int) -> Tensor:
    """For how many steps the voice whose turn comes next has had its last id: (B, S) int64.

    0 is nothing read of it; ``ids`` (B, S) are from the first that was read, ``most`` ends the
    count. Attention cannot count well, and how long a note has lasted says much about its end.
    Source: Peracha 2019, "Improving polyphonic music models with feature-rich encoding".
    """
    last = last_of_voice(ids, voices)  # (B, S)
    reach = (most - 1) * voices
    before = F.pad(last, (reach, 0), value=NOTHING_READ)  # (B, reach + S)
    turns = before.unfold(1, reach + 1, 1)[..., ::voices]  # (B, S, most), the last one last
    same = (turns == last[..., None]) & (last != NOTHING_READ)[..., None]
    return same.flip(-1).cumprod(-1).sum(-1)


class ChoraleRelative(Relative):
    """The paper's scheme with the terms of time and pitch."""

    stack = VoiceTurns

    def check(self) -> None:
        """Relative, and not in the fused kernel."""
        config = self.config
        for name in ("relative_pitch", "relative_time"):
            if not getattr(config, name):
                continue
            if config.attention_position != "relative":
                raise ConfigError(
                    f"{name} with attention_position={config.attention_position}: it is a further "
                    "term of relative; use attention_position=relative."
                )
            if config.attention == "fused":
                raise ConfigError(
                    f"{name} with attention=fused, whose kernel has no such term; use "
                    "attention=auto."
                )

    def tables(self) -> dict[str, int]:
        """E_r, and its companions."""
        config, rows = self.config, super().tables()
        if config.relative_time:
            rows["time_embedding"] = time_rows(config.distances, config.voice_labels)
        if config.relative_pitch:
            rows["pitch_embedding"] = INTERVALS
        return rows

    def attend(self, qkv: QKV, tables: TensorsByName, shared: Turns, dropout: float) -> Tensor:
        """See `chorale_attention`."""
        time, interval = tables.get("time_embedding"), tables.get("pitch_embedding")
        of_layer = Tables(tables["rel_embedding"], time, interval, self.config.voice_labels)
        return chorale_attention(*qkv, of_layer, shared, **self.options(dropout))


class LabelledInput(InputEmbedding):
    """An input that also knows voice, step and held time of the voice whose turn comes."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        d = config.d_model
        self.voice = embedding_table(config.voice_labels, d)
        self.step = embedding_table(config.step_labels, d) if config.step_labels else None
        self.held_embedding: nn.Parameter | None = None
        if config.held_labels:
            self.held_embedding = nn.Parameter(torch.zeros(config.held_labels + 1, d))

    def labelled(self, x: Tensor, reading: Reading) -> Tensor:
        """x (B, L, d_model) with the labels added, from the index of each id in its piece."""
        scale, voices, place = self.config.d_model**0.5, self.config.voice_labels, reading.place
        x = x + self.voice(place % voices) * scale
        if self.step is not None:
            x = x + self.step(place // voices % self.config.step_labels) * scale
        if self.held_embedding is not None:
            x = x + self.held_labels(reading.ids, reading.queries)
        return x

    def held_labels(self, ids: Tensor, queries: int) -> Tensor:
        """What is added for the held steps at the last L of the ids (B, S): (B, L, d_model)."""
        assert self.held_embedding is not None
        voices, most = self.config.voice_labels, self.config.held_labels
        near = ids[:, -(queries + voices * (most + 1)) :]  # no farther is counted
        held = held_steps(near, voices, most)[:, -queries:]  # (B, L)
        added: Tensor = F.embedding(held, self.held_embedding) * self.config.d_model**0.5
        return added


class IntervalOutput(Term):
    """Logits by interval from the voice's last pitch (our own); zero at first, so nothing is added.

    What is learned of a step upwards holds for all pitches at once.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.vocab_size, self.voices = config.vocab_size, config.voice_labels
        # No nn.Linear: what adds to logits stays float32 where the layers are in bfloat16.
        self.interval_vectors = nn.Parameter(torch.zeros(INTERVALS, config.d_model))
        self.interval_bias = nn.Parameter(torch.zeros(INTERVALS))

    def read(self, reading: Reading, kept: dict[str, Any] | None) -> Tensor:
        """The last id of the voice that is to come, (B, L)."""
        near = reading.ids[:, -(reading.queries + self.voices - 1) :]
        return last_of_voice(near, self.voices)[:, -reading.queries :]

    def logits(self, x: Tensor, logits: Tensor, state: Tensor) -> Tensor:
        """Logits (B, L, V) with those of intervals added, for ids and last ids that are pitches."""
        to = torch.arange(self.vocab_size, device=x.device)
        to = torch.where(to < N_PITCHES, to, NO_PITCH)  # (V,)
        rows = interval_rows(to, pitches_of(state)[..., None])  # (B, L, V)
        by_interval = F.linear(x, self.interval_vectors, self.interval_bias)  # (B, L, INTERVALS)
        return logits + F.pad(by_interval, (0, 1)).gather(-1, rows)  # the last: no interval

    def output_parameters(self) -> list[nn.Parameter]:
        """All it has."""
        return [self.interval_vectors, self.interval_bias]
