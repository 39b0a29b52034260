"""The released `bach` from its data: six runs, one mean of weights, one temperature.

What each run adds is told in docs/chorales.md. Stopped and started again, it goes on where it was;
the result is the checkpoint OUT/bach. Six hours of one core; another machine, or another number of
threads, gives other roundings and so another model of the same kind.

    python scripts/release/rebuild_bach.py --data data/jsb --out checkpoints/rebuilt
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Run:
    """One training run: the checkpoint it starts from (None: from nothing), and its settings."""

    name: str
    init: str | None
    settings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Mean:
    """The mean of the weights of two runs."""

    name: str
    runs: tuple[str, str]


_WIDE = ("context=1024", "max_distance=512", "batch_size=1", "evaluate_windows=100")
_HARD = ("dropout=0.3", "token_dropout=0.1", "weight_decay=0.1")

#: In this order; run number n has the seed n.
STAGES: tuple[Run | Mean, ...] = (
    Run("first", None),  # the preset as it is
    Run("longer", "first", ("steps=3200", "learning_rate=1e-3", "warmup=100", "ema=0.998")),
    Run(
        "relational",
        "longer",
        (
            *("steps=3200", "learning_rate=1e-3", "warmup=100", "schedule=wsd", "cooldown=0.35"),
            *("relative_pitch=true", "relative_time=true", *_HARD),
        ),
    ),
    Mean("mean", ("relational", "longer")),
    Run(
        "wide",
        "mean",
        (
            *("steps=3000", "learning_rate=7e-4", "warmup=100", *_WIDE),
            *("dropout=0.25", "token_dropout=0.08", "weight_decay=0.1"),
        ),
    ),
    # In truth the first 1,793 steps of a cosine of 4,500, which was then given up.
    Run(
        "onward",
        "wide",
        ("steps=1793", "learning_rate=8e-4", "warmup=100", "final_fraction=0.68", *_WIDE, *_HARD),
    ),
    Run(
        "voices",
        "onward",
        (
            *("steps=7000", "learning_rate=8e-4", "warmup=100", *_WIDE, *_HARD),
            *("held_labels=16", "interval_output=true"),
        ),
    ),
)
CALIBRATED = "bach"


def main() -> None:
    """Train what is not trained yet."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", required=True, help="prepared JSB Chorales")
    parser.add_argument("--out", required=True, type=Path, help="folder for runs and result")
    parser.add_argument("--steps", type=int, help="of every run; for trying out")
    args = parser.parse_args()
    seed = 0
    for stage in STAGES:
        if isinstance(stage, Mean):
            runs = [args.out / run for run in stage.runs]
            _script("average", *runs, "--out", args.out / stage.name)
        else:
            seed += 1
            _train(stage, seed, args)
    last = args.out / STAGES[-1].name
    _script("calibrate", last, "--data", args.data, "--out", args.out / CALIBRATED)


def _train(run: Run, seed: int, args: argparse.Namespace) -> None:
    """Begin the run, or go on with it where it stands."""
    folder = args.out / run.name
    command: list[str | Path] = ["-m", "music_transformer", "train", "--out", folder]
    if (folder / "config.json").exists():
        command.append("--resume")
    else:
        command += ["--data", args.data, "--preset", "bach", "--seed", str(seed)]
        command += [] if run.init is None else ["--init", args.out / run.init]
        steps = [] if args.steps is None else [f"steps={args.steps}"]
        command += [part for text in [*run.settings, *steps] for part in ("--set", text)]
    subprocess.run([sys.executable, *command], check=True)


def _script(name: str, *arguments: str | Path) -> None:
    script = Path(__file__).with_name(f"{name}.py")
    subprocess.run([sys.executable, script, *arguments], check=True)


if __name__ == "__main__":
    main()
