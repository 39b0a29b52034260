"""Who moves which parameter, and Muon."""

import pytest
import torch
from torch import Tensor, nn

from music_transformer.model import ModelConfig, MusicTransformer
from music_transformer.training.config import TrainingConfig
from music_transformer.training.optimizers import (
    Muon,
    build_optimizers,
    decay_parameters,
    hidden_matrices,
    optimizer_tensors,
    orthogonalize,
    restore_optimizers,
    set_learning_rate,
)


def names_of(model: nn.Module, parameters: list[nn.Parameter]) -> set[str]:
    wanted = {id(parameter) for parameter in parameters}
    return {name for name, parameter in model.named_parameters() if id(parameter) in wanted}


@pytest.mark.parametrize("shape", [(5, 11), (11, 5), (3, 7, 7)])
def test_orthogonalised_singular_values_are_near_one(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    values = torch.linalg.svdvals(orthogonalize(torch.randn(shape)))
    assert float(values.min()) > 0.5  # the quintic of Muon promises about 0.7 to 1.2
    assert float(values.max()) < 1.3


def test_orthogonalising_keeps_the_singular_vectors() -> None:
    torch.manual_seed(0)
    matrix = torch.randn(4, 9)
    u, _, v = torch.linalg.svd(matrix, full_matrices=False)
    inner = u.T @ orthogonalize(matrix) @ v.T
    torch.testing.assert_close(inner, torch.diag(inner.diag()), atol=1e-4, rtol=0)


def test_orthogonalising_zero_gives_zero() -> None:
    assert torch.count_nonzero(orthogonalize(torch.zeros(3, 5))) == 0


def test_muon_moves_a_batch_of_matrices_as_it_moves_each_alone() -> None:
    torch.manual_seed(0)
    starts = [torch.randn(3, 5) for _ in range(2)] + [torch.randn(5, 3)]
    gradients = [torch.randn_like(start) for start in starts]
    together = [nn.Parameter(start.clone()) for start in starts]
    alone = [nn.Parameter(start.clone()) for start in starts]
    optimizers = [Muon(together, lr=0.1, weight_decay=0.1)]
    optimizers += [Muon([parameter], lr=0.1, weight_decay=0.1) for parameter in alone]
    for _ in range(3):
        for parameters in (together, alone):
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.grad = gradient.clone()
        for optimizer in optimizers:
            optimizer.step()
    for one, other in zip(together, alone, strict=True):
        torch.testing.assert_close(one, other)


def test_muons_step_has_the_root_mean_square_of_an_adamw_step() -> None:
    torch.manual_seed(0)
    parameter = nn.Parameter(torch.zeros(64, 96))
    parameter.grad = torch.randn(64, 96)
    Muon([parameter], lr=1.0).step()
    assert (
        0.1 < parameter.detach().square().mean().sqrt().item() < 0.3
    )  # Adam's is 0.2 to 0.4 in practice


def test_muon_takes_the_hidden_matrices_and_adamw_all_others_once(model: MusicTransformer) -> None:
    hidden = names_of(model, hidden_matrices(model))
    assert "layers.0.attention.query.weight" in hidden
    assert "layers.0.expand.weight" in hidden
    assert not {"output.weight", "input.embedding.weight"} & hidden
    assert not any("rel_embedding" in name or "norm" in name for name in hidden)
    optimizers = build_optimizers(model, TrainingConfig(optimizer="muon"), muon_dtype=torch.float32)
    held = [
        id(parameter)
        for optimizer in optimizers.values()
        for group in optimizer.param_groups
        for parameter in group["params"]
    ]
    assert sorted(held) == sorted(id(parameter) for parameter in model.parameters())


def test_a_hidden_layer_as_wide_as_the_vocabulary_is_hidden_all_the_same() -> None:
    model = MusicTransformer(ModelConfig(vocab_size=132, n_layers=1, d_model=12, d_ff=132))
    hidden = names_of(model, hidden_matrices(model))
    assert "layers.0.expand.weight" in hidden
    assert "output.weight" not in hidden


def test_weight_decay_is_on_matrices_only(model: MusicTransformer) -> None:
    names = names_of(model, decay_parameters(model))
    assert "output.weight" in names
    assert all(name.endswith("weight") and "norm" not in name for name in names)
    assert not any("embedding" in name for name in names)


@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_restored_optimizers_go_on_bit_for_bit(kind: str, model: MusicTransformer) -> None:
    config = TrainingConfig.from_dict({"optimizer": kind})

    def build() -> dict[str, torch.optim.Optimizer]:
        return build_optimizers(model, config, muon_dtype=torch.float32)

    def step(optimizers: dict[str, torch.optim.Optimizer]) -> None:
        set_learning_rate(optimizers, 1e-3)
        torch.manual_seed(3)
        for parameter in model.parameters():
            parameter.grad = torch.randn_like(parameter)
        for optimizer in optimizers.values():
            optimizer.step()

    first = build()
    step(first)
    saved = {name: tensor.clone() for name, tensor in optimizer_tensors(first, model).items()}
    weights: dict[str, Tensor] = {n: t.clone() for n, t in model.state_dict().items()}
    step(first)
    expected = {n: t.clone() for n, t in model.state_dict().items()}
    model.load_state_dict(weights)
    second = build()
    restore_optimizers(second, model, saved)
    step(second)
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, expected[name]), name
