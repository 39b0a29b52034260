"""Activation checkpointing: keep what enters a layer, and compute the rest again going backward.

A forward pass keeps, for every layer, whatever its backward pass needs. Kept is here only the input
of each layer; the backward pass runs the layer's forward pass again, with the generators where they
were, so dropout and gradients are the same bit for bit. It costs about one forward pass more.

Source: Chen et al. 2016, "Training deep nets with sublinear memory cost".
"""

from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from music_transformer.errors import ConfigError


def recompute_layers(model: nn.Module) -> None:
    """Let every layer of ``model``, whatever stands in a module list, be computed twice, in place.

    Only the class changes: parameters, their names and the state dict stay as they are.

    Raises:
        ConfigError: the model has no such layers.
    """
    lists = [module for module in model.modules() if isinstance(module, nn.ModuleList)]
    layers = [layer for modules in lists for layer in modules]
    if not layers:
        raise ConfigError(
            f"checkpoint_activations=true: {type(model).__name__} has no layers to compute again; "
            "leave it out."
        )
    kinds = {kind: _recomputed(kind) for kind in {type(layer) for layer in layers}}
    for layer in layers:
        layer.__class__ = kinds[type(layer)]


def _recomputed(kind: type[nn.Module]) -> type[nn.Module]:
    """The class of layers whose forward pass is run again for their gradients."""

    class Recomputed(kind):  # type: ignore[misc, valid-type]  # a class known only now
        def forward(self, *inputs: Any, **named: Any) -> Any:
            if not (self.training and torch.is_grad_enabled()):
                return super().forward(*inputs, **named)
            return checkpoint(super().forward, *inputs, use_reentrant=False, **named)

    Recomputed.__name__ = f"Recomputed{kind.__name__}"
    return Recomputed
