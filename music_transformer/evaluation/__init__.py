"""How good a model is and what its music is like: NLL, counting floors, musical statistics."""

import importlib
from typing import TYPE_CHECKING, Any

from music_transformer.evaluation.distance import (
    beside,
    mean_pitch_class_distance,
    pitch_class_distance,
    pooled_parallels,
)
from music_transformer.evaluation.floors import Floors, count_floors
from music_transformer.evaluation.statistics import average, describe, describe_chorale

if TYPE_CHECKING:
    from music_transformer.evaluation.nll import NllReport, evaluate_nll

__all__ = [
    "Floors",
    "NllReport",
    "average",
    "beside",
    "count_floors",
    "describe",
    "describe_chorale",
    "evaluate_nll",
    "mean_pitch_class_distance",
    "pitch_class_distance",
    "pooled_parallels",
]


def __getattr__(name: str) -> Any:
    """Import what needs torch on first use: statistics and floors need none."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.nll"), name)
