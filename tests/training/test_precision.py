"""bfloat16 in the linear layers."""

import copy

import pytest
import torch
from torch import nn

from music_transformer.model import MusicTransformer
from music_transformer.training import precision
from music_transformer.training.precision import Bfloat16Linear, resolve_autocast, use_bfloat16

CPU = torch.device("cpu")


def test_only_hidden_linear_layers_change_and_no_weight_does(model: MusicTransformer) -> None:
    before = copy.deepcopy(model.state_dict())
    use_bfloat16(model, model.config.vocab_size)
    kinds = {name: type(module) for name, module in model.named_modules()}
    assert not issubclass(kinds["output"], Bfloat16Linear)
    assert kinds["layers.0.attention.query"] is Bfloat16Linear
    after = model.state_dict()
    assert list(after) == list(before)
    assert all(torch.equal(after[name], before[name]) for name in before)


def test_logits_stay_float32_and_near_those_of_float32(model: MusicTransformer) -> None:
    ids = torch.randint(0, 388, (2, 13))
    model.eval()
    exact = model(ids)
    use_bfloat16(model, model.config.vocab_size)
    short = model(ids)
    assert short.dtype == torch.float32
    torch.testing.assert_close(short, exact, atol=0.05, rtol=0.05)  # 8 bits of mantissa


def test_a_short_layer_has_float32_gradients() -> None:
    layer = Bfloat16Linear(3, 5)
    layer(torch.randn(2, 3)).sum().backward()
    assert layer.weight.grad is not None
    assert layer.weight.grad.dtype == torch.float32


def test_on_and_off_are_taken_as_asked() -> None:
    assert resolve_autocast("on", CPU) is True
    assert resolve_autocast("off", CPU) is False


@pytest.mark.parametrize(("seconds", "pays"), [(0.4, True), (0.9, False), (70.0, False)])
def test_auto_takes_bfloat16_only_where_it_is_clearly_faster(
    seconds: float, pays: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = 0

    def measured(layer: nn.Module, rows: torch.Tensor) -> float:
        nonlocal calls
        calls += 1
        return seconds if isinstance(layer, Bfloat16Linear) else 1.0

    monkeypatch.setattr(precision, "_seconds", measured)
    assert resolve_autocast("auto", CPU) is pays
    assert calls <= (4 if seconds > 10 else 24)  # does not go on where it is hopeless


def test_measuring_leaves_the_global_generator_alone() -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    resolve_autocast("auto", CPU)
    assert torch.equal(torch.get_rng_state(), before)
