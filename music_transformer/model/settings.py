"""What the configs of all kinds of models share: to JSON and back, and checks of single fields."""

import dataclasses
import difflib
from typing import Any, Self

from music_transformer.errors import ConfigError


class Settings:
    """Base of the frozen dataclasses that configure a model; it has no fields of its own."""

    def to_dict(self) -> dict[str, Any]:
        """The fields, ready for JSON."""
        return dataclasses.asdict(self)  # type: ignore[call-overload,no-any-return]

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """The config with these fields.

        Raises:
            ConfigError: an unknown key, or a value that makes no sense.
        """
        known = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]
        for key in values:
            if key not in known:
                close = difflib.get_close_matches(key, known, n=1)
                hint = f"did you mean {close[0]}?" if close else f"known are {', '.join(known)}."
                raise ConfigError(f"unknown model setting {key!r}; {hint}")
        return cls(**values)

    def _at_least(self, name: str, least: int) -> None:
        value = getattr(self, name)
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise ConfigError(f"{name}={value!r}; choose a whole number from {least} up.")

    def _one_of(self, name: str, allowed: tuple[str, ...]) -> None:
        if getattr(self, name) not in allowed:
            raise ConfigError(
                f"{name}={getattr(self, name)!r}; choose one of {', '.join(allowed)}."
            )
