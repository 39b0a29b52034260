"""Optional parts by name, imported when they are asked for: nothing else depends on them."""

import functools
import importlib
from collections.abc import Mapping
from typing import Any

from music_transformer.errors import ConfigError


def part(table: Mapping[str, str], name: str, setting: str) -> Any:
    """What ``table`` has under a name, given as "module:attribute"; imported now.

    Raises:
        ConfigError: ``setting`` asks for a name that is not there, or has nothing behind it.
    """
    if name not in table:
        raise ConfigError(f"{setting}={name!r}; choose one of {', '.join(table)}.")
    try:
        return load(table[name])
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"{setting}={name!r}: there is no {table[name]} ({error}).") from error


@functools.cache
def load(place: str) -> Any:
    """The attribute at "module:attribute"."""
    module, _, attribute = place.partition(":")
    return getattr(importlib.import_module(module), attribute)
