"""The folder of a run, in which a crash at any moment leaves nothing half written.

::

    RUN/config.json       model, tokenizer, training, versions, commit, data checksum
    RUN/metrics.jsonl     one JSON object a line; those after the latest step are cut on resume
    RUN/step-N/           a checkpoint, with the state of training beside it
    RUN/latest, RUN/best  text files: the names of two of those folders

A step is written under a name of its own, synced, renamed; then ``latest`` and ``best`` are
replaced, and only then are other steps removed. The best and the last two stay. Removed are files
that a step is made of, by name; a folder without the marks of a step is left alone.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from music_transformer.checkpoint.format import CONFIG, is_made, read_json
from music_transformer.checkpoint.hub import named_step
from music_transformer.errors import CheckpointError, ConfigError
from music_transformer.files import (
    errors_name,
    locked,
    new_folder,
    publish_folder,
    remove_made,
    replace_text,
    sync_file,
)
from music_transformer.training.state import RUN_STATE, TENSORS

KEPT_STEPS = 2
_STEP = re.compile(r"step-(0|[1-9]\d*)")
#: What a crash leaves: drawn names of `files`.
_UNFINISHED = re.compile(r"\.(latest|best|metrics|config|step-\d+)-\w{8}\.tmp(\.jsonl?)?")


class RunFolder:
    """The files of one run; only rank 0 has one that writes."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def has_run(self) -> bool:
        """Whether a run was begun here: the mark is its ``config.json``, no other has a preset.

        Raises:
            CheckpointError: that file is damaged.
        """
        return (self.path / CONFIG).is_file() and {"preset", "training"} <= set(self.config())

    def is_free(self) -> bool:
        """Whether nothing is here yet (the lock of an earlier attempt does not count)."""
        if not self.path.exists():
            return True
        return self.path.is_dir() and {p.name for p in self.path.iterdir()} <= {".lock"}

    def begin(self, config: Mapping[str, Any]) -> None:
        """Start a run, removing what an earlier run left in this folder.

        Raises:
            ConfigError: there is something that is no run.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        if not self.has_run() and not self.is_free():
            raise ConfigError(f"{self.path} holds something that is no run; choose another --out.")
        for name in ("latest", "best", "metrics.jsonl"):
            (self.path / name).unlink(missing_ok=True)
        for step in self._steps():
            remove_made(step, _is_of_step)
        self.write_config(config)

    def config(self) -> dict[str, Any]:
        """What `begin` or `write_config` wrote."""
        return read_json(self.path / CONFIG)

    def write_config(self, config: Mapping[str, Any]) -> None:
        """Replace ``config.json``."""
        replace_text(self.path / CONFIG, json.dumps(config, indent=2) + "\n")

    def latest(self) -> Path | None:
        """The folder of the latest step; None where none is finished.

        Raises:
            CheckpointError: ``latest`` names a folder that is not there.
        """
        step = named_step(self.path / "latest")
        if step is None:  # none was finished, or the power went before the first one was named
            return next(reversed(self._steps()), None)
        if not step.is_dir():
            raise CheckpointError(
                f"{self.path / 'latest'} names {step.name}, which is not there; correct it."
            )
        return step

    def write_step(self, step: int, write: Callable[[Path], None], *, best: int | None) -> Path:
        """Write a step through ``write(folder)`` and make it the latest.

        Args:
            best: the step that is the best so far; None where none was evaluated.
        """
        final = self.path / f"step-{step}"
        metrics = self.path / "metrics.jsonl"
        with new_folder(final) as ready:
            write(ready)
            if metrics.exists():
                sync_file(metrics)
            publish_folder(ready, final, made=_is_of_step)
        replace_text(self.path / "latest", final.name + "\n")
        self.point_to_best(best)
        self._prune(step, best)
        return final

    def point_to_best(self, best: int | None) -> None:
        """Make ``best`` name this step, or none."""
        pointer = self.path / "best"
        if best is None:
            pointer.unlink(missing_ok=True)
        elif not pointer.is_file() or pointer.read_bytes() != f"step-{best}\n".encode():
            replace_text(pointer, f"step-{best}\n")

    def rewind(self, step: int, *, best: int | None) -> None:
        """Undo what came after ``step``: metrics, unfinished folders, ``best``.

        Later steps stay until another one is written: nothing goes before its successor is safe.
        """
        for entry in list(self.path.iterdir()):
            if _UNFINISHED.fullmatch(entry.name):
                if entry.is_dir():
                    remove_made(entry, _is_of_step)
                else:
                    entry.unlink()
        if best is not None and (self.path / f"step-{best}").is_dir():
            self.point_to_best(best)
        else:
            self.point_to_best(None)
        metrics = self.path / "metrics.jsonl"
        if metrics.exists():
            replace_text(metrics, "".join(_lines_until(metrics, step)))

    def append_metrics(self, record: Mapping[str, Any]) -> None:
        """Add one line to ``metrics.jsonl``."""
        metrics = self.path / "metrics.jsonl"
        with errors_name(metrics), metrics.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")

    def locked(self) -> AbstractContextManager[None]:
        """Keep a second process from training in this folder; a killed one holds nothing.

        Raises:
            ConfigError: another process is training here.
        """
        return locked(
            self.path / ".lock",
            f"{self.path}: another process is training here; wait, or take another --out.",
        )

    def _steps(self) -> list[Path]:
        """The folders of finished steps, by number."""
        found = [p for p in self.path.iterdir() if _STEP.fullmatch(p.name) and _is_step(p)]
        return sorted(found, key=lambda path: int(path.name.removeprefix("step-")))

    def _prune(self, step: int, best: int | None) -> None:
        """Remove all steps but the best and the last ones up to ``step``, which is safe."""
        finished = self._steps()
        past = [p for p in finished if int(p.name.removeprefix("step-")) <= step]
        for path in finished:
            if path not in past[-KEPT_STEPS:] and path.name != f"step-{best}":
                remove_made(path, _is_of_step)


def _is_step(folder: Path) -> bool:
    """Whether a folder has the marks of a finished step."""
    return (folder / CONFIG).is_file() and (folder / RUN_STATE).is_file()


def _is_of_step(name: str) -> bool:
    """Whether a step is made of a file of this name."""
    return is_made(name) or name in (TENSORS, RUN_STATE)


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
