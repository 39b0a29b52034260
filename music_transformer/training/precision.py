"""How layers compute: bfloat16 where that was measured to pay, compiled or recomputed if asked.

Only the products of hidden linear layers are taken in bfloat16. CPUs without native bfloat16 are up
to 70 times slower that way, those with AMX up to 10 times faster; so ``auto`` times both types.
"""

import time
import warnings
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import nn

from music_transformer.errors import ConfigError
from music_transformer.model.linear import Linear
from music_transformer.model.transformer import Layer

_CLEARLY_FASTER = 0.8  # bfloat16 must take at most this share of the time of float32


def use_bfloat16(model: nn.Module) -> None:
    """Let the hidden linear layers of ``model`` multiply in bfloat16, but not ``model.output``."""
    for module in model.modules():
        if isinstance(module, Linear) and module is not model.output:
            module.compute_dtype = torch.bfloat16


def checkpoint_layers(model: nn.Module) -> None:
    """Let every layer keep only its input and be computed again; `ConfigError` without any."""
    layers = [module for module in model.modules() if isinstance(module, Layer)]
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

    The small one ends the measure where bfloat16 is emulated, which would take minutes; small
    products do not fill the units that some CPUs have for it, so the one of a real size decides.
    """
    return _speedup(256, 256, 512, repeats=12) > 0.5 and (
        _speedup(4096, 256, 1024, repeats=3) * _CLEARLY_FASTER > 1.0
    )


def _speedup(rows: int, inputs: int, outputs: int, *, repeats: int) -> float:
    """How many times as fast a layer is in bfloat16 as in float32.

    The best time of several of this thread on its core: another process must not turn the answer,
    or two runs with one seed would differ.
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


def compiled(model: nn.Module, device: torch.device) -> nn.Module:
    """The same ``model``, as it is called to be compiled the first time; names and weights stay.

    Methods that a class lists as ``uncompiled`` are left out. Attention is one: its blocks are
    written into views of one buffer, which a compiler cannot see through. `ConfigError` where
    nothing can be compiled, as without a C++ compiler.
    """
    _require_compiler(device)
    for module in model.modules():
        for name in getattr(module, "uncompiled", ()):
            _leave_out(type(module), name)
    # A graph that ends before attention hands over tensors that are no leaves; Dynamo asks them for
    # their gradient, and torch warns of it.
    warnings.filterwarnings(
        "ignore", message=r"The \.grad attribute of a Tensor that is not a leaf"
    )
    whole: Any = torch.compile(model, dynamic=False)
    assert isinstance(whole, nn.Module)
    return whole


def _leave_out(kind: type[nn.Module], name: str) -> None:
    """Keep the method out of whatever is compiled from now on, on every instance of its class."""
    for base in kind.__mro__:
        method: Callable[..., Any] | None = vars(base).get(name)
        if method is not None and not hasattr(method, "_torchdynamo_orig_callable"):
            setattr(base, name, torch.compiler.disable(method))  # type: ignore[no-untyped-call]


def _require_compiler(device: torch.device) -> None:
    """Compile one addition, which takes seconds the first time and shows whether it works."""
    try:
        torch.compile(_plus_one)(torch.zeros(3, device=device))
    except Exception as error:  # of many kinds: no compiler, no Triton, a Python it does not know
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise ConfigError(
            f"compile=true: torch.compile does not work here ({reason}); leave it out, or install "
            f"{'Triton' if device.type == 'cuda' else 'a C++ compiler'}."
        ) from error


def _plus_one(x: torch.Tensor) -> torch.Tensor:
    return x + 1
