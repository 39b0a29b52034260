"""Settings and modules: ids in, logits out. Nothing here knows what an id means."""

from music_transformer.model.config import ModelConfig
from music_transformer.model.kv_cache import KVCache
from music_transformer.model.rnn import PerformanceRNN, RNNConfig
from music_transformer.model.seq2seq import AccompanimentConfig, AccompanimentTransformer
from music_transformer.model.transformer import MusicTransformer

__all__ = [
    "AccompanimentConfig",
    "AccompanimentTransformer",
    "KVCache",
    "ModelConfig",
    "MusicTransformer",
    "PerformanceRNN",
    "RNNConfig",
]
