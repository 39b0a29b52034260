"""A positional scheme is one class and one name; nothing falls back to having none."""

import dataclasses
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from music_transformer.errors import ConfigError
from music_transformer.lazy import load
from music_transformer.model import ModelConfig, MusicTransformer
from music_transformer.model.positions import FURTHER, QKV, SCHEMES, Reading, Scheme, TensorsByName
from music_transformer.model.terms import INPUTS, TERMS
from music_transformer.ops.attention import biased_attention
from music_transformer.ops.relative import FUSED_WORKS, IMPLEMENTATIONS


class Slopes(nn.Module):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.slope = nn.Parameter(torch.ones(config.n_heads))

    def forward(self, reading: Reading) -> Tensor:
        position = torch.arange(reading.keys, dtype=self.slope.dtype)
        distance = (position[-reading.queries :, None] - position).clamp(min=0)  # (L, S)
        return -self.slope[:, None, None] * distance.sqrt()


class NearestKeys(Scheme):
    """A learned number of each head times the square root of the distance."""

    stack = Slopes

    def attend(self, qkv: QKV, tables: TensorsByName, shared: Any, dropout: float) -> Tensor:
        return biased_attention(*qkv, shared, dropout=dropout)


class Forgotten(Scheme):
    """It says nothing of attention."""


SIZES: dict[str, Any] = {
    "vocab_size": 29,
    "n_layers": 2,
    "d_model": 12,
    "n_heads": 3,
    "d_ff": 19,
    "context": 17,
}


def test_a_scheme_that_is_registered_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SCHEMES, "nearest", f"{__name__}:NearestKeys")
    model = MusicTransformer(ModelConfig(attention_position="nearest", **SIZES)).double().eval()
    ids = torch.randint(29, (2, 17))
    full = model(ids)
    full.sum().backward()
    assert (model.get_parameter("positions.slope").grad != 0).all()
    with torch.no_grad():
        cache = model.new_cache(2)
        parts = [model(ids[:, i : i + 1], cache=cache) for i in range(17)]
        torch.testing.assert_close(torch.cat(parts, 1), full, atol=1e-9, rtol=0)
        plain = MusicTransformer(ModelConfig(attention_position="none", **SIZES)).double().eval()
        plain.load_state_dict(model.state_dict(), strict=False)
        assert not torch.allclose(plain(ids), full, atol=1e-6)


def test_a_scheme_without_an_operator_is_refused_not_taken_for_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(SCHEMES, "forgotten", f"{__name__}:Forgotten")
    with pytest.raises(TypeError, match=r"abstract method '?attend"):
        ModelConfig(attention_position="forgotten", **SIZES)


def test_an_unknown_scheme_is_refused_with_the_choices() -> None:
    with pytest.raises(ConfigError, match="attention_position='near'; choose one of relative"):
        ModelConfig(attention_position="near", **SIZES)


@pytest.mark.parametrize("place", ["no_such_module:Scheme", f"{__name__}:NoSuchScheme"])
def test_a_scheme_behind_whose_name_is_nothing_is_refused(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SCHEMES, "unwired", place)
    with pytest.raises(ConfigError, match=f"attention_position='unwired': there is no {place}"):
        ModelConfig(attention_position="unwired", **SIZES)


def test_every_name_has_its_part() -> None:
    implementations = [i.attention for i in IMPLEMENTATIONS.values()]
    tables = (SCHEMES, FURTHER, TERMS, INPUTS)
    places = [place for table in tables for place in table.values()]
    for place in [*places, FUSED_WORKS, *(i for i in implementations if isinstance(i, str))]:
        assert callable(load(place))
    fields = {field.name for field in dataclasses.fields(ModelConfig)}
    assert {*FURTHER, *TERMS, *INPUTS} <= fields


PROBE = """
import sys
from music_transformer.model import ModelConfig, MusicTransformer
MusicTransformer(ModelConfig(vocab_size=11, n_layers=1, d_model=8, n_heads=2, context=9))
print(*(name for name in sys.modules if name.startswith("music_transformer.")))
"""


def test_the_papers_model_loads_no_optional_part() -> None:
    answer = subprocess.run(
        [sys.executable, "-c", PROBE], capture_output=True, check=True, text=True
    )
    loaded = {name.rpartition(".")[2] for name in answer.stdout.split()}
    assert {"transformer", "skew"} <= loaded
    assert not loaded & {"chorale", "performance_state", "schemes", "fused", "blockwise"}
