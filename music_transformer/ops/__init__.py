"""Functions on tensors, without parameters: attention and positions."""

from music_transformer.ops.attention import biased_attention, plain_attention, shaw_attention
from music_transformer.ops.relative import relative_attention

__all__ = ["biased_attention", "plain_attention", "relative_attention", "shaw_attention"]
