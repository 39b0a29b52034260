"""What a chorale model composes, in numbers beside the data's: what its NLL hides.

    python scripts/chorale_samples.py --checkpoint bach --data data/jsb
    python scripts/chorale_samples.py --checkpoint bach --first-chord --batch-size 10 --out out/many

Samples are drawn from nothing, or with `--first-chord` after the first chord of a chorale, one for
each batch, spread evenly over the split; each is as long as `--bars` says. Parallels are counted
over the pair-motions of all samples together, the other numbers are means over pieces. The table is
Markdown, ready for docs/chorales.md; `--out` keeps the MIDI files and statistics.json.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from music_transformer.checkpoint import Session, load_checkpoint
from music_transformer.datasets import PreparedData
from music_transformer.evaluation import beside, describe_chorale
from music_transformer.generation import generate_batch
from music_transformer.tokenizers import ChoraleTokenizer

SIXTEENTHS_PER_BAR = 16
N_VOICES = 4

#: Number, its name in the table, and the ratio to the data's that is wanted: (lowest, highest).
ROWS: tuple[tuple[str, str, tuple[float, float] | None], ...] = (
    ("parallel_fifths", "parallel fifths per pair-motion", (0.0, 2.0)),
    ("parallel_octaves", "parallel octaves per pair-motion", None),
    ("repeated_beat_ratio", "repeated chords, from beat to beat", (0.8, 1.2)),
    ("moves_per_beat", "moves per voice and beat", (0.8, 1.2)),
    ("crossing_share", "sixteenths with crossed voices", None),
    ("silence_share", "silent cells", None),
    ("pitch_class_entropy_bits", "entropy of pitch classes, bits", None),
    ("pitch_class_distance", "distance of pitch classes to the data", None),
    ("pair_motions", "pair-motions per piece", None),
    *(
        (f"{voice}_{end}", f"{voice}, {end} pitch", None)
        for voice in ("soprano", "alto", "tenor", "bass")
        for end in ("lowest", "highest")
    ),
)


def main() -> None:
    """Draw, describe, print."""
    args = _arguments()
    session = load_checkpoint(args.checkpoint, device=args.device)
    data = PreparedData.open(args.data)
    if {session.tokenizer.kind, data.tokenizer.kind} != {"chorale"}:
        sys.exit("both --checkpoint and --data must be of chorales.")
    tokenizer = ChoraleTokenizer()
    grids = [tokenizer.decode_grid(piece[1:-1]) for piece in data.pieces(args.split)]
    samples = list(_samples(session, grids, args))
    found = beside(
        [describe_chorale(tokenizer.decode_grid(ids)) for ids in samples],
        [describe_chorale(grid) for grid in grids],
    )
    found["settings"] = {**vars(args), "out": args.out and str(args.out)}
    found["checkpoint"] = {"path": str(session.path), "step": session.training.get("step")}
    if args.out is not None:
        _write(args.out, session, samples, found)
    print(_table(found, args))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--checkpoint", required=True, help="a chorale model's name or folder")
    parser.add_argument("--data", default="data/jsb", help="prepared chorales (%(default)s)")
    parser.add_argument("--split", default="train", help="to stand beside (%(default)s)")
    parser.add_argument("--samples", type=int, default=100, help="(%(default)s)")
    parser.add_argument("--bars", type=int, default=15, help="of each (15 is the data's mean)")
    parser.add_argument("--first-chord", action="store_true", help="begin with chords of the data")
    parser.add_argument("--batch-size", type=int, default=25, help="drawn at a time (%(default)s)")
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--top-k", type=int)
    parser.add_argument("--top-p", type=float, default=0.95)
    parser.add_argument("--min-p", type=float)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, help="folder for the MIDI files and statistics.json")
    args = parser.parse_args()
    for name in ("samples", "bars", "batch_size"):
        if getattr(args, name) < 1:
            parser.error(f"--{name.replace('_', '-')} {getattr(args, name)}: choose 1 or more.")
    return args


def _samples(
    session: Session, grids: list[np.ndarray], args: argparse.Namespace
) -> Iterator[list[int]]:
    """The ids of every sample; batch b is drawn with seed + b."""
    events = args.bars * SIXTEENTHS_PER_BAR * N_VOICES
    sizes = [
        min(args.batch_size, args.samples - first)
        for first in range(0, args.samples, args.batch_size)
    ]
    with tqdm(total=args.samples, unit="sample", leave=False) as bar:
        for number, size in enumerate(sizes):
            primer = None
            if args.first_chord:
                grid = grids[number * len(grids) // len(sizes)]
                first = int(np.argmax((grid >= 0).all(axis=1)))
                primer = ChoraleTokenizer().encode_grid(grid[first : first + 1])
            for generation in generate_batch(
                session,
                primer,
                samples=size,
                events=events - len(primer or ()),
                temperature=args.temperature,
                top_k=args.top_k,
                top_p=args.top_p,
                min_p=args.min_p,
                seed=args.seed + number,
            ):
                yield generation.ids
            bar.update(size)


def _write(folder: Path, session: Session, samples: list[list[int]], found: dict[str, Any]) -> None:
    from music_transformer.midi import write_midi

    folder.mkdir(parents=True, exist_ok=True)
    for number, ids in enumerate(samples):
        write_midi(session.tokenizer.decode(ids), folder / f"sample-{number:03d}.mid")
    (folder / "statistics.json").write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


def _table(found: dict[str, Any], args: argparse.Namespace) -> str:
    """Markdown: the samples, the data, the one over the other, and whether that is as wanted."""
    lines = [
        f"{found['pieces']} samples of {found['checkpoint']['path']}, temperature "
        f"{args.temperature:g}, top-p {args.top_p:g}, seed {args.seed}, beside the "
        f"{found['data']['pieces']} chorales of {args.split}:",
        "",
        "| | samples | data | ratio | wanted |",
        "| --- | --- | --- | --- | --- |",
    ]
    ours, data = found["mean"], found["data"]["mean"]
    for name, label, wanted in ROWS:
        if name not in ours or name not in data:
            continue
        ratio = ours[name] / data[name] if data[name] else float("nan")
        verdict = ""
        if wanted is not None:
            met = "met" if wanted[0] <= ratio <= wanted[1] else "missed"
            verdict = f"{wanted[0]:g} to {wanted[1]:g}: {met}"
        lines.append(f"| {label} | {ours[name]:.4g} | {data[name]:.4g} | {ratio:.2f} | {verdict} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
