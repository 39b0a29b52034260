"""bfloat16 in the linear layers."""

import copy

import pytest
import torch

from music_transformer.model import MusicTransformer
from music_transformer.model.linear import Linear
from music_transformer.training import precision
from music_transformer.training.precision import resolve_autocast, use_bfloat16

CPU = torch.device("cpu")


def test_only_hidden_linear_layers_change_and_no_weight_does(model: MusicTransformer) -> None:
    before = copy.deepcopy(model.state_dict())
    use_bfloat16(model)
    layers = dict(model.named_modules())
    assert layers["output"].compute_dtype is None
    assert layers["layers.0.attention.query"].compute_dtype is torch.bfloat16
    after = model.state_dict()
    assert list(after) == list(before)
    assert all(torch.equal(after[name], before[name]) for name in before)


def test_logits_stay_float32_and_near_those_of_float32(model: MusicTransformer) -> None:
    ids = torch.randint(0, 388, (2, 13))
    model.eval()
    exact = model(ids)
    use_bfloat16(model)
    short = model(ids)
    assert short.dtype == torch.float32
    torch.testing.assert_close(short, exact, atol=0.05, rtol=0.05)  # 8 bits of mantissa


def test_a_short_layer_has_float32_gradients() -> None:
    layer = Linear(3, 5)
    layer.compute_dtype = torch.bfloat16
    layer(torch.randn(2, 3)).sum().backward()
    assert layer.weight.grad is not None
    assert layer.weight.grad.dtype == torch.float32


def test_on_and_off_are_taken_as_asked() -> None:
    assert resolve_autocast("on", CPU) is True
    assert resolve_autocast("off", CPU) is False


@pytest.mark.parametrize(
    ("small", "real", "pays"), [(2.5, 2.5, True), (0.9, 8.0, True), (1.1, 1.1, False)]
)
def test_auto_takes_bfloat16_where_a_layer_of_a_real_size_is_clearly_faster(
    small: float, real: float, pays: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def speedup(rows: int, inputs: int, outputs: int, *, repeats: int) -> float:
        return real if (rows, inputs, outputs) == (4096, 256, 1024) else small

    monkeypatch.setattr(precision, "_speedup", speedup)
    assert resolve_autocast("auto", CPU) is pays


def test_where_bfloat16_is_emulated_no_real_size_is_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shapes = []

    def speedup(rows: int, inputs: int, outputs: int, *, repeats: int) -> float:
        shapes.append(rows)
        return 1 / 70

    monkeypatch.setattr(precision, "_speedup", speedup)
    assert resolve_autocast("auto", CPU) is False
    assert shapes == [256]


def test_measuring_leaves_the_global_generator_alone() -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    resolve_autocast("auto", CPU)
    assert torch.equal(torch.get_rng_state(), before)
