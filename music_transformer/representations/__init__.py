"""Notes to ids and back, and all else that depends on the kind of music."""

from music_transformer.representations.accompaniment.skyline import split_melody
from music_transformer.representations.accompaniment.tokenizer import (
    AccompanimentTokenizer,
    MelodyTokenizer,
)
from music_transformer.representations.base import (
    Grammar,
    Limits,
    Primer,
    Representation,
    representation_from_config,
)
from music_transformer.representations.chorale.tokenizer import ChoraleTokenizer
from music_transformer.representations.performance.tokenizer import PerformanceTokenizer

__all__ = [
    "AccompanimentTokenizer",
    "ChoraleTokenizer",
    "Grammar",
    "Limits",
    "MelodyTokenizer",
    "PerformanceTokenizer",
    "Primer",
    "Representation",
    "representation_from_config",
    "split_melody",
]
