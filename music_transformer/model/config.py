"""The settings of a model: one frozen dataclass, validated once, stored with the weights.

`input_position` is what is added to (or concatenated with) the embeddings of the ids,
`attention_position` what attention itself knows of distance; docs/positions.md has all schemes.
"""

import dataclasses
import difflib
from dataclasses import dataclass
from typing import Any, Self

from music_transformer.errors import ConfigError, ShapeError
from music_transformer.model.positions import scheme_of
from music_transformer.model.terms import term_classes
from music_transformer.ops.relative import CHOICES

INPUT_POSITIONS = ("none", "sinusoidal", "sinusoidal_concat", "learned")


class Settings:
    """Base of the frozen dataclasses that configure a model; it has no fields of its own."""

    def to_dict(self) -> dict[str, Any]:
        """The fields, ready for JSON."""
        return dataclasses.asdict(self)  # type: ignore[call-overload,no-any-return]

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """The config with these fields; a key that is unknown is a `ConfigError`."""
        known = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]
        for key in values:
            if key not in known:
                close = difflib.get_close_matches(key, known, n=1)
                hint = f"did you mean {close[0]}?" if close else f"known are {', '.join(known)}."
                raise ConfigError(f"unknown model setting {key!r}; {hint}")
        return cls(**values)

    def _at_least(self, least: int, *names: str) -> None:
        """Refuse what is no whole number from ``least`` up; None may be where it is the default."""
        for name in names:
            value, default = getattr(self, name), getattr(type(self), name)
            whole = isinstance(value, int) and not isinstance(value, bool) and value >= least
            if not whole and not (value is None and default is None):
                raise ConfigError(f"{name}={value!r}; choose a whole number from {least} up.")

    def _fraction(self, *names: str) -> None:
        for name in names:
            if not 0.0 <= getattr(self, name) < 1.0:
                raise ConfigError(f"{name}={getattr(self, name)}; choose one in [0, 1).")

    def _one_of(self, name: str, allowed: tuple[str, ...]) -> None:
        if getattr(self, name) not in allowed:
            raise ConfigError(
                f"{name}={getattr(self, name)!r}; choose one of {', '.join(allowed)}."
            )

    def _of_heads(self, name: str, width: int, n_heads: int) -> None:
        if width % n_heads:
            nearest = max(1, round(width / n_heads)) * n_heads
            raise ConfigError(
                f"{name}={width} is not a multiple of n_heads={n_heads}; try {nearest}."
            )


@dataclass(frozen=True)
class ModelConfig(Settings):
    """Settings of a `MusicTransformer`; what makes no sense is a `ConfigError`."""

    vocab_size: int = 391  # V, all ids of the tokenizer, PAD, START and END included
    n_layers: int = 4
    d_model: int = 256  # width of the residual stream
    d_attention: int | None = None  # of queries over all heads ("att" in the paper); None: d_model
    n_heads: int = 4
    d_ff: int = 1024  # width inside the feed-forward layers ("filter")
    dropout: float = 0.1  # on embeddings and on what each sublayer adds to the residual stream
    attention_dropout: float = 0.0  # on attention weights; not in attention blockwise or fused
    context: int = 512  # the most ids the model reads at once; longer pieces are read in windows
    input_position: str = "none"  # one of `INPUT_POSITIONS`
    position_base: float = 10000.0  # of the sinusoids and of the angles of rope
    max_len: int | None = None  # rows of the learned positions (or untied); None: context
    attention_position: str = "relative"  # one of `model.positions.SCHEMES`
    max_distance: int | None = None  # rows of a relative table, from distance 0; None: context
    shared_table: bool = False  # one table for the heads of a layer (relative, shaw)
    block: int | None = None  # N for local attention in blocks, None for global
    attention: str = "auto"  # implementation of the relative operator
    # The next four are for ids that take turns in voices, see `model/chorale.py`.
    voice_labels: int = 0  # number of voices whose label is added to the input (chorales: 4)
    step_labels: int = 0  # period in sixteenths of the label of time in the input
    held_labels: int = 0  # the input counts the steps up to this that the next voice has held
    interval_output: bool = False  # logits also come from the interval to the voice's last pitch
    clip_distance: int = 16  # K of shaw: distances beyond share the vectors of distance K
    t5_buckets: int = 32  # half of them one distance wide
    t5_max_distance: int = 128  # from here on all distances share t5's last bucket
    relative_pitch: bool = False  # attention knows the interval of two ids; with voice_labels
    relative_time: bool = False  # attention knows the distance of two ids in steps; likewise
    # Of performances without pedal events:
    performance_state: bool = False  # what the events say is known, what they forbid is masked
    anchors: bool = False  # how far off known onsets are is known

    def __post_init__(self) -> None:
        self._at_least(1, "vocab_size", "n_layers", "d_model", "n_heads", "d_ff", "context")
        self._at_least(1, "clip_distance", "t5_buckets", "t5_max_distance")
        self._at_least(1, "max_len", "max_distance", "block", "d_attention")
        self._at_least(0, "voice_labels", "step_labels", "held_labels")
        self._fraction("dropout", "attention_dropout")
        self._one_of("input_position", INPUT_POSITIONS)
        self._one_of("attention", CHOICES)
        self._of_heads("d_attention", self.attention_width, self.n_heads)
        if self.position_base <= 1.0:
            raise ConfigError(f"position_base={self.position_base}; choose one above 1.")
        if self.attention_dropout > 0.0 and self.attention in ("blockwise", "fused"):
            raise ConfigError(
                f"attention_dropout={self.attention_dropout} with attention={self.attention}, "
                "which never holds the weights; use attention=skew, or attention_dropout=0."
            )
        self._check_voices()
        if self.input_position == "learned":
            self.check_learned_positions()
        scheme_of(self).check()
        if self.shared_table and not scheme_of(self).tables():
            raise ConfigError(
                f"shared_table with attention_position={self.attention_position}, which has no "
                "table of distances in each head; leave it out."
            )
        for term in term_classes(self).values():
            term.check(self)

    def check_learned_positions(self) -> None:
        """Refuse fewer learned positions than the context has."""
        if self.positions < self.context:
            raise ConfigError(
                f"max_len={self.max_len} learned positions for context={self.context}; "
                f"try max_len={self.context}."
            )

    def require_learned_position(self, end: int) -> None:
        """Raise `ShapeError` where there is no learned row for a position before ``end``."""
        if end > self.positions:
            raise ShapeError(
                f"position {end - 1} is past the {self.positions} learned positions; "
                f"read windows of at most {self.positions} ids."
            )

    def _check_voices(self) -> None:
        """Refuse what counts the turns of voices where their number is not known."""
        switches = ("relative_pitch", "relative_time", "interval_output")
        for name in (*switches, "performance_state", "anchors"):
            if not isinstance(getattr(self, name), bool):
                raise ConfigError(f"{name}={getattr(self, name)!r}; choose true or false.")
        turns = ("step_labels", "held_labels", "interval_output", "relative_pitch", "relative_time")
        for name in turns:
            value = getattr(self, name)
            if value and not self.voice_labels:
                asked = name if value is True else f"{name}={value}"
                raise ConfigError(
                    f"{asked} without voice_labels: it is for ids that take turns in voices, so "
                    "their number must be known; set voice_labels too (chorales: 4)."
                )

    @property
    def attention_width(self) -> int:
        """d_attention, where None stands for d_model."""
        return self.d_model if self.d_attention is None else self.d_attention

    @property
    def d_head(self) -> int:
        """D, the width of one head."""
        return self.attention_width // self.n_heads

    @property
    def distances(self) -> int:
        """M, the rows of a relative table."""
        return self.context if self.max_distance is None else self.max_distance

    @property
    def positions(self) -> int:
        """Rows of the learned position table."""
        return self.context if self.max_len is None else self.max_len
