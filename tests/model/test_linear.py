"""The linear layer for few rows: the results of `nn.Linear`, however the weights were changed."""

import copy
import io
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from music_transformer.model import ModelConfig, MusicTransformer
from music_transformer.model.linear import FEW_ROWS, Linear

SHAPES = [(13,), (1, 13), (1, 1, 13), (2, 1, 13), (1, 3, 13), (FEW_ROWS + 1, 13), (2, 7, 13)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@torch.no_grad()
def test_it_gives_what_a_linear_layer_gives(
    shape: tuple[int, ...], bias: bool, dtype: torch.dtype
) -> None:
    torch.manual_seed(0)
    layer, x = Linear(13, 7, bias=bias).to(dtype), torch.randn(shape).to(dtype)
    out = layer(x)
    torch.testing.assert_close(out, F.linear(x, layer.weight, layer.bias))
    assert out.is_contiguous()
    torch.testing.assert_close(layer(x.flip(-1)), F.linear(x.flip(-1), layer.weight, layer.bias))


def test_no_row_and_a_wrong_width() -> None:
    layer = Linear(13, 7)
    with torch.no_grad():
        assert layer(torch.ones(0, 13)).shape == (0, 7)
        with pytest.raises(RuntimeError):
            layer(torch.ones(1, 12))


def test_with_gradients_it_is_the_linear_layer() -> None:
    layer, x = Linear(13, 7), torch.randn(1, 13, requires_grad=True)
    layer(x).sum().backward()
    assert x.grad is not None
    assert layer.weight.grad is not None
    torch.testing.assert_close(x.grad[0], layer.weight.detach().sum(0))


def build() -> MusicTransformer:
    config = ModelConfig(
        vocab_size=13, n_layers=2, d_model=12, n_heads=3, d_ff=19, dropout=0.0, context=17
    )
    return MusicTransformer(config).double()


IDS = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6]])


@torch.no_grad()
def check_cached_equals_full(model: MusicTransformer) -> None:
    model.eval()
    cache = model.new_cache(1)
    steps = torch.cat([model(IDS[:, i : i + 1], cache=cache) for i in range(8)], dim=1)
    assert IDS.shape[1] > FEW_ROWS  # the full pass goes another way
    torch.testing.assert_close(steps, model(IDS), atol=1e-9, rtol=0)


def train_step(model: MusicTransformer) -> None:
    optimizer = torch.optim.AdamW(model.train().parameters(), lr=0.1)
    model(IDS).pow(2).sum().backward()
    optimizer.step()


def load(model: MusicTransformer) -> None:
    model.load_state_dict(build().state_dict())


def edit(model: MusicTransformer) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(0.9).add_(0.01)


def edit_data(model: MusicTransformer) -> None:
    for parameter in model.parameters():
        parameter.data = parameter.data * 0.9


def there_and_back(model: MusicTransformer) -> None:
    model.float().double()


@pytest.mark.parametrize("change", [train_step, load, edit, edit_data, there_and_back])
def test_decoding_follows_weights_that_change(change: Callable[[MusicTransformer], None]) -> None:
    torch.manual_seed(0)
    model = build()
    check_cached_equals_full(model)
    change(model)
    check_cached_equals_full(model)


def test_nothing_is_kept_beside_the_parameters() -> None:
    torch.manual_seed(0)
    model = build()
    keys, size = list(model.state_dict()), pickled_bytes(model)
    check_cached_equals_full(model)
    assert list(model.state_dict()) == keys
    assert pickled_bytes(model) == size
    check_cached_equals_full(copy.deepcopy(model))
    plain = nn.Linear(13, 7).state_dict()
    assert {name: value.shape for name, value in Linear(13, 7).state_dict().items()} == {
        name: value.shape for name, value in plain.items()
    }


def pickled_bytes(model: MusicTransformer) -> int:
    buffer = io.BytesIO()
    torch.save(model, buffer)
    return buffer.tell()


@torch.no_grad()
def test_hooks_see_the_rows_of_a_step() -> None:
    model, seen = build().eval(), list[Tensor]()
    value = model.get_submodule("layers.0.attention.value")
    handle = value.register_forward_hook(lambda _m, _i, out: seen.append(out))
    model(IDS[:, :1], cache=model.new_cache(1))
    handle.remove()
    assert [out.shape for out in seen] == [(1, 1, 12)]
