"""`seam` through `main`: the drift of a model that learned nothing, and what is refused."""

import json
import math
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from seam import drift

from music_transformer.checkpoint import save_checkpoint
from music_transformer.cli.main import exit_code
from music_transformer.datasets.prepared import write_prepared
from music_transformer.evaluation.seam import MEASURES
from music_transformer.model import ModelConfig, MusicTransformer
from music_transformer.notes import NoteSequence
from music_transformer.representations import PerformanceTokenizer

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "studies" / "seam.py"
MAIN: Any = runpy.run_path(str(SCRIPT))["main"]
Output = pytest.CaptureFixture[str]


def study(line: list[str]) -> int:
    """Its exit code."""
    return exit_code(lambda: MAIN(line))


@pytest.fixture
def line(tmp_path: Path) -> list[str]:
    """`seam` on two pieces of 12 s, continued by a model that learned nothing."""
    tokenizer, random = PerformanceTokenizer(), np.random.default_rng(1)
    pieces = []
    for name in ("a", "b"):
        start = np.arange(60) * 0.2
        pitch = random.integers(50, 80, 60)
        notes = NoteSequence(pitch=pitch, velocity=pitch, start=start, end=start + 0.3)
        ids = [tokenizer.start, *tokenizer.encode(notes), tokenizer.end]
        pieces.append((name, np.array(ids)))
    splits = {"train": pieces, "validation": pieces}
    write_prepared(tmp_path / "d", tokenizer=tokenizer, corpus="toy", splits=splits)
    torch.manual_seed(0)
    config = ModelConfig(
        vocab_size=tokenizer.vocab_size, n_layers=1, d_model=16, n_heads=2, d_ff=16, context=128
    )
    save_checkpoint(tmp_path / "c", MusicTransformer(config), tokenizer, training={})
    command = ["--checkpoint", str(tmp_path / "c"), "--data", str(tmp_path / "d")]
    return [*command, "--primers", "2", "--primer-seconds", "4", "--seconds", "4"]


@pytest.mark.parametrize("plain", [[], ["--plain"]])
def test_the_drift_of_a_model_is_told_beside_another_piece(
    line: list[str], plain: list[str], capsys: Output
) -> None:
    assert study([*line, *plain, "--json", "--top-p", "0.9"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["primers"] == 2
    assert set(found["by_measure"]) == set(MEASURES)
    assert found["interval"][0] <= found["drift"] <= found["interval"][1]
    assert found["drift"] != found["another"]

    assert study([*line, *plain]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("drift ")


def test_what_cannot_be_measured_is_one_line(line: list[str], capsys: Output) -> None:
    assert study([*line, "--seconds", "40"]) == 2
    assert "long enough" in capsys.readouterr().err


def test_drift_is_the_geometric_mean_of_ratios_over_primers():
    truth = [dict.fromkeys(MEASURES, value) for value in (1.0, 3.0)]
    given = [{name: 2 * value for name, value in one.items()} for one in truth]
    given.append(dict.fromkeys(MEASURES, math.nan))
    result = drift(given, [*truth, truth[0]])
    assert result.drift == pytest.approx(2)
    assert result.interval == pytest.approx((2, 2))
    given[0]["register"] = given[1]["register"] = 16.0
    assert drift(given[:2], truth).by_measure["register"] == pytest.approx(8)
    assert drift(given[:2], truth).drift == pytest.approx(2 * 4 ** (1 / 9))
