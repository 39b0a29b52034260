"""The decoder: causal, cached equals full, tables trained and saved."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from music_transformer.errors import ShapeError
from music_transformer.model import ModelConfig, MusicTransformer, schemes, transformer

VARIANTS = [
    {},
    {"attention": "skew"},
    {"shared_table": True, "max_distance": 5},
    {"block": 3, "max_distance": 6},
    {"attention_position": "none"},
    {"attention_position": "none", "block": 4},
    {"input_position": "sinusoidal"},
    {"input_position": "sinusoidal_concat", "voice_labels": 4, "step_labels": 16},
    {"input_position": "learned", "max_len": 41},
    {"d_attention": 6},
    {"attention_position": "shaw", "clip_distance": 5},
    {"attention_position": "shaw", "clip_distance": 3, "block": 4, "shared_table": True},
    {"attention_position": "t5", "t5_buckets": 6, "t5_max_distance": 11},
    {"attention_position": "t5", "block": 5, "input_position": "sinusoidal"},
    {"attention_position": "alibi"},
    {"attention_position": "alibi", "block": 3},
    {"attention_position": "rope"},
    {"attention_position": "rope", "block": 4, "position_base": 100.0},
    {"attention_position": "untied", "max_len": 41},
    {"attention_position": "untied", "max_len": 41, "block": 5},
    {"relative_time": True, "voice_labels": 4},
    {"relative_pitch": True, "voice_labels": 4, "shared_table": True},
    {"relative_pitch": True, "relative_time": True, "voice_labels": 3, "block": 5},
    {"relative_pitch": True, "relative_time": True, "voice_labels": 4, "attention": "blockwise"},
]


def build(**settings: object) -> MusicTransformer:
    base: dict[str, object] = {
        "vocab_size": 13,
        "n_layers": 2,
        "d_model": 12,
        "n_heads": 3,
        "d_ff": 19,
        "dropout": 0.0,
        "context": 17,
        "max_distance": 7,
    }
    torch.manual_seed(0)
    return MusicTransformer(ModelConfig(**{**base, **settings})).double()  # type: ignore[arg-type]


def some_ids(batch: int, length: int) -> torch.Tensor:
    return torch.randint(0, 13, (batch, length), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("settings", VARIANTS, ids=str)
@torch.no_grad()
def test_cached_decoding_equals_the_full_pass_past_max_distance_and_training_length(
    settings: dict[str, object],
) -> None:
    model = build(**settings).eval()
    ids = some_ids(2, 41)
    place = torch.arange(5, 46)
    full = model(ids, place=place)
    cache = model.new_cache(2, capacity=41)
    pieces = [(0, 11), (11, 12), (12, 19), *((i, i + 1) for i in range(19, 41))]
    cached = torch.cat([model(ids[:, a:b], place=place[a:b], cache=cache) for a, b in pieces], 1)
    # float64: the sums of the two ways differ in order, by rounding only
    torch.testing.assert_close(cached, full, atol=1e-9, rtol=0)


@pytest.mark.parametrize("settings", VARIANTS, ids=str)
def test_logits_depend_on_the_past_and_the_present_alone(settings: dict[str, object]) -> None:
    model = build(**settings)
    seen = {}
    model.input.embedding.register_forward_hook(lambda _m, _i, out: seen.update(x=out))
    logits = model(some_ids(2, 11))
    for k in (0, 4, 10):
        (grad,) = torch.autograd.grad(logits[:, k].pow(2).sum(), seen["x"], retain_graph=True)
        assert (grad[:, k + 1 :] == 0).all()
        assert (grad[:, k].abs().sum(-1) > 0).all()


def test_the_relative_table_is_trained_and_saved() -> None:
    model = build()
    table = model.layers[0].attention.rel_embedding
    assert "layers.0.attention.rel_embedding" in dict(model.named_parameters())
    before = table.detach().clone()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    ids = some_ids(3, 11)
    F.cross_entropy(model(ids).flatten(0, 1), ids.flatten()).backward()
    optimizer.step()
    assert (table != before).any(-1).all()  # every distance was met and moved
    twin = build()
    twin.load_state_dict(copy.deepcopy(model.state_dict()), strict=True)
    assert torch.equal(twin(ids), model(ids))


@pytest.mark.parametrize(
    ("scheme", "names"),
    [
        ("none", []),
        ("shaw", ["rel_key_embedding", "rel_value_embedding"] * 2),
        ("t5", ["positions.t5_table"]),
        ("alibi", []),
        ("rope", []),
        ("untied", ["positions.position.weight", "positions.query.weight"]),
    ],
)
def test_what_a_scheme_learns_is_a_parameter_that_training_moves(
    scheme: str, names: list[str]
) -> None:
    model = build(attention_position=scheme, clip_distance=3, t5_buckets=4, t5_max_distance=6)
    plain = {name for name, _ in build(attention_position="none").named_parameters()}
    own = {name: p for name, p in model.named_parameters() if name not in plain}
    assert all(any(name.endswith(wanted) for name in own) for wanted in names)
    assert bool(own) == bool(names)
    assert model.state_dict().keys() == dict(model.named_parameters()).keys()
    ids = some_ids(3, 11)
    F.cross_entropy(model(ids).flatten(0, 1), ids.flatten()).backward()
    for parameter in own.values():
        assert parameter.grad is not None
        assert parameter.grad.abs().sum() > 0


def test_t5_has_one_table_for_all_layers_of_the_stack() -> None:
    tables = [
        sum(p.numel() for p in build(attention_position="t5", n_layers=n).positions.parameters())
        for n in (1, 3)
    ]
    assert tables == [32 * 3, 32 * 3]


@torch.no_grad()
@pytest.mark.parametrize("scheme", ["relative", "shaw", "t5", "alibi", "rope"])
def test_a_scheme_of_distances_sees_no_absolute_position(scheme: str) -> None:
    # One layer with local attention: what a query sees, and so its logits, are the same later on.
    model = build(attention_position=scheme, n_layers=1, block=3, max_distance=6).eval()
    ids = some_ids(1, 9)
    torch.testing.assert_close(model(ids)[:, 6:], model(ids[:, 3:])[:, 3:], atol=1e-6, rtol=0)
    untied = build(attention_position="untied", n_layers=1, block=3).eval()
    assert not torch.allclose(untied(ids)[:, 6:], untied(ids[:, 3:])[:, 3:], atol=1e-3)


def test_the_names_of_the_relative_path_are_those_of_the_released_weights() -> None:
    layer = ["attention_norm.weight", "attention_norm.bias", "attention.rel_embedding"]
    layer += [f"attention.{name}.weight" for name in ("query", "key", "value", "out")]
    layer += ["feed_forward_norm.weight", "feed_forward_norm.bias"]
    layer += [f"{name}.{part}" for name in ("expand", "contract") for part in ("weight", "bias")]
    layers = [f"layers.{n}.{name}" for n in range(2) for name in layer]
    ends = ["norm.weight", "norm.bias", "output.weight", "output.bias"]
    assert list(build().state_dict()) == ["input.embedding.weight", *layers, *ends]


def test_sinusoids_are_computed_not_saved_and_reach_any_length() -> None:
    model = build(input_position="sinusoidal").eval()
    assert not any("sinusoid" in key for key in model.state_dict())
    assert model(some_ids(1, 53)).shape == (1, 53, 13)


def test_a_single_id_has_logits() -> None:
    assert build().eval()(some_ids(1, 1)).shape == (1, 1, 13)


def test_a_position_past_the_learned_table_is_a_clear_error() -> None:
    model = build(input_position="learned")
    with pytest.raises(ShapeError, match="position 17 is past the 17 learned positions"):
        model(some_ids(1, 18))
    with pytest.raises(ShapeError, match="position 17 is past the 17 learned positions"):
        build(attention_position="untied")(some_ids(1, 18))


def test_the_voice_label_follows_the_place_in_the_piece_not_in_the_window() -> None:
    model = build(voice_labels=4, step_labels=16).eval()
    ids = some_ids(1, 7)
    at = [model(ids, place=torch.arange(7) + start) for start in (0, 1, 64)]
    assert not torch.allclose(at[0], at[1])
    assert torch.equal(at[0], at[2])  # 64 events = 16 steps of four voices: the same labels


def test_a_full_cache_refuses_more_and_can_be_cleared() -> None:
    model = build().eval()
    cache = model.new_cache(2)
    model(some_ids(2, 17), cache=cache)
    with pytest.raises(ShapeError, match="holds 17 of 17"):
        model(some_ids(2, 1), cache=cache)
    cache.clear()
    assert model(some_ids(2, 3), cache=cache).shape == (2, 3, 13)
    with pytest.raises(ShapeError, match="ids of 1 sequences for a cache of 2"):
        model(some_ids(1, 1), cache=cache)


def test_ids_without_a_batch_are_refused_with_their_shape() -> None:
    with pytest.raises(ShapeError, match=r"\(5,\), expected \(B, L\)"):
        build()(torch.zeros(5, dtype=torch.int64))


def test_one_batch_can_be_learned_by_heart() -> None:
    torch.manual_seed(0)
    model = build().float().train()
    ids = some_ids(2, 12)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-2)
    for _ in range(80):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.05


@pytest.mark.parametrize(
    "settings",
    [
        {"attention_position": "rope"},
        {"attention_position": "none", "input_position": "sinusoidal"},
        {"input_position": "sinusoidal_concat"},
    ],
    ids=str,
)
def test_tables_that_grew_while_sampling_grew_seldom_and_serve_training_too(
    settings: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []

    def counted(make: Callable[..., Any]) -> Callable[..., Any]:
        def make_and_count(length: int, *args: Any, **named: Any) -> Any:
            made.append(length)
            return make(length, *args, **named)

        return make_and_count

    monkeypatch.setattr(transformer, "sinusoidal_table", counted(transformer.sinusoidal_table))
    monkeypatch.setattr(schemes, "rotary_table", counted(schemes.rotary_table))
    model = build(**settings)
    made.clear()
    ids = some_ids(1, 61)
    cache = model.new_cache(1, capacity=61)
    with torch.inference_mode():
        steps = [model(ids[:, i : i + 1], cache=cache) for i in range(61)]
    assert made == [34, 68]  # from the 17 of the context
    full = model(ids)
    torch.testing.assert_close(torch.cat(steps, dim=1), full.detach())
    full.sum().backward()
