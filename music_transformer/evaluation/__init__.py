"""How good a model is and what its music is like: NLL, counting baselines, musical statistics."""

import importlib
from typing import TYPE_CHECKING, Any

from music_transformer.evaluation.baselines import count_baselines
from music_transformer.evaluation.statistics import (
    average,
    beside,
    describe,
    describe_chorale,
    mean_pitch_class_distance,
    pitch_class_distance,
    pooled_parallels,
)

if TYPE_CHECKING:
    from music_transformer.evaluation.nll import NllReport, evaluate_nll

__all__ = [
    "NllReport",
    "average",
    "beside",
    "count_baselines",
    "describe",
    "describe_chorale",
    "evaluate_nll",
    "mean_pitch_class_distance",
    "pitch_class_distance",
    "pooled_parallels",
]


def __getattr__(name: str) -> Any:
    """Import what needs torch on first use: statistics and baselines need none."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.nll"), name)
