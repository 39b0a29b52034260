"""How layers compute: bfloat16 where that was measured to pay, activation checkpointing if asked.

Weights, gradients, attention, norms, logits and the loss stay float32; only the products of hidden
linear layers are taken in bfloat16. CPUs without native bfloat16 are up to 70 times slower that
way, those with AMX up to 10 times faster; so ``auto`` times both types and keeps float32 unless
bfloat16 is clearly faster.
"""

import time
from typing import Literal

import torch
from torch import nn

from music_transformer.errors import ConfigError
from music_transformer.model.linear import Linear
from music_transformer.model.transformer import CheckpointedLayer

_CLEARLY_FASTER = 0.8  # bfloat16 must take at most this share of the time of float32


def use_bfloat16(model: nn.Module) -> None:
    """Let the hidden linear layers of ``model`` multiply in bfloat16, but not ``model.output``."""
    for module in model.modules():
        if isinstance(module, Linear) and module is not model.output:
            module.compute_dtype = torch.bfloat16


def checkpoint_layers(model: nn.Module) -> None:
    """Let every layer of ``model`` keep only its input, and be computed again going backward.

    Raises:
        ConfigError: the model has no such layers.
    """
    layers = [module for module in model.modules() if isinstance(module, CheckpointedLayer)]
    if not layers:
        raise ConfigError(
            f"checkpoint_activations=true: {type(model).__name__} has no layers to compute again; "
            "leave it out."
        )
    for layer in layers:
        layer.checkpointing = True


def resolve_autocast(choice: Literal["auto", "on", "off"], device: torch.device) -> bool:
    """Whether to use bfloat16: as asked, or as measured on this device."""
    if choice != "auto":
        return choice == "on"
    if device.type == "cuda":
        return bool(torch.cuda.get_device_capability(device)[0] >= 8)
    if device.type != "cpu":
        return False
    return _bfloat16_pays()


def _bfloat16_pays() -> bool:
    """Time two layers, forward and backward, in both types, in turn; about half a second.

    The small one ends the measure where bfloat16 is emulated, which would take minutes. The one of
    a real size decides: small products do not fill the units that some CPUs have for bfloat16.
    """
    return _speedup(256, 256, 512, repeats=12) > 0.5 and (
        _speedup(4096, 256, 1024, repeats=3) * _CLEARLY_FASTER > 1.0
    )


def _speedup(rows: int, inputs: int, outputs: int, *, repeats: int) -> float:
    """How many times as fast a layer is in bfloat16 as in float32.

    The time is that of this thread on its core, and the best of several: another process that wants
    the cores too must not turn the answer, or two runs with one seed would differ.
    """
    with torch.random.fork_rng(devices=[]):
        layer = Linear(inputs, outputs)
        x = torch.randn(rows, inputs, requires_grad=True)
    times: dict[torch.dtype, list[float]] = {torch.float32: [], torch.bfloat16: []}
    for _ in range(repeats):
        for dtype, seconds in times.items():
            layer.compute_dtype = dtype
            start = time.thread_time()
            layer(x).sum().backward()
            seconds.append(time.thread_time() - start)
        first, emulated = times[torch.float32][-1], times[torch.bfloat16][-1]
        if len(times[torch.bfloat16]) > 1 and emulated > 10 * first:
            break  # do not go on measuring what takes so long
    return min(times[torch.float32]) / min(times[torch.bfloat16])
