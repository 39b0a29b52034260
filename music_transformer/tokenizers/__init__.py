"""Notes to ids and back: the performance and the chorale tokenizer."""

from music_transformer.tokenizers.chorale import ChoraleTokenizer
from music_transformer.tokenizers.config import tokenizer_from_config
from music_transformer.tokenizers.performance import PerformanceTokenizer
from music_transformer.tokenizers.vocabulary import Tokenizer, drop_leading_silence, rest

__all__ = [
    "ChoraleTokenizer",
    "PerformanceTokenizer",
    "Tokenizer",
    "drop_leading_silence",
    "rest",
    "tokenizer_from_config",
]
