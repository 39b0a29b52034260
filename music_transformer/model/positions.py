"""The registry of positional schemes: what a value of ``attention_position`` means.

A scheme says which tables each layer has, what all layers share in a pass, and by which operator of
`ops` attention is computed. The paper's own is here, all others are in `model/schemes.py`. A new
one is a class and its name in `SCHEMES`; nothing else lists or guesses them.
"""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import Tensor, nn

from music_transformer.errors import ConfigError
from music_transformer.model.chorale import (
    INTERVALS,
    Tables,
    Turns,
    chorale_attention,
    time_rows,
    turns_of,
)
from music_transformer.ops.relative import relative_attention

if TYPE_CHECKING:
    from music_transformer.model.config import ModelConfig


class Reading(NamedTuple):
    """What one pass reads: queries are the last L of S positions."""

    ids: Tensor  # (B, S), where the cache keeps ids; else those of the queries, (B, L)
    place: Tensor  # (B, L) or (L,), index of each query in its piece
    queries: int  # L
    keys: int  # S


class Scheme(ABC):
    """A positional scheme of attention; the methods with a body are right for the simple ones."""

    def __init__(self, config: "ModelConfig") -> None:
        self.config = config

    def check(self) -> None:
        """Refuse a config that the scheme cannot do.

        Raises:
            ConfigError: what is wrong, and how to mend it.
        """
        config = self.config
        if config.attention != "auto":
            raise ConfigError(
                f"attention={config.attention} with attention_position="
                f"{config.attention_position}: only relative has several implementations; use "
                "attention=auto."
            )

    def tables(self) -> dict[str, int]:
        """Rows of the tables (H or 1, rows, D) of each layer, by the name of the parameter."""
        return {}

    def stack(self) -> nn.Module | None:
        """What the layers of a stack share: a module, called as ``module(reading)`` once a pass."""
        return None

    def turn(self, query: Tensor, key: Tensor, shared: Any) -> tuple[Tensor, Tensor]:
        """Queries and new keys (B, H, L, D), as they are used and cached."""
        return query, key

    @abstractmethod
    def attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        tables: dict[str, Tensor],
        shared: Any,
        dropout: float,
    ) -> Tensor:
        """Causal attention.

        Args:
            query: (B, H, L, D), the last L of the S positions.
            key: (B, H, S, D).
            value: (B, H, S, D).
            tables: those of the layer, by name.
            shared: what `stack` gave for this pass, or None.
            dropout: on attention weights.

        Returns:
            (B, H, L, D).
        """


class Relative(Scheme):
    """The paper's: query times a vector of the distance; for chorales of time and pitch too.

    Source: Huang et al. 2018, "Relative positional self-attention".
    """

    def check(self) -> None:
        """Every implementation is there, but for the terms of chorales."""
        config = self.config
        for name in ("relative_pitch", "relative_time"):
            if getattr(config, name) and config.attention == "fused":
                raise ConfigError(
                    f"{name} with attention=fused, whose kernel has no such term; use "
                    "attention=auto."
                )

    def tables(self) -> dict[str, int]:
        """E_r, and its companions for chorales."""
        config = self.config
        rows = {"rel_embedding": config.distances}
        if config.relative_time:
            rows["time_embedding"] = time_rows(config.distances, config.voice_labels)
        if config.relative_pitch:
            rows["pitch_embedding"] = INTERVALS
        return rows

    def stack(self) -> nn.Module | None:
        """The voices and pitches of a chorale."""
        config = self.config
        return VoiceTurns(config) if config.relative_time or config.relative_pitch else None

    def attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        tables: dict[str, Tensor],
        shared: Turns | None,
        dropout: float,
    ) -> Tensor:
        """See `ops.relative`, and `model.chorale` for its companions."""
        config = self.config
        options: dict[str, Any] = {"block": config.block, "dropout": dropout}
        options["implementation"] = config.attention
        distance = tables["rel_embedding"]
        if shared is None:
            return relative_attention(query, key, value, distance, **options)
        time, interval = tables.get("time_embedding"), tables.get("pitch_embedding")
        of_layer = Tables(distance, time, interval, config.voice_labels)
        return chorale_attention(query, key, value, of_layer, shared, **options)


class VoiceTurns(nn.Module):
    """What relative time and pitch need of a pass; it has no parameters."""

    def __init__(self, config: "ModelConfig") -> None:
        super().__init__()
        self.config = config

    def forward(self, reading: Reading) -> Turns:
        """Raises: ShapeError: with relative time, places that are not consecutive."""
        config = self.config
        return turns_of(
            reading.ids,
            reading.place,
            config.voice_labels,
            time=config.relative_time,
            pitch=config.relative_pitch,
        )


#: By the name that `attention_position` has; filled by `model/schemes.py` too.
SCHEMES: dict[str, type[Scheme]] = {"relative": Relative}


def scheme_of(config: "ModelConfig") -> Scheme:
    """The scheme of a config.

    Raises:
        ConfigError: there is none of that name.
    """
    if config.attention_position not in SCHEMES:
        raise ConfigError(
            f"attention_position={config.attention_position!r}; choose one of {', '.join(SCHEMES)}."
        )
    return SCHEMES[config.attention_position](config)
