"""Partial initialization of a model from the checkpoint of a decoder that was trained alone.

What agrees in name and shape is copied; the rest (the encoder, the attention to the melody) keeps
the weights it was drawn with. A decoder that already knows the music then only has to learn what a
melody means for it.
"""

from pathlib import Path
from typing import Any

import torch

from music_transformer.checkpoint import load_checkpoint
from music_transformer.errors import ConfigError
from music_transformer.model.registry import build_model


def describe_partial_init(init: str, donor: Any, model: Any) -> str:
    """One line on what a model would take over from a checkpoint.

    Args:
        init: what the checkpoint is called.
        donor: the config of its model.
        model: the config of the model that is to be trained.

    Raises:
        ConfigError: no layer of it fits.
    """
    with torch.device("meta"):  # shapes without memory
        given, wanted = build_model(donor).state_dict(), build_model(model).state_dict()
    taken = [name for name in wanted if _fits(name, given, wanted)]
    if not any(name.startswith("layers.") and wanted[name].dim() > 1 for name in taken):
        raise ConfigError(
            f"--init {init}: no matrix of its layers fits the decoder of this preset; make "
            "n_layers, d_model, n_heads, d_ff and max_distance agree with it."
        )
    numbers = sum(wanted[name].numel() for name in taken)
    total = sum(tensor.numel() for tensor in wanted.values())
    return (
        f"{init}: {len(taken)} of {len(wanted)} weights copied ({numbers:,} of {total:,} numbers); "
        f"{len(wanted) - len(taken)} are new"
    )


def copy_weights(model: Any, folder: Path) -> None:
    """Copy into ``model`` the weights of a checkpoint that agree in name and shape."""
    given, wanted = load_checkpoint(folder, "cpu").model.state_dict(), model.state_dict()
    with torch.no_grad():
        for name, tensor in wanted.items():
            if _fits(name, given, wanted):
                tensor.copy_(given[name])


def _fits(name: str, given: dict[str, Any], wanted: dict[str, Any]) -> bool:
    return name in given and given[name].shape == wanted[name].shape
