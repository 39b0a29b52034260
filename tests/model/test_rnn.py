"""The LSTM baseline: causal, cached equals full, what it remembers, what its config refuses."""

from itertools import pairwise

import pytest
import torch
from torch.nn import functional as F

from music_transformer.errors import ConfigError, ShapeError
from music_transformer.model import PerformanceRNN, RNNConfig

ATTENTIONS = ("none", "causal")


def build(**settings: object) -> PerformanceRNN:
    base: dict[str, object] = {
        "vocab_size": 13,
        "n_layers": 2,
        "d_model": 7,
        "d_hidden": 11,
        "dropout": 0.0,
        "context": 17,
    }
    torch.manual_seed(0)
    return PerformanceRNN(RNNConfig(**{**base, **settings})).double()  # type: ignore[arg-type]


def some_ids(batch: int, length: int) -> torch.Tensor:
    return torch.randint(0, 13, (batch, length), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("attention", ATTENTIONS)
@pytest.mark.parametrize(
    "cuts", [[0, 41], [0, 1, 41], [0, 11, 12, 19, 41], [*range(42)], [0, 40, 41]], ids=len
)
@torch.no_grad()
def test_however_the_ids_are_handed_over_the_logits_are_those_of_one_pass(
    attention: str, cuts: list[int]
) -> None:
    model = build(attention=attention).eval()
    ids = some_ids(2, 41)  # longer than the context
    cache = model.new_cache(2, capacity=41)
    pieces = [ids[:, a:b] for a, b in pairwise(cuts)]
    cached = torch.cat([model(piece, cache=cache) for piece in pieces], dim=1)
    # float64: the products of one row and of many differ by rounding only
    torch.testing.assert_close(cached, model(ids), atol=1e-12, rtol=0)


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_logits_depend_on_the_past_and_the_present_alone(attention: str) -> None:
    model = build(attention=attention)
    seen = {}
    model.embedding.register_forward_hook(lambda _m, _i, out: seen.update(x=out))
    logits = model(some_ids(2, 11))
    for k in (0, 4, 10):
        (grad,) = torch.autograd.grad(logits[:, k].pow(2).sum(), seen["x"], retain_graph=True)
        assert (grad[:, k + 1 :] == 0).all()
        assert (grad[:, : k + 1].abs().sum(-1) > 0).all()


@torch.no_grad()
def test_attention_is_the_formula_of_the_module() -> None:
    model = build(attention="causal", n_layers=1).eval()
    assert model.attention is not None
    ids = some_ids(2, 5)
    hidden, _ = model.lstm(model.embedding(ids))  # (B, L, d_hidden)
    w, c = model.attention.query.weight, model.attention.merge.weight
    for t in range(5):
        past = hidden[:, : t + 1]  # (B, t + 1, d_hidden)
        scores = torch.einsum("bs,rs,btr->bt", hidden[:, t], w, past) / 11**0.5
        context = torch.einsum("bt,bth->bh", scores.softmax(-1), past)
        out = torch.tanh(torch.cat([context, hidden[:, t]], dim=-1) @ c.T)
        torch.testing.assert_close(model.output(out), model(ids)[:, t])


@torch.no_grad()
def test_a_cleared_cache_has_forgotten_everything() -> None:
    for attention in ATTENTIONS:
        model = build(attention=attention).eval()
        cache = model.new_cache(2)
        model(some_ids(2, 17), cache=cache)
        with pytest.raises(ShapeError, match="holds 17 of 17"):
            model(some_ids(2, 1), cache=cache)
        cache.clear()
        again = model(some_ids(2, 3), cache=cache)
        torch.testing.assert_close(again, model(some_ids(2, 3)), atol=1e-12, rtol=0)
        with pytest.raises(ShapeError, match="ids of 1 sequences for a cache of 2"):
            model(some_ids(1, 1), cache=cache)


def test_ids_without_a_batch_are_refused_with_their_shape() -> None:
    with pytest.raises(ShapeError, match=r"\(5,\), expected \(B, L\)"):
        build()(torch.zeros(5, dtype=torch.int64))


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_one_batch_can_be_learned_by_heart(attention: str) -> None:
    model = build(attention=attention, d_hidden=24, n_layers=1, dropout=0.1).float().train()
    ids = some_ids(2, 12)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-2)
    for _ in range(80):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.2


def test_what_was_read_without_gradients_can_still_be_trained() -> None:
    model = build(attention="causal")
    with torch.inference_mode():
        cache = model.new_cache(1)
        model(some_ids(1, 3), cache=cache)
    model(some_ids(1, 3)).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_the_paper_s_shape_has_its_size_and_its_forget_gates_open() -> None:
    with torch.device("meta"):
        model = PerformanceRNN(RNNConfig(attention="causal"))
    lstm = 4 * 1024 * (512 + 1024) + 2 * 4 * 1024 * (1024 + 1024) + 3 * 2 * 4 * 1024
    ends = 391 * 512 + 391 * 1024 + 391
    assert sum(p.numel() for p in model.parameters()) == lstm + ends + 3 * 1024 * 1024
    small = build()
    for layer in range(2):
        bias = small.lstm.get_parameter(f"bias_ih_l{layer}").view(4, -1)
        recurrent_bias = small.lstm.get_parameter(f"bias_hh_l{layer}").view(4, -1)
        assert ((bias + recurrent_bias)[1] == 1).all()
        assert (bias[0] < 1).all()


def test_a_config_survives_json_and_refuses_what_it_does_not_know() -> None:
    config = RNNConfig(d_hidden=11, attention="causal")
    assert RNNConfig.from_dict(config.to_dict()) == config
    with pytest.raises(ConfigError, match="unknown model setting 'd_hiden'; did you mean d_hidden"):
        RNNConfig.from_dict({"d_hiden": 3})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_layers": 0}, "n_layers=0; choose a whole number from 1 up"),
        ({"d_hidden": 2.0}, "d_hidden=2.0; choose a whole number"),
        ({"dropout": 1.0}, r"dropout=1.0; choose one in \[0, 1\)"),
        ({"attention": "skew"}, "attention='skew'; choose one of none, causal"),
    ],
    ids=str,
)
def test_a_setting_that_makes_no_sense_is_refused(
    settings: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        build(**settings)
