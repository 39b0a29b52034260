"""Build the index that tells which runs of notes stand in the training data.

    python scripts/release/memorization_index.py --data data/maestro --out checkpoints/piano

Writes OUT/memorisation.safetensors: hashes of interval n-grams, nothing that music could be read
back from (music_transformer/evaluation/memorisation.py has the format), then checks it and prints
what it found, for docs/piano.md: excerpts of training, transposed too, must be found whole;
excerpts of validation, which the model has not seen, give the lengths that are common property.
With --generated FOLDER the MIDI files in it (continuations without their primers) stand beside.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from tqdm import tqdm

from music_transformer.datasets import PreparedData
from music_transformer.evaluation.memorisation import (
    INDEX_FILE,
    LEAST_HITS,
    NGRAM_INTERVALS,
    SIZE_BYTES,
    TOGETHER_SECONDS,
    MemorisationIndex,
)
from music_transformer.midi import read_midi
from music_transformer.notes import NoteSequence


def main() -> int:
    """Build, write, check."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", default="data/maestro", help="prepared data (%(default)s)")
    parser.add_argument("--out", type=Path, required=True, help="folder of the checkpoint")
    parser.add_argument("--n", type=int, default=NGRAM_INTERVALS, help="intervals (%(default)s)")
    parser.add_argument("--bytes", type=int, default=SIZE_BYTES, help="of the index (%(default)s)")
    parser.add_argument("--check-only", action="store_true", help="take the index that is there")
    parser.add_argument("--seconds", type=float, default=30.0, help="of the excerpts checked")
    parser.add_argument("--generated", type=Path, help="a folder of continuations to check too")
    args = parser.parse_args()

    data = PreparedData.open(args.data)
    path = args.out / INDEX_FILE
    if not args.check_only:
        index = MemorisationIndex.build(
            _decoded(data, "train"), n=args.n, size_bytes=args.bytes, data=data.checksum
        )
        args.out.mkdir(parents=True, exist_ok=True)
        index.save(path)
    index = MemorisationIndex.load(path)
    print(
        f"{path}: {path.stat().st_size:,} bytes, {index.grams:,} n-grams of {index.n} intervals, "
        f"{index.hashes} hashes, false alarms {index.false_alarm_rate:.4f}"
    )
    rng = np.random.default_rng(0)
    train = list(_excerpts(data, "train", args.seconds, rng, most=200))
    whole = [index.longest_run(notes).notes == len(notes) for notes in train]
    moved = [index.longest_run(_moved(notes)).notes == len(notes) for notes in train]
    print(f"training excerpts found whole: {sum(whole)} of {len(whole)}")
    print(f"the same a major third higher or lower: {sum(moved)} of {len(moved)}")
    _print_lengths(index, "validation", list(_excerpts(data, "validation", args.seconds, rng)))
    if args.generated is not None:
        files = sorted(args.generated.glob("*.mid"))
        _print_lengths(index, "generated", [read_midi(file) for file in files])
    return 0


def _decoded(data: PreparedData, split: str) -> Iterator[NoteSequence]:
    for piece in tqdm(data.pieces(split), unit="piece", leave=False):
        yield data.tokenizer.decode(piece[1:-1].tolist())


def _excerpts(
    data: PreparedData,
    split: str,
    seconds: float,
    rng: np.random.Generator,
    *,
    most: int | None = None,
) -> Iterator[NoteSequence]:
    """The notes that begin in one stretch of every piece, at a drawn place."""
    pieces = data.pieces(split)
    chosen = np.linspace(0, len(pieces) - 1, min(most or len(pieces), len(pieces))).astype(int)
    for index in chosen.tolist():
        notes = data.tokenizer.decode(pieces[index][1:-1].tolist())
        # From one rest between onsets to another: a chord cut in two is another run of notes.
        gaps = np.diff(notes.start) > 1.5 * TOGETHER_SECONDS
        rests = np.concatenate([notes.start[:1], notes.start[1:][gaps]])
        drawn = rng.uniform(0, max(notes.end_time - seconds, 0))
        places = np.searchsorted(rests, [drawn, drawn + seconds])
        first, stop = rests[np.minimum(places, len(rests) - 1)]
        begins = (notes.start >= first) & (notes.start < stop)
        if begins.sum() >= NGRAM_INTERVALS + LEAST_HITS:
            yield NoteSequence(
                pitch=notes.pitch[begins],
                velocity=notes.velocity[begins],
                start=notes.start[begins] - notes.start[begins].min(),
                end=notes.end[begins] - notes.start[begins].min(),
            )


def _moved(notes: NoteSequence) -> NoteSequence:
    return notes.transposed(4 if int(notes.pitch.max()) < 124 else -4)


def _print_lengths(index: MemorisationIndex, name: str, pieces: Sequence[NoteSequence]) -> None:
    """A row of quantiles of the longest known run, and of its share of the excerpt."""
    runs = np.array([index.longest_run(notes).notes for notes in pieces])
    notes = np.array([len(one) for one in pieces])
    quantiles = np.quantile(runs, [0.5, 0.75, 0.9, 0.95], method="higher").astype(int)
    print(
        f"| {name} | {len(pieces)} | {np.median(notes):.0f} | "
        f"{np.mean(runs < index.shortest_run):.0%} | "
        + " | ".join(str(value) for value in quantiles)
        + f" | {runs.max()} |"
    )


if __name__ == "__main__":
    sys.exit(main())
