"""How events are drawn from a model: temperature, top_k, top_p and min_p, each said or left open.

Who calls says what they want, a checkpoint may say what suits it (``"sampling"`` in its
config.json), and `DEFAULT_SAMPLING` decides what both leave open. What the numbers do to a
distribution is told in `generation/filters.py`.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from music_transformer.errors import ConfigError


@dataclass(frozen=True)
class Sampling:
    """What is said of how to draw; None leaves it open.

    Attributes:
        temperature: divides the logits; 0 keeps only the likeliest id.
        top_k: keep the k likeliest ids.
        top_p: keep the likeliest ids that together reach this probability; 1 keeps all.
        min_p: keep ids at least this fraction as likely as the likeliest; 0 keeps all.

    Raises:
        ConfigError: a value outside its range.
    """

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None

    def __post_init__(self) -> None:
        if self.temperature is not None and not 0 <= self.temperature < math.inf:
            raise ConfigError(f"temperature={self.temperature}; choose 0 (argmax) or more.")
        if self.top_k is not None and self.top_k < 1:
            raise ConfigError(f"top_k={self.top_k}; choose 1 or more, or leave it out.")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise ConfigError(f"top_p={self.top_p}; choose one above 0, up to 1 (keeps all).")
        if self.min_p is not None and not 0 <= self.min_p <= 1:
            raise ConfigError(f"min_p={self.min_p}; choose one from 0 (keeps all) to 1.")

    def or_else(self, other: "Sampling") -> "Sampling":
        """What is said here, and what the other says of what is left open here."""
        return Sampling(**{**other.to_dict(), **self.to_dict()})

    def to_dict(self) -> dict[str, Any]:
        """What is said, ready for JSON."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Sampling":
        """What a JSON object says.

        Raises:
            ConfigError: a key that is unknown, or a value that is no number or out of range.
        """
        known = [field.name for field in fields(cls)]
        for name, value in values.items():
            if name not in known:
                raise ConfigError(f"{name!r} is unknown; known are {', '.join(known)}.")
            whole = isinstance(value, int) and not isinstance(value, bool)
            if not whole and (name == "top_k" or not isinstance(value, float)):
                kind = "whole number" if name == "top_k" else "number"
                raise ConfigError(f"{name}={value!r}; give a {kind}, or leave it out.")
        return cls(**values)


#: What holds where neither the call nor the checkpoint says anything.
DEFAULT_SAMPLING = Sampling(temperature=1.0, top_p=0.95)
