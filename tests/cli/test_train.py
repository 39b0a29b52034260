"""`train` as a user meets it: results, refusals, signals, and kill -9."""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from music_transformer.checkpoint import load_checkpoint
from music_transformer.cli.main import main
from music_transformer.datasets.prepared import write_prepared
from music_transformer.representations import ChoraleTokenizer, PerformanceTokenizer

TINY = [
    *("steps=40", "n_layers=1", "d_model=12", "n_heads=2", "d_ff=20", "context=29"),
    *("max_distance=17", "batch_size=2", "evaluate_every=15", "evaluate_windows=2"),
    *("checkpoint_every=4", "optimizer=adamw", "autocast=off", "threads=1"),
]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four scales in 391 ids; the tests share it and write nothing there."""
    piece = [372, *[id_ for p in range(40, 80) for id_ in (p, 265, 128 + p, 260)][:-1]]
    path = tmp_path_factory.mktemp("prepared") / "scales"
    pieces = [(f"p{i}", piece[: 1 + 4 * (10 + 7 * i) - 1]) for i in range(4)]
    write_prepared(
        path,
        tokenizer=PerformanceTokenizer(),
        corpus="scales",
        splits={"train": pieces, "validation": [("v", piece)]},
    )
    return path


@pytest.fixture(autouse=True)
def _same_threads() -> Any:
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def command(out: Path, *more: str, settings: list[str] | None = None) -> list[str]:
    arguments = ["train", "--out", str(out), "--device", "cpu", *more]
    for setting in TINY if settings is None else settings:
        arguments += ["--set", setting]
    return arguments


def new(data: Path, out: Path, *settings: str) -> list[str]:
    base = command(out, "--data", str(data), "--preset", "piano-small")
    return base + [part for setting in settings for part in ("--set", setting)]


def weights(run: Path) -> bytes:
    step = (run / "latest").read_text().strip()
    return (run / step / "model.safetensors").read_bytes()


def test_a_run_ends_with_one_line_on_stdout(
    prepared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert main(new(prepared, out, "steps=3")) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith(f"{out}: step 3 of 3 (finished), loss ")
    assert captured.out.count("\n") == 1
    for told in ("parameters", "attention", "MiB", "device cpu", "1 threads", "events/s", "take"):
        assert told in captured.err
    config = json.loads((out / "config.json").read_text())
    assert config["model"]["n_layers"] == 1
    assert config["training"]["steps"] == 3
    assert isinstance(config["resolved"]["bfloat16"], bool)
    assert set(config["versions"]) == {"music_transformer", "torch", "numpy", "python"}
    assert len(config["data"]["checksum"]) == 64
    assert load_checkpoint(out, device="cpu").training["data"]["corpus"] == "scales"


def test_json_is_one_object(
    prepared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*new(prepared, tmp_path / "run", "steps=2"), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["step"], result["reason"]) == (2, "finished")
    assert result["best_nll"] > 0


def test_a_seed_repeats_a_run_and_another_does_not(prepared: Path, tmp_path: Path) -> None:
    for name, seed in (("a", "5"), ("b", "5"), ("c", "6")):
        assert main([*new(prepared, tmp_path / name, "steps=2"), "--seed", seed]) == 0
    assert weights(tmp_path / "a") == weights(tmp_path / "b")
    assert weights(tmp_path / "a") != weights(tmp_path / "c")


def start(arguments: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "music_transformer", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for(path: Path, process: subprocess.Popen[str] | None = None) -> None:
    deadline = time.monotonic() + 120
    while not path.exists() and (process is None or process.poll() is None):
        assert time.monotonic() < deadline, f"{path} never came"
        time.sleep(0.01)


def test_a_run_killed_twice_at_random_equals_an_uninterrupted_one(
    prepared: Path, tmp_path: Path
) -> None:
    out = tmp_path / "killed"
    for attempt in range(2):
        process = start(
            [*new(prepared, out, "steps=120"), "--resume"]
            if attempt == 0
            else command(out, "--resume", settings=[])
        )
        wait_for(out / "latest", process)
        time.sleep(random.random() / 2)
        process.kill()
        process.communicate()
        if (out / "latest").exists():
            load_checkpoint(out, device="cpu")  # no reader ever sees half of one
    assert main(command(out, "--resume", settings=[])) == 0
    assert main(new(prepared, tmp_path / "whole", "steps=120")) == 0
    assert weights(out) == weights(tmp_path / "whole")
    assert (out / "best").read_text() == (tmp_path / "whole/best").read_text()


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["int", "term"]
)
def test_a_signal_saves_the_step_and_ends(
    number: signal.Signals,
    code: int,
    prepared: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    metrics = tmp_path / "run/metrics.jsonl"
    handler = signal.getsignal(number)

    def send_when_training() -> None:
        wait_for(metrics)
        os.kill(os.getpid(), number)

    thread = threading.Thread(target=send_when_training)
    thread.start()
    assert main(new(prepared, tmp_path / "run", "steps=1000000", "checkpoint_every=none")) == code
    thread.join()
    assert signal.getsignal(number) == handler
    captured = capsys.readouterr()
    assert f"of 1000000 ({number.name})" in captured.out
    assert "Traceback" not in captured.err
    load_checkpoint(tmp_path / "run", device="cpu")


def test_time_over_ends_with_0_and_slices_add_up(
    prepared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert main(new(prepared, out, "steps=3", "max_minutes=1e-9")) == 0
    assert "step 1 of 3 (max_minutes)" in capsys.readouterr().out
    assert main(command(out, "--resume", settings=[])) == 0
    assert "step 2 of 3 (max_minutes)" in capsys.readouterr().out
    assert main(command(out, "--resume", settings=["max_minutes=none"])) == 0
    captured = capsys.readouterr()
    assert "step 3 of 3 (finished)" in captured.out
    assert "note: max_minutes was 1e-09, is None" in captured.err
    assert main(new(prepared, tmp_path / "whole", "steps=3")) == 0
    assert weights(out) == weights(tmp_path / "whole")


def test_a_slice_comes_home_in_half_precision_and_training_goes_on_from_it(
    prepared: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("music_transformer.training.assemble._EXPORTED_FILE_BYTES", 12_000)
    home = tmp_path / "home"
    arguments = new(prepared, tmp_path / "run", "steps=9", "max_minutes=1e-9", "workers=1")
    assert main([*arguments, "--export", str(home)]) == 0
    assert f"{home}: the weights of step-1, in half precision" in capsys.readouterr().err
    shards = sorted(home.glob("model-*.safetensors"))
    assert len(shards) > 1
    assert all(path.stat().st_size <= 12_000 for path in shards)
    arguments = command(
        tmp_path / "next", "--data", str(prepared), "--preset", "piano-small", "--init", str(home)
    )
    assert main([*arguments, "--set", "steps=1"]) == 0
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis/chapter.txt").write_text("years")
    arguments = new(prepared, tmp_path / "third", "steps=1")
    assert main([*arguments, "--export", str(tmp_path / "thesis")]) == 3
    assert "is no checkpoint; save elsewhere" in capsys.readouterr().err
    assert not (tmp_path / "third").exists()


@pytest.fixture(scope="module")
def finished(prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "run"
    assert main(new(prepared, out, "steps=3")) == 0
    return out


@pytest.mark.parametrize(
    ("setting", "named"),
    [
        ("learning_rate=0.5", "learning_rate=0.5, but"),
        ("n_layers=2", "n_layers=2, but"),
        ("batch_size=3", "batch_size=3, but"),
        ("steps=9", "steps=9, but .*only schedule=wsd can be extended"),
    ],
)
def test_resuming_with_a_setting_that_matters_changed_is_refused(
    setting: str, named: str, finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command(finished, "--resume", settings=[setting])) == 2
    assert re.search(f"--resume: {named}", capsys.readouterr().err)


def test_resuming_with_another_seed_or_preset_or_data_is_refused(
    finished: Path, prepared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command(finished, "--resume", "--seed", "4", settings=[])) == 2
    assert "seed=4" in capsys.readouterr().err
    assert main(command(finished, "--resume", "--preset", "piano", settings=[])) == 2
    assert "preset=piano" in capsys.readouterr().err
    write_prepared(
        tmp_path / "other",
        tokenizer=PerformanceTokenizer(),
        corpus="other",
        splits={"train": [("p", [60, 265, 188] * 9)]},
    )
    assert main(command(finished, "--resume", "--data", str(tmp_path / "other"), settings=[])) == 2
    assert "another checksum" in capsys.readouterr().err


def test_wsd_can_be_extended(
    prepared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert main(new(prepared, out, "steps=2", "schedule=wsd", "warmup=1")) == 0
    assert main(command(out, "--resume", settings=["steps=4"])) == 0
    captured = capsys.readouterr()
    assert "step 4 of 4 (finished)" in captured.out
    assert "the cool-down moves" in captured.err
    assert json.loads((out / "config.json").read_text())["training"]["steps"] == 4


def test_a_taken_folder_is_refused_and_force_replaces_a_run(
    prepared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert main(new(prepared, out, "steps=2")) == 0
    before = weights(out)
    assert main(new(prepared, out, "steps=2")) == 2
    assert "holds a run; add --resume" in capsys.readouterr().err
    assert weights(out) == before
    assert main([*new(prepared, out, "steps=1"), "--force"]) == 0
    assert (out / "latest").read_text() == "step-1\n"
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis/chapter.txt").write_text("years")
    assert main([*new(prepared, tmp_path / "thesis"), "--force"]) == 2
    assert "is no run" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ([], "--preset is needed"),
        (["--preset", "piano"], "--data is needed"),
        (["--preset", "paino", "--data", "DATA"], "preset 'paino' is unknown"),
        (["--preset", "bach", "--data", "DATA"], "preset bach is for the chorale tokenizer"),
        (["--preset", "piano", "--data", "DATA", "--set", "stesp=3"], "did you mean steps?"),
        (["--resume", "--force"], "choose one"),
        (["--preset", "piano", "--data", "DATA", "--device", "gpu"], "device='gpu' is not known"),
    ],
)
def test_a_wrong_request_is_exit_2_and_makes_no_folder(
    more: list[str],
    message: str,
    prepared: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    more = [str(prepared) if word == "DATA" else word for word in more]
    assert main(["train", "--out", str(tmp_path / "run"), *more]) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.out == ""
    assert not (tmp_path / "run").exists()


def test_missing_data_and_a_missing_checkpoint_are_exit_3(
    prepared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(new(tmp_path / "nowhere", tmp_path / "run")) == 3
    assert main([*new(prepared, tmp_path / "run"), "--init", "nowhere"]) == 3
    assert "no checkpoint 'nowhere'" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_resuming_nothing_starts(
    prepared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*new(prepared, tmp_path / "run", "steps=1"), "--resume"]) == 0
    assert "nothing to resume" in capsys.readouterr().err


def test_init_starts_from_the_weights_and_the_shape_of_a_checkpoint(
    finished: Path, prepared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "tuned"
    arguments = command(
        out,
        "--data",
        str(prepared),
        "--preset",
        "piano",
        "--init",
        str(finished),
        settings=["steps=1", "learning_rate=1e-9", "window=29", "threads=1", "dropout=0.3"],
    )
    assert main(arguments) == 0
    printed = capsys.readouterr()
    before, first = (
        float(re.search(rf"{what} ([0-9.]+)", text)[1])  # type: ignore[index]
        for what, text in (("validation", printed.err), ("before the first step", printed.out))
    )
    assert before == first
    tuned, source = load_checkpoint(out, device="cpu"), load_checkpoint(finished, device="cpu")
    assert (tuned.config.n_layers, tuned.config.dropout) == (1, 0.3)
    for name, tensor in source.model.state_dict().items():
        torch.testing.assert_close(tuned.model.state_dict()[name], tensor, atol=1e-6, rtol=0)


def test_a_run_that_made_the_weights_worse_says_so(
    finished: Path, prepared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = command(
        *(
            tmp_path / "worse",
            "--data",
            str(prepared),
            "--preset",
            "piano",
            "--init",
            str(finished),
        ),
        settings=["steps=2", "learning_rate=3", "warmup=1", "window=29", "threads=1"],
    )
    assert main(arguments) == 0
    assert "training made it worse" in capsys.readouterr().out


def test_init_from_another_tokenizer_is_refused(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_prepared(
        tmp_path / "chorales",
        tokenizer=ChoraleTokenizer(),
        corpus="chorales",
        splits={"train": [("c", [67, 62, 59, 45] * 8)]},
    )
    arguments = command(
        tmp_path / "run",
        "--data",
        str(tmp_path / "chorales"),
        "--preset",
        "bach",
        "--init",
        str(finished),
        settings=[],
    )
    assert main(arguments) == 2
    assert "has another tokenizer" in capsys.readouterr().err


def test_resuming_where_there_is_no_run_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "--out", str(tmp_path / "nothing"), "--resume"]) == 2
    assert "nothing holds no run to go on with" in capsys.readouterr().err


def test_a_run_goes_on_without_the_checkpoint_it_started_from(
    finished: Path, prepared: Path, tmp_path: Path
) -> None:
    source, run = tmp_path / "source", tmp_path / "run"
    shutil.copytree(finished, source)
    settings = ["steps=2", "window=29", "threads=1", "max_minutes=1e-9"]
    begin = ["--data", str(prepared), "--preset", "piano", "--init", str(source)]
    assert main(command(run, *begin, settings=settings)) == 0
    shutil.rmtree(source)
    assert main(["train", "--out", str(run), "--resume", "--set", "max_minutes=none"]) == 0
    assert load_checkpoint(run, device="cpu").training["step"] == 2
