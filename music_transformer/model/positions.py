"""The registry of positional schemes: what a value of ``attention_position`` means.

The paper's scheme is here, all others are loaded by name: a new one is a class and its name in
`SCHEMES`, and nothing else lists or guesses them.
"""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from torch import Tensor, nn

from music_transformer.errors import ConfigError
from music_transformer.lazy import part
from music_transformer.ops.relative import relative_attention

if TYPE_CHECKING:
    from music_transformer.model.config import ModelConfig


NO_TIME = 1 << 40  # of an anchor that is none: later than all others
QKV = tuple[Tensor, Tensor, Tensor]
TensorsByName = dict[str, Tensor]


class Reading(NamedTuple):
    """What one pass reads: queries are the last L of S positions."""

    ids: Tensor  # (B, S), all ids of the window so far
    place: Tensor  # (B, L) or (L,), index of each query in its piece
    queries: int  # L
    keys: int  # S
    anchors: tuple[Tensor, Tensor] | None = None  # of an encoder: times and pitches (B or 1, N)


class Scheme(ABC):
    """A positional scheme of attention; the methods with a body are right for the simple ones."""

    #: What the layers of a stack share, if anything: ``stack(config)(reading)`` once a pass.
    stack: ClassVar[type[nn.Module] | None] = None

    def __init__(self, config: "ModelConfig") -> None:
        self.config = config

    def check(self) -> None:
        """Refuse a config that the scheme cannot do, with a `ConfigError`."""
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

    def turn(self, query: Tensor, key: Tensor, shared: Any) -> tuple[Tensor, Tensor]:
        """Queries and new keys (B, H, L, D), as they are used and cached."""
        return query, key

    @abstractmethod
    def attend(self, qkv: QKV, tables: TensorsByName, shared: Any, dropout: float) -> Tensor:
        """Causal attention, (B, H, L, D).

        Args:
            qkv: query (B, H, L, D), the last L of the S positions, key and value (B, H, S, D).
            tables: those of the layer, by name.
            shared: what `stack` gave for this pass, or None.
            dropout: on attention weights.
        """


class Relative(Scheme):
    """The paper's: query times a vector of the distance (Huang et al. 2018)."""

    def check(self) -> None:
        """Every implementation is there."""

    def tables(self) -> dict[str, int]:
        """E_r."""
        return {"rel_embedding": self.config.distances}

    def attend(self, qkv: QKV, tables: TensorsByName, shared: Any, dropout: float) -> Tensor:
        """See `ops.relative`."""
        return relative_attention(*qkv, tables["rel_embedding"], **self.options(dropout))

    def options(self, dropout: float) -> dict[str, Any]:
        """What the operator is given beside its operands."""
        config = self.config
        return {"block": config.block, "dropout": dropout, "implementation": config.attention}


#: The class of each scheme, by the name that `attention_position` has.
SCHEMES = {
    "relative": "music_transformer.model.positions:Relative",
    "none": "music_transformer.model.schemes:NoScheme",
    "shaw": "music_transformer.model.schemes:Shaw",
    "t5": "music_transformer.model.schemes:T5",
    "alibi": "music_transformer.model.schemes:Alibi",
    "rope": "music_transformer.model.schemes:Rope",
    "untied": "music_transformer.model.schemes:Untied",
}
#: Settings that ask for a scheme with further terms.
FURTHER = dict.fromkeys(
    ("relative_pitch", "relative_time"), "music_transformer.model.chorale:ChoraleRelative"
)


def scheme_of(config: "ModelConfig") -> Scheme:
    """The scheme of a config; `ConfigError` where there is none of that name."""
    for name in FURTHER:
        if getattr(config, name):
            return part(FURTHER, name, "scheme")(config)  # type: ignore[no-any-return]
    return part(SCHEMES, config.attention_position, "attention_position")(config)  # type: ignore[no-any-return]
