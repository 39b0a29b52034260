"""Linear layers in int8, for decoding on a CPU: opt-in, never the default.

One scale for each output; the inputs are scaled as they come. What is read per event shrinks by
almost four and the logits change a little (docs/benchmarks.md).
"""

import copy
import warnings
from typing import Any

import torch
from torch import nn

from music_transformer.errors import ConfigError
from music_transformer.model.transformer import MusicTransformer

ENGINES = ("x86", "fbgemm", "onednn")  # with int8 products of a scale for each output


def quantise_linears(model: MusicTransformer) -> MusicTransformer:
    """A float32 CPU ``model`` copied, to read with: all linear layers but the last are in int8.

    Raises:
        ConfigError: another kind of model, one that is not on the CPU, or a CPU for which this
            PyTorch has no int8 products with a scale for each output.
    """
    if not isinstance(model, MusicTransformer) or model.output.weight.device.type != "cpu":
        raise ConfigError("int8 layers are for a decoder on the CPU; leave them out, or use cpu.")
    if torch.backends.quantized.engine not in ENGINES:
        raise ConfigError(
            f"PyTorch's engine for int8 is {torch.backends.quantized.engine!r} here, which is not "
            f"one of {', '.join(ENGINES)}; leave int8 layers out."
        )
    twin = copy.deepcopy(model).eval()
    for parent in list(twin.layers.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.Linear):
                setattr(parent, name, _in_int8(child))
    return twin


def _in_int8(layer: nn.Linear) -> nn.Module:
    """The same product in int8."""
    plain: Any = nn.Linear(layer.in_features, layer.out_features, device="meta")  # no subclass
    plain.weight, plain.bias = layer.weight, layer.bias
    with warnings.catch_warnings():  # torch.ao is frozen in favour of a package of its own
        warnings.simplefilter("ignore")
        plain.qconfig = torch.ao.quantization.per_channel_dynamic_qconfig
        quantised: nn.Module = torch.ao.nn.quantized.dynamic.Linear.from_float(plain)  # type: ignore[no-untyped-call]
    return quantised
