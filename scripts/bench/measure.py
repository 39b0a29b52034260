"""Measuring side by side: CPU time of one thread in turns, and peak memory in fresh processes.

Candidates are timed A B A B ... in one process, so that a busy machine touches all of them alike,
in CPU time of the process with one thread; the median of the rounds counts. Peak memory is the
growth of the resident set in a process of its own, after a small call has loaded what is loaded
once.
"""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import torch

MIB = 1 << 20


def cpu_seconds(call: Callable[[], object]) -> float:
    """The CPU time of one call."""
    begin = time.process_time()
    call()
    return time.process_time() - begin


def in_turn(candidates: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Median CPU seconds of each candidate over ``rounds`` turns, after one that is not counted."""
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    for turn in range(rounds + 1):
        for name, call in candidates.items():
            spent = cpu_seconds(call)
            if turn:
                seconds[name].append(spent)
    return {name: statistics.median(spent) for name, spent in seconds.items()}


def resident_mib() -> float:
    """Resident set of this process now (Linux)."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / MIB


def peak_growth_mib(call: Callable[[], object]) -> float:
    """How far the resident set grows during ``call``; meaningful once in a process (Linux)."""
    before = resident_mib()
    Path("/proc/self/clear_refs").write_text("5")  # the high-water mark starts again from now
    call()
    lines = Path("/proc/self/status").read_text().splitlines()
    [peak] = [int(line.split()[1]) for line in lines if line.startswith("VmHWM:")]
    return peak / 1024 - before


def in_fresh_process(script: str, *arguments: object) -> float:
    """The number that ``python script arguments`` prints."""
    command = [sys.executable, script, *map(str, arguments)]
    # Freed memory goes back at once, so that the peak is of what is alive.
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return float(done.stdout)


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def judged(value: float, target: float, *, at_most: bool = False) -> str:
    """``3.9x (target 3x)``, marked where the target is missed."""
    met = value <= target if at_most else value >= target
    bound = "at most" if at_most else "at least"
    return f"{value:.2f} ({bound} {target:g}{'' if met else ', MISSED'})"


def machine() -> str:
    """One line on what was measured on, and how busy it was."""
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        model = names[0].split(":")[1].strip() if names else model
    load = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    return f"{model}, {os.cpu_count()} cores, one thread; torch {torch.__version__}, float32{load}"
