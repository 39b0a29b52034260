"""Notes to ids and back: the performance, chorale and accompaniment tokenizers."""

from music_transformer.tokenizers.chorale import ChoraleTokenizer
from music_transformer.tokenizers.config import tokenizer_from_config
from music_transformer.tokenizers.melody import (
    AccompanimentTokenizer,
    MelodyTokenizer,
    extract_melody,
    split_melody,
)
from music_transformer.tokenizers.performance import PerformanceTokenizer
from music_transformer.tokenizers.vocabulary import Tokenizer, drop_leading_silence, rest

__all__ = [
    "AccompanimentTokenizer",
    "ChoraleTokenizer",
    "MelodyTokenizer",
    "PerformanceTokenizer",
    "Tokenizer",
    "drop_leading_silence",
    "extract_melody",
    "rest",
    "split_melody",
    "tokenizer_from_config",
]
