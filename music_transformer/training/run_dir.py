"""The folder of a run, in which a crash at any moment leaves nothing half written.

::

    RUN/config.json       model, tokenizer, training, versions, commit, data checksum
    RUN/metrics.jsonl     one JSON object a line; those after the latest step are cut on resume
    RUN/step-N/           a checkpoint, with the state of training beside it
    RUN/latest, RUN/best  text files: the names of two of those folders

A step is written to ``step-N.tmp``, synced, renamed; then ``latest`` and ``best`` are replaced, and
only then are older steps removed. The best and the last two stay.
"""

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from music_transformer.checkpoint import read_json, sync, sync_names
from music_transformer.errors import CheckpointError, ConfigError

KEPT_STEPS = 2
_STEP = re.compile(r"step-(\d+)(\.tmp)?")


class RunFolder:
    """The files of one run; only rank 0 has one that writes."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def has_run(self) -> bool:
        """Whether a run was begun here."""
        return (self.path / "config.json").is_file()

    def is_free(self) -> bool:
        """Whether nothing is here yet (the lock of an earlier attempt does not count)."""
        if not self.path.exists():
            return True
        return self.path.is_dir() and {p.name for p in self.path.iterdir()} <= {".lock"}

    def begin(self, config: Mapping[str, Any]) -> None:
        """Start a run, removing what an earlier run left in this folder."""
        self.path.mkdir(parents=True, exist_ok=True)
        for name in ("latest", "best", "metrics.jsonl"):
            (self.path / name).unlink(missing_ok=True)
        for step in self._steps():
            shutil.rmtree(step)
        self.write_config(config)

    def config(self) -> dict[str, Any]:
        """What `begin` or `write_config` wrote."""
        return read_json(self.path / "config.json")

    def write_config(self, config: Mapping[str, Any]) -> None:
        """Replace ``config.json``."""
        _replace_text(self.path / "config.json", json.dumps(config, indent=2) + "\n")

    def latest(self) -> Path | None:
        """The folder of the latest step; None where none is finished.

        Raises:
            CheckpointError: ``latest`` names a folder that is not there.
        """
        pointer = self.path / "latest"
        if not pointer.is_file():
            return None
        step = self.path / pointer.read_text(encoding="utf-8").strip()
        if not step.is_dir():
            raise CheckpointError(f"{pointer} names {step.name}, which is not there; correct it.")
        return step

    def write_step(self, step: int, write: Callable[[Path], None], *, best: int | None) -> Path:
        """Write a step through ``write(folder)`` and make it the latest.

        Args:
            best: the step that is the best so far; None where none was evaluated.
        """
        final = self.path / f"step-{step}"
        temporary = self.path / f"step-{step}.tmp"
        for old in (temporary, final):
            if old.exists():
                shutil.rmtree(old)
        temporary.mkdir()
        write(temporary)
        sync(temporary)
        self._sync_metrics()
        temporary.rename(final)
        sync_names(self.path)
        _replace_text(self.path / "latest", final.name + "\n")
        self.point_to_best(best)
        self._prune(best)
        return final

    def point_to_best(self, best: int | None) -> None:
        """Make ``best`` name this step, or none."""
        pointer = self.path / "best"
        if best is None:
            pointer.unlink(missing_ok=True)
        elif not pointer.is_file() or pointer.read_text(encoding="utf-8") != f"step-{best}\n":
            _replace_text(pointer, f"step-{best}\n")

    def rewind(self, step: int, *, best: int | None) -> None:
        """Undo whatever came after ``step``: metrics, unfinished and unnamed folders, ``best``."""
        for folder in self._steps():
            match = _STEP.fullmatch(folder.name)
            if match and (match[2] or int(match[1]) > step):
                shutil.rmtree(folder)
        if best is not None and (self.path / f"step-{best}").is_dir():
            self.point_to_best(best)
        else:
            self.point_to_best(None)
        for unfinished in self.path.glob("*.tmp"):
            unfinished.unlink()
        metrics = self.path / "metrics.jsonl"
        if metrics.exists():
            _replace_text(metrics, "".join(_lines_until(metrics, step)))

    def append_metrics(self, record: Mapping[str, Any]) -> None:
        """Add one line to ``metrics.jsonl``."""
        with (self.path / "metrics.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep a second process from training in this folder; a killed one holds nothing.

        Raises:
            ConfigError: another process is training here.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        with (self.path / ".lock").open("a") as file:
            try:
                import fcntl
            except ImportError:  # Windows: no lock
                yield
                return
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise ConfigError(
                    f"{self.path}: another process is training here; wait, or take another --out."
                ) from error
            yield

    def _steps(self) -> list[Path]:
        """Finished and unfinished step folders, by number."""
        found = [p for p in self.path.iterdir() if _STEP.fullmatch(p.name) and p.is_dir()]
        return sorted(found, key=lambda p: int(p.name.removesuffix(".tmp").split("-")[1]))

    def _prune(self, best: int | None) -> None:
        finished = [p for p in self._steps() if not p.name.endswith(".tmp")]
        for step in finished[:-KEPT_STEPS]:
            if step.name != f"step-{best}":
                shutil.rmtree(step)

    def _sync_metrics(self) -> None:
        metrics = self.path / "metrics.jsonl"
        if metrics.exists():
            with metrics.open("rb+") as file:
                os.fsync(file.fileno())


def _lines_until(metrics: Path, step: int) -> Iterator[str]:
    """The whole lines of metrics up to ``step``; a line cut by a crash is dropped."""
    with metrics.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            try:
                record = json.loads(line)
            except ValueError:
                continue
            if line.endswith("\n") and isinstance(record, dict) and record.get("step", 0) <= step:
                yield line


def _replace_text(path: Path, text: str) -> None:
    """Replace a small text file at once."""
    temporary = path.with_name(f"{path.name}.tmp")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    sync_names(path.parent)
