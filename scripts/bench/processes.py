"""Training by two processes against one process of one thread and of two, in turn.

python scripts/bench/processes.py --data data/maestro [--preset piano] [--steps 8] [--rounds 3]

Events a second by the clock, as `metrics.jsonl` has them, so nothing else may run meanwhile.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from measure import machine, table

WAYS = {"1 process x 1 thread": (1, 1), "1 process x 2 threads": (1, 2), "2 processes": (2, 1)}
_WARM_UP = 2  # steps that are not counted


def events_per_second(args: argparse.Namespace, processes: int, threads: int) -> float:
    """The median of the steps of a short run."""
    settings = [f"steps={args.steps + _WARM_UP}", "log_every=1", "evaluate_windows=1"]
    settings += [f"threads={threads}", *args.settings]
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "music_transformer", "train", "--data", args.data]
        command += ["--preset", args.preset, "--out", folder, "--device", "cpu"]
        command += ["--processes", str(processes)]
        command += [part for setting in settings for part in ("--set", setting)]
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
        subprocess.run(command, check=True, capture_output=True, env=environment)
        lines = (Path(folder) / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    speeds: list[float | None] = [json.loads(line).get("events_per_second") for line in lines]
    return statistics.median([speed for speed in speeds if speed is not None][_WARM_UP:])


def main() -> None:
    """Parse the arguments and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", required=True, help="prepared data")
    parser.add_argument("--preset", default="piano", help="default: %(default)s")
    parser.add_argument("--steps", type=int, default=8, help="counted in a round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--set", action="append", default=[], dest="settings", metavar="KEY=VALUE")
    args = parser.parse_args()
    speeds: dict[str, list[float]] = {way: [] for way in WAYS}
    for _ in range(args.rounds):
        for way, counts in WAYS.items():
            speeds[way].append(events_per_second(args, *counts))
    medians = {way: statistics.median(found) for way, found in speeds.items()}
    one = next(iter(medians.values()))
    rows = [[way, f"{speed:,.0f}", f"{speed / one:.2f}"] for way, speed in medians.items()]
    print(f"### Processes and threads\n\n{machine()}.\n")
    print(table(["", "events/s", "ratio"], rows))


if __name__ == "__main__":
    main()
