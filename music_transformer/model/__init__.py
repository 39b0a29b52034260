"""Settings and modules: ids in, logits out. Nothing here knows what an id means."""

from music_transformer.model.config import ModelConfig
from music_transformer.model.decoder import MusicTransformer
from music_transformer.model.kv_cache import KVCache

__all__ = ["KVCache", "ModelConfig", "MusicTransformer"]
