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

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from music_transformer.errors import ConfigError, ShapeError
from music_transformer.model.config import ModelConfig, Settings
from music_transformer.model.kv_cache import KVCache
from music_transformer.model.linear import Linear
from music_transformer.model.positions import Reading
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


@dataclass(frozen=True)
class AccompanimentConfig(Settings):
    """Settings of an `AccompanimentTransformer`.

    Attributes:
        vocab_size: V, all ids of the decoder.
        source_vocab_size: all ids of the melody, PAD included.
        source_pad: its PAD, which is never attended to.
        n_layers: layers of the decoder.
        d_model, n_heads, d_ff: of the decoder, as in `ModelConfig`.
        n_encoder_layers, d_encoder, d_encoder_ff: layers and widths of the encoder, which has as
            many heads; a melody is a simpler thing than what is played to it.
        d_cross: width of the attention to the melody over all heads; a multiple of n_heads.
        dropout: of both.
        context: the most ids the decoder reads at once.
        source_context: the most steps of the melody it is shown at once.
        input_position: none or sinusoidal, of both.
        attention_position: none or relative, of both.
        max_distance: rows of the decoder's tables; None for context.
        source_distance: M of the encoder's tables of 2M - 1 rows; None for source_context.
        cross_position: none, or time: attention to the melody knows which step is now.
        cross_distance: M of its tables; steps farther away share the last row.
        time_shift: the id that lets one unit of time pass; the next ids let 2, 3, ... pass.
        time_shifts: how many such ids there are.
        shifts_per_step: units of time in a step of the melody.
        performance_state: of the decoder, as in `ModelConfig`.

    Raises:
        ConfigError: a value that makes no sense.
    """

    vocab_size: int = 391
    source_vocab_size: int = 258
    source_pad: int = 257
    n_layers: int = 6
    d_model: int = 256
    n_heads: int = 4
    d_ff: int = 1024
    n_encoder_layers: int = 3
    d_encoder: int = 128
    d_encoder_ff: int = 512
    d_cross: int = 128
    dropout: float = 0.1
    context: int = 1024
    source_context: int = 320
    input_position: str = "none"
    attention_position: str = "relative"
    max_distance: int | None = 512
    source_distance: int | None = 128
    cross_position: str = "time"
    cross_distance: int = 64
    time_shift: int = 256
    time_shifts: int = 100
    shifts_per_step: int = 10
    performance_state: bool = False

    def __post_init__(self) -> None:
        self._one_of("input_position", ("none", "sinusoidal"))
        self._one_of("attention_position", ("none", "relative"))
        self._one_of("cross_position", ("none", "time"))
        for name in ("source_context", "d_cross", "cross_distance", "shifts_per_step"):
            self._at_least(name, 1)
        if self.d_cross % self.n_heads:
            raise ConfigError(
                f"d_cross={self.d_cross} is not a multiple of n_heads={self.n_heads}; try "
                f"{max(1, round(self.d_cross / self.n_heads)) * self.n_heads}."
            )
        for name in ("time_shift", "time_shifts", "source_pad"):
            self._at_least(name, 0)
        if self.source_pad >= self.source_vocab_size:
            raise ConfigError(
                f"source_pad={self.source_pad} is outside the {self.source_vocab_size} ids of the "
                "melody."
            )
        _ = self.decoder, self.encoder  # their own checks

    @property
    def decoder(self) -> ModelConfig:
        """The config of the decoder's stack."""
        return self._stack(
            vocab_size=self.vocab_size,
            n_layers=self.n_layers,
            d_model=self.d_model,
            d_ff=self.d_ff,
            context=self.context,
            max_distance=self.max_distance,
            performance_state=self.performance_state,
        )

    @property
    def encoder(self) -> ModelConfig:
        """The config of the encoder's stack."""
        return self._stack(
            vocab_size=self.source_vocab_size,
            n_layers=self.n_encoder_layers,
            d_model=self.d_encoder,
            d_ff=self.d_encoder_ff,
            context=self.source_context,
            max_distance=self.source_distance,
        )

    def _stack(self, **own: Any) -> ModelConfig:
        shared = ("n_heads", "dropout", "input_position", "attention_position")
        return ModelConfig(**{name: getattr(self, name) for name in shared}, **own)

    # What an estimate of the size of a run asks of the decoder.
    attention = property(lambda self: self.decoder.attention)
    attention_dropout = property(lambda self: self.decoder.attention_dropout)
    attention_width = property(lambda self: self.decoder.attention_width)


class AccompanimentCache(KVCache):
    """What the decoder has read, and the melody it is written to.

    Attributes:
        melody: for each layer the keys and values (B or 1, H, S, D) of the melody, None before it
            was encoded.
        keep: (B or 1, S) bool, True = a step of the melody, not PAD.
        time: (B,) int64, the time that has passed since the first id, in units of TIME_SHIFT.
    """

    def __init__(self, config: ModelConfig, batch: int, capacity: int | None, like: Tensor) -> None:
        super().__init__(config, batch, capacity, like)
        self.melody: list[tuple[Tensor, Tensor]] | None = None
        self.keep: Tensor | None = None
        self.time = torch.zeros(self.batch, dtype=torch.int64, device=like.device)

    def clear(self) -> None:
        """Forget everything, the melody too; the memory is kept."""
        super().clear()
        self.melody = self.keep = None
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
                query,
                key,
                value,
                step=step,
                rel_embedding=self.rel_embedding,
                rel_bias=self.rel_bias,
                keep=keep,
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
                melody moves with the window. With a cache it is needed once.
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
        melody, keep = self._melody(source, cache, batch=ids.shape[0])
        time = time[:, None] + self._time_passed(ids)  # (B, L)
        step = time // self.config.shifts_per_step  # (B, L)
        place = torch.arange(start, start + ids.shape[1], device=ids.device)  # (L,)
        read = ids if cache is None else cache.append_ids(ids)  # (B, S)
        reading = Reading(read, place, ids.shape[1], start + ids.shape[1])
        x = self.input(ids, reading)  # (B, L, d_model)
        kept = None if cache is None else cache.kept
        states = [term.read(reading, kept) for term in self.terms]
        for term, state in zip(self.terms, states, strict=True):
            x = term.embed(x, state)
        for index, layer in enumerate(self.layers):
            x = layer(x, layer=index, melody=melody[index], keep=keep, step=step, cache=cache)
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
        cache.melody, cache.keep = self._encoded(source, cache.batch)

    def new_cache(self, batch: int, *, capacity: int | None = None) -> AccompanimentCache:
        """An empty cache for ``batch`` sequences of ``capacity`` ids (default: the context)."""
        return AccompanimentCache(self.config.decoder, batch, capacity, self.output.weight)

    def _melody(
        self, source: Tensor | None, cache: AccompanimentCache | None, *, batch: int
    ) -> tuple[list[tuple[Tensor, Tensor]], Tensor]:
        """Keys and values of the melody for each layer, and which steps are real."""
        if source is not None and cache is not None:
            self.encode(source, cache)
        if cache is not None and cache.melody is not None and cache.keep is not None:
            return cache.melody, cache.keep
        if source is None:
            raise ShapeError("there is no melody: pass source (B, S), or a cache that has one.")
        return self._encoded(source, batch)

    def _encoded(self, source: Tensor, batch: int) -> tuple[list[tuple[Tensor, Tensor]], Tensor]:
        if source.dim() != 2 or source.shape[1] == 0 or source.shape[0] not in (1, batch):
            raise ShapeError(
                f"source is {tuple(source.shape)}, expected ({batch} or 1, S) with S >= 1."
            )
        keep = source != self.config.source_pad  # (B or 1, S)
        encoded = self.encoder(source, keep)  # (B or 1, S, d_encoder)
        melody = []
        for layer in self.layers:
            attention = layer.get_submodule("melody_attention")
            assert isinstance(attention, MelodyAttention)
            melody.append(attention.keys_and_values(encoded))
        return melody, keep

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
