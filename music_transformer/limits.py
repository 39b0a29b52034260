"""In what range a number of a flag or a setting is, whatever it is for."""

import math

from music_transformer.errors import ConfigError

_LARGEST_WHOLE = 2**31 - 1
_LARGEST_SEED = 2**63 - 1
_LARGEST_REAL = 1e12


def check_number(name: str, value: object, *, infinite: bool = False) -> None:
    """Refuse a number, or one in a list, that no computation here is made for; else it passes.

    A seed, by its name, may be larger than other whole numbers; `infinite` lets ``inf`` pass.
    ConfigError where it is out of range.
    """
    if isinstance(value, list | tuple):
        for one in value:
            check_number(name, one, infinite=infinite)
    elif isinstance(value, float):
        if abs(value) > _LARGEST_REAL and not (infinite and math.isinf(value)):
            raise ConfigError(
                f"{name}: {value:g} is outside -{_LARGEST_REAL:g}..{_LARGEST_REAL:g}."
            )
    elif isinstance(value, int):
        largest = _LARGEST_SEED if name.endswith("seed") else _LARGEST_WHOLE
        if not -largest <= value <= largest:
            raise ConfigError(f"{name}: a number outside -{largest:,}..{largest:,}.")
