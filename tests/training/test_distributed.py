"""Two gloo ranks see what one device with twice the batch sees."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from music_transformer.cli.main import main
from music_transformer.datasets import PreparedData
from music_transformer.training.distributed import Ranks

_SETTINGS = [
    *("steps=3", "n_layers=1", "d_model=12", "n_heads=2", "d_ff=20", "context=29"),
    *("max_distance=17", "dropout=0", "warmup=0", "optimizer=adamw", "learning_rate=0.001"),
    *("autocast=off", "threads=1"),
]


def _arguments(data: PreparedData, out: Path, batch_size: int) -> list[str]:
    arguments = ["train", "--data", str(data.path), "--preset", "piano-small", "--out", str(out)]
    arguments += ["--device", "cpu"]
    for setting in [*_SETTINGS, f"batch_size={batch_size}"]:
        arguments += ["--set", setting]
    return arguments


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_one_rank_alone_shares_nothing() -> None:
    ranks = Ranks()
    assert ranks.sums([1.5, 2.0], torch.device("cpu")) == [1.5, 2.0]
    assert len(ranks.gather(torch.zeros(2))) == 1


@pytest.mark.skipif(not torch.distributed.is_available(), reason="this torch has no distributed")
def test_two_ranks_match_one_device_with_twice_the_batch(
    data: PreparedData, tmp_path: Path
) -> None:
    environment = {
        **os.environ,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(_free_port()),
        "WORLD_SIZE": "2",
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-m", "music_transformer", *_arguments(data, tmp_path / "two", 2)]
    processes = [
        subprocess.Popen(
            command,
            env={**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    outputs = [process.communicate(timeout=120) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    assert "step 3 of 3 (finished)" in outputs[0][0]
    assert outputs[1][0] == ""  # only rank 0 speaks
    assert main(_arguments(data, tmp_path / "one", 4)) == 0
    two = load_file(tmp_path / "two/step-3/model.safetensors")
    one = load_file(tmp_path / "one/step-3/model.safetensors")
    assert list(two) == list(one)
    for name, tensor in one.items():
        # Sums in another order; Adam divides small gradients by their own size: up to a few rates.
        torch.testing.assert_close(two[name], tensor, atol=5e-4, rtol=0, msg=name)
