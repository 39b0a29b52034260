"""Check a million files: ``python -m tests.fuzz --files 1000000``; ``--only N`` is one again.

Every thousand files have a process of their own, so that one that crashes or hangs ends only it.
What fails is kept as a file, with its number and its error.
"""

# ruff: noqa: T201 - a command
import argparse
import multiprocessing
import resource
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from tests.fuzz.checks import BLOCK, Case, Fuzzer, forget_memory

CPU_SECONDS = 600  # of a thousand files
LEAKED_MIB = 96
WORST = {
    "slowest": lambda case: case.seconds,
    "slowest for what is allowed": lambda case: case.time_share,
    "most memory": lambda case: case.memory,
    "most memory for what is allowed": lambda case: case.memory_share,
    "largest": lambda case: case.size,
    "longest music": lambda case: case.music,
}


def check(fuzzer: Fuzzer, numbers: range, answers: Connection, current: Any) -> None:
    """Check files in a new process and send what became of them."""
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    warnings.simplefilter("error")
    before, cases, failed = forget_memory(), [], []
    for current.value in numbers:
        try:
            cases.append(fuzzer.check(current.value))
        except Exception:
            failed.append((current.value, traceback.format_exc()))
    leaked = forget_memory() - before
    if leaked > LEAKED_MIB:
        failed.append((numbers[0], f"{leaked:.0f} MiB stay after {numbers}"))
    answers.send((cases, failed))


def run() -> int:
    """Check, print rate and worst cases; 1 where a file failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=1, help="the number of the first file")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="end after so long")
    parser.add_argument("--only", type=int, metavar="N", help="file N alone, with its traceback")
    parser.add_argument("--keep", type=Path, default=Path("fuzz-failed"), help="what fails")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        fuzzer = Fuzzer(Path(folder), args.seed)
        if args.only is not None:
            print(fuzzer.check(args.only))
            return 0
        return _run_all(fuzzer, args)


def _run_all(fuzzer: Fuzzer, args: argparse.Namespace) -> int:
    kinds: Counter[str] = Counter()
    worst: dict[str, Case] = {}
    number, end, failed, begun, cpu = args.first, args.first + args.files, 0, time.monotonic(), 0.0
    fork = multiprocessing.get_context("fork")
    print(f"seed {args.seed}, files {number:,} to {end - 1:,}", flush=True)
    while number < end and time.monotonic() - begun < 60 * args.minutes:
        numbers = range(number, min(end, number // BLOCK * BLOCK + BLOCK))
        receiver, sender = fork.Pipe(duplex=False)
        current = fork.Value("q", number, lock=False)
        process = fork.Process(target=check, args=(fuzzer, numbers, sender, current))
        process.start()
        sender.close()
        try:
            cases, broken = receiver.recv()
            number = numbers.stop
        except EOFError:  # those before it in this block are not counted
            cases, broken = [], [(current.value, "the process ended")]
            number = current.value + 1
        process.join()
        for one, text in broken:
            args.keep.mkdir(exist_ok=True)
            (args.keep / f"{args.seed}-{one}.bin").write_bytes(fuzzer.data(one)[1])
            print(f"file {one}: {text}", flush=True)
        failed += len(broken)
        cpu += sum(case.seconds for case in cases)
        kinds.update(case.kind for case in cases)
        for name, key in WORST.items():
            worst[name] = max([*cases, *([worst[name]] if name in worst else [])], key=key)
        if numbers.stop % (10 * BLOCK) == 0 or numbers.stop == end:
            _report(kinds, worst, failed, time.monotonic() - begun, cpu)
    return min(failed, 1)


def _report(
    kinds: Counter[str], worst: dict[str, Case], failed: int, seconds: float, cpu: float
) -> None:
    count = sum(kinds.values())
    print(
        f"{count:,} files, {failed} failed, {seconds:.0f} s, {count / seconds:.0f} files/s, "
        f"{cpu:.0f} s of CPU in checks"
    )
    print("  " + ", ".join(f"{kind} {number:,}" for kind, number in kinds.most_common()))
    for name, case in worst.items():
        print(
            f"  {name}: file {case.number}, {case.kind}, {case.size:,} bytes, "
            f"{case.music:,.0f} s of music: {case.seconds:.2f} s of CPU ({case.time_share:.2f} "
            f"of what is allowed), {case.memory:.1f} MiB ({case.memory_share:.2f})"
        )
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(run())
