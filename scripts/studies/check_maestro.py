"""Read, encode, decode and round-trip every MIDI file of a folder; exit 1 if one fails.

For each file: the ids of the notes, decoded and encoded again, are the same ids; and so they are
when the decoded notes go through a written MIDI file in between. With ``--generate`` the file is
continued too, by a small model with random weights, written and read: it must begin with its own
pitches, velocities, channels, times (within 0.1 ms), pedal, tempo map, metre, key and names.

    python scripts/studies/check_maestro.py FOLDER [--jobs N] [--limit N] [--generate]
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from tqdm import tqdm

from music_transformer.checkpoint.session import Session
from music_transformer.errors import MusicTransformerError
from music_transformer.generation import generate
from music_transformer.midi.read import SUFFIXES, read_midi
from music_transformer.midi.write import write_midi
from music_transformer.model import ModelConfig, MusicTransformer
from music_transformer.notes import NoteSequence
from music_transformer.representations import PerformanceTokenizer


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


@cache
def noise() -> Session:
    """A model that composes noise."""
    tokenizer = PerformanceTokenizer()
    config = ModelConfig(
        vocab_size=tokenizer.vocab_size,
        n_layers=1,
        d_model=12,
        n_heads=3,
        d_ff=17,
        dropout=0.0,
        context=31,
    )
    model = MusicTransformer(config).eval()
    return Session(model, tokenizer, config, {}, Path("noise"), torch.device("cpu"))


def lost_in_generate(own: NoteSequence, copy: Path) -> str:
    """What of the notes is not there again when they were continued, written and read; or ""."""
    made = generate(noise(), own, events=40, candidates=1, resample=0, keep_silence=True)
    again = read_midi(write_midi(made.notes, copy))
    base = max(len(own.track_names), int(own.track.max()) + 1)
    ours = again.selected(again.track < base)
    end = made.report.primer_seconds
    same = {
        "notes": len(ours) == len(own)
        and all(
            np.array_equal(getattr(ours, name), getattr(own, name))
            for name in ("pitch", "velocity", "channel", "track")
        ),
        "tempo map": again.tempos.equals(own.tempos.until(np.nextafter(end, np.inf))),
        "metre": again.time_signatures.equals(own.time_signatures),
        "key": again.key_signatures.equals(own.key_signatures),
        "names": again.title == own.title
        and again.track_names[:base] == (*own.track_names, *[""] * base)[:base],
    }
    if same["notes"]:
        moved = max(np.abs(ours.start - own.start).max(), np.abs(ours.end - own.end).max())
        same["times"] = bool(moved <= 1e-4)
        pedals, mine = again.pedals, np.isin(again.pedals.channel, own.pedals.channel)
        same["pedal"] = int(mine.sum()) == len(own.pedals) and np.allclose(
            pedals.start[mine], own.pedals.start, atol=1e-4
        )
    lost = [name for name, is_same in same.items() if not is_same]
    return f"other after generate: {', '.join(lost)}" if lost else ""


def check_file(path: Path, pedal: str, through_generate: bool) -> Result:
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
            if not failure and through_generate:
                failure = lost_in_generate(notes, copy)
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


def check_all(files: list[Path], jobs: int, **how: Any) -> Iterator[Result]:
    """The result of each file, in order, with a progress bar on stderr."""
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        results = pool.map(partial(check_file, **how), files, chunksize=1)
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
    parser.add_argument("--generate", action="store_true", help="continue each file too")
    parser.add_argument("--limit", type=int, default=None, help="at most this many files")
    args = parser.parse_args()
    files = sorted(p for p in args.folder.rglob("*") if p.suffix.lower() in SUFFIXES)
    if not files:
        print(f"{args.folder}: no MIDI file in this folder.", file=sys.stderr)
        return 1
    begin = time.monotonic()
    how = {"pedal": args.pedal, "through_generate": args.generate}
    results = list(check_all(files[: args.limit], args.jobs, **how))
    summarise(results, time.monotonic() - begin)
    return 1 if any(r.failure for r in results) else 0


if __name__ == "__main__":
    sys.exit(main())
