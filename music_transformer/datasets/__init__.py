"""Corpora and folders of MIDI files -> prepared ids -> windows a model learns from."""

import importlib
from typing import TYPE_CHECKING, Any

from music_transformer.datasets.prepared import PreparedData

if TYPE_CHECKING:
    from music_transformer.datasets.pairs import TrainingPairs, evaluation_pairs, shuffled_pairs
    from music_transformer.datasets.windows import (
        Batch,
        TrainingWindows,
        Window,
        collate,
        evaluation_windows,
    )

__all__ = [
    "Batch",
    "PreparedData",
    "TrainingPairs",
    "TrainingWindows",
    "Window",
    "collate",
    "evaluation_pairs",
    "evaluation_windows",
    "shuffled_pairs",
]

_IN_PAIRS = ("TrainingPairs", "evaluation_pairs", "shuffled_pairs")


def __getattr__(name: str) -> Any:
    """Import what gives tensors on first use: preparing a corpus needs no torch."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = "pairs" if name in _IN_PAIRS else "windows"
    return getattr(importlib.import_module(f"{__name__}.{module}"), name)
