"""The attention weights of a decoder, read off the layers themselves.

What a layer mixes is affine in its values: weights @ value + what does not depend on them. So a
layer that is given unit vectors as values, D columns of keys at a time, gives its weights back,
whatever its scheme and implementation: nothing is computed a second way that could differ.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from music_transformer.errors import ConfigError, ShapeError
from music_transformer.model.positions import Reading
from music_transformer.model.registry import evaluating
from music_transformer.model.transformer import CausalAttention, MusicTransformer


@torch.no_grad()
def attention_weights(
    model: "MusicTransformer",
    ids: Tensor,
    *,
    place: Tensor | None = None,
    layers: Sequence[int] | None = None,
    last_only: bool = False,
) -> Tensor:
    """Softmax weights of all layers and heads for one sequence, (layers, H, L, L); rows: queries.

    ``out[n, h, i, j]`` is what position i takes from position j. Dropout is off. Cost beyond a
    pass: L/D + 1 times its attention, of a single query with ``last_only``.

    Args:
        ids: (L,) or (1, L) int64, L >= 1; ``place`` (L,) as in the model's forward.
        layers: which ones, in this order, negative from the last; None for all.
        last_only: the last row alone, (layers, H, 1, L).

    Raises:
        ShapeError: more than one sequence, or none.
        ConfigError: a layer that the model does not have.
    """
    if ids.dim() == 1:
        ids = ids[None]  # (1, L)
    if ids.dim() != 2 or ids.shape[0] != 1 or not ids.shape[1]:
        raise ShapeError(f"ids is {tuple(ids.shape)}, expected one sequence: (L,) or (1, L).")
    count, length = len(model.layers), ids.shape[1]
    wanted = range(count) if layers is None else layers
    for layer in wanted:
        if not -count <= layer < count:
            raise ConfigError(f"layer={layer}: the model has layers 0 to {count - 1}.")
    with evaluating(model):
        inputs = _layer_inputs(model, ids, place)
        queries = 1 if last_only else length
        shared = None
        if model.positions is not None:
            at = torch.arange(length, device=ids.device) if place is None else place
            shared = model.positions(Reading(ids, at[..., -queries:], queries, length))
        maps = [_weights_of(*inputs[layer], queries, shared) for layer in wanted]
    return torch.stack(maps)  # (layers, H, L, L)


_Input = tuple[CausalAttention, Tensor, Any]


def _layer_inputs(model: "MusicTransformer", ids: Tensor, place: Tensor | None) -> list[_Input]:
    """Each layer's attention, with what one pass calls it with."""
    seen: list[_Input] = []

    def record(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        assert isinstance(module, CausalAttention)
        seen.append((module, args[0], kwargs["shared"]))

    attentions = [module for module in model.modules() if isinstance(module, CausalAttention)]
    hooks = [module.register_forward_pre_hook(record, with_kwargs=True) for module in attentions]
    try:
        model(ids, place=place)
    finally:
        for hook in hooks:
            hook.remove()
    return seen


def _weights_of(
    attention: CausalAttention, x: Tensor, shared: Any, queries: int, shared_of_rows: Any
) -> Tensor:
    """(H, queries, L) of the last rows of one layer, from its answers to unit values."""
    query, key, value = attention.projected(x, shared)  # (1, H, L, D)
    query = query[:, :, -queries:]
    length, d_head = value.shape[2:]
    unit = torch.zeros_like(value)
    constant = attention.mixed(query, key, unit, shared_of_rows)  # (1, H, queries, D)
    columns = []
    for first in range(0, length, d_head):
        width = min(d_head, length - first)
        rows = torch.arange(width, device=x.device)
        unit = torch.zeros_like(value)
        unit[:, :, first + rows, rows] = 1.0
        answer = attention.mixed(query, key, unit, shared_of_rows) - constant
        columns.append(answer[0, :, :, :width])  # (H, queries, width)
    return torch.cat(columns, dim=-1)
