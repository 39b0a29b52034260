"""The settings of an encoder-decoder that plays to a melody."""

from dataclasses import dataclass
from typing import Any

from music_transformer.errors import ConfigError
from music_transformer.model.config import ModelConfig, Settings


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
        anchors: input and logits of the decoder also come from how far off the onsets of the melody
            are, see `model/anchors.py`.

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
    anchors: bool = False

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
            anchors=self.anchors,
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
