"""The kinds of model a checkpoint may hold; every module of a model registers its own.

A model is called as ``model(ids, place=..., cache=...)`` for logits (B, L, V), and its config has
``vocab_size``, ``context``, ``to_dict`` and ``from_dict``.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from torch import nn

from music_transformer.errors import ConfigError


class Kind(NamedTuple):
    """The config class and the model class that belong together."""

    config: type[Any]
    model: type[nn.Module]


KINDS: dict[str, Kind] = {}


def register(name: str, config: type[Any], model: type[nn.Module]) -> None:
    """Make a kind of model known to checkpoints, presets and commands."""
    KINDS[name] = Kind(config, model)


def kind_of(config: Any) -> str:
    """The name of the kind that ``config`` belongs to; `ConfigError` where it is of none."""
    for name, kind in KINDS.items():
        if type(config) is kind.config:
            return name
    raise ConfigError(f"{type(config).__name__} is the config of no model.")


def build_model(config: Any) -> Any:
    """A model of the kind that ``config`` belongs to, with weights drawn anew."""
    return KINDS[kind_of(config)].model(config)


@contextmanager
def evaluating(model: Any) -> Iterator[None]:
    """The model without dropout for the time of the block, and then as it was."""
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)
