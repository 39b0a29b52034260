"""How fast MIDI files become events: our reader against mido, and notes encoded a second.

Reading is timed A B A B ... in one process, in CPU time, so that a busy machine and a growing heap
touch both sides alike; the median over the rounds counts. Encoding starts from columns of a million
notes that are already in memory.

    python scripts/bench/codec.py [FILE_OR_FOLDER ...] [--files 4] [--rounds 5] [--notes 1000000]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import mido
import numpy as np

from music_transformer.midi.read import read_midi
from music_transformer.midi.write import write_midi
from music_transformer.notes import NoteSequence
from music_transformer.representations import PerformanceTokenizer

MIDI_SUFFIXES = (".mid", ".midi")


def cpu_seconds(call: Callable[[], object]) -> float:
    """The CPU time of one call."""
    begin = time.process_time()
    call()
    return time.process_time() - begin


def random_notes(n: int, seed: int = 0) -> NoteSequence:
    """A piano sequence of n notes, ten a second, as dense as MAESTRO."""
    generator = np.random.default_rng(seed)
    start = np.sort(generator.uniform(0, n / 10, n))
    return NoteSequence(
        pitch=generator.integers(21, 109, n),
        velocity=generator.integers(1, 128, n),
        start=start,
        end=start + 0.02 + generator.exponential(0.4, n),
    )


def find_files(paths: list[Path], at_most: int) -> list[Path]:
    """The MIDI files at or under the paths; evenly chosen where there are too many."""
    found: list[Path] = []
    for path in paths:
        inside = sorted(p for p in path.rglob("*") if p.suffix.lower() in MIDI_SUFFIXES)
        found += inside if path.is_dir() else [path]
    if len(found) <= at_most:
        return found
    return [found[i * len(found) // at_most] for i in range(at_most)]


def compare_reading(path: Path, rounds: int) -> None:
    """Print how much faster `read_midi` is than `mido.MidiFile` on one file."""
    ours, theirs = [], []
    for _ in range(rounds):
        theirs.append(cpu_seconds(lambda: mido.MidiFile(path)))
        ours.append(cpu_seconds(lambda: read_midi(path)))
    n = len(read_midi(path))
    slow, fast = statistics.median(theirs), statistics.median(ours)
    print(
        f"read {path.name}: {n} notes; mido {slow:.3f} s, ours {fast:.3f} s "
        f"({n / fast:,.0f} notes/s): ratio {slow / fast:.2f}"
    )


def measure_encoding(n: int, rounds: int) -> None:
    """Print how many notes a second are encoded from columns, and ids decoded."""
    tokenizer, notes = PerformanceTokenizer(), random_notes(n)
    seconds = statistics.median(
        cpu_seconds(lambda: tokenizer.encode_array(notes)) for _ in range(rounds)
    )
    ids = tokenizer.encode_array(notes)
    print(
        f"encode {n} notes: {seconds:.3f} s, {n / seconds:,.0f} notes/s, "
        f"{len(ids) / seconds:,.0f} events/s"
    )
    piece = ids[:90_000]
    seconds = statistics.median(cpu_seconds(lambda: tokenizer.decode(piece)) for _ in range(rounds))
    print(f"decode {len(piece)} ids: {1000 * seconds:.1f} ms")


def main() -> None:
    """Parse the arguments and print the measurements."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("paths", nargs="*", type=Path, help="default: a synthetic file")
    parser.add_argument("--files", type=int, default=4, help="at most this many files (default: 4)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--notes", type=int, default=1_000_000, help="notes to encode")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        files = find_files(args.paths, args.files)
        if not args.paths:
            files = [Path(folder) / "synthetic.mid"]
            write_midi(random_notes(10_001), files[0])
        for path in files:
            compare_reading(path, args.rounds)
    measure_encoding(args.notes, args.rounds)


if __name__ == "__main__":
    main()
