"""The settings of an encoder-decoder that plays to a melody."""

from dataclasses import dataclass
from typing import Any

from music_transformer.errors import ConfigError
from music_transformer.model.config import ModelConfig, Settings


@dataclass(frozen=True)
class AccompanimentConfig(Settings):
    """Settings of an `AccompanimentTransformer`; what makes no sense is a `ConfigError`.

    Those of `ModelConfig` mean the same, of the decoder; dropout, positions and heads are of both.

    Attributes:
        source_vocab_size: all ids of the melody, PAD included.
        source_pad: its PAD, which is never attended to.
        n_encoder_layers, d_encoder, d_encoder_ff: layers and widths of the encoder.
        d_cross: width of the attention to the melody over all heads; a multiple of n_heads.
        source_context: the most steps of the melody it is shown at once.
        source_distance: M of the encoder's tables of 2M - 1 rows; None for source_context.
        cross_position: none, or time: attention to the melody knows which step is now.
        cross_distance: M of its tables; steps farther away share the last row.
        time_shift: the id that lets one unit of time pass; the next ids let 2, 3, ... pass.
        time_shifts: how many such ids there are.
        shifts_per_step: units of time in a step of the melody.
        anchors: input and logits also come from how far off the onsets of the melody are.
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
