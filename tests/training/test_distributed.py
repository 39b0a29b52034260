"""Two gloo ranks are one process with twice the batch: learning, resuming and stopping."""

import contextlib
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from music_transformer.checkpoint import load_checkpoint
from music_transformer.cli.main import main
from music_transformer.datasets import PreparedData
from music_transformer.errors import ConfigError
from music_transformer.training.distributed import DistributedContext, local_device

pytestmark = pytest.mark.skipif(
    not torch.distributed.is_available() or os.name == "nt", reason="needs gloo and POSIX signals"
)

_SETTINGS = [
    *("steps=6", "n_layers=2", "d_model=12", "n_heads=2", "d_ff=20", "context=29", "log_every=1"),
    *("max_distance=17", "dropout=0", "warmup=0", "optimizer=adamw", "learning_rate=0.001"),
    *("evaluate_every=3", "evaluate_windows=2", "autocast=off", "threads=1"),
]
# One launch of two processes runs all of these, one after the other: starting torch takes longest.
_TWO_RANKS = {
    "adamw": ["batch_size=2"],
    "accumulated": ["batch_size=2", "accumulate=2"],
    "muon": ["batch_size=2", "optimizer=muon", "accumulate=2", "ema=0.9"],
    "begun-by-two": ["batch_size=2", "max_minutes=1e-9"],
}
# The sum of three gradients is rounded by its order; that of two is not.
_THREE_RANKS = {
    "whole": ["batch_size=1", "dropout=0.2", "checkpoint_activations=true"],
    "slices": ["batch_size=1", "dropout=0.2", "max_minutes=1e-9"],
    "slices --resume": ["max_minutes=none"],
}
_DRIVER = """
import faulthandler, json, os, sys
faulthandler.dump_traceback_later(200, exit=True)  # says where ranks wait for each other
from music_transformer.cli.main import main
for number, arguments in enumerate(json.loads(sys.argv[1])):
    os.environ["MASTER_PORT"] = str(int(sys.argv[2]) + number)
    code = main(arguments)
    if code:
        sys.exit(code)
"""


def _arguments(data: PreparedData, out: Path, *settings: str) -> list[str]:
    arguments = ["train", "--data", str(data.path), "--preset", "piano-small", "--out", str(out)]
    for setting in [*_SETTINGS, *settings]:
        arguments += ["--set", setting]
    return [*arguments, "--device", "cpu"]


def _resumed(out: Path, *settings: str) -> list[str]:
    arguments = ["train", "--out", str(out), "--resume", "--device", "cpu"]
    return arguments + [part for setting in settings for part in ("--set", setting)]


def _ranks(command: list[str], world_size: int) -> list[tuple[int, str, str]]:
    """Exit code, stdout and stderr of every rank."""
    environment = {
        **os.environ,
        "MASTER_ADDR": "127.0.0.1",
        "WORLD_SIZE": str(world_size),
        "OMP_NUM_THREADS": "1",
    }
    processes = [
        subprocess.Popen(
            [sys.executable, *command],
            env={**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(world_size)
    ]
    try:
        outputs = [process.communicate(timeout=240) for process in processes]
    finally:
        for process in processes:
            process.kill()
    return [(p.returncode, *told) for p, told in zip(processes, outputs, strict=True)]


def _free_port(count: int = 1) -> int:
    """The first of some free ports below those that systems hand out by themselves.

    Ranks talk over ports of their own, handed out by the system: a number near one of those may be
    taken by the time it is used.
    """
    while True:
        first = random.randrange(20_000, 30_000 - count)
        with contextlib.ExitStack() as probes, contextlib.suppress(OSError):
            for port in range(first, first + count):
                probes.enter_context(socket.socket()).bind(("127.0.0.1", port))
            return first


def _launch(runs: dict[str, list[str]], folder: Path, data: PreparedData, world_size: int) -> Path:
    """The folder, in which so many ranks have made these runs."""
    commands = []
    for name, settings in runs.items():
        out = folder / name.split()[0]
        arguments = _resumed(out) if "--resume" in name else _arguments(data, out)
        commands.append(arguments + [part for text in settings for part in ("--set", text)])
    driver = ["-c", _DRIVER, json.dumps(commands), str(_free_port(len(commands)))]
    ended = _ranks(driver, world_size)
    assert [code for code, _, _ in ended] == [0] * world_size, ended
    assert ended[0][1].count("of 6 (") == len(commands)
    assert {told for _, told, _ in ended[1:]} == {""}  # only rank 0 speaks
    assert "Warning" not in "".join(heard for _, _, heard in ended)
    return folder


@pytest.fixture(scope="module")
def two(data: PreparedData, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of runs that two ranks made."""
    return _launch(_TWO_RANKS, tmp_path_factory.mktemp("two"), data, 2)


def _metrics(run: Path, key: str) -> list[float]:
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [record[key] for record in records if key in record]


def _assert_close(one: Path, two: Path) -> None:
    """The same losses, validation NLLs and gradients at every step; weights that are close."""
    for key in ("loss", "validation_nll", "gradient_norm", "events", "learning_rate"):
        assert _metrics(two, key) == pytest.approx(_metrics(one, key), rel=1e-5), key
    expected, found = (load_file(run / "step-6/model.safetensors") for run in (one, two))
    assert list(found) == list(expected)
    for name, tensor in expected.items():
        # Sums in another order; Adam divides small gradients by their own size: up to a few rates.
        torch.testing.assert_close(found[name], tensor, atol=5e-4, rtol=0, msg=name)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("adamw", ["batch_size=4"]),
        ("accumulated", ["batch_size=4", "accumulate=2"]),
        ("muon", ["batch_size=4", "optimizer=muon", "accumulate=2", "ema=0.9"]),
    ],
)
def test_two_ranks_match_one_process_with_twice_the_batch(
    name: str, settings: list[str], two: Path, data: PreparedData, tmp_path: Path
) -> None:
    assert main(_arguments(data, tmp_path / "one", *settings)) == 0
    _assert_close(tmp_path / "one", two / name)


def test_three_ranks_resume_bit_for_bit_dropout_included(
    data: PreparedData, tmp_path: Path
) -> None:
    folder = _launch(_THREE_RANKS, tmp_path, data, 3)
    # The run in slices keeps all activations, the whole one does not: that changes no bit either.
    for name in ("model.safetensors", "state.safetensors"):
        whole, slices = (folder / run / "step-6" / name for run in ("whole", "slices"))
        assert whole.read_bytes() == slices.read_bytes()
    assert _metrics(folder / "whole", "loss") == _metrics(folder / "slices", "loss")


def test_one_process_goes_on_with_what_two_began(
    two: Path, data: PreparedData, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = two / "begun-by-two"
    assert main(_resumed(run, "max_minutes=none")) == 2
    refused = capsys.readouterr().err
    assert "1 processes with batch_size=2 draw 2 windows at a time" in refused
    assert refused.rstrip().endswith("was begun with 4; add --set batch_size=4.")
    assert main(_resumed(run, "max_minutes=none", "batch_size=8")) == 2
    assert main(_resumed(run, "max_minutes=none", "batch_size=4")) == 0
    assert "2 processes with batch_size=2 were, 1 with batch_size=4 are" in capsys.readouterr().err
    assert main(_arguments(data, tmp_path / "one", "batch_size=4")) == 0
    _assert_close(tmp_path / "one", run)
    assert main(_resumed(run)) == 0  # what it is now, it stays


def test_a_number_of_processes_that_does_not_divide_the_batch_is_refused(
    two: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ranks = DistributedContext(0, 3)
    monkeypatch.setattr(DistributedContext, "barrier", lambda self: None)
    monkeypatch.setattr(
        "music_transformer.training.distributed.join_distributed", lambda device: ranks
    )
    assert main(_resumed(two / "adamw")) == 2
    assert re.search(
        r"3 processes with batch_size=2 draw 6 windows .* with 4; start 1, 2 or 4\.",
        capsys.readouterr().err,
    )


def test_sigterm_under_torchrun_saves_the_step_that_all_ranks_made(
    data: PreparedData, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    arguments = _arguments(data, out, "steps=1000000", "checkpoint_minutes=none", "log_every=1")
    launch = ["--nproc-per-node", "2", "--master-port", str(_free_port())]
    launch += ["--redirects", "3", "--log-dir", str(tmp_path / "log")]
    command = ["-m", "torch.distributed.run", *launch, "-m", "music_transformer", *arguments]
    process = subprocess.Popen(
        [sys.executable, *command],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    deadline = time.monotonic() + 120
    while not (out / "metrics.jsonl").exists() and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    for worker in _children(process.pid):  # as a batch system does; then torchrun passes its own on
        os.kill(worker, signal.SIGTERM)
    process.send_signal(signal.SIGTERM)
    told = process.communicate(timeout=120)[0]
    logs = {path.parent.name: path for path in (tmp_path / "log").rglob("stdout.log")}
    assert "of 1000000 (SIGTERM)" in logs["0"].read_text(), told
    assert "Traceback" not in "".join(p.read_text() for p in (tmp_path / "log").rglob("stderr.log"))
    step = (out / "latest").read_text().strip()
    assert json.loads((out / step / "state.json").read_text())["world_size"] == 2
    load_checkpoint(out, device="cpu")
    assert not list(out.glob("*.tmp"))


def _children(parent: int) -> list[int]:
    listed = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(parent)], capture_output=True, text=True, check=True
    )
    return [int(line) for line in listed.stdout.split()]


def test_one_rank_alone_shares_nothing() -> None:
    ranks = DistributedContext()
    model = torch.nn.Linear(2, 2)
    assert ranks.all_reduce([1.5, 2.0], torch.device("cpu")) == [1.5, 2.0]
    assert len(ranks.all_gather(torch.zeros(2))) == 1
    assert ranks.wrap_ddp(model) is model
    assert ranks.any_of("SIGTERM") == "SIGTERM"
    with ranks.no_sync(model):
        assert ranks.any_of(None) is None


def test_more_ranks_than_gpus_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_RANK", "2")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(ConfigError, match=r"has 2 GPUs; start at most --nproc-per-node 2"):
        local_device(torch.device("cuda"))
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert local_device(torch.device("cuda")) == torch.device("cuda", 1)
    assert local_device(torch.device("cpu")) == torch.device("cpu")
