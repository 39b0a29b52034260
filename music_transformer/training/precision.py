"""bfloat16 in the linear layers, and the measurement that decides whether it pays.

Weights, gradients, attention, norms, logits and the loss stay float32; only the products of hidden
linear layers are taken in bfloat16. CPUs without native bfloat16 are up to 70 times slower that
way, so ``auto`` times one small layer in both types and keeps float32 unless bfloat16 is clearly
faster.
"""

import time
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from music_transformer.model.one_row import Linear

_CLEARLY_FASTER = 0.8  # bfloat16 must take at most this share of the time of float32
_REPEATS = 12


class Bfloat16Linear(nn.Linear):
    """A linear layer with float32 weights, input and output whose products are bfloat16."""

    def forward(self, input: Tensor) -> Tensor:
        """(..., in_features) -> (..., out_features), in the type of the input."""
        kind = torch.bfloat16
        bias = None if self.bias is None else self.bias.to(kind)
        return F.linear(input.to(kind), self.weight.to(kind), bias).to(input.dtype)


def use_bfloat16(model: nn.Module, vocab_size: int) -> None:
    """Turn the hidden linear layers of ``model`` into bfloat16 ones, in place.

    Only the class changes: parameters, their names and the state dict stay as they are. The layer
    that gives the logits keeps float32.
    """
    for module in model.modules():
        if type(module) in (nn.Linear, Linear) and module.out_features != vocab_size:
            module.__class__ = Bfloat16Linear


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
    """Time one layer, forward and backward, in both types, in turn; some milliseconds.

    The time is that of this thread on its core, and the best of several: another process that wants
    the cores too must not turn the answer, or two runs with one seed would differ.
    """
    with torch.random.fork_rng(devices=[]):
        plain = nn.Linear(256, 512)
        short = Bfloat16Linear(256, 512)
        rows = torch.randn(256, 256, requires_grad=True)
    times: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(_REPEATS):
        times[False].append(_seconds(plain, rows))
        times[True].append(_seconds(short, rows))
        if len(times[True]) > 1 and times[True][-1] > 10 * times[False][-1]:
            return False  # emulated: do not go on measuring what takes so long
    return min(times[True]) < _CLEARLY_FASTER * min(times[False])


def _seconds(layer: nn.Module, rows: Tensor) -> float:
    start = time.thread_time()
    layer(rows).sum().backward()
    return time.thread_time() - start
