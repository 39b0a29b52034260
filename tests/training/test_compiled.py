"""torch.compile behind a flag: the same training, or one clear line."""

import copy
import shutil
import warnings
from typing import Any

import pytest
import torch

from music_transformer.errors import ConfigError
from music_transformer.model import MusicTransformer
from music_transformer.model.transformer import CausalAttention
from music_transformer.training import precision as module
from music_transformer.training.precision import compiled

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _attention_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CausalAttention, "mixed", CausalAttention.mixed)


def test_without_a_compiler_the_flag_is_refused_in_one_line(
    model: MusicTransformer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any, **__: Any) -> Any:
        raise RuntimeError("No working C++ compiler found\nwith a long story")

    monkeypatch.setattr(torch, "compile", fails)
    message = r"compile=true: .*\(No working C\+\+ compiler found\); leave it out, or install a C\+"
    with pytest.raises(ConfigError, match=message) as caught:
        compiled(model, CPU)
    assert "\n" not in str(caught.value)


@pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler here")
def test_gradients_are_those_of_the_model_and_its_names_stay(
    model: MusicTransformer, monkeypatch: pytest.MonkeyPatch
) -> None:
    # "aot_eager" traces, cuts and differentiates as the compiler does, without its minute of C++.
    compile_really = torch.compile
    monkeypatch.setattr(
        torch, "compile", lambda *a, **k: compile_really(*a, **{**k, "backend": "aot_eager"})
    )
    model.eval()  # no dropout, whose draws differ
    plain = copy.deepcopy(model)
    ids = torch.arange(2 * 29).view(2, 29)
    with warnings.catch_warnings():
        called = compiled(model, CPU)
        called(ids).logsumexp(-1).sum().backward()
    plain(ids).logsumexp(-1).sum().backward()
    assert list(model.state_dict()) == list(plain.state_dict())
    for name, parameter in plain.named_parameters():
        found = model.get_parameter(name).grad
        torch.testing.assert_close(found, parameter.grad, atol=1e-4, rtol=1e-4, msg=name)


def test_attention_is_left_out_once() -> None:
    module._leave_out(CausalAttention, "mixed")
    first = vars(CausalAttention)["mixed"]
    module._leave_out(CausalAttention, "mixed")
    assert vars(CausalAttention)["mixed"] is first
