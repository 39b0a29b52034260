"""Encoder and decoder: causal in the ids, cached equals full, PAD of the melody unseen."""

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

from music_transformer.errors import ConfigError, ShapeError
from music_transformer.model import AccompanimentConfig, AccompanimentTransformer
from music_transformer.model.config import ModelConfig
from music_transformer.model.transformer import MusicTransformer

VARIANTS: list[dict[str, Any]] = [
    {},
    {"cross_position": "none"},
    {"max_distance": None, "source_distance": None, "cross_distance": 2},
    {"input_position": "sinusoidal", "attention_position": "none", "cross_position": "none"},
]
PAD = 10


def build(**settings: Any) -> AccompanimentTransformer:
    """A small model; ids 5, 6 and 7 let 1, 2 and 3 units of time pass, 2 units are a step."""
    base: dict[str, Any] = {
        "vocab_size": 13,
        "source_vocab_size": 11,
        "source_pad": PAD,
        "n_layers": 2,
        "n_encoder_layers": 2,
        "d_model": 12,
        "n_heads": 3,
        "d_ff": 19,
        "d_encoder": 9,
        "d_encoder_ff": 14,
        "d_cross": 6,
        "dropout": 0.0,
        "context": 17,
        "source_context": 19,
        "max_distance": 7,
        "source_distance": 5,
        "cross_distance": 4,
        "time_shift": 5,
        "time_shifts": 3,
        "shifts_per_step": 2,
    }
    torch.manual_seed(0)
    model = AccompanimentTransformer(AccompanimentConfig(**{**base, **settings})).double()
    with torch.no_grad():  # attention to the melody starts as nothing; here it has learned
        for layer in model.layers:
            weight = layer.get_parameter("melody_attention.out.weight")
            weight.copy_(torch.randn_like(weight) * 0.3)
    return model


def some_ids(batch: int, length: int, below: int = 13, seed: int = 1) -> Tensor:
    return torch.randint(0, below, (batch, length), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("settings", VARIANTS, ids=str)
@pytest.mark.parametrize("melodies", [1, 2])
@torch.no_grad()
def test_cached_decoding_equals_the_full_pass_however_it_is_cut(
    settings: dict[str, Any], melodies: int
) -> None:
    model = build(**settings).eval()
    ids, source = some_ids(2, 31), some_ids(melodies, 19, below=PAD)
    full = model(ids, source=source)
    for cuts in ([0, 31], [0, 1, 2, 9, 10, 31], list(range(32))):
        cache = model.new_cache(2, capacity=31)
        parts = [
            model(ids[:, a:b], cache=cache, source=source if a == 0 else None)
            for a, b in itertools.pairwise(cuts)
        ]
        # float64: sums in another order, rounding only
        torch.testing.assert_close(torch.cat(parts, 1), full, atol=1e-9, rtol=0)
        cache.clear()
        assert cache.length == 0
        assert "melody" not in cache.kept
        model.encode(source, cache)
        torch.testing.assert_close(model(ids, cache=cache), full, atol=1e-9, rtol=0)


@pytest.mark.parametrize("settings", VARIANTS, ids=str)
def test_logits_depend_on_ids_up_to_the_present_and_on_the_whole_melody(
    settings: dict[str, Any],
) -> None:
    model = build(**settings)
    seen: dict[str, Tensor] = {}
    model.input.embedding.register_forward_hook(lambda _m, _i, out: seen.update(ids=out))
    model.encoder.input.embedding.register_forward_hook(lambda _m, _i, out: seen.update(melody=out))
    logits = model(some_ids(2, 11), source=some_ids(2, 7, below=PAD))
    for k in (0, 4, 10):
        of_ids, of_melody = torch.autograd.grad(
            logits[:, k].pow(2).sum(), (seen["ids"], seen["melody"]), retain_graph=True
        )
        assert of_ids[:, k + 1 :].abs().max() == 0 if k < 10 else True
        assert (of_ids[:, k].abs().amax(-1) > 0).all()
        assert (of_melody.abs().amax(-1) > 0).all()


def test_the_time_of_an_event_is_read_off_the_ids_before_it() -> None:
    model = build()
    ids = torch.tensor([[12, 5, 7, 4, 6, 8, 0]])  # only 5, 6 and 7 let time pass
    assert model._time_passed(ids).tolist() == [[0, 1, 4, 4, 6, 6, 6]]


@torch.no_grad()
def test_an_id_that_lets_time_pass_moves_what_is_now_in_the_melody() -> None:
    model = build(n_layers=1, attention_position="none").eval()
    layer = model.layers[0]
    steps = []
    layer.melody_attention.register_forward_pre_hook(  # type: ignore[union-attr]
        lambda _m, args: steps.append(args[3].tolist())
    )
    cache = model.new_cache(1)
    model(torch.tensor([[12, 7, 5]]), source=some_ids(1, 9, below=PAD), cache=cache)
    model(torch.tensor([[6, 6]]), cache=cache)
    assert steps == [[[0, 1, 2]], [[3, 4]]]


@pytest.mark.parametrize("settings", VARIANTS, ids=str)
@torch.no_grad()
def test_padding_after_a_melody_changes_nothing(settings: dict[str, Any]) -> None:
    model = build(**settings).eval()
    ids, source = some_ids(2, 9), some_ids(2, 13, below=PAD)
    padded = torch.cat([source, torch.full((2, 4), PAD)], dim=1)
    torch.testing.assert_close(
        model(ids, source=padded), model(ids, source=source), atol=1e-12, rtol=0
    )
    source[1, 6:] = PAD  # beside a longer one
    alone = model(ids[1:], source=source[1:, :6])
    torch.testing.assert_close(model(ids, source=source)[1:], alone, atol=1e-12, rtol=0)


@torch.no_grad()
def test_a_melody_of_padding_alone_gives_numbers() -> None:
    model = build().eval()
    assert model(some_ids(1, 5), source=torch.full((1, 3), PAD)).isfinite().all()


@torch.no_grad()
def test_a_decoder_put_in_place_begins_as_what_it_was() -> None:
    config = build().config
    model = AccompanimentTransformer(config).double().eval()
    torch.manual_seed(3)
    decoder = MusicTransformer(config.decoder).double().eval()
    missing, unexpected = model.load_state_dict(decoder.state_dict(), strict=False)
    assert not unexpected
    assert all("melody" in name or name.startswith("encoder.") for name in missing)
    ids = some_ids(2, 9)
    torch.testing.assert_close(
        model(ids, source=some_ids(2, 5, below=PAD)), decoder(ids), atol=1e-12, rtol=0
    )


def test_every_weight_learns() -> None:
    model = build()
    model(some_ids(2, 17), source=some_ids(2, 19, below=PAD)).pow(2).sum().backward()
    assert [n for n, p in model.named_parameters() if p.grad is None or not p.grad.any()] == []


def test_without_a_melody_it_says_so() -> None:
    model = build()
    with pytest.raises(ShapeError, match="there is no melody"):
        model(some_ids(1, 3))
    with pytest.raises(ShapeError, match="there is no melody"):
        model(some_ids(1, 3), cache=model.new_cache(1))
    with pytest.raises(ShapeError, match=r"source is \(3, 4\), expected \(2 or 1, S\)"):
        model(some_ids(2, 3), source=some_ids(3, 4))


def test_a_second_melody_for_a_cache_in_use_is_refused() -> None:
    model, cache = build(), None
    cache = model.new_cache(1)
    model(some_ids(1, 3), source=some_ids(1, 4), cache=cache)
    with pytest.raises(ShapeError, match="read to another melody"):
        model(some_ids(1, 3), source=some_ids(1, 4), cache=cache)


def test_a_config_survives_its_dict_and_refuses_what_it_does_not_know() -> None:
    config = build().config
    assert AccompanimentConfig.from_dict(config.to_dict()) == config
    with pytest.raises(ConfigError, match="did you mean source_context"):
        AccompanimentConfig.from_dict({"source_contxt": 3})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"cross_position": "pitch"}, "cross_position='pitch'; choose one of none, time"),
        ({"attention_position": "rope"}, "choose one of none, relative"),
        ({"input_position": "learned"}, "choose one of none, sinusoidal"),
        ({"source_context": 0}, "source_context=0"),
        ({"n_encoder_layers": 0}, "n_layers=0"),
        ({"source_pad": 258}, "outside the 258 ids"),
        ({"n_heads": 3, "d_cross": 129}, "not a multiple of n_heads"),
        ({"d_cross": 126}, "d_cross=126 is not a multiple of n_heads=4; try 128"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        AccompanimentConfig(**settings)


def test_the_decoder_of_the_default_is_that_of_a_piano_model() -> None:
    stack = AccompanimentConfig(dropout=0.0).decoder
    assert stack == ModelConfig(n_layers=6, dropout=0.0, context=1024, max_distance=512)
