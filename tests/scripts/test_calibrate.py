"""The script that calibrates: it finds the temperature that was, and its NLL is the true one."""

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from music_transformer.checkpoint import load_checkpoint, save_checkpoint
from music_transformer.datasets import PreparedData
from music_transformer.datasets.prepared import write_prepared
from music_transformer.evaluation.nll import evaluate_nll
from music_transformer.model import ModelConfig, MusicTransformer
from music_transformer.representations import ChoraleTokenizer

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "release" / "calibrate.py"
FUNCTIONS: dict[str, Any] = runpy.run_path(str(SCRIPT))


@pytest.mark.parametrize("temperature", [0.6, 1.0, 2.5])
def test_the_temperature_that_was_is_found(temperature: float) -> None:
    generator = torch.Generator().manual_seed(0)
    true = torch.randn(20_000, 11, generator=generator) * 2
    targets = torch.multinomial(true.softmax(1), 1, generator=generator)[:, 0]
    found = FUNCTIONS["best_temperature"](true * temperature, targets)
    assert found == pytest.approx(temperature, rel=0.03)
    nll = FUNCTIONS["nll_at"](true * temperature, targets, found)
    for other in (0.97 * found, 1.03 * found):
        assert nll < FUNCTIONS["nll_at"](true * temperature, targets, other)
    pieces = torch.arange(20_000) % 7
    crossed = FUNCTIONS["cross_fitted_nll"](true * temperature, targets, pieces)
    assert nll < crossed < nll + 1e-3


def test_the_checkpoint_has_the_nll_that_is_promised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    random = np.random.default_rng(3)
    pieces = [(str(t), random.integers(50, 60, 4 * t)) for t in (7, 11, 23)]
    write_prepared(
        tmp_path / "toy",
        tokenizer=ChoraleTokenizer(),
        corpus="toy",
        splits={"train": pieces, "validation": pieces},
    )
    torch.manual_seed(0)
    config = ModelConfig(
        vocab_size=132,
        n_layers=1,
        d_model=8,
        n_heads=2,
        d_ff=10,
        context=16,
        voice_labels=4,
        interval_output=True,
    )
    model = MusicTransformer(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) / 2)
        model.output.bias[50:60] += 4
    tokenizer = ChoraleTokenizer()
    save_checkpoint(tmp_path / "raw", model, tokenizer, training={"steps": 3})
    words = [str(tmp_path / "raw"), "--data", str(tmp_path / "toy"), "--out", str(tmp_path / "fit")]
    monkeypatch.setattr("sys.argv", ["calibrate", *words])
    assert FUNCTIONS["main"]() == 0
    data = PreparedData.open(tmp_path / "toy")
    fit = load_checkpoint(tmp_path / "fit", "cpu")
    found = fit.training["calibrated"]
    assert fit.training["steps"] == 3
    assert 1 < found["temperature"] < 3  # it was surer than it had reason to be
    raw = evaluate_nll(load_checkpoint(tmp_path / "raw", "cpu").model, data, "validation").nll
    assert found["validation_nll_before"] == pytest.approx(raw, abs=1e-5)
    after = evaluate_nll(fit.model, data, "validation").nll
    assert found["validation_nll"] == pytest.approx(after, abs=1e-4)
    assert after < raw
    assert f"validation_nll {found['validation_nll']:.4f}," in capsys.readouterr().out


@torch.no_grad()
def test_a_models_terms_are_divided_and_its_mask_is_not() -> None:
    torch.manual_seed(0)
    config = ModelConfig(
        n_layers=1, d_model=12, n_heads=3, d_ff=10, context=32, performance_state=True
    )
    model = MusicTransformer(config).eval()
    for parameter in model.parameters():
        parameter.add_(torch.randn_like(parameter) / 5)
    ids = torch.tensor([[389, 360, 60, 300, 188, 62]])
    before = model(ids)[0]
    assert (before < -512).any()
    targets = before.argmin(1)  # forbidden ones too
    expected = FUNCTIONS["nll_at"](before, targets, 2.0)
    FUNCTIONS["divide_logits"](model, 2.0)
    after = model(ids)[0]
    torch.testing.assert_close(after, FUNCTIONS["_divided"](before, 2.0), atol=1e-3, rtol=1e-5)
    assert FUNCTIONS["nll_at"](after, targets, 1.0) == pytest.approx(expected, abs=1e-3)


def test_what_is_no_decoder_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["calibrate", "nowhere", "--data", str(tmp_path), "--out", str(tmp_path / "fit")]
    monkeypatch.setattr("sys.argv", words)
    assert FUNCTIONS["main"]() == 2
    assert "no checkpoint 'nowhere'" in capsys.readouterr().err
    assert not (tmp_path / "fit").exists()
