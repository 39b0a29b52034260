"""The script of a release: what the released config says of sampling."""

import json
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from music_transformer.checkpoint import load_checkpoint, save_checkpoint
from music_transformer.datasets.prepared import write_prepared
from music_transformer.model import ModelConfig, MusicTransformer
from music_transformer.representations import ChoraleTokenizer
from music_transformer.sampling import Sampling

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "release" / "release.py"
CONFIG = ModelConfig(vocab_size=132, n_layers=1, d_model=6, n_heads=2, d_ff=10, context=14)

Release = Callable[..., dict[str, Any] | None]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Prepared chorales, too few to learn anything."""
    random = np.random.default_rng(3)
    pieces = [(str(t), random.integers(40, 81, 4 * t)) for t in (7, 11)]
    folder = tmp_path_factory.mktemp("data") / "chorales"
    splits = {"train": pieces, "validation": pieces}
    write_prepared(folder, tokenizer=ChoraleTokenizer(), corpus="toy", splits=splits)
    return folder


@pytest.fixture
def release(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Release:
    """Release a run, whose checkpoint says `own`; what the released config says of sampling."""

    def release(*flags: str, own: Sampling | None = None) -> dict[str, Any] | None:
        torch.manual_seed(0)
        run = save_checkpoint(
            tmp_path / "run",
            MusicTransformer(CONFIG),
            ChoraleTokenizer(),
            training={},
            sampling=own,
        )
        out = tmp_path / "released"
        command = [str(SCRIPT), str(run), "--data", str(data), "--out", str(out), *flags]
        monkeypatch.setattr("sys.argv", command)
        assert runpy.run_path(str(SCRIPT))["main"]() == 0
        load_checkpoint(out, "cpu")
        said: dict[str, Any] | None = json.loads((out / "config.json").read_text()).get("sampling")
        return said

    return release


def test_what_a_release_says_of_sampling_is_kept_until_told_otherwise(release: Release) -> None:
    assert release() is None
    said = {"temperature": 1.05, "top_p": 1}
    assert release("--sampling", "temperature=1.05", "top_p=1", "--force") == said
    assert release("--force") == said
    assert release("--force", own=Sampling(top_k=5)) == said
    assert release("--sampling", "min_p=0.1", "--force") == {"min_p": 0.1}
    assert release("--sampling", "--force") is None


def test_the_first_release_says_what_its_checkpoint_does(release: Release) -> None:
    assert release(own=Sampling(top_k=5)) == {"top_k": 5}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("heat=1", "'heat' is unknown; known are temperature"),
        ("temperature=hot", "temperature='hot'; give a number"),
        ("temperature", "temperature=''; give a number"),
        ("top_p=2", "top_p=2; choose one above 0"),
    ],
)
def test_sampling_that_makes_no_sense_is_refused_before_the_work(
    release: Release, tmp_path: Path, text: str, complaint: str
) -> None:
    with pytest.raises(SystemExit, match=complaint):
        release("--sampling", text)
    assert not (tmp_path / "released").exists()
