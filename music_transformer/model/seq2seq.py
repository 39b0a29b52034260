"""Encoder and decoder: performance events, written to a melody.

melody steps (B, S) -> encoder -> keys and values for each layer of the decoder; ids (B, L) ->
decoder, whose layers are those of `MusicTransformer` with attention to the melody between attention
and feed-forward -> logits (B, L, V). Weights that also exist in a `MusicTransformer` have the same
names and shapes, so that `train --init` can begin with a decoder that was trained alone.

Source: Huang et al. 2018, "Music Transformer", section 4.2; Vaswani et al. 2017.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from music_transformer.errors import ConfigError, ShapeError
from music_transformer.model.config import ModelConfig, Settings
from music_transformer.model.kv_cache import KVCache
from music_transformer.model.positions import NO_TIME, Reading
from music_transformer.model.registry import register
from music_transformer.model.transformer import (
    Attention,
    Decoder,
    DecoderLayer,
    InputEmbedding,
    Layer,
    distance_table,
    scale_residual,
)
from music_transformer.ops.bidirectional import (
    bidirectional_attention,
    masked_softmax,
    time_relative_attention,
)
from music_transformer.ops.positions import alibi_slopes

_ONSETS = 128  # ids of a melody below this begin a note, of this pitch


@dataclass(frozen=True)
class AccompanimentConfig(Settings):
    """Settings of an `AccompanimentTransformer`; what makes no sense is a `ConfigError`.

    Those of `ModelConfig` mean the same, of the decoder; dropout, positions and heads are of both.
    """

    vocab_size: int = 391
    source_vocab_size: int = 258  # all ids of the melody, PAD included
    source_pad: int = 257  # its PAD, which is never attended to
    n_layers: int = 6
    d_model: int = 256
    n_heads: int = 4
    d_ff: int = 1024
    n_encoder_layers: int = 3
    d_encoder: int = 128
    d_encoder_ff: int = 512
    d_cross: int = 128  # width of the attention to the melody over all heads
    dropout: float = 0.1
    context: int = 1024
    source_context: int = 320  # the most steps of the melody it is shown at once
    input_position: str = "none"  # or sinusoidal
    attention_position: str = "relative"  # or none
    max_distance: int | None = 512
    source_distance: int | None = 128  # M of the encoder's tables of 2M - 1 rows, or its context
    cross_position: str = "time"  # attention to the melody knows which step is now; or none
    cross_distance: int = 64  # M of its tables; steps farther away share the last row
    time_shift: int = 256  # the id that lets one unit of time pass; the next ids let 2, 3, ... pass
    time_shifts: int = 100  # how many such ids there are
    shifts_per_step: int = 10  # units of time in a step of the melody
    performance_state: bool = False
    anchors: bool = False  # the onsets of the melody

    def __post_init__(self) -> None:
        self._one_of("input_position", ("none", "sinusoidal"))
        self._one_of("attention_position", ("none", "relative"))
        self._one_of("cross_position", ("none", "time"))
        self._at_least(1, "n_heads", "source_context", "d_cross", "cross_distance")
        self._at_least(1, "shifts_per_step")
        self._of_heads("d_cross", self.d_cross, self.n_heads)
        self._at_least(0, "time_shift", "time_shifts", "source_pad")
        if self.source_pad >= self.source_vocab_size:
            raise ConfigError(
                f"source_pad={self.source_pad} is outside the {self.source_vocab_size} ids of the "
                "melody."
            )
        _ = self.decoder, self.encoder  # their own checks

    @property
    def decoder(self) -> ModelConfig:
        """The config of the decoder's stack."""
        own = ("vocab_size", "n_layers", "d_model", "d_ff", "context", "max_distance")
        terms = ("performance_state", "anchors")
        return self._stack(**{name: getattr(self, name) for name in own + terms})

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


class Melody(NamedTuple):
    """A melody as the decoder uses it."""

    layers: list[tuple[Tensor, Tensor]]  # keys and values of each layer (B or 1, H, S, D)
    keep: Tensor  # (B or 1, S) bool, True = a step of the melody, not PAD
    anchors: tuple[Tensor, Tensor]  # times and pitches (B or 1, S) of its onsets


class TwoSidedAttention(Attention):
    """Attention of the encoder: every step sees every step that is not PAD.

    ``rel_embedding`` (H, 2M - 1, D) has a row for each distance from -(M - 1) to M - 1.
    """

    def __init__(self, config: ModelConfig) -> None:
        d, heads = config.d_model, config.n_heads
        super().__init__(d, config.attention_width, heads, d_source=d)
        self.rel_embedding: nn.Parameter | None = None
        if config.attention_position == "relative":
            self.rel_embedding = distance_table(heads, 2 * config.distances - 1, config.d_head)

    def forward(self, x: Tensor, keep: Tensor) -> Tensor:
        """x (B, S, d_encoder), keep (B, S) bool -> (B, S, d_encoder)."""
        query, key, value = (self.heads(p(x)) for p in (self.query, self.key, self.value))
        mixed = bidirectional_attention(query, key, value, self.rel_embedding, keep=keep)
        return self.merged(mixed)


class MelodyAttention(Attention):
    """Attention from the decoder to the encoded melody.

    With ``cross_position="time"`` it knows which step of the melody is *now*; past the paper.
    """

    def __init__(self, config: AccompanimentConfig) -> None:
        heads = config.n_heads
        super().__init__(config.d_model, config.d_cross, heads, d_source=config.d_encoder)
        self.rel_embedding: nn.Parameter | None = None
        self.rel_bias: nn.Parameter | None = None
        if config.cross_position == "time":
            rows = 2 * config.cross_distance - 1
            self.rel_embedding = distance_table(heads, rows, config.d_cross // heads)
            away = (torch.arange(rows) - rows // 2).abs()  # (2M - 1,) steps
            slopes = alibi_slopes(heads).float()  # each head begins with its own reach
            self.rel_bias = nn.Parameter(-slopes[:, None] * away)  # (H, 2M - 1)

    def keys_and_values(self, encoded: Tensor) -> tuple[Tensor, Tensor]:
        """encoded (B, S, d_encoder) -> two of (B, H, S, D)."""
        return self.heads(self.key(encoded)), self.heads(self.value(encoded))

    def forward(
        self, x: Tensor, melody: tuple[Tensor, Tensor], keep: Tensor, step: Tensor
    ) -> Tensor:
        """x (B, L, d_model) at melody steps ``step`` (B, L) -> (B, L, d_model)."""
        query, (key, value) = self.heads(self.query(x)), melody
        if self.rel_embedding is None or self.rel_bias is None:
            logits = query @ key.transpose(-2, -1) * query.shape[3] ** -0.5  # (B, H, L, S)
            return self.merged(masked_softmax(logits, keep) @ value)
        tables = (self.rel_embedding, self.rel_bias)
        mixed = time_relative_attention(query, key, value, step=step, tables=tables, keep=keep)
        return self.merged(mixed)


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

    def forward(
        self, x: Tensor, *, layer: int, shared: tuple[Melody, Tensor], cache: KVCache | None = None
    ) -> Tensor:
        """x (B, L, d_model); shared are the melody and its step (B, L) where each id is."""
        melody, step = shared
        normed, keys = self.attention_norm(x), melody.layers[layer]
        x = x + self.dropout(self.attention(normed, layer=layer, cache=cache))
        mixed = self.melody_attention(self.melody_norm(x), keys, melody.keep, step)
        return self.feed_forward(x + self.dropout(mixed))


class AccompanimentTransformer(Decoder):
    """Encoder and decoder; see the module's text. Attention to the melody starts as nothing."""

    def __init__(self, config: AccompanimentConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder = MelodyEncoder(config.encoder)
        self.build(config.decoder, lambda: AccompanimentLayer(config))
        scale_residual(self.encoder.layers)
        for layer in self.layers:
            nn.init.zeros_(layer.get_parameter("melody_attention.out.weight"))

    def forward(
        self,
        ids: Tensor,
        *,
        place: Tensor | None = None,
        source: Tensor | None = None,
        cache: KVCache | None = None,
    ) -> Tensor:
        """Logits (B, L, V) of the event after each id.

        Args:
            ids: (B, L) int64.
            place: as other models take it; not used.
            source: (B or 1, S) int64, the melody; its step 0 is when the first id is read, so the
                melody moves with the window. How far into its step an onset lies, in units of time,
                is added to the id, times ``source_vocab_size``. With a cache it is needed once.
            cache: what was read before ``ids``, and the melody; both are added to it.

        Raises:
            ShapeError: ids or source of another shape, more ids than the cache has room for, or no
                melody at all.
        """
        reading = self.reading(ids, None, cache)
        melody = self._melody(source, cache, batch=ids.shape[0])
        time = self._time_passed(ids)  # (B, L)
        if cache is not None and "time" in cache.kept:
            time = cache.kept["time"][:, None] + time
        step = time // self.config.shifts_per_step  # (B, L)
        reading = reading._replace(anchors=melody.anchors)
        logits = self.decode(ids, reading, cache, (melody, step))
        if cache is not None:
            cache.kept["time"] = time[:, -1]
        return logits

    def encode(self, source: Tensor, cache: KVCache) -> None:
        """Put the melody (B or 1, S) into an empty cache, so that reading ids needs it no more.

        Raises:
            ShapeError: a source of another shape, or ids were already read to another melody.
        """
        if cache.length:
            raise ShapeError(
                f"the cache holds {cache.length} ids that were read to another melody; clear it."
            )
        cache.kept["melody"] = self._encoded(source, cache.batch)

    def _melody(self, source: Tensor | None, cache: KVCache | None, *, batch: int) -> Melody:
        if source is not None and cache is not None:
            self.encode(source, cache)
        if cache is not None and "melody" in cache.kept:
            return cache.kept["melody"]  # type: ignore[no-any-return]
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
        layers = [
            layer.get_submodule("melody_attention").keys_and_values(encoded)  # type: ignore[operator]
            for layer in self.layers
        ]
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


register("seq2seq", AccompanimentConfig, AccompanimentTransformer)
