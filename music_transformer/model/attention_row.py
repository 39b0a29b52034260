"""What the last position attends to: one row of `attention_maps`, at the price of one pass.

A layer mixes ``weights @ value + what does not depend on the values``, so the weights of the last
query are the derivative of what it mixes in one column with respect to that column of the values.
Each layer's derivative is taken as the pass goes by, and the pass goes on with a copy that has no
history: nothing but one layer's attention is ever kept. As in `attention_maps`, the layers
themselves answer, whatever their scheme and implementation.
"""

from typing import Any

import torch
from torch import Tensor, nn

from music_transformer.errors import ShapeError
from music_transformer.model.decoder import MusicTransformer, evaluating


@torch.enable_grad()
def attention_row(model: MusicTransformer, ids: Tensor, *, place: Tensor | None = None) -> Tensor:
    """Softmax weights of the last position, of every layer and head.

    ``out[n, h, j]`` is what the last position takes from position j; each row sums to one.

    Args:
        model: in any mode; it is left as it was.
        ids: (L,) or (1, L) int64, L >= 1.
        place: as in the model's forward.

    Returns:
        (n_layers, H, L), in the model's dtype; equal to ``attention_weights(...)[:, :, -1]``.

    Raises:
        ShapeError: more than one sequence, or none.
    """
    ids = ids[None] if ids.dim() == 1 else ids  # (1, L)
    if ids.dim() != 2 or ids.shape[0] != 1 or not ids.shape[1]:
        raise ShapeError(f"ids is {tuple(ids.shape)}, expected one sequence: (L,) or (1, L).")
    rows: list[Tensor] = []
    values: list[Tensor] = []
    heads = model.config.n_heads

    def begin_with_value(module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
        values.append(output.detach().requires_grad_())  # (1, L, H * D)
        return values[-1]

    def read_weights(module: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor]:
        mixed = inputs[0]  # (1, L, H * D)
        columns = mixed[0, -1].view(heads, -1)[:, 0]  # (H,) the first of each head
        [slope] = torch.autograd.grad(columns.sum(), values[-1])  # (1, L, H * D)
        rows.append(slope[0].view(len(slope[0]), heads, -1)[:, :, 0].T)  # (H, L)
        return (mixed.detach(),)

    hooks = []
    try:
        for layer in model.layers:
            value, out = (layer.get_submodule(f"attention.{name}") for name in ("value", "out"))
            hooks.append(value.register_forward_hook(begin_with_value))
            hooks.append(out.register_forward_pre_hook(read_weights))
        with evaluating(model):
            model(ids, place=place)
    finally:
        for hook in hooks:
            hook.remove()
    return torch.stack(rows)  # (n_layers, H, L)
