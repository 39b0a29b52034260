"""The kinds of model a checkpoint may hold: its name there, the class of its config, its class.

Whatever the kind, a model is called as ``model(ids, place=..., cache=...)`` for logits (B, L, V),
and its config has ``vocab_size``, ``context``, ``to_dict`` and ``from_dict``.
"""

from typing import Any, NamedTuple

from torch import nn

from music_transformer.errors import ConfigError
from music_transformer.model.config import AccompanimentConfig, ModelConfig
from music_transformer.model.rnn import PerformanceRNN, RNNConfig
from music_transformer.model.seq2seq import AccompanimentTransformer
from music_transformer.model.transformer import MusicTransformer


class Kind(NamedTuple):
    """The config class and the model class that belong together."""

    config: type[Any]
    model: type[nn.Module]


KINDS = {
    "decoder": Kind(ModelConfig, MusicTransformer),
    "rnn": Kind(RNNConfig, PerformanceRNN),
    "seq2seq": Kind(AccompanimentConfig, AccompanimentTransformer),
}


def kind_of(config: Any) -> str:
    """The name of the kind that ``config`` belongs to.

    Raises:
        ConfigError: it is the config of no model.
    """
    for name, kind in KINDS.items():
        if type(config) is kind.config:
            return name
    raise ConfigError(f"{type(config).__name__} is the config of no model.")


def build_model(config: Any) -> Any:
    """A model of the kind that ``config`` belongs to, with weights drawn anew."""
    return KINDS[kind_of(config)].model(config)
