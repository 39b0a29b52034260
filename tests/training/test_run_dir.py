"""The run folder: what a crash leaves, what is kept, what a resumption cuts."""

import json
import os
import shutil
from dataclasses import asdict
from pathlib import Path

import pytest

from music_transformer.errors import CheckpointError, ConfigError
from music_transformer.training.run_dir import RunFolder, RunState

MARK = {"preset": "", "training": {}}  # of a run


class Crash(BaseException):
    """The moment the power goes."""


def write_number(number: int) -> "object":
    def write(folder: Path) -> None:
        (folder / "config.json").write_text(f"{number}\n")
        (folder / "state.json").write_text(f"{number}\n")

    return write


def save(run: RunFolder, step: int, best: int | None = None) -> None:
    run.write_step(step, write_number(step), best=best)  # type: ignore[arg-type]


def steps_in(run: RunFolder) -> set[str]:
    return {path.name for path in run.path.iterdir() if path.name.startswith("step")}


def begun(path: Path) -> RunFolder:
    run = RunFolder(path)
    run.begin({"a": 1, **MARK})
    return run


def test_the_best_and_the_last_two_steps_are_kept(tmp_path: Path) -> None:
    run = begun(tmp_path / "run")
    for step, best in ((2, None), (4, 4), (6, 4), (8, 4), (10, 4)):
        save(run, step, best)
    assert steps_in(run) == {"step-4", "step-8", "step-10"}
    assert (run.path / "best").read_text() == "step-4\n"
    assert run.latest() == run.path / "step-10"


def test_steps_are_ordered_by_number_not_by_name(tmp_path: Path) -> None:
    run = begun(tmp_path / "run")
    for step in (9, 10, 11):
        save(run, step)
    assert steps_in(run) == {"step-10", "step-11"}


def test_a_crash_at_any_system_call_leaves_a_whole_latest_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = {
        "fsync": os.fsync,
        "replace": os.replace,
        "rename": os.rename,
        "unlink": os.unlink,
        "rmdir": os.rmdir,
        "mkdir": os.mkdir,
    }
    base = begun(tmp_path / "base")
    for step in (1, 2, 3):
        save(base, step, best=1)
    base.append_metrics({"step": 4})
    crashes = 0
    for moment in range(200):
        left = moment

        def crash_when_due(name: str) -> "object":
            def call(*args: object, **kwargs: object) -> object:
                nonlocal left
                left -= 1
                if left < 0:
                    raise Crash
                return real[name](*args, **kwargs)  # type: ignore[operator]

            return call

        run = RunFolder(shutil.copytree(base.path, tmp_path / f"run{moment}"))
        with monkeypatch.context() as patch:
            for name in real:
                patch.setattr(os, name, crash_when_due(name))
            try:
                save(run, 4, best=4)
                finished = True
            except Crash:
                finished = False
                crashes += 1
        latest = run.latest()
        assert latest is not None
        number = latest.name.removeprefix("step-")
        assert number in ("3", "4")
        assert {p.name: p.read_text() for p in latest.iterdir()} == {
            "config.json": f"{number}\n",
            "state.json": f"{number}\n",
        }
        best = run.path / (run.path / "best").read_text().strip()
        assert (best / "config.json").read_text() == f"{best.name.removeprefix('step-')}\n"
        run.rewind(int(number), best=1 if number == "3" else 4)
        assert not list(run.path.glob("*.tmp"))
        save(run, 4, best=4)
        assert (run.path / "best").read_text() == "step-4\n"
        if finished:
            break
    assert finished
    assert crashes > 10


def test_rewinding_cuts_metrics_back_and_later_steps_when_the_next_one_is_safe(
    tmp_path: Path,
) -> None:
    run = begun(tmp_path / "run")
    for step in (2, 4, 6):
        run.append_metrics({"step": step})
        save(run, step, best=step)
    with (run.path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 7}\n{"step": 8, "lo')  # cut by the crash
    (run.path / ".step-9-abcd1234.tmp").mkdir()
    (run.path / ".best-abcd1234.tmp").write_text("step-9")
    (run.path / "mine.tmp").write_text("a file of the user's")
    run.rewind(4, best=4)
    lines = (run.path / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [2, 4]
    assert steps_in(run) == {"step-4", "step-6"}
    assert (run.path / "best").read_text() == "step-4\n"
    assert [path.name for path in run.path.glob("*.tmp")] == ["mine.tmp"]
    save(run, 5, best=4)
    assert steps_in(run) == {"step-4", "step-5"}


def test_beginning_again_removes_the_old_run_and_nothing_else(tmp_path: Path) -> None:
    run = begun(tmp_path / "run")
    save(run, 3, best=3)
    run.append_metrics({"step": 3})
    (run.path / "notes.txt").write_text("mine")
    run.begin({"a": 2, **MARK})
    assert run.config() == {"a": 2, **MARK}
    assert run.latest() is None
    assert {p.name for p in run.path.iterdir()} == {"config.json", "notes.txt"}


def test_a_pointer_to_nowhere_is_an_error(tmp_path: Path) -> None:
    run = begun(tmp_path / "run")
    (run.path / "latest").write_text("step-7\n")
    with pytest.raises(CheckpointError, match="names step-7, which is not there"):
        run.latest()


@pytest.mark.skipif(os.name == "nt", reason="no lock on Windows")
def test_a_second_process_cannot_train_in_the_same_folder(tmp_path: Path) -> None:
    first, second = RunFolder(tmp_path / "run"), RunFolder(tmp_path / "run")
    with first.locked(), pytest.raises(ConfigError, match="another process"), second.locked():
        pass
    with second.locked():
        pass
    assert first.is_free()


def test_folders_of_the_users_and_their_files_in_steps_are_left_alone(tmp_path: Path) -> None:
    run = begun(tmp_path / "run")
    (run.path / "step-1").mkdir()
    (run.path / "step-1" / "diary.txt").write_text("mine")
    save(run, 2)
    (run.path / "step-2" / "notes.txt").write_text("mine")
    for step in (3, 4, 5):
        save(run, step)
    assert not (run.path / "step-2" / "config.json").exists()
    run.begin({"a": 2, **MARK})
    save(run, 1)
    assert (run.path / "step-1" / "diary.txt").read_text() == "mine"
    assert (run.path / "step-2" / "notes.txt").read_text() == "mine"


def test_a_step_that_was_finished_but_not_named_is_the_latest(tmp_path: Path) -> None:
    run = begun(tmp_path / "run")
    save(run, 3)
    (run.path / "latest").unlink()
    assert run.latest() == run.path / "step-3"


@pytest.mark.parametrize("name", [b"\xff\xfe", b"", b"..", b"/", b"a\0b"])
def test_a_pointer_that_names_no_step_is_one_line(tmp_path: Path, name: bytes) -> None:
    run = begun(tmp_path / "run")
    (run.path / "latest").write_bytes(name)
    with pytest.raises(CheckpointError, match="which is not there; correct it"):
        run.latest()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("step", 20),
        ("step", -5),
        ("step", 6000),
        ("step", "60"),
        ("seconds", None),
        ("events", 1.5),
    ],
)
def test_a_state_that_does_not_fit_its_folder_is_refused(
    tmp_path: Path, name: str, value: object
) -> None:
    folder = tmp_path / "step-60"
    folder.mkdir()
    state = {**asdict(RunState(step=60)), name: value}
    (folder / "state.json").write_text(json.dumps(state))
    with pytest.raises(CheckpointError, match=r"state\.json: "):
        RunState.read(folder)
