"""`torch.compile` for the forward and backward pass of training.

What is compiled is a second way to call the same model: its weights, their names and the state dict
stay as they are, and evaluation, whose windows have many lengths, goes the usual way. Methods that
a class lists as ``uncompiled`` are left out. Attention is one: its blocks are written into views of
one buffer, which a compiler cannot see through, and on a GPU it is one kernel already.
"""

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from music_transformer.errors import ConfigError


def compiled(model: nn.Module, device: torch.device) -> nn.Module:
    """A module that calls ``model`` compiled; it is compiled when it is first called.

    Raises:
        ConfigError: nothing can be compiled here, as where there is no C++ compiler.
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
