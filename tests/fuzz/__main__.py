"""Check a million files: ``python -m tests.fuzz --files 1000000``; ``--only N`` is one again."""

# ruff: noqa: T201 - a command
import argparse
import resource
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

from tests.fuzz.checks import Case, Fuzzer


def run() -> int:
    """Check, print rate and worst cases; 1 where a file failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0, help="the number of the first file")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="end after so long")
    parser.add_argument("--only", type=int, metavar="N", help="file N alone, with its traceback")
    args = parser.parse_args()
    first, count = (args.first, args.files) if args.only is None else (args.only, 1)
    kinds: Counter[str] = Counter()
    slowest: list[tuple[float, Case]] = []
    failed, begun = 0, time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        fuzzer = Fuzzer(Path(folder), args.seed)
        for number in range(first, first + count):
            try:
                case = fuzzer.check(number)
            except Exception as error:
                failed += 1
                print(f"file {number}: {type(error).__name__}: {error}", flush=True)
                if args.only is not None:
                    traceback.print_exc()
                continue
            kinds[case.kind] += 1
            slowest = sorted([*slowest, (case.seconds / case.allowed, case)], reverse=True)[:5]
            if number % 1000 == 0 and time.monotonic() - begun > 60 * args.minutes:
                break
    seconds = time.monotonic() - begun
    done = sum(kinds.values()) + failed
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{done:,} files, {failed} failed, {seconds:.0f} s, {memory:.0f} MiB at most")
    print(", ".join(f"{kind} {count:,}" for kind, count in kinds.most_common()))
    for share, case in slowest:
        print(f"file {case.number}: {case.size:,} bytes, {case.seconds:.2f} s, {share:.2f} of it")
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(run())
