"""Settings and modules: ids in, logits out. Nothing here knows what an id means."""

import music_transformer.model.schemes  # noqa: F401  it fills the registry
from music_transformer.model.config import ModelConfig
from music_transformer.model.decoder import MusicTransformer
from music_transformer.model.kv_cache import KVCache
from music_transformer.model.rnn import PerformanceRNN, RNNConfig
from music_transformer.model.seq2seq import AccompanimentTransformer
from music_transformer.model.seq2seq_config import AccompanimentConfig

__all__ = [
    "AccompanimentConfig",
    "AccompanimentTransformer",
    "KVCache",
    "ModelConfig",
    "MusicTransformer",
    "PerformanceRNN",
    "RNNConfig",
]
