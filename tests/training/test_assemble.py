"""A run from Python, alone and shared by processes."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import music_transformer
from music_transformer.cli.main import main
from music_transformer.datasets import PreparedData
from music_transformer.errors import ConfigError
from music_transformer.progress import Progress
from music_transformer.training.distributed import default_processes

SMALL: dict[str, Any] = {
    "steps": 4,
    "n_layers": 1,
    "d_model": 12,
    "n_heads": 2,
    "d_ff": 20,
    "context": 29,
    "max_distance": 17,
    "dropout": 0,
    "batch_size": 4,
    "autocast": "off",
    "threads": 1,
    "evaluate_every": 2,
    "evaluate_windows": 2,
    "optimizer": "adamw",
    "device": "cpu",
}


class Record(Progress):
    """Keeps what it is given."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.updates = 0

    def update(self, count: int = 1) -> None:
        self.updates += count

    def info(self, message: str) -> None:
        self.lines.append(message)


def test_train_makes_a_run_that_can_be_loaded_and_resumed(
    data: PreparedData, tmp_path: Path
) -> None:
    progress = Record()
    out = tmp_path / "run"
    settings = SMALL | {"schedule": "wsd", "betas": (0.8, 0.9), "max_minutes": None}
    result = music_transformer.train(
        data.path, "piano-small", out, progress=progress, seed=5, **settings
    )
    assert (result.step, result.reason, progress.updates) == (4, "finished", 4)
    assert any("data scales, seed 5" in line for line in progress.lines)
    assert music_transformer.load_checkpoint(out).config.d_model == 12
    longer = music_transformer.train(None, None, out, resume=True, steps=6, device="cpu")
    assert longer.step == 6
    assert json.loads((out / "config.json").read_text())["training"]["betas"] == [0.8, 0.9]


def test_a_setting_that_is_none_is_refused(data: PreparedData, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"stepps: no such setting; did you mean steps"):
        music_transformer.train(data.path, "piano-small", tmp_path / "run", stepps=4)


@pytest.mark.skipif(not torch.distributed.is_available(), reason="needs gloo")
def test_processes_share_the_batch_and_learn_what_one_learns(
    data: PreparedData, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    music_transformer.train(data.path, "piano-small", tmp_path / "one", **SMALL)
    settings = [f"--set={k}={v}" for k, v in SMALL.items() if k not in ("device", "steps")]
    command = ["train", "--out", str(tmp_path / "two"), "--device", "cpu"]
    data_and_preset = ["--data", str(data.path), "--preset", "piano-small", "--set=steps=4"]
    assert main([*command, *data_and_preset, *settings, "--processes", "2"]) == 0
    assert "2 processes of 1 threads" in capsys.readouterr().err
    one, two = (
        load_file(tmp_path / name / "step-4" / "model.safetensors") for name in ("one", "two")
    )
    for name, weights in one.items():
        torch.testing.assert_close(two[name], weights, atol=1e-5, rtol=1e-4)
    recorded = json.loads((tmp_path / "two" / "config.json").read_text())
    assert recorded["resolved"]["processes"] == recorded["resolved"]["world_size"] == 2
    assert recorded["training"]["batch_size"] == 2
    # Resumed by one process: the same windows, all of them its own.
    assert main([*command, "--resume", "--processes", "1", "--set", "batch_size=4"]) == 0


@pytest.mark.parametrize(
    ("processes", "message"),
    [(3, r"processes=3 cannot share batch_size=4 windows evenly"), (0, r"processes=0: a run")],
)
def test_processes_that_cannot_share_are_refused(
    data: PreparedData, tmp_path: Path, processes: int, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        music_transformer.train(
            data.path, "piano-small", tmp_path / "run", **SMALL, processes=processes
        )


@pytest.mark.parametrize(
    ("cores", "batch_size", "window", "expected"),
    [(2, 8, 512, 2), (4, 6, 1024, 3), (4, 8, 300, 2), (8, 4, 29, 1), (1, 8, 2048, 1)],
)
def test_by_default_each_core_has_a_process_while_there_is_enough_for_each(
    cores: int, batch_size: int, window: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)), raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    assert default_processes(batch_size, window) == expected
