"""The released `bach` from its data: three runs, the mean of the last two, three more from that.

What each run adds is told in docs/chorales.md. Stopped and started again, it goes on where it was;
the result is the run OUT/voices. Six hours of one core; another machine, or another number of
threads, gives other roundings and so another model of the same kind.

    python scripts/rebuild_bach.py --data data/jsb --out checkpoints/rebuilt
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

_WIDE = ("context=1024", "max_distance=512", "batch_size=1")

#: The settings of each run; it starts from the run before, `wide` from the mean of two.
RUNS: dict[str, list[str]] = {
    "first": [],  # the preset as it is
    "longer": ["steps=3200", "learning_rate=1e-3", "warmup=100", "ema=0.998"],
    "relational": [
        *("steps=3200", "learning_rate=1e-3", "warmup=100", "schedule=wsd", "cooldown=0.35"),
        *("relative_pitch=true", "relative_time=true"),
        *("dropout=0.3", "token_dropout=0.1", "weight_decay=0.1"),
    ],
    "wide": [
        *_WIDE,
        *("steps=3000", "learning_rate=7e-4", "warmup=100"),
        *("dropout=0.25", "token_dropout=0.08", "weight_decay=0.1", "evaluate_windows=100"),
    ],
    # In truth the first 1,793 steps of a cosine of 4,500, which was then given up for the next run.
    "onward": [
        *_WIDE,
        *("steps=1793", "learning_rate=8e-4", "warmup=100", "final_fraction=0.68"),
        *("dropout=0.3", "token_dropout=0.1", "weight_decay=0.1", "evaluate_windows=100"),
    ],
    "voices": [
        *_WIDE,
        *("held_labels=16", "interval_output=true"),
        *("steps=7000", "learning_rate=8e-4", "warmup=100"),
        *("dropout=0.3", "token_dropout=0.1", "weight_decay=0.1", "evaluate_windows=100"),
    ],
}


def averaged(runs: list[Path], out: Path) -> Path:
    """The checkpoint with the mean of the weights of some runs."""
    script = Path(__file__).with_name("average_checkpoints.py")
    command = [sys.executable, str(script), *map(str, runs), "--out", str(out)]
    subprocess.run(command, check=True)
    return out


def main() -> None:
    """Train what is not trained yet."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", required=True, help="prepared JSB Chorales")
    parser.add_argument("--out", required=True, type=Path, help="folder for runs and result")
    parser.add_argument("--steps", type=int, help="of every run; for trying out")
    args = parser.parse_args()
    before: Path | None = None
    for seed, (name, settings) in enumerate(RUNS.items(), start=1):
        run = args.out / name
        if name == "wide":
            before = averaged([args.out / "relational", args.out / "longer"], args.out / "mean")
        command = ["-m", "music_transformer", "train", "--out", str(run)]
        if (run / "config.json").exists():
            command.append("--resume")
        else:
            command += ["--data", args.data, "--preset", "bach", "--seed", str(seed)]
            command += [] if before is None else ["--init", str(before)]
            steps = [] if args.steps is None else [f"steps={args.steps}"]
            command += [part for text in [*settings, *steps] for part in ("--set", text)]
        subprocess.run([sys.executable, *command], check=True)
        before = run


if __name__ == "__main__":
    main()
