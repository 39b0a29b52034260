"""The folder of a run, in which a crash at any moment leaves nothing half written.

::

    RUN/config.json       model, tokenizer, training, versions, commit, data checksum
    RUN/metrics.jsonl     one JSON object a line; those after the latest step are cut on resume
    RUN/step-N/           a checkpoint, with all that a resumed run needs: state.json (`RunState`),
                          state.safetensors (optimizers, generators of every rank and, where the
                          saved weights are a running mean, the weights themselves)
    RUN/latest, RUN/best  text files: the names of two of those folders

A step is written under another name, synced, renamed; then ``latest`` and ``best`` are replaced,
and only then other steps but the best and the last two removed, file by known file.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from music_transformer.checkpoint.format import (
    CONFIG,
    is_made,
    on_cpu,
    read_json,
    read_tensors,
    write_tensors,
)
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
from music_transformer.training.distributed import DistributedContext

TENSORS = "state.safetensors"
RUN_STATE = "state.json"
_COUNTS = ("step", "events", "best_step", "loss_events", "world_size")
KEPT_STEPS = 2
_STEP = re.compile(r"step-(0|[1-9]\d*)")
#: What a crash leaves: drawn names of `files`.
_UNFINISHED = re.compile(r"\.(latest|best|metrics|config|step-\d+)-\w{8}\.tmp(\.jsonl?)?")


@dataclass(frozen=True)
class TrainingResult:
    """How a run, or this part of it, ended."""

    run: str
    step: int
    steps: int
    reason: str  # finished, max_minutes, or the name of the signal that stopped it
    loss: float | None  # of the last line of metrics, in nats per event
    validation_nll: float | None
    best_step: int | None
    best_nll: float | None
    events: int
    seconds: float
    first_nll: float | None = None  # validation NLL of the weights that it began with

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON can hold them."""
        return asdict(self)


@dataclass
class RunState:
    """Where a run stands."""

    step: int = 0  # updates done; also the position in the data
    events: int = 0  # real targets learned from, all ranks together
    seconds: float = 0.0  # spent training, over all resumptions
    best_step: int | None = None  # of the lowest validation NLL so far
    best_nll: float | None = None  # in nats per event
    loss_sum: float = 0.0  # since the last line of metrics
    loss_events: int = 0
    world_size: int = 1  # ranks that train together

    @classmethod
    def read(cls, folder: Path) -> "RunState":
        """The run state stored in the folder of a step; `CheckpointError` where it is not that."""
        path = folder / RUN_STATE
        content = read_json(path)
        if set(content) != {field.name for field in fields(cls)}:
            raise CheckpointError(f"{path}: not the state of a run; restore it.")
        for name, value in content.items():
            kind = int if name in _COUNTS else (int, float)
            none = value is None and name in ("best_step", "best_nll")
            negative = name in _COUNTS and isinstance(value, int) and not 0 <= value < 2**63
            if not none and (isinstance(value, bool) or not isinstance(value, kind) or negative):
                raise CheckpointError(f"{path}: {name}={value!r} makes no sense; restore it.")
        if folder.name != f"step-{content['step']}":
            raise CheckpointError(
                f"{path}: it says step {content['step']}, in a folder named {folder.name}; "
                "restore it."
            )
        return cls(**content)


def gather_generators(ranks: DistributedContext, device: torch.device) -> dict[str, Tensor]:
    """The states of the generators that dropout draws from, by ``generator/RANK/KIND``."""
    states = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    return {
        f"generator/{rank}/{kind}": state
        for kind, own in states.items()
        for rank, state in enumerate(ranks.all_gather(own))
    }


def restore_generators(
    tensors: Mapping[str, Tensor], ranks: DistributedContext, device: torch.device
) -> None:
    """Put the generators of this rank back to where they were; a new rank keeps its own."""
    if ranks.rank > 0 and f"generator/{ranks.rank}/cpu" not in tensors:
        return
    torch.set_rng_state(tensors[f"generator/{ranks.rank}/cpu"])
    cuda = tensors.get(f"generator/{ranks.rank}/cuda")
    if device.type == "cuda" and cuda is not None:
        torch.cuda.set_rng_state(cuda, device)


def write_state(folder: Path, state: RunState, tensors: Mapping[str, Tensor]) -> None:
    """Write the state of a step, for `RunState.read` and `read_state`."""
    write_tensors(folder / TENSORS, {name: on_cpu(tensor) for name, tensor in tensors.items()})
    (folder / RUN_STATE).write_text(json.dumps(asdict(state), indent=2) + "\n", encoding="utf-8")


def read_state(folder: Path) -> dict[str, dict[str, Tensor]]:
    """The state tensors of a step by their first word: optimizer, generator, weights."""
    groups: dict[str, dict[str, Tensor]] = {"optimizer": {}, "generator": {}, "weights": {}}
    for name, tensor in read_tensors(folder / TENSORS).items():
        group, _, rest = name.partition("/")
        if group not in groups:
            raise CheckpointError(f"{folder / TENSORS}: unknown tensor {name}; restore the file.")
        groups[group][name if group == "generator" else rest] = tensor
    return groups


class RunFolder:
    """The files of one run; only rank 0 has one that writes."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def has_run(self) -> bool:
        """Whether a run was begun here, by its ``config.json`` (`CheckpointError`: damaged)."""
        return (self.path / CONFIG).is_file() and {"preset", "training"} <= set(self.config())

    def is_free(self) -> bool:
        """Whether nothing is here yet (the lock of an earlier attempt does not count)."""
        if not self.path.exists():
            return True
        return self.path.is_dir() and {p.name for p in self.path.iterdir()} <= {".lock"}

    def begin(self, config: Mapping[str, Any]) -> None:
        """Start a run, removing what an earlier run left here; `ConfigError` for anything else."""
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
        """The folder of the latest step, if there is one; `CheckpointError` where it is gone."""
        step = named_step(self.path / "latest")
        if step is None:  # none was finished, or the power went before the first one was named
            return next(reversed(self._steps()), None)
        if not step.is_dir():
            raise CheckpointError(
                f"{self.path / 'latest'} names {step.name}, which is not there; correct it."
            )
        return step

    def write_step(self, step: int, write: Callable[[Path], None], *, best: int | None) -> Path:
        """Write a step through ``write(folder)`` and make it the latest, and ``best`` the best."""
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
        """Keep a second process from training here (`ConfigError`); a killed one holds nothing."""
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
