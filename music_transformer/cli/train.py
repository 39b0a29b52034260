"""`train`: a model from prepared data, in a run folder that can be resumed at any moment."""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from music_transformer.training.distributed import Ranks
    from music_transformer.training.loop import Monitor, Trainer, TrainingResult
    from music_transformer.training.plan import Plan
    from music_transformer.training.run_dir import RunFolder

_EXAMPLES = """\
examples:
  music-transformer train --data data/jsb --preset jsb-small --out checkpoints/first
  music-transformer train --data data/maestro --preset piano --out checkpoints/long \\
      --set max_minutes=60
  music-transformer train --out checkpoints/long --resume
  music-transformer train --data data/mine --preset piano --init piano --out checkpoints/tuned \\
      --set steps=500 --set schedule=cosine --set learning_rate=5e-4
  music-transformer train --data data/maestro --preset piano-large --out checkpoints/large \\
      --resume --device cuda --set compile=true --export checkpoints/large-half
  torchrun --nproc-per-node 2 -m music_transformer train --data data/jsb --preset bach --out R
  torchrun --nproc-per-node 1 -m music_transformer train --out R --resume --set batch_size=4

A run ends with exit code 0 when it is finished or its max_minutes are over, 130 after Ctrl-C and
143 after SIGTERM; in each case the last step is saved and --resume goes on from there. A second
Ctrl-C stops at once, except under torchrun. A run goes on with another number of processes as long
as that number times batch_size stays the same. Settings are those of the model (n_layers=4) and of
training (steps=1000).
"""

_EXIT_CODES = {"SIGINT": 130, "SIGTERM": 143}
_EXPORTED_FILE_BYTES = 15 << 20


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Add `train` to the command line."""
    parser = subparsers.add_parser(
        "train",
        help="train a model on prepared data",
        description="Train a model on prepared data, or go on with a run.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--data", help="folder that `prepare` made (with --resume: as recorded)")
    parser.add_argument(
        "--preset",
        help="a recipe: jsb-small, bach, piano-small, piano, lstm-small, ... (an unknown name "
        "lists all)",
    )
    parser.add_argument("--out", required=True, help="the run folder, as checkpoints/NAME")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        dest="settings",
        metavar="KEY=VALUE",
        help="change a setting of the preset; may be repeated",
    )
    parser.add_argument("--resume", action="store_true", help="go on with the run in --out")
    parser.add_argument("--init", metavar="CHECKPOINT", help="start from given weights")
    parser.add_argument("--force", action="store_true", help="replace the run in --out")
    parser.add_argument(
        "--export",
        metavar="FOLDER",
        help="at the end, also write the best weights there, in half precision and in files under "
        "15 MiB, for --init or any command",
    )
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda (default: %(default)s)")
    parser.add_argument("--seed", type=int, help="of weights, windows and dropout (default: 0)")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Train and print how it ended."""
    from music_transformer.checkpoint import check_replaceable, select_device
    from music_transformer.training.distributed import join_ranks, local_device
    from music_transformer.training.run_dir import RunFolder

    device = local_device(select_device(args.device))
    folder = RunFolder(args.out)
    if args.export is not None:
        check_replaceable(Path(args.export))
    ranks = join_ranks(device)
    try:
        plan = _plan(args, folder, ranks)
        ranks.wait()  # all have looked at the folder before the first one writes there
        with folder.locked() if ranks.first else contextlib.nullcontext():
            trainer = _trainer(plan, folder, device, ranks)
            if ranks.first:
                _announce(trainer)
            ranks.wait()
            with _stop_signals(trainer):
                result = trainer.train()
    finally:
        ranks.leave()
    if ranks.first:
        if args.export is not None:
            _export(folder, args.export)
        _print_result(result, as_json=args.json)
    return _EXIT_CODES.get(result.reason, 0)


def _export(folder: RunFolder, to: str) -> None:
    """Write the best weights of the run, or its latest, as a small checkpoint of their own."""
    from music_transformer.checkpoint import load_checkpoint

    session = load_checkpoint(folder.path, "cpu")
    path = session.save(to, half=True, max_file_bytes=_EXPORTED_FILE_BYTES)
    _say(f"{path}: the weights of {session.path.name}, in half precision")


def _plan(args: argparse.Namespace, folder: RunFolder, ranks: Ranks) -> Plan:
    """What the flags ask for: a new run in a free folder, or the one that is there.

    Raises:
        ConfigError: a flag is missing or contradicts another, or the folder is taken.
    """
    from music_transformer.errors import ConfigError
    from music_transformer.training.plan import new_plan, resumed_plan
    from music_transformer.training.presets import PRESETS

    if args.resume and args.force:
        raise ConfigError("--resume goes on with a run and --force replaces it; choose one.")
    if args.resume and folder.has_run():
        if args.init is not None:
            raise ConfigError("--init begins a new run; leave it out with --resume.")
        return resumed_plan(
            folder,
            args.settings,
            data_path=args.data,
            preset_name=args.preset,
            seed=args.seed,
            world_size=ranks.world_size,
        )
    if args.resume and args.preset is None:
        raise ConfigError(
            f"{args.out} holds no run to go on with; check --out, or give --preset and --data to "
            "begin one."
        )
    if args.preset is None:
        raise ConfigError(f"--preset is needed for a new run: one of {', '.join(PRESETS)}.")
    if args.data is None:
        raise ConfigError("--data is needed for a new run: a folder that `prepare` made.")
    plan = new_plan(args.data, args.preset, args.settings, seed=args.seed, init=args.init)
    if not folder.has_run() and not folder.is_free():
        raise ConfigError(f"{args.out} holds something that is no run; choose another --out.")
    if folder.has_run() and not args.force:
        raise ConfigError(f"{args.out} holds a run; add --resume to go on, --force to replace it.")
    if args.resume and ranks.first:
        _say(f"nothing to resume in {args.out}: starting")
    return plan


def _trainer(plan: Plan, folder: RunFolder, device: torch.device, ranks: Ranks) -> Trainer:
    """The trainer as it stands before the next step; the run folder is begun or brought up."""
    import torch

    from music_transformer.training.loop import Trainer

    training = plan.training
    if training.threads is not None:
        torch.set_num_threads(training.threads)
    torch.manual_seed(training.seed)  # the same weights on every rank
    model = plan.build(resumed=folder.latest() is not None and plan.recorded is not None)
    model = model.to(device)
    ranks.same_start(model)
    resolved = plan.resolve(device, ranks.world_size, _say if ranks.first else _ignore)
    (short,) = ranks.sums([float(ranks.first and resolved["bfloat16"])], device)
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
        monitor=_bar() if ranks.first else None,
    )
    if ranks.first:
        for note in plan.notes:
            _say(note)
        if plan.recorded is None:
            folder.begin(plan.run_config(resolved))
    ranks.wait()
    trainer.resume()
    if ranks.first and plan.recorded is not None:
        folder.write_config(plan.run_config(resolved))
    return trainer


def _announce(trainer: Trainer) -> None:
    """Say, before the first step, what is trained and what it will cost."""
    import torch

    from music_transformer.training.estimate import estimate_size

    config, step = trainer.config, trainer.progress.step
    size = estimate_size(trainer.model, config)
    products = "bfloat16" if trainer.bfloat16 else "float32"
    _say(f"{trainer.run.path}: data {trainer.data.corpus}, seed {config.seed}")
    _say(f"  {size.parameters:,} parameters, attention {size.attention}")
    _say(
        f"  device {trainer.device}, {torch.get_num_threads()} threads, linear layers in "
        f"{products} (autocast={config.autocast}), about {size.memory_bytes / 2**20:,.0f} MiB"
    )
    left = config.steps - step
    if left <= 0:
        return
    seconds = trainer.time_updates()
    events = trainer.windows.events_per_step * config.accumulate
    epochs = left * events / trainer.windows.events_per_epoch
    _say(
        f"  about {events / seconds:,.0f} events/s: {left:,} steps of {events:,} events "
        f"({epochs:.1f} epochs) take {_duration(seconds * left)}"
    )


@contextlib.contextmanager
def _stop_signals(trainer: Trainer) -> Iterator[None]:
    """Turn the first SIGINT or SIGTERM into a request; a second one acts as it always does.

    Among several processes a second one asks again: `torchrun` passes on to all of them what its
    whole group may have received already, and a step that is being saved must not die of that.
    """
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def ask(number: int, _frame: object) -> None:
        trainer.stop(signal.Signals(number).name)
        if trainer.ranks.world_size == 1:
            restore()

    try:
        for number in before:
            signal.signal(number, ask)
    except ValueError:  # not the main thread: signals do not arrive here
        yield
        return
    try:
        yield
    finally:
        restore()


def _bar() -> Monitor:
    """A progress bar on stderr."""
    from tqdm import tqdm

    from music_transformer.training.loop import Monitor

    class Bar(Monitor):
        def begin(self, step: int, steps: int) -> None:
            interval = 0.5 if sys.stderr.isatty() else 30.0
            self.bar = tqdm(
                total=steps, initial=step, unit="step", file=sys.stderr, mininterval=interval
            )
            self.shown: dict[str, str] = {}

        def updated(self, step: int, loss: float) -> None:
            self.bar.update(1)

        def measured(self, record: dict[str, Any]) -> None:
            if "validation_nll" in record:
                self.shown["validation"] = f"{record['validation_nll']:.3f}"
            else:
                self.shown["loss"] = f"{record['loss']:.3f}"
                self.shown["events/s"] = f"{record['events_per_second']:,.0f}"
            self.bar.set_postfix(self.shown, refresh=False)

        def end(self) -> None:
            self.bar.close()

    return Bar()


def _print_result(result: TrainingResult, *, as_json: bool) -> None:
    from music_transformer.cli.output import print_json

    if as_json:
        print_json(result.to_dict())
        return
    line = f"{result.run}: step {result.step} of {result.steps} ({result.reason})"
    if result.loss is not None:
        line += f", loss {result.loss:.4f}"
    if result.best_nll is not None:
        line += f", best validation {result.best_nll:.4f} at step {result.best_step}"
    print(line)


def _duration(seconds: float) -> str:
    minutes = seconds / 60
    if minutes < 2:
        return f"{seconds:.0f} s"
    return f"{minutes:.0f} min" if minutes < 120 else f"{minutes / 60:.1f} h"


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _ignore(text: str) -> None:
    """Other ranks say nothing."""
