"""One function puts a training run together: processes, seeds, model, data, arithmetic, folder.

The order is that of reproducibility: the same weights on every rank from the seed, then whatever
depends on the machine, then another generator for the dropout of each rank.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from music_transformer.checkpoint.hub import select_device
from music_transformer.checkpoint.session import check_replaceable, load_checkpoint
from music_transformer.errors import ConfigError
from music_transformer.progress import Progress
from music_transformer.training import distributed
from music_transformer.training.distributed import DistributedContext
from music_transformer.training.estimate import estimate_size
from music_transformer.training.loop import Trainer
from music_transformer.training.plan import Plan, new_plan, resumed_plan
from music_transformer.training.presets import PRESETS
from music_transformer.training.run_dir import RunFolder, TrainingResult

_EXPORTED_FILE_BYTES = 15 << 20

#: Round a run that is under way, as to turn signals into `Trainer.stop`.
Guard = Callable[[Trainer], AbstractContextManager[Any]]


@dataclass(frozen=True, kw_only=True)
class RunRequest:
    """What a run should be."""

    out: str  # the run folder
    data: str | None = None  # folder of prepared data; a resumed run knows its own
    preset: str | None = None  # name of a recipe; the same
    settings: tuple[str, ...] = ()  # changes to the preset, as key=value
    resume: bool = False  # go on with the run in ``out``, or begin it where there is none
    force: bool = False  # replace the run in ``out``
    init: str | None = None  # checkpoint of the first weights
    export: str | None = None  # folder for the best weights in half precision, at the end
    device: str = "auto"  # or cpu, cuda
    seed: int | None = None  # of weights, windows and dropout
    # That share the batch on the cores of this machine; None is one a core where that pays, or as
    # many as the run that is resumed had.
    processes: int | None = None


def train(
    data: str | Path | None,
    preset: str | None,
    out: str | Path,
    *,
    progress: Progress | None = None,
    **settings: Any,
) -> TrainingResult:
    """Train a model and return how it ended; `load_checkpoint` of ``out`` gives the model.

    Args:
        data, preset: folder that `prepare` made, name of a recipe; None with ``resume=True``.
        out: the run folder.
        progress: follows the run; default none.
        settings: ``resume``, ``init`` and what else `RunRequest` has, and settings of the model and
            of training, such as ``steps=500``. With ``processes=2`` the script that calls this has
            to be importable (``if __name__ == "__main__"``).

    Raises:
        ConfigError: a setting makes no sense, or ``out`` is taken.
        DivergenceError: the loss is no number any more.
    """
    known = {field.name for field in fields(RunRequest)} - {"settings"}
    options: dict[str, Any] = {"processes": 1}  # one that a script need not be ready for
    options |= {name: settings.pop(name) for name in known & settings.keys()}
    request = RunRequest(
        data=None if data is None else str(data),
        preset=preset,
        out=str(out),
        settings=tuple(f"{key}={value}" for key, value in settings.items()),
        **options,
    )
    return run_training(request, progress or Progress())


def run_training(
    request: RunRequest, progress: Progress, guard: Guard = nullcontext
) -> TrainingResult:
    """Train as a rank of ``torchrun``, alone, or with processes of its own; errors as `train`."""
    if request.export is not None:
        check_replaceable(Path(request.export))
    device = distributed.local_device(select_device(request.device))
    context = distributed.join_distributed(device)
    try:
        count = _processes(request, device, context)
        if count == 1:
            return _train(replace(request, processes=1), context, device, progress, guard)
    finally:
        context.destroy()
    request = replace(request, processes=count)
    with distributed.local_processes(count, partial(_train_quietly, request)) as context:
        return _train(request, context, device, progress, guard)


def _train_quietly(request: RunRequest, context: DistributedContext) -> None:
    """The work of a rank other than the first, in a process that was started for it."""
    _train(request, context, torch.device("cpu"), Progress(), nullcontext)


def _processes(request: RunRequest, device: torch.device, context: DistributedContext) -> int:
    """How many processes to start on this machine, this one counted."""
    asked, folder = request.processes, RunFolder(request.out)
    if asked is not None and asked < 1:
        raise ConfigError(f"processes={asked}: a run needs one at least.")
    if context.world_size > 1 or device.type != "cpu":
        if asked not in (None, 1):
            raise ConfigError(
                f"processes={asked} share the cores of one machine; under torchrun and on a GPU "
                "leave it out, and start ranks by `torchrun --nproc-per-node N`."
            )
        return 1
    if request.resume and folder.has_run():
        before = folder.config().get("resolved")  # whether it makes sense `resumed_plan` says
        known = before.get("processes", 1) if isinstance(before, dict) else 1
        return asked or (known if isinstance(known, int) else 1)
    if asked == 1:
        return 1
    plan = _plan(replace(request, processes=1), folder, context)  # errors before processes start
    training = plan.training
    if asked is None:
        if training.threads is not None:  # who counts threads has planned the cores
            return 1
        return distributed.default_processes(
            training.batch_size, training.window or plan.model.context
        )
    if training.batch_size % asked:
        raise ConfigError(
            f"processes={asked} cannot share batch_size={training.batch_size} windows evenly; "
            "choose a number that divides it, or another batch_size."
        )
    return asked


def _plan(request: RunRequest, folder: RunFolder, context: DistributedContext) -> Plan:
    """A new run in a free folder, or the one that is there; else a `ConfigError`."""
    count = request.processes or 1
    if request.resume and request.force:
        raise ConfigError("--resume goes on with a run and --force replaces it; choose one.")
    if request.resume and folder.has_run():
        if request.init is not None:
            raise ConfigError("--init begins a new run; leave it out with --resume.")
        settings = request.settings
        if count > 1 and not any(text.startswith("batch_size=") for text in settings):
            before = folder.config()
            joint = before["training"]["batch_size"] * before["resolved"].get("world_size", 1)
            if joint % count == 0:
                settings = (*settings, f"batch_size={joint // count}")
        return resumed_plan(
            folder,
            settings,
            data_path=request.data,
            preset_name=request.preset,
            seed=request.seed,
            world_size=context.world_size,
        )
    if request.resume and request.preset is None:
        raise ConfigError(
            f"{request.out} holds no run to go on with; check --out, or give --preset and --data "
            "to begin one."
        )
    if request.preset is None:
        raise ConfigError(f"--preset is needed for a new run: one of {', '.join(PRESETS)}.")
    if request.data is None:
        raise ConfigError("--data is needed for a new run: a folder that `prepare` made.")
    plan = new_plan(
        request.data, request.preset, request.settings, seed=request.seed, init=request.init
    )
    if not folder.has_run() and not folder.is_free():
        raise ConfigError(f"{request.out} holds something that is no run; choose another --out.")
    if folder.has_run() and not request.force:
        raise ConfigError(
            f"{request.out} holds a run; add --resume to go on, --force to replace it."
        )
    share = plan.training.batch_size // count
    return replace(plan, training=replace(plan.training, batch_size=share))


def _train(
    request: RunRequest,
    ranks: DistributedContext,
    device: torch.device,
    progress: Progress,
    guard: Guard,
) -> TrainingResult:
    """What every rank does, from the plan to the result."""
    folder = RunFolder(request.out)
    quiet = progress if ranks.is_main else Progress()
    with folder.locked() if ranks.is_main else nullcontext():  # another may have just made it
        plan = _plan(request, folder, ranks)
        if request.resume and plan.recorded is None:
            quiet.info(f"nothing to resume in {request.out}: starting")
        ranks.barrier()  # all have looked at the folder before the first one writes there
        trainer = _trainer(plan, request, ranks, device, quiet)
        if ranks.is_main:
            for line in describe(trainer):
                progress.info(line)
            nll = trainer.measure_start() if request.init and not trainer.state.step else None
            if nll is not None:
                progress.info(f"  {request.init}: validation {nll:.4f} before the first step")
        ranks.barrier()
        with guard(trainer):
            result = trainer.train()
    if request.export is not None and ranks.is_main:
        session = load_checkpoint(folder.path, "cpu")
        path = session.save(request.export, half=True, max_file_bytes=_EXPORTED_FILE_BYTES)
        progress.info(f"{path}: the weights of {session.path.name}, in half precision")
    return result


def _trainer(
    plan: Plan,
    request: RunRequest,
    ranks: DistributedContext,
    device: torch.device,
    progress: Progress,
) -> Trainer:
    """The trainer as it stands before the next step; the run folder is begun or brought up."""
    training, folder, count = plan.training, RunFolder(request.out), request.processes or 1
    if training.threads is not None:
        torch.set_num_threads(training.threads)
    elif count > 1:  # each process has its share of the cores
        torch.set_num_threads(max(1, torch.get_num_threads() // count))
    torch.manual_seed(training.seed)  # the same weights on every rank
    resumed = plan.recorded is not None and folder.latest() is not None
    model = plan.build(resumed=resumed)
    model = model.to(device)
    ranks.broadcast_parameters(model)
    resolved = plan.resolve(device, ranks.world_size)
    if count > 1:
        resolved["processes"] = count
    (short,) = ranks.all_reduce([float(ranks.is_main and resolved["bfloat16"])], device)
    resolved["bfloat16"] = short > 0  # measured by each rank; that of the first one counts
    if device.type == "cuda" and resolved["bfloat16"]:
        torch.set_float32_matmul_precision("high")  # TF32 for the products that stay float32
    torch.manual_seed(training.seed + ranks.rank)  # other dropout on every rank
    trainer = Trainer(
        model,
        plan.data,
        training,
        folder,
        bfloat16=resolved["bfloat16"],
        description=plan.description(),
        ranks=ranks,
        progress=progress,
    )
    for note in (*plan.changes_of_machine(resolved), *plan.notes):
        progress.info(note)
    if plan.recorded is None and ranks.is_main:
        folder.begin(plan.run_config(resolved))
    ranks.barrier()
    trainer.resume()
    if plan.recorded is not None and ranks.is_main:
        folder.write_config(plan.run_config(resolved))
    return trainer


def describe(trainer: Trainer) -> list[str]:
    """Lines on what is trained and what the steps that are left will cost; measures one."""
    config, step, ranks = trainer.config, trainer.state.step, trainer.ranks
    size = estimate_size(trainer.model, config)
    products = "bfloat16" if trainer.bfloat16 else "float32"
    processes = f"{ranks.world_size} processes of " if ranks.world_size > 1 else ""
    lines = [
        f"{trainer.run.path}: data {trainer.data.corpus}, seed {config.seed}",
        f"  {size.parameters:,} parameters, attention {size.attention}",
        f"  device {trainer.device}, {processes}{torch.get_num_threads()} threads, linear layers "
        f"in {products} (autocast={config.autocast}), about {size.memory_bytes / 2**20:,.0f} MiB",
    ]
    left = config.steps - step
    if left > 0:
        seconds = trainer.time_update()
        events = trainer.windows.events_per_step * config.accumulate
        epochs = left * events / trainer.windows.events_per_epoch
        lines.append(
            f"  about {events / seconds:,.0f} events/s: {left:,} steps of {events:,} events "
            f"({epochs:.1f} epochs) take {_duration(seconds * left)}"
        )
    return lines


def _duration(seconds: float) -> str:
    minutes = seconds / 60
    if minutes < 2:
        return f"{seconds:.0f} s"
    return f"{minutes:.0f} min" if minutes < 120 else f"{minutes / 60:.1f} h"
