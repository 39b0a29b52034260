"""Read, encode, decode and round-trip every MIDI file of a folder; exit 1 if one fails.

For each file: the ids of the notes, decoded and encoded again, are the same ids; and so they are
when the decoded notes go through a written MIDI file in between.

    python scripts/studies/check_maestro.py FOLDER [--jobs N] [--pedal sustain|events] [--limit N]
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

from tqdm import tqdm

from music_transformer.errors import MusicTransformerError
from music_transformer.midi.read import read_midi
from music_transformer.midi.write import write_midi
from music_transformer.representations import PerformanceTokenizer

MIDI_SUFFIXES = (".mid", ".midi")


class Result(NamedTuple):
    """What happened to one file; `failure` is empty when all was well."""

    name: str
    notes: int
    events: int
    read_seconds: float
    encode_seconds: float
    decode_seconds: float
    warnings: dict[str, int]
    failure: str


def check_file(path: Path, pedal: str) -> Result:
    """Take one file through every arrow and back."""
    tokenizer = PerformanceTokenizer(pedal=pedal)
    try:
        begin = time.process_time()
        notes = read_midi(path)
        read = time.process_time()
        ids = tokenizer.encode(notes)
        encoded = time.process_time()
        decoded = tokenizer.decode(ids)
        end = time.process_time()
        failure = "" if tokenizer.encode(decoded) == ids else "other ids after decoding"
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder) / "copy.mid"
            write_midi(decoded, copy)
            if not failure and tokenizer.encode(read_midi(copy)) != ids:
                failure = "other ids after writing and reading"
    except MusicTransformerError as error:
        return Result(path.name, 0, 0, 0, 0, 0, {}, str(error))
    return Result(
        path.name,
        len(notes),
        len(ids),
        read - begin,
        encoded - read,
        end - encoded,
        dict(notes.warnings),
        failure,
    )


def check_all(files: list[Path], pedal: str, jobs: int) -> Iterator[Result]:
    """The result of each file, in order, with a progress bar on stderr."""
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        results = pool.map(partial(check_file, pedal=pedal), files, chunksize=1)
        yield from tqdm(results, total=len(files), unit="file", file=sys.stderr)


def summarise(results: list[Result], wall_seconds: float) -> None:
    """Print counts, CPU seconds, warnings and failures."""
    notes = sum(r.notes for r in results)
    failures = [r for r in results if r.failure]
    print(f"files {len(results)}, notes {notes}, events {sum(r.events for r in results)}")
    for arrow in ("read", "encode", "decode"):
        seconds = sum(getattr(r, f"{arrow}_seconds") for r in results)
        print(f"{arrow}: {seconds:.1f} s of CPU, {notes / max(seconds, 1e-9):,.0f} notes/s")
    warnings: dict[str, int] = {}
    for result in results:
        for problem, count in result.warnings.items():
            warnings[problem] = warnings.get(problem, 0) + count
    for problem, count in sorted(warnings.items()):
        print(f"warning: {problem} ({count}x)")
    print(f"wall {wall_seconds:.1f} s, failures {len(failures)}")
    for result in failures:
        print(f"FAILED {result.name}: {result.failure}")


def main() -> int:
    """Check the folder that the command line names."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--pedal", choices=("sustain", "events"), default="sustain")
    parser.add_argument("--limit", type=int, default=None, help="at most this many files")
    args = parser.parse_args()
    files = sorted(p for p in args.folder.rglob("*") if p.suffix.lower() in MIDI_SUFFIXES)
    if not files:
        print(f"{args.folder}: no MIDI file in this folder.", file=sys.stderr)
        return 1
    begin = time.monotonic()
    results = list(check_all(files[: args.limit], args.pedal, args.jobs))
    summarise(results, time.monotonic() - begin)
    return 1 if any(r.failure for r in results) else 0


if __name__ == "__main__":
    sys.exit(main())
