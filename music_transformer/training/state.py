"""The state of training as tensors and JSON: all that a resumed run needs to go on bit for bit.

``state.safetensors`` holds the optimizers' tensors, the generators of every rank and, where the
saved weights are a running mean, the weights themselves. ``state.json`` holds `RunState`.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from music_transformer.checkpoint.format import read_json, read_tensors
from music_transformer.checkpoint.format import write_tensors as write_file
from music_transformer.errors import CheckpointError
from music_transformer.training.distributed import DistributedContext

TENSORS = "state.safetensors"
RUN_STATE = "state.json"
_COUNTS = ("step", "events", "best_step", "loss_events", "world_size")


@dataclass(frozen=True)
class TrainingResult:
    """How a run, or this part of it, ended.

    Attributes:
        reason: ``finished``, ``max_minutes``, or the name of the signal that stopped it.
        loss: of the last line of metrics, in nats per event.
        first_nll: validation NLL of the given weights, of a run that began with some.
    """

    run: str
    step: int
    steps: int
    reason: str
    loss: float | None
    validation_nll: float | None
    best_step: int | None
    best_nll: float | None
    events: int
    seconds: float
    first_nll: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON can hold them."""
        return asdict(self)


@dataclass
class RunState:
    """Where a run stands.

    Attributes:
        step: updates done; also the position in the data, whose windows are a function of the step.
        events: real targets learned from, all ranks together.
        seconds: time spent training, over all resumptions.
        best_step: step of the lowest validation NLL so far.
        best_nll: that NLL in nats per event.
        loss_sum: losses since the last line of metrics.
        loss_events: their number.
        world_size: ranks that train together.
    """

    step: int = 0
    events: int = 0
    seconds: float = 0.0
    best_step: int | None = None
    best_nll: float | None = None
    loss_sum: float = 0.0
    loss_events: int = 0
    world_size: int = 1

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON can hold them."""
        return asdict(self)

    @classmethod
    def read(cls, folder: Path) -> "RunState":
        """The run state stored with a step, in the folder that is named after it.

        Raises:
            CheckpointError: the file is missing, or is not the state of this step.
        """
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
    """Put the generators of this rank back to where they were.

    A rank beyond those that were saved keeps the generators it was started with.
    """
    if ranks.rank > 0 and f"generator/{ranks.rank}/cpu" not in tensors:
        return
    torch.set_rng_state(tensors[f"generator/{ranks.rank}/cpu"])
    cuda = tensors.get(f"generator/{ranks.rank}/cuda")
    if device.type == "cuda" and cuda is not None:
        torch.cuda.set_rng_state(cuda, device)


def write_tensors(folder: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write the state tensors of a step."""
    copies = {name: t.detach().to("cpu", copy=True).contiguous() for name, t in tensors.items()}
    write_file(folder / TENSORS, copies)


def read_state(folder: Path) -> dict[str, dict[str, Tensor]]:
    """The state tensors of a step by their first word: optimizer, generator, weights."""
    groups: dict[str, dict[str, Tensor]] = {"optimizer": {}, "generator": {}, "weights": {}}
    for name, tensor in read_tensors(folder / TENSORS).items():
        group, _, rest = name.partition("/")
        if group not in groups:
            raise CheckpointError(f"{folder / TENSORS}: unknown tensor {name}; restore the file.")
        groups[group][name if group == "generator" else rest] = tensor
    return groups
