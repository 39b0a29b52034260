"""`train`: a model from prepared data, in a run folder that can be resumed at any moment."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import signal
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from music_transformer.training.loop import Trainer
    from music_transformer.training.run_dir import TrainingResult

DESCRIPTION = "Train a model on prepared data, or go on with a run."
EPILOG = """\
examples:
  music-transformer train --data data/jsb --preset jsb-small --out checkpoints/first
  music-transformer train --data data/maestro --preset piano --out checkpoints/long \\
      --set max_minutes=60
  music-transformer train --out checkpoints/long --resume
  music-transformer train --data data/mine --preset piano --init piano --out checkpoints/tuned \\
      --set steps=500 --set schedule=cosine --set learning_rate=5e-4
  music-transformer train --data data/maestro --preset piano-large --out checkpoints/large \\
      --resume --device cuda --set compile=true --export checkpoints/large-half
  music-transformer train --data data/maestro --preset piano --out R --processes 2
  torchrun --nproc-per-node 2 -m music_transformer train --data data/jsb --preset bach --out R
  torchrun --nproc-per-node 1 -m music_transformer train --out R --resume --set batch_size=4

A run ends with exit code 0 when it is finished or its max_minutes are over, 130 after Ctrl-C and
143 after SIGTERM; in each case the last step is saved and --resume goes on from there. A second
Ctrl-C stops at once, except among several processes. A run goes on with another number of processes
as long as that number times batch_size stays the same. Settings are those of the model (n_layers=4)
and of training (steps=1000).
"""

_EXIT_CODES = {"SIGINT": 130, "SIGTERM": 143}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--data", help="folder that `prepare` made (with --resume: as recorded)")
    add(
        "--preset",
        help="a recipe: jsb-small, bach, piano-small, piano, lstm-small, ... (an unknown name "
        "lists all)",
    )
    add("--out", required=True, help="the run folder, as checkpoints/NAME")
    add(
        "--set",
        action="append",
        default=[],
        dest="settings",
        metavar="KEY=VALUE",
        help="change a setting of the preset; may be repeated",
    )
    add("--resume", action="store_true", help="go on with the run in --out")
    add("--init", metavar="CHECKPOINT", help="start from given weights")
    add("--force", action="store_true", help="replace the run in --out")
    add(
        "--export",
        metavar="FOLDER",
        help="at the end, also write the best weights there, in half precision and in files under "
        "15 MiB, for --init or any command",
    )
    add(
        "--processes",
        type=int,
        metavar="N",
        help="processes that share the batch on the cores of this machine (default: one a core "
        "where that pays and no threads=N is set; with --resume as before)",
    )
    add("--device", default="auto", help="auto, cpu, cuda (default: %(default)s)")
    add("--seed", type=int, help="of weights, windows and dropout (default: 0)")
    add("--json", action="store_true", help="print the result as JSON")


def run(args: argparse.Namespace) -> int:
    """Train and print how it ended."""
    from music_transformer.cli.output import Bar, print_json
    from music_transformer.training.assemble import RunRequest, run_training

    names = [field.name for field in dataclasses.fields(RunRequest)]
    given = {name: getattr(args, name) for name in names}
    request = RunRequest(**given | {"settings": tuple(args.settings)})
    result = run_training(request, Bar(), _stop_signals)
    if int(os.environ.get("RANK", "0")) == 0:  # of several under torchrun one speaks
        if args.json:
            print_json(result.to_dict())
        else:
            print(_line(result))
    return _EXIT_CODES.get(result.reason, 0)


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


def _line(result: TrainingResult) -> str:
    line = f"{result.run}: step {result.step} of {result.steps} ({result.reason})"
    if result.loss is not None:
        line += f", loss {result.loss:.4f}"
    if result.best_nll is not None:
        line += f", best validation {result.best_nll:.4f} at step {result.best_step}"
        if result.first_nll is not None:
            line += f" (before the first step {result.first_nll:.4f})"
            if result.best_nll >= result.first_nll:
                line += "; training made it worse: try a lower learning_rate, or more music"
    return line
