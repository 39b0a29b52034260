"""A chorale decoder with relative pitch and time: what it sees, learns, keeps and refuses."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from music_transformer.errors import ShapeError
from music_transformer.model import ModelConfig, MusicTransformer
from music_transformer.model.introspection import attention_weights

BOTH: dict[str, Any] = {"relative_pitch": True, "relative_time": True}


def build(**settings: Any) -> MusicTransformer:
    base: dict[str, Any] = {
        "vocab_size": 132,
        "n_layers": 2,
        "d_model": 12,
        "n_heads": 3,
        "d_ff": 19,
        "dropout": 0.0,
        "context": 23,
        "voice_labels": 4,
    }
    torch.manual_seed(0)
    return MusicTransformer(ModelConfig(**{**base, **BOTH, **settings})).double()


def some_ids(batch: int, length: int) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    near = torch.randint(40, 80, (batch, length), generator=generator)
    near[:, 3] = 128  # a rest
    near[:, 5] = 7  # far below every voice
    return near


@pytest.mark.parametrize("cuts", [[23], [1] * 23, [2, 1, 5, 1, 1, 13], [11, 12]])
@pytest.mark.parametrize("first", [0, 5])
@pytest.mark.parametrize("attention", ["auto", "reference", "skew", "blockwise"])
@torch.no_grad()
def test_any_chunks_of_reading_give_the_logits_of_the_full_pass(
    cuts: list[int], first: int, attention: str
) -> None:
    model = build(attention=attention).eval()
    ids, place = some_ids(2, 23), torch.arange(first, first + 23)
    full = build(attention="reference").eval()(ids, place=place)
    cache, parts, begin = model.new_cache(2), [], 0
    for length in cuts:
        end = begin + length
        parts.append(model(ids[:, begin:end], place=place[begin:end], cache=cache))
        begin = end
    # float64: the sums of the two ways differ in order, by rounding only
    torch.testing.assert_close(torch.cat(parts, 1), full, atol=1e-9, rtol=0)


@torch.no_grad()
def test_a_cleared_cache_forgets_the_pitches_too() -> None:
    model = build().eval()
    ids = some_ids(2, 23)
    cache = model.new_cache(2)
    model(ids, cache=cache)
    cache.clear()
    again = model(ids[:, 5:12], cache=cache)
    torch.testing.assert_close(again, model(ids[:, 5:12]), atol=1e-9, rtol=0)


@torch.no_grad()
def test_sequences_that_begin_with_different_voices_share_a_batch() -> None:
    model = build().eval()
    ids = some_ids(5, 11)
    firsts = [2, 8, 3, 6, 3]
    place = torch.tensor(firsts)[:, None] + torch.arange(11)
    together = model(ids, place=place)
    alone = [model(ids[n : n + 1], place=place[n]) for n in range(5)]
    torch.testing.assert_close(together, torch.cat(alone), atol=1e-9, rtol=0)


@torch.no_grad()
def test_pitch_sees_intervals_and_time_sees_steps() -> None:
    # Without embeddings that tell one pitch from another, only intervals are left to be seen.
    model = build(relative_time=False).eval()
    model.input.embedding.weight[:] = model.input.embedding.weight[60]
    ids = torch.tensor([[60, 64, 67, 72, 60, 62]])
    torch.testing.assert_close(model(ids + 5), model(ids), atol=1e-9, rtol=0)
    other = ids.clone()
    other[0, 1] = 63
    assert not torch.allclose(model(other), model(ids), atol=1e-6)
    # Without voice labels only relative time knows the voice of the first place.
    model = build(relative_pitch=False).eval()
    assert model.input.voice is not None
    model.input.voice.weight[:] = 0
    at = [model(ids, place=torch.arange(6) + first) for first in (0, 1, 4)]
    assert not torch.allclose(at[0], at[1], atol=1e-6)
    torch.testing.assert_close(at[0], at[2], atol=0, rtol=0)


def test_the_tables_are_parameters_that_are_trained_and_saved() -> None:
    model = build()
    plain = build(relative_pitch=False, relative_time=False)
    names = ["pitch_embedding", "time_embedding"]
    own = {f"layers.{n}.attention.{name}" for n in range(2) for name in names}
    assert model.state_dict().keys() - plain.state_dict().keys() == own
    tables = dict(model.named_parameters())
    assert tables["layers.0.attention.pitch_embedding"].shape == (3, 73, 4)
    assert tables["layers.0.attention.time_embedding"].shape == (3, 7, 4)  # 22 places: 0..6 steps
    before = {name: tables[name].detach().clone() for name in own}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    ids = some_ids(3, 23)
    F.cross_entropy(model(ids).flatten(0, 1), ids.flatten()).backward()
    optimizer.step()
    assert all((tables[name] != before[name]).any() for name in own)
    twin = build()
    twin.load_state_dict(copy.deepcopy(model.state_dict()), strict=True)
    assert torch.equal(twin(ids), model(ids))


def test_attention_maps_and_rows_are_those_of_the_model() -> None:
    model = build()
    ids, place = some_ids(1, 13), torch.arange(6, 19)
    maps = attention_weights(model, ids, place=place)
    torch.testing.assert_close(maps.sum(-1), torch.ones_like(maps[..., 0]), atol=1e-12, rtol=0)
    plain = build()
    plain.load_state_dict(model.state_dict())
    with torch.no_grad():
        for layer in plain.layers:
            layer.get_parameter("attention.pitch_embedding").zero_()
    assert not torch.allclose(attention_weights(plain, ids, place=place), maps, atol=1e-6)
    rows = attention_weights(model, ids, place=place, last_only=True)
    torch.testing.assert_close(rows, maps[:, :, -1:], atol=1e-12, rtol=0)


def test_places_that_jump_are_refused_where_time_counts_on_them() -> None:
    place = torch.tensor([0, 1, 2, 4])
    with pytest.raises(ShapeError, match="place does not go up by one"):
        build()(some_ids(1, 6)[:, :4], place=place)
    assert build(relative_time=False)(some_ids(1, 6)[:, :4], place=place).shape == (1, 4, 132)


def test_attention_dropout_goes_with_both_terms() -> None:
    model = build(attention_dropout=0.3).train()
    ids = some_ids(2, 11)
    assert not torch.equal(model(ids), model(ids))
    model(ids).sum().backward()
    model.eval()
    torch.testing.assert_close(model(ids), build().eval()(ids), atol=1e-9, rtol=0)
