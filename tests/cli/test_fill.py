"""`fill`: a file with a gap goes in, the same file with the gap composed comes out."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from music_transformer.checkpoint import save_checkpoint
from music_transformer.cli.main import main
from music_transformer.midi import read_midi
from music_transformer.model import ModelConfig, MusicTransformer
from music_transformer.representations import PerformanceTokenizer

Output = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that has learned nothing."""
    config = ModelConfig(n_layers=1, d_model=16, n_heads=2, d_ff=16, context=512, anchors=True)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = MusicTransformer(config)
    folder = tmp_path_factory.mktemp("checkpoints") / "filler"
    return save_checkpoint(folder, model, PerformanceTokenizer(), training={})


def test_bars_are_composed_anew(
    checkpoint: Path, motifs: Path, tmp_path: Path, capsys: Output
) -> None:
    file, out = motifs / "fur_elise_opening.mid", tmp_path / "filled.mid"
    line = ["fill", str(file), "--from", "bar:3", "--to", "bar:4", "--checkpoint", str(checkpoint)]
    line += ["--out", str(out), "--candidates", "2", "--plot"]
    assert main([*line, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    start, end = printed["gap"]["from"], printed["gap"]["to"]
    assert printed["samples"][0]["midi"] == str(out)
    assert Path(printed["samples"][0]["plot"]).stat().st_size > 1000
    before, after = read_midi(file), read_midi(out)
    kept = (before.start < start - 1e-6) | (before.start >= end - 1e-6)
    own = after.selected(after.track <= before.track.max())
    assert own.pitch.tolist() == before.pitch[kept].tolist()
    assert np.abs(own.start - before.start[kept]).max() < 1e-4
    assert main(line) == 2
    assert "the file exists" in capsys.readouterr().err


def test_another_kind_of_checkpoint_is_refused(
    motifs: Path, tmp_path: Path, capsys: Output
) -> None:
    line = ["fill", str(motifs / "fur_elise_opening.mid"), "--from", "1", "--to", "2"]
    line += ["--checkpoint", "piano", "--out", str(tmp_path / "a.mid")]
    assert main(line) == 2
    assert "this checkpoint fills no gaps" in capsys.readouterr().err
