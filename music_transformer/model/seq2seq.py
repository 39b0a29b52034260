"""Encoder and decoder: performance events, written to a melody.

melody steps (B, S) -> encoder, every step sees every step -> keys and values for each layer of the
decoder; ids (B, L) -> decoder, whose layers are those of `MusicTransformer` with attention to the
melody between attention and feed-forward -> logits (B, L, V) of the next event. Both sides have
relative attention, the encoder's with distances of both signs.

``cross_position="time"`` tells the attention to the melody which of its steps is *now*: the time of
an event is the sum of the TIME_SHIFTs so far, so it is known from the ids alone. It is past the
paper; ``none`` leaves it out.

Weights that also exist in a `MusicTransformer` have the same names and shapes, and the attention to
the melody starts as nothing. So a decoder that was trained alone can be put in place
(`train --init`), and begins here as what it was.

Source: Huang et al. 2018, "Music Transformer", section 4.2; Vaswani et al. 2017.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from music_transformer.errors import ShapeError
from music_transformer.model.accompaniment_config import AccompanimentConfig
from music_transformer.model.config import ModelConfig
from music_transformer.model.kv_cache import KVCache
from music_transformer.model.linear import Linear
from music_transformer.model.positions import NO_TIME, Reading
from music_transformer.model.registry import register
from music_transformer.model.terms import add_terms
from music_transformer.model.transformer import (
    DecoderLayer,
    InputEmbedding,
    Layer,
    initialise_linear,
    scale_residual,
)
from music_transformer.ops.bidirectional import (
    bidirectional_attention,
    masked_softmax,
    time_relative_attention,
)
from music_transformer.ops.positions import alibi_slopes

_ONSETS = 128  # ids of a melody below this begin a note, of this pitch


class Melody(NamedTuple):
    """A melody as the decoder uses it.

    Attributes:
        layers: for each layer of the decoder the keys and values (B or 1, H, S, D).
        keep: (B or 1, S) bool, True = a step of the melody, not PAD.
        anchors: times and pitches (B or 1, S) of its onsets, see `model/anchors.py`.
    """

    layers: list[tuple[Tensor, Tensor]]
    keep: Tensor
    anchors: tuple[Tensor, Tensor]


class AccompanimentCache(KVCache):
    """What the decoder has read, and the melody it is written to.

    Attributes:
        melody: None before one was encoded.
        time: (B,) int64, the time that has passed since the first id, in units of TIME_SHIFT.
    """

    def __init__(self, config: ModelConfig, batch: int, capacity: int | None, like: Tensor) -> None:
        super().__init__(config, batch, capacity, like)
        self.melody: Melody | None = None
        self.time = torch.zeros(self.batch, dtype=torch.int64, device=like.device)

    def clear(self) -> None:
        """Forget everything, the melody too; the memory is kept."""
        super().clear()
        self.melody = None
        self.time = torch.zeros_like(self.time)


class TwoSidedAttention(nn.Module):
    """Attention of the encoder: every step sees every step that is not PAD.

    ``rel_embedding`` (H, 2M - 1, D) has a row for each distance from -(M - 1) to M - 1.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.n_heads, width = config.n_heads, config.attention_width
        self.query = Linear(config.d_model, width, bias=False)
        self.key = Linear(config.d_model, width, bias=False)
        self.value = Linear(config.d_model, width, bias=False)
        self.out = Linear(width, config.d_model, bias=False)
        self.rel_embedding: nn.Parameter | None = None
        if config.attention_position == "relative":
            rows = 2 * config.distances - 1
            self.rel_embedding = _table(config.n_heads, rows, config.d_head)

    def forward(self, x: Tensor, keep: Tensor) -> Tensor:
        """x (B, S, d_encoder), keep (B, S) bool -> (B, S, d_encoder)."""
        query, key, value = (
            _heads(p(x), self.n_heads) for p in (self.query, self.key, self.value)
        )  # (B, H, S, D)
        mixed = bidirectional_attention(query, key, value, self.rel_embedding, keep=keep)
        out: Tensor = self.out(mixed.transpose(1, 2).flatten(2))  # (B, S, d_encoder)
        return out


class MelodyAttention(nn.Module):
    """Attention from the decoder to the encoded melody; it starts as nothing, ``out`` being 0."""

    def __init__(self, config: AccompanimentConfig) -> None:
        super().__init__()
        self.n_heads, width = config.n_heads, config.d_cross
        self.query = Linear(config.d_model, width, bias=False)
        self.key = Linear(config.d_encoder, width, bias=False)
        self.value = Linear(config.d_encoder, width, bias=False)
        self.out = Linear(width, config.d_model, bias=False)
        self.rel_embedding: nn.Parameter | None = None
        self.rel_bias: nn.Parameter | None = None
        if config.cross_position == "time":
            rows = 2 * config.cross_distance - 1
            self.rel_embedding = _table(config.n_heads, rows, width // config.n_heads)
            away = (torch.arange(rows) - rows // 2).abs()  # (2M - 1,) steps
            slopes = alibi_slopes(config.n_heads).float()  # each head begins with its own reach
            self.rel_bias = nn.Parameter(-slopes[:, None] * away)  # (H, 2M - 1)

    def keys_and_values(self, encoded: Tensor) -> tuple[Tensor, Tensor]:
        """encoded (B, S, d_encoder) -> two of (B, H, S, D)."""
        return _heads(self.key(encoded), self.n_heads), _heads(self.value(encoded), self.n_heads)

    def forward(
        self, x: Tensor, melody: tuple[Tensor, Tensor], keep: Tensor, step: Tensor
    ) -> Tensor:
        """x (B, L, d_model) at melody steps ``step`` (B, L) -> (B, L, d_model)."""
        query, (key, value) = _heads(self.query(x), self.n_heads), melody
        if self.rel_embedding is None or self.rel_bias is None:
            logits = query @ key.transpose(-2, -1) * query.shape[3] ** -0.5  # (B, H, L, S)
            mixed = masked_softmax(logits, keep) @ value  # (B, H, L, D)
        else:
            mixed = time_relative_attention(
                query, key, value, step=step, tables=(self.rel_embedding, self.rel_bias), keep=keep
            )
        out: Tensor = self.out(mixed.transpose(1, 2).flatten(2))  # (B, L, d_model)
        return out


class EncoderLayer(Layer):
    """A layer of attention to both sides."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config, TwoSidedAttention(config))

    def forward(self, x: Tensor, keep: Tensor) -> Tensor:
        """x (B, S, d_encoder), keep (B, S) bool -> (B, S, d_encoder)."""
        return self.feed_forward(x + self.dropout(self.attention(self.attention_norm(x), keep)))


class MelodyEncoder(nn.Module):
    """Melody steps (B, S) -> (B, S, d_encoder); PAD is not attended to."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.input = InputEmbedding(config)
        self.layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.n_layers))
        self.norm = nn.LayerNorm(config.d_model)

    def forward(self, source: Tensor, keep: Tensor) -> Tensor:
        """source (B, S) int64, keep (B, S) bool -> (B, S, d_encoder)."""
        steps = source.shape[1]
        place = torch.arange(steps, device=source.device)  # (S,)
        x = self.input(source, Reading(source, place, steps, steps))  # (B, S, d_encoder)
        for layer in self.layers:
            x = layer(x, keep)
        out: Tensor = self.norm(x)
        return out


class AccompanimentLayer(DecoderLayer):
    """A layer of the decoder with attention to the melody between its two halves."""

    def __init__(self, config: AccompanimentConfig) -> None:
        super().__init__(config.decoder)
        self.melody_norm = nn.LayerNorm(config.d_model)
        self.melody_attention = MelodyAttention(config)

    def forward(  # type: ignore[override]
        self,
        x: Tensor,
        *,
        layer: int,
        melody: tuple[Tensor, Tensor],
        keep: Tensor,
        step: Tensor,
        cache: KVCache | None = None,
    ) -> Tensor:
        """x (B, L, d_model) -> (B, L, d_model)."""
        normed = self.attention_norm(x)
        x = x + self.dropout(self.attention(normed, layer=layer, cache=cache))
        heard = self.melody_attention(self.melody_norm(x), melody, keep, step)
        return self.feed_forward(x + self.dropout(heard))


class AccompanimentTransformer(nn.Module):
    """Encoder and decoder; see the module's text."""

    def __init__(self, config: AccompanimentConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder = MelodyEncoder(config.encoder)
        self.input = InputEmbedding(config.decoder)
        self.layers = nn.ModuleList(AccompanimentLayer(config) for _ in range(config.n_layers))
        self.norm = nn.LayerNorm(config.d_model)
        self.output = Linear(config.d_model, config.vocab_size)
        self.terms = add_terms(self, config.decoder)
        self.apply(initialise_linear)
        with torch.no_grad():
            scale_residual(self.encoder.layers)
            scale_residual(self.layers)
            for layer in self.layers:
                layer.get_parameter("melody_attention.out.weight").zero_()

    def forward(
        self,
        ids: Tensor,
        *,
        place: Tensor | None = None,
        source: Tensor | None = None,
        cache: AccompanimentCache | None = None,
    ) -> Tensor:
        """Logits of the event after each id.

        Args:
            ids: (B, L) int64.
            place: not used; every model is told.
            source: (B or 1, S) int64, the melody; its step 0 is when the first id is read, so the
                melody moves with the window. How far into its step an onset lies, in units of time,
                is added to the id, times ``source_vocab_size``. With a cache it is needed once.
            cache: what was read before ``ids``, and the melody; both are added to it.

        Returns:
            (B, L, V).

        Raises:
            ShapeError: ids or source of another shape, more ids than the cache has room for, or no
                melody at all.
        """
        if ids.dim() != 2 or ids.shape[1] == 0:
            raise ShapeError(f"ids is {tuple(ids.shape)}, expected (B, L) with L >= 1.")
        start, time = 0, torch.zeros(1, dtype=torch.int64, device=ids.device)
        if cache is not None:
            cache.require_room(ids)
            start, time = cache.length, cache.time
        melody = self._melody(source, cache, batch=ids.shape[0])
        time = time[:, None] + self._time_passed(ids)  # (B, L)
        step = time // self.config.shifts_per_step  # (B, L)
        place = torch.arange(start, start + ids.shape[1], device=ids.device)  # (L,)
        read = ids if cache is None else cache.append_ids(ids)  # (B, S)
        reading = Reading(read, place, ids.shape[1], start + ids.shape[1], melody.anchors)
        x = self.input(ids, reading)  # (B, L, d_model)
        kept = None if cache is None else cache.kept
        states = [term.read(reading, kept) for term in self.terms]
        for term, state in zip(self.terms, states, strict=True):
            x = term.embed(x, state)
        for index, layer in enumerate(self.layers):
            heard = melody.layers[index]
            x = layer(x, layer=index, melody=heard, keep=melody.keep, step=step, cache=cache)
        if cache is not None:
            cache.advance(ids.shape[1])
            cache.time = time[:, -1]
        x = self.norm(x)
        logits: Tensor = self.output(x)  # (B, L, V)
        for term, state in zip(self.terms, states, strict=True):
            logits = term.logits(x, logits, state)
        return logits

    def encode(self, source: Tensor, cache: AccompanimentCache) -> None:
        """Put the melody (B or 1, S) into an empty cache, so that reading ids needs it no more.

        Raises:
            ShapeError: a source of another shape, or ids were already read to another melody.
        """
        if cache.length:
            raise ShapeError(
                f"the cache holds {cache.length} ids that were read to another melody; clear it."
            )
        cache.melody = self._encoded(source, cache.batch)

    def new_cache(self, batch: int, *, capacity: int | None = None) -> AccompanimentCache:
        """An empty cache for ``batch`` sequences of ``capacity`` ids (default: the context)."""
        return AccompanimentCache(self.config.decoder, batch, capacity, self.output.weight)

    def _melody(
        self, source: Tensor | None, cache: AccompanimentCache | None, *, batch: int
    ) -> Melody:
        if source is not None and cache is not None:
            self.encode(source, cache)
        if cache is not None and cache.melody is not None:
            return cache.melody
        if source is None:
            raise ShapeError("there is no melody: pass source (B, S), or a cache that has one.")
        return self._encoded(source, batch)

    def _encoded(self, source: Tensor, batch: int) -> Melody:
        if source.dim() != 2 or source.shape[1] == 0 or source.shape[0] not in (1, batch):
            raise ShapeError(
                f"source is {tuple(source.shape)}, expected ({batch} or 1, S) with S >= 1."
            )
        into = source // self.config.source_vocab_size  # (B or 1, S) units of time
        source = source % self.config.source_vocab_size
        keep = source != self.config.source_pad
        encoded = self.encoder(source, keep)  # (B or 1, S, d_encoder)
        layers = []
        for layer in self.layers:
            attention = layer.get_submodule("melody_attention")
            assert isinstance(attention, MelodyAttention)
            layers.append(attention.keys_and_values(encoded))
        times = torch.arange(source.shape[1], device=source.device) * self.config.shifts_per_step
        times = torch.where(source < _ONSETS, times + into, NO_TIME)  # (B or 1, S), of onsets
        times, order = times.sort(dim=1, stable=True)
        return Melody(layers, keep, (times, source.gather(1, order)))

    def _time_passed(self, ids: Tensor) -> Tensor:
        """Units of time from the first of the ids (B, L) to each, its own included: (B, L)."""
        first, count = self.config.time_shift, self.config.time_shifts
        units = ids - (first - 1)  # (B, L)
        units = torch.where((units > 0) & (units <= count), units, 0)
        return units.cumsum(dim=1)


def _table(heads: int, rows: int, d_head: int) -> nn.Parameter:
    """Vectors of length about 1, one a head and distance: (H, rows, D)."""
    return nn.Parameter(torch.randn(heads, rows, d_head) * d_head**-0.5)


def _heads(x: Tensor, n_heads: int) -> Tensor:
    """(B, L, H * D) -> (B, H, L, D)."""
    return x.view(*x.shape[:2], n_heads, -1).transpose(1, 2)


register("seq2seq", AccompanimentConfig, AccompanimentTransformer)
