"""Attention weights: what the layers themselves use, whatever their scheme."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from music_transformer.errors import ConfigError, ShapeError
from music_transformer.model import ModelConfig, MusicTransformer
from music_transformer.model.introspection import attention_weights
from music_transformer.ops.attention import clipped_rows, relative_values_by_clipping
from music_transformer.ops.reference import relative_logits_by_gather

HEADS, LENGTH = 3, 11
SCHEMES: list[dict[str, Any]] = [
    {},
    {"attention": "skew"},
    {"attention": "blockwise"},
    {"attention": "reference", "attention_dropout": 0.5, "dropout": 0.5},
    {"shared_table": True, "max_distance": 5},
    {"block": 3, "max_distance": 6},
    {"d_attention": 6},
    {"d_attention": 60},
    {"input_position": "sinusoidal_concat", "voice_labels": 4, "step_labels": 16},
    {"attention_position": "none"},
    {"attention_position": "none", "block": 4},
    {"attention_position": "shaw", "clip_distance": 5},
    {"attention_position": "shaw", "clip_distance": 3, "block": 4, "shared_table": True},
    {"attention_position": "t5", "t5_buckets": 6, "t5_max_distance": 11},
    {"attention_position": "alibi", "block": 3},
    {"attention_position": "rope"},
    {"attention_position": "untied"},
]


def build(**settings: Any) -> MusicTransformer:
    base: dict[str, Any] = {
        "vocab_size": 13,
        "n_layers": 2,
        "d_model": 12,
        "n_heads": HEADS,
        "d_ff": 19,
        "dropout": 0.0,
        "context": 17,
    }
    torch.manual_seed(0)
    return MusicTransformer(ModelConfig(**{**base, **settings})).double()


def some_ids(length: int = LENGTH) -> Tensor:
    return torch.randint(0, 13, (length,), generator=torch.Generator().manual_seed(1))


def heads(x: Tensor) -> Tensor:
    """(1, L, H * D) -> (H, L, D)."""
    return x[0].unflatten(-1, (HEADS, -1)).transpose(0, 1)


def seen_in_a_pass(attention: nn.Module, model: MusicTransformer, ids: Tensor) -> dict[str, Tensor]:
    """Queries, keys, values, and what was mixed of them: (H, L, D) each."""
    seen: dict[str, Tensor] = {}

    def after(name: str) -> Any:
        return lambda module, args, output: seen.update({name: heads(output)})

    hooks = [
        attention.get_submodule(name).register_forward_hook(after(name))
        for name in ("query", "key", "value")
    ]
    out = attention.get_submodule("out")
    hooks.append(
        out.register_forward_pre_hook(lambda module, args: seen.update(mixed=heads(args[0])))
    )
    model.eval()(ids[None])
    for hook in hooks:
        hook.remove()
    return seen


@pytest.mark.parametrize("settings", SCHEMES, ids=str)
@torch.no_grad()
def test_weights_times_values_are_what_the_layer_mixes(settings: dict[str, Any]) -> None:
    model, ids = build(**settings), some_ids()
    weights = attention_weights(model, ids)
    assert weights.shape == (2, HEADS, LENGTH, LENGTH)
    for layer, module in enumerate(model.layers):
        attention = module.get_submodule("attention")
        seen = seen_in_a_pass(attention, model, ids)
        mixed = weights[layer] @ seen["value"]  # (H, L, D)
        if settings.get("attention_position") == "shaw":
            table = attention.get_parameter("rel_value_embedding")
            rows = clipped_rows(LENGTH, LENGTH, clip_distance=settings["clip_distance"])
            mixed = mixed + relative_values_by_clipping(weights[layer : layer + 1], table, rows)[0]
        assert torch.allclose(mixed, seen["mixed"], atol=1e-12)


@pytest.mark.parametrize("settings", SCHEMES, ids=str)
def test_rows_sum_to_one_and_nothing_comes_from_later(settings: dict[str, Any]) -> None:
    weights = attention_weights(build(**settings), some_ids())
    assert torch.allclose(weights.sum(-1), torch.ones_like(weights[..., 0]), atol=1e-12)
    assert (weights.triu(1) == 0).all()
    assert weights.min() > -1e-15


def test_local_attention_sees_its_own_block_and_the_one_before() -> None:
    weights = attention_weights(build(block=3), some_ids())
    block = torch.arange(LENGTH) // 3
    near = (block[:, None] - block[None, :] <= 1).tril()
    assert ((weights > 0) == near).all()


@torch.no_grad()
def test_they_are_the_softmax_of_the_papers_equation_3() -> None:
    model, ids = build(), some_ids()
    attention = model.layers[1].get_submodule("attention")
    seen = seen_in_a_pass(attention, model, ids)
    query, key = seen["query"], seen["key"]
    relative = relative_logits_by_gather(
        query[None], attention.get_parameter("rel_embedding")[None], LENGTH
    )[0]  # (H, L, L)
    logits = (query @ key.mT + relative) / query.shape[-1] ** 0.5  # (H, L, L)
    later = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)
    expected = logits.masked_fill(later, -torch.inf).softmax(-1)
    assert torch.allclose(attention_weights(model, ids)[1], expected, atol=1e-12)


def test_only_the_layers_asked_for_come_back_in_their_order() -> None:
    model, ids = build(), some_ids()
    weights = attention_weights(model, ids)
    assert torch.equal(attention_weights(model, ids, layers=[-1, 0]), weights.flip(0))
    with pytest.raises(ConfigError, match=r"layer=2: the model has layers 0 to 1"):
        attention_weights(model, ids, layers=[2])


def test_the_place_reaches_the_labels() -> None:
    model, ids = build(voice_labels=4), some_ids()
    shifted = attention_weights(model, ids, place=torch.arange(1, LENGTH + 1))
    assert not torch.allclose(shifted, attention_weights(model, ids))
    assert torch.equal(
        attention_weights(model, ids, place=torch.arange(LENGTH)), attention_weights(model, ids)
    )


def test_the_model_is_left_as_it_was() -> None:
    model, ids = build(dropout=0.5), some_ids()
    before = model.eval()(ids[None])
    model.train()
    attention_weights(model, ids)
    assert model.training
    assert torch.equal(model.eval()(ids[None]), before)
    assert all(not m._forward_hooks and not m._forward_pre_hooks for m in model.modules())


def test_one_sequence_with_or_without_its_batch_and_no_more() -> None:
    model, ids = build(), some_ids(1)
    assert torch.equal(attention_weights(model, ids), attention_weights(model, ids[None]))
    assert torch.allclose(attention_weights(model, ids), torch.ones(2, HEADS, 1, 1).double())
    with pytest.raises(ShapeError, match=r"\(2, 5\), expected one sequence"):
        attention_weights(model, torch.zeros(2, 5, dtype=torch.int64))


@pytest.mark.parametrize("settings", SCHEMES, ids=str)
def test_the_last_row_alone_is_that_of_the_map(settings: dict[str, Any]) -> None:
    model, ids, place = build(**settings), some_ids(), torch.arange(LENGTH) + 4
    row = attention_weights(model, ids, place=place, last_only=True)
    expected = attention_weights(model, ids, place=place)[:, :, -1:]
    torch.testing.assert_close(row, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("shape", [(2, 5), (0,), (1, 0), (1, 1, 1)])
def test_anything_but_one_sequence_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ShapeError, match="expected one sequence"):
        attention_weights(build(), torch.zeros(shape, dtype=torch.int64))
