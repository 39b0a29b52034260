"""How many events a second the training windows give, without any model: what a GPU can be fed.

    python scripts/bench/loader.py --data data/maestro [--workers 2] [--quick]

One core: CPU time of one thread, plain and augmented windows in turns. Worker processes: events by
the clock, after the first batches have arrived, with this process doing nothing else.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable

import torch
from measure import in_turn, machine, table

from music_transformer.datasets import PreparedData
from music_transformer.datasets.windows import TrainingWindows

CASES = [(2048, 8), (1024, 8), (512, 8)]  # length, batch size


def drawing(windows: TrainingWindows, batches: int) -> Callable[[], None]:
    """Draw so many batches, other ones at every call."""
    steps = itertools.count()

    def call() -> None:
        for _ in range(batches):
            windows.batch(next(steps))

    return call


def by_workers(windows: TrainingWindows, workers: int, batches: int) -> float:
    """Events a second of so many worker processes; of a thread for 0."""
    stream = windows.prefetch(workers=workers)
    for _ in range(4 * max(1, workers)):
        next(stream)
    begin = time.perf_counter()
    for _ in range(batches):
        next(stream)
    seconds = time.perf_counter() - begin
    stream.close()
    return batches * windows.events_per_step / seconds


def report(data: PreparedData, workers: list[int], quick: bool) -> str:
    """The tables, as Markdown."""
    batches, rounds = (10, 1) if quick else (40, 5)
    rows = []
    for length, size in CASES:
        sources = {
            name: TrainingWindows(data, length=length, batch_size=size, augment=augment)
            for name, augment in (("plain", False), ("augmented", True))
        }
        calls = {name: drawing(windows, batches) for name, windows in sources.items()}
        seconds = in_turn(calls, rounds)
        speed = {name: batches * size * length / spent for name, spent in seconds.items()}
        rows.append(
            [
                f"{length} x {size}",
                *(f"{speed[name]:,.0f}" for name in calls),
                f"{seconds['augmented'] / seconds['plain']:.0f}",
            ]
        )
    parts = [
        "### Training windows",
        f"{data.corpus}, events/s of one core, {machine()}.",
        table(["window x batch", "plain", "augmented", "time augmented / plain"], rows),
    ]
    if workers:
        length, size = CASES[0]
        windows = TrainingWindows(data, length=length, batch_size=size)
        found = {n: by_workers(windows, n, 20 * batches) for n in (0, *workers)}
        lines = [[n or "thread", f"{v:,.0f}", f"{v / found[0]:.2f}"] for n, v in found.items()]
        parts.append(table(["workers", f"augmented events/s, {length} x {size}", "ratio"], lines))
    return "\n\n".join(parts)


def main() -> None:
    """Parse the arguments and print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", required=True, help="folder that `prepare` made")
    parser.add_argument(
        "--workers", type=int, action="append", default=[], help="also so many processes; repeats"
    )
    parser.add_argument("--quick", action="store_true", help="fewer batches, one round")
    args = parser.parse_args()
    torch.set_num_threads(1)
    print(report(PreparedData.open(args.data), args.workers, args.quick))


if __name__ == "__main__":
    main()
