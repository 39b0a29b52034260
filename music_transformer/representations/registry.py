"""The kinds of music there are, each registered by its module; one from its configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from music_transformer.errors import ConfigError

if TYPE_CHECKING:
    from music_transformer.representations.base import Representation

REPRESENTATIONS: dict[str, type[Representation]] = {}


def register(representation: type[Representation]) -> None:
    """Make a kind known to data, checkpoints and commands.

    Raises:
        TypeError: it leaves a question open that every representation must answer.
    """
    constants = ("kind", "pad", "start", "end", "crop_step")
    missing = sorted(representation.__abstractmethods__)
    missing += [name for name in constants if not hasattr(representation, name)]
    if missing:
        raise TypeError(f"{representation.__name__} does not define {', '.join(missing)}.")
    REPRESENTATIONS[representation.kind] = representation


def representation_from_config(config: Mapping[str, Any]) -> Representation:
    """The representation whose `to_config` gave the mapping: what checkpoints and data keep.

    Raises:
        ConfigError: an unknown kind, or a key that this kind does not know.
    """
    settings = dict(config)
    kind = settings.pop("kind", None)
    if kind not in REPRESENTATIONS:
        raise ConfigError(
            f"tokenizer kind={kind!r} is unknown; try one of {sorted(REPRESENTATIONS)}."
        )
    known = REPRESENTATIONS[kind]().to_config().keys() - {"kind"}
    unknown = sorted(settings.keys() - known)
    if unknown:
        raise ConfigError(
            f"the {kind} tokenizer does not know {unknown[0]!r}; it knows {sorted(known)}."
        )
    return REPRESENTATIONS[kind](**settings)
