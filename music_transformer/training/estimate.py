"""What a run will cost, told before its first step."""

from dataclasses import dataclass
from typing import Any

from music_transformer.model.rnn import RNNConfig
from music_transformer.ops.relative import choose_implementation
from music_transformer.training.config import TrainingConfig

_FLOAT = 4


@dataclass(frozen=True)
class Size:
    """Sizes of a run; bytes are a rough upper estimate of what training itself needs."""

    parameters: int
    attention: str
    memory_bytes: int


def estimate_size(model: Any, config: TrainingConfig) -> Size:
    """Parameters, implementation of attention and memory of one rank.

    Memory: weights, gradients and two moments for each parameter (one more for a running mean), and
    the activations that one forward pass keeps for the backward pass.
    """
    model_config = model.config
    parameters = sum(parameter.numel() for parameter in model.parameters())
    length = config.window or model_config.context
    rows = config.batch_size * length
    attention = model_config.attention
    if attention == "auto":
        attention = choose_implementation(length, length, dropout=model_config.attention_dropout)
    if isinstance(model_config, RNNConfig):
        kept = _kept_by_rnn(model_config, length)
    else:
        each = 10 * model_config.d_model + 2 * model_config.d_ff + 6 * model_config.attention_width
        if attention != "blockwise":
            each += 4 * model_config.n_heads * length  # maps of logits and weights
        kept = model_config.n_layers * each
        if config.checkpoint_activations:  # the inputs of all layers, and all of one
            kept = model_config.n_layers * model_config.d_model + each
    activations = rows * (kept + 4 * model_config.vocab_size)
    copies = 4 if config.ema is None else 5
    return Size(parameters, attention, _FLOAT * (copies * parameters + activations))


def _kept_by_rnn(config: RNNConfig, length: int) -> int:
    """Numbers kept for each id: gates, cells and states of every layer, and what looks back."""
    kept = 2 * config.d_model + 10 * config.n_layers * config.d_hidden
    if config.attention == "causal":
        kept += 6 * config.d_hidden + 2 * length  # the map may be held
    return kept
