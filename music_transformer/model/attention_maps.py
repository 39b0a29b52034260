"""The attention weights of a decoder, read off the layers themselves.

Fast attention never holds its weights. But what a layer mixes is affine in its values,

    mixed = weights @ value + what does not depend on the values (Shaw's vectors of distances)

so a layer that is handed unit vectors as values, D columns of keys at a time, gives its weights
back, whatever its positional scheme and its implementation. Nothing is computed a second way that
could differ from what the model does.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from music_transformer.errors import ConfigError, ShapeError
from music_transformer.model.decoder import MusicTransformer, evaluating


@torch.no_grad()
def attention_weights(
    model: MusicTransformer,
    ids: Tensor,
    *,
    place: Tensor | None = None,
    layers: Sequence[int] | None = None,
) -> Tensor:
    """Softmax weights of every layer and head for one sequence; rows are queries.

    ``out[n, h, i, j]`` is what position i takes from position j; rows sum to one, and nothing is
    taken from later positions. Dropout is off. Cost: L/D + 1 times the attention of a pass.

    Args:
        model: in any mode; it is left as it was.
        ids: (L,) or (1, L) int64.
        place: as in the model's forward.
        layers: which ones, in this order, negative from the last; None for all. One layer of
            H x L x L numbers is large enough.

    Returns:
        (layers, H, L, L), in the model's dtype.

    Raises:
        ShapeError: more than one sequence.
        ConfigError: a layer that the model does not have.
    """
    if ids.dim() == 1:
        ids = ids[None]  # (1, L)
    if ids.dim() != 2 or ids.shape[0] != 1:
        raise ShapeError(f"ids is {tuple(ids.shape)}, expected one sequence: (L,) or (1, L).")
    count = len(model.layers)
    wanted = range(count) if layers is None else layers
    for layer in wanted:
        if not -count <= layer < count:
            raise ConfigError(f"layer={layer}: the model has layers 0 to {count - 1}.")
    with evaluating(model):
        modules = [model.get_submodule(f"layers.{layer % count}.attention") for layer in wanted]
        calls = _recorded_calls(model, modules, ids, place)
        maps = [
            _weights_of(module, call, model.config.n_heads)
            for module, call in zip(modules, calls, strict=True)
        ]
    return torch.stack(maps)  # (layers, H, L, L)


_Call = tuple[tuple[Any, ...], dict[str, Any]]


def _recorded_calls(
    model: MusicTransformer, modules: list[nn.Module], ids: Tensor, place: Tensor | None
) -> list[_Call]:
    """The arguments with which one pass calls each attention module."""
    calls: dict[nn.Module, _Call] = {}

    def record(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        calls[module] = (args, kwargs)

    hooks = [
        module.register_forward_pre_hook(record, with_kwargs=True)
        for module in dict.fromkeys(modules)
    ]
    try:
        model(ids, place=place)
    finally:
        for hook in hooks:
            hook.remove()
    return [calls[module] for module in modules]


def _weights_of(attention: nn.Module, call: _Call, n_heads: int) -> Tensor:
    """(H, L, L) of one attention module, from its answers to unit values."""
    args, kwargs = call
    value, mixed = attention.get_submodule("value"), attention.get_submodule("out")
    unit: Tensor | None = None
    answer: Tensor | None = None

    def replace_values(module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
        nonlocal unit
        unit = torch.zeros_like(output) if unit is None else unit  # (1, L, H * D)
        return unit

    def keep_answer(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        nonlocal answer
        answer = inputs[0]  # (1, L, H * D)

    def ask() -> Tensor:
        """What each query of each head mixes from the current values: (H, L, D)."""
        attention(*args, **kwargs)
        assert answer is not None
        return answer[0].view(answer.shape[1], n_heads, -1).transpose(0, 1).clone()  # (H, L, D)

    hooks = [
        value.register_forward_hook(replace_values),
        mixed.register_forward_pre_hook(keep_answer),
    ]
    try:
        constant = ask()  # (H, L, D), from values of zero
        assert unit is not None
        length, d_head = constant.shape[1], constant.shape[2]
        columns = []
        for first in range(0, length, d_head):
            width = min(d_head, length - first)
            rows = torch.arange(width, device=unit.device)
            unit = torch.zeros_like(unit)
            unit.view(length, n_heads, d_head)[first + rows, :, rows] = 1.0
            columns.append((ask() - constant)[:, :, :width])  # (H, L, width)
    finally:
        for hook in hooks:
            hook.remove()
    return torch.cat(columns, dim=-1)  # (H, L, L)
