"""Parameter count and memory of a run, before its first step."""

import os
from dataclasses import dataclass, replace
from typing import Any

import torch

from music_transformer.errors import ConfigError
from music_transformer.model.registry import build_model
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
    return _estimate(model.config, _count(model), config)


def require_memory(model_config: Any, config: TrainingConfig) -> None:
    """Raise `ConfigError` for a run that is larger than this machine (its GPU, if that is more).

    The parameters of n layers are counted on one layer and on two, without memory.
    """
    try:
        with torch.device("meta"):
            one, two = (
                _count(build_model(replace(model_config, n_layers=layers))) for layers in (1, 2)
            )
    except RuntimeError as error:  # sizes whose product is no number of 64 bits
        raise ConfigError(f"no model of this size can be built ({error}).") from error
    parameters = one + (model_config.n_layers - 1) * (two - one)
    needed = _estimate(model_config, parameters, config).memory_bytes
    there = _machine_memory()
    if needed > there:
        raise ConfigError(
            f"a model of {parameters:,} parameters with batch_size={config.batch_size} takes about "
            f"{needed / 2**30:,.0f} GiB, this machine has {there / 2**30:,.0f} GiB; choose a "
            "smaller model or batch_size, with accumulate for the rest."
        )


def _machine_memory() -> float:
    """Bytes of memory here, or on the GPU if it has more; infinite where nobody says."""
    try:
        there = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):
        return float("inf")
    if torch.cuda.is_available():
        there = max(there, float(torch.cuda.get_device_properties(0).total_memory))
    return there


def _count(model: Any) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def _estimate(model_config: Any, parameters: int, config: TrainingConfig) -> Size:
    """See `estimate_size`."""
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
