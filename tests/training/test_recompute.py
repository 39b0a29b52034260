"""Activation checkpointing: the same bits from less memory."""

import copy

import pytest
import torch
from torch import Tensor, nn

from music_transformer.errors import ConfigError
from music_transformer.model import ModelConfig, MusicTransformer
from music_transformer.training.config import TrainingConfig
from music_transformer.training.estimate import estimate_size
from music_transformer.training.precision import checkpoint_layers

IDS = torch.arange(2 * 29).view(2, 29) % 391


def gradients(model: nn.Module) -> tuple[Tensor, dict[str, Tensor | None]]:
    """The loss and all gradients of one pass, dropout drawn alike each time."""
    torch.manual_seed(3)
    loss = model(IDS).logsumexp(-1).sum()
    loss.backward()
    return loss, {name: parameter.grad for name, parameter in model.named_parameters()}


@pytest.mark.parametrize("scheme", ["relative", "t5"])  # t5: one table serves all layers
def test_gradients_are_the_same_bit_for_bit_dropout_included(scheme: str) -> None:
    config = ModelConfig(
        n_layers=3, d_model=12, n_heads=2, d_ff=20, context=29, dropout=0.3,
        attention_position=scheme,
    )  # fmt: skip
    plain = MusicTransformer(config)
    recomputed = copy.deepcopy(plain)
    checkpoint_layers(recomputed)
    assert list(recomputed.state_dict()) == list(plain.state_dict())
    expected_loss, expected = gradients(plain)
    loss, found = gradients(copy.deepcopy(recomputed))
    assert torch.equal(loss, expected_loss)
    for name, gradient in expected.items():
        assert gradient is not None
        assert torch.equal(found[name], gradient), name  # type: ignore[arg-type]


def test_less_is_kept_for_the_backward_pass() -> None:
    config = ModelConfig(n_layers=6, d_model=12, n_heads=2, d_ff=60, context=29)
    model = MusicTransformer(config)

    def kept() -> int:
        """Numbers that the forward pass of all layers keeps."""
        sizes: dict[int, int] = {}

        def pack(tensor: Tensor) -> Tensor:
            sizes[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            model(IDS)
        return sum(sizes.values())

    plain = kept()
    checkpoint_layers(model)
    assert kept() < plain / 3


def test_a_model_that_only_reads_computes_nothing_again(model: MusicTransformer) -> None:
    expected = model.eval()(IDS)
    checkpoint_layers(model)
    assert torch.equal(model(IDS), expected)
    with torch.no_grad():
        cache = model.new_cache(2)
        torch.testing.assert_close(model(IDS, cache=cache), expected, atol=1e-5, rtol=0)


def test_a_model_without_layers_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"checkpoint_activations=true: Linear has no layers"):
        checkpoint_layers(nn.Linear(2, 2))


def test_the_estimate_knows_of_it() -> None:
    config = ModelConfig(n_layers=6, d_model=12, n_heads=2, d_ff=60, context=29)
    plain = estimate_size(MusicTransformer(config), TrainingConfig(batch_size=50))
    less = estimate_size(
        MusicTransformer(config), TrainingConfig(batch_size=50, checkpoint_activations=True)
    )
    assert less.memory_bytes < plain.memory_bytes


def test_compiled_layers_are_not_computed_again() -> None:
    with pytest.raises(ConfigError, match=r"compile=true with checkpoint_activations=true: .*one"):
        TrainingConfig(compile=True, checkpoint_activations=True)
