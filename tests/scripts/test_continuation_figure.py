"""The script of the paper's continuation figure: rows, lengths, and what it refuses."""

import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from music_transformer.checkpoint import save_checkpoint
from music_transformer.midi import read_midi
from music_transformer.model import ModelConfig, RNNConfig
from music_transformer.model.registry import build_model
from music_transformer.representations import PerformanceTokenizer

pytest.importorskip("matplotlib", reason="needs the [plot] extra")

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "figures" / "continuation_figure.py"
TRANSFORMER = {"n_layers": 1, "d_model": 12, "n_heads": 2, "d_ff": 12, "context": 50}
CONFIGS = {
    "relative": ModelConfig(**TRANSFORMER),  # type: ignore[arg-type]
    "baseline": ModelConfig(
        **TRANSFORMER,  # type: ignore[arg-type]
        input_position="sinusoidal",
        attention_position="none",
    ),
    "lstm": RNNConfig(n_layers=1, d_model=12, d_hidden=12, context=50),
    "learned": ModelConfig(**TRANSFORMER, input_position="learned"),  # type: ignore[arg-type]
}

Run = Callable[..., int]


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models that have learnt nothing, by name; they say that they were trained on 45 events."""
    folder = tmp_path_factory.mktemp("checkpoints")
    for name, config in CONFIGS.items():
        with torch.random.fork_rng():
            torch.manual_seed(0)
            model = build_model(config)
        training: dict[str, Any] = {"config": {"window": 45}}
        save_checkpoint(folder / name, model, PerformanceTokenizer(), training=training)
    return folder


@pytest.fixture
def run(checkpoints: Path, motifs: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run the script on a motif with the named checkpoints; its exit code."""
    main = runpy.run_path(str(SCRIPT))["main"]

    def run(out: Path, *names: str, flags: tuple[str, ...] = ()) -> int:
        motif = str(motifs / "c_major_scale.mid")
        folders = [str(checkpoints / name) for name in names]
        command = [str(SCRIPT), motif, "--out", str(out), "--device", "cpu", *flags]
        monkeypatch.setattr("sys.argv", [*command, "--checkpoints", *folders])
        return int(main())

    return run


def test_every_model_continues_the_motif_to_twice_its_training_length(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "figure.svg"
    flags = ("--midi", str(tmp_path / "midi"), "--primer-seconds", "1")
    assert run(out, "relative", "baseline", "lstm", flags=flags) == 0
    assert out.read_bytes().startswith(b"<?xml")
    files = sorted((tmp_path / "midi").iterdir())
    assert [path.name for path in files] == ["0-relative.mid", "1-baseline.mid", "2-lstm.mid"]
    assert all(len(read_midi(path)) for path in files)
    assert capsys.readouterr().out.splitlines() == [str(path) for path in (out, *files)]
    assert run(out, "lstm") == 2
    assert "the file exists; add --force" in capsys.readouterr().err


def test_a_row_ends_after_twice_the_training_length(
    checkpoints: Path, motifs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = runpy.run_path(str(SCRIPT))
    motif = str(motifs / "c_major_scale.mid")
    command = [str(SCRIPT), motif, "--out", "x.png", "--device", "cpu", "--checkpoints", "x"]
    for length in (45, 60):
        more = [] if length == 45 else ["--length", "60"]
        monkeypatch.setattr("sys.argv", [*command, *more])
        args = script["_arguments"]()
        for name in ("relative", "lstm"):
            row = script["row_of"](str(checkpoints / name), read_midi(Path(motif)), args)
            assert f"trained on {length} events" in row.title
            assert 0 < row.primer_end < row.notes.end_time
            assert 0 < row.training_end < row.notes.end_time


@pytest.mark.parametrize(
    ("names", "flags", "code", "complaint"),
    [
        (("learned",), (), 2, "more than the 50 positions the model has learned"),
        (("nobody",), (), 3, "no checkpoint"),
        (("lstm",), ("--length", "5"), 2, "keep the last part of it with --primer-seconds"),
        (("lstm",), ("--length", "0"), 2, "--length 0; choose 1 or more"),
    ],
    ids=str,
)
def test_what_cannot_be_drawn_is_one_line_and_no_picture(
    names: tuple[str, ...],
    flags: tuple[str, ...],
    code: int,
    complaint: str,
    run: Run,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(tmp_path / "figure.png", *names, flags=flags) == code
    error = capsys.readouterr().err
    assert complaint in error
    assert error.strip().count("\n") == 0
    assert not (tmp_path / "figure.png").exists()
