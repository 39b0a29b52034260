"""How often the rules of degeneration call real performances degenerate.

    python scripts/studies/false_alarms.py --data data/maestro --split validation --seconds 120
    python scripts/studies/false_alarms.py --data data/maestro --split train --seconds 30 --each 1

Excerpts at drawn places of every piece that is long enough, the notes that begin in them, as in a
continuation. The thresholds were set on the training split with two minutes; another split or
another length tells how they carry over.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter

import numpy as np
from tqdm import tqdm

from music_transformer.datasets import PreparedData
from music_transformer.generation.degeneration import broken_rules
from music_transformer.notes import NoteSequence


def main() -> int:
    """Count and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", default="data/maestro", help="prepared data (%(default)s)")
    parser.add_argument("--split", default="validation", help="(%(default)s)")
    parser.add_argument("--seconds", type=float, default=120.0, help="(%(default)s)")
    parser.add_argument("--each", type=int, default=2, help="excerpts of a piece (%(default)s)")
    parser.add_argument("--pieces", type=int, help="so many of them, evenly spread (all)")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    data = PreparedData.open(args.data)
    pieces = data.pieces(args.split)
    count = min(args.pieces or len(pieces), len(pieces))
    chosen = (np.arange(count) * len(pieces) / count).astype(int).tolist()
    rng = np.random.default_rng(args.seed)
    excerpts = alarms = 0
    broken: Counter[str] = Counter()
    for index in tqdm(chosen, unit="piece", leave=False):
        notes = data.tokenizer.decode(pieces[index][1:-1].tolist())
        if notes.end_time < args.seconds:
            continue
        for _ in range(args.each):
            first = float(rng.uniform(0, notes.end_time - args.seconds))
            found = broken_rules(excerpt(notes, first, args.seconds))
            excerpts += 1
            alarms += bool(found)
            broken.update(found.keys())
    rules = ", ".join(f"{name} {number}" for name, number in sorted(broken.items())) or "none"
    print(
        f"{alarms} of {excerpts} excerpts of {args.seconds:g} s of {args.split} of {args.data} "
        f"({alarms / max(excerpts, 1):.2%}): {rules}"
    )
    return 0


def excerpt(notes: NoteSequence, first: float, seconds: float) -> NoteSequence:
    """The notes that begin in so many seconds from ``first`` on, cut at the end."""
    begins = (notes.start >= first) & (notes.start < first + seconds)
    return NoteSequence(
        pitch=notes.pitch[begins],
        velocity=notes.velocity[begins],
        start=notes.start[begins] - first,
        end=np.minimum(notes.end[begins] - first, seconds),
        end_time=seconds,
    )


if __name__ == "__main__":
    sys.exit(main())
