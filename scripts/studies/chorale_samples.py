"""What a chorale model composes, in numbers beside the data's: what its NLL hides.

    python scripts/studies/chorale_samples.py --checkpoint bach --data data/jsb
    python scripts/studies/chorale_samples.py --checkpoint bach --first-chord --out out/many
    python scripts/studies/chorale_samples.py --checkpoint bach --temperature 1 0.9 --parallels 1 0

Samples are drawn from nothing, or with `--first-chord` after the first chord of a chorale, one for
each batch, spread evenly over the split; each is as long as `--bars` says. Parallels are counted
over the pair-motions of all samples together, the other numbers are means over pieces. The table is
Markdown, ready for docs/chorales.md; `--out` keeps the MIDI files and statistics.json.

Temperature, top-p and parallels (the factor of the rule at sampling time, 1 for none) may have
several values: every combination is drawn, all side by side in one batch, and the table has one row
for each. Without the flags, temperature and filters are what the checkpoint says, as in `generate`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from describe_music import beside, describe_chorale
from tqdm import tqdm

from music_transformer.checkpoint import Session, load_checkpoint
from music_transformer.datasets import PreparedData
from music_transformer.errors import MusicTransformerError
from music_transformer.generation import Settings
from music_transformer.generation.continuation import Continuation
from music_transformer.generation.loop import SampleSpec
from music_transformer.representations import ChoraleTokenizer

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

#: What a table of several settings shows, a column for each.
COLUMNS = (
    ("parallel_fifths", "fifths"),
    ("parallel_octaves", "octaves"),
    ("repeated_beat_ratio", "repeated chords"),
    ("moves_per_beat", "moves"),
    ("crossing_share", "crossed"),
    ("pitch_class_distance", "pitch classes"),
)


def main() -> int:
    """Draw, describe, print."""
    args = _arguments()
    try:
        kinds = [
            Settings(
                events=args.bars * SIXTEENTHS_PER_BAR * N_VOICES,
                temperature=temperature,
                top_k=args.top_k,
                top_p=top_p,
                min_p=args.min_p,
                parallels=parallels,
                seed=args.seed,
            )
            for temperature, top_p, parallels in product(
                args.temperature, args.top_p, args.parallels
            )
        ]
        session = load_checkpoint(args.checkpoint, device=args.device)
        data = PreparedData.open(args.data)
    except MusicTransformerError as error:
        sys.exit(str(error))
    if {session.tokenizer.kind, data.tokenizer.kind} != {"chorale"}:
        sys.exit("both --checkpoint and --data must be of chorales.")
    tokenizer = ChoraleTokenizer()
    grids = [tokenizer.decode_grid(piece[1:-1]) for piece in data.pieces(args.split)]
    chorales = [describe_chorale(grid) for grid in grids]
    samples: list[list[list[int]]] = [[] for _ in kinds]
    for kind, ids in _samples(session, grids, kinds, args):
        samples[kind].append(ids)
    results = []
    for settings, drawn in zip(kinds, samples, strict=True):
        found = beside([describe_chorale(tokenizer.decode_grid(ids)) for ids in drawn], chorales)
        found["settings"] = {
            name: value
            for name, value in asdict(settings.or_else(session.sampling).resolved()).items()
            if name in ("temperature", "top_k", "top_p", "min_p", "parallels", "seed")
        }
        results.append(found)
    if args.out is not None:
        _write(args, session, samples, results)
    print(_heading(session, results, args))
    print(_table(results[0]) if len(results) == 1 else _comparison(results))
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--checkpoint", required=True, help="a chorale model's name or folder")
    parser.add_argument("--data", default="data/jsb", help="prepared chorales (%(default)s)")
    parser.add_argument("--split", default="train", help="to stand beside (%(default)s)")
    parser.add_argument("--samples", type=int, default=100, help="of each setting (%(default)s)")
    parser.add_argument("--bars", type=int, default=15, help="of each (15 is the data's mean)")
    parser.add_argument("--first-chord", action="store_true", help="begin with chords of the data")
    parser.add_argument(
        "--batch-size", type=int, default=25, help="of each setting, drawn at a time (%(default)s)"
    )
    parser.add_argument("--temperature", type=float, nargs="+", default=[None])
    parser.add_argument("--top-k", type=int)
    parser.add_argument("--top-p", type=float, nargs="+", default=[None])
    parser.add_argument("--min-p", type=float)
    parser.add_argument("--parallels", type=float, nargs="+", default=[None])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, help="folder for the MIDI files and statistics.json")
    args = parser.parse_args()
    for name in ("samples", "bars", "batch_size"):
        if getattr(args, name) < 1:
            parser.error(f"--{name.replace('_', '-')} {getattr(args, name)}: choose 1 or more.")
    return args


def _samples(
    session: Session, grids: list[np.ndarray], kinds: list[Settings], args: argparse.Namespace
) -> Iterator[tuple[int, list[int]]]:
    """Number of the setting and ids of every sample; sample i has the generator (seed, i)."""
    firsts = range(0, args.samples, args.batch_size)
    events = args.samples * args.bars * SIXTEENTHS_PER_BAR * N_VOICES * len(kinds)
    with tqdm(total=events, unit="event", leave=False, mininterval=2) as bar:
        for batch, first in enumerate(firsts):
            numbers = range(first, min(first + args.batch_size, args.samples))
            primer = None
            if args.first_chord:
                grid = grids[batch * len(grids) // len(firsts)]
                chord = int(np.argmax((grid >= 0).all(axis=1)))
                primer = ChoraleTokenizer().encode_grid(grid[chord : chord + 1])
            specs = [SampleSpec(kind, number) for kind in kinds for number in numbers]
            run = Continuation(session, primer, specs)
            for _ in run.ids():
                bar.update()
            for row, generation in enumerate(run.generations()):
                yield row // len(numbers), generation.ids


def _write(
    args: argparse.Namespace,
    session: Session,
    samples: list[list[list[int]]],
    results: list[dict[str, Any]],
) -> None:
    """The MIDI files of each setting, in a folder of its own if there are several, and numbers."""
    from music_transformer.midi import write_midi

    for settings, drawn in zip((found["settings"] for found in results), samples, strict=True):
        folder = args.out
        if len(results) > 1:
            folder /= "t{temperature:g}-p{top_p:g}-parallels{parallels:g}".format(**settings)
        folder.mkdir(parents=True, exist_ok=True)
        for number, ids in enumerate(drawn):
            write_midi(session.tokenizer.decode(ids), folder / f"sample-{number:03d}.mid")
    about = {"path": str(session.path), "step": session.training.get("step")}
    found = {"checkpoint": about, "bars": args.bars, "split": args.split, "results": results}
    (args.out / "statistics.json").write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


def _heading(session: Session, results: list[dict[str, Any]], args: argparse.Namespace) -> str:
    found = results[0]
    text = f"{found['pieces']} samples of {session.path.name}"
    if len(results) == 1:
        settings = "temperature {temperature:g}, top-p {top_p:g}, parallels {parallels:g}"
        text += ", " + settings.format(**found["settings"])
    else:
        text += " for each setting"
    pieces = found["data"]["pieces"]
    return f"{text}, seed {args.seed}, beside the {pieces} chorales of {args.split}:\n"


def _verdict(ours: dict[str, float], data: dict[str, float], name: str) -> str:
    """The ratio to the data's that is wanted of a number, and whether it is so; often nothing."""
    wanted = {row[0]: row[2] for row in ROWS}.get(name)
    if wanted is None:
        return ""
    ratio = ours[name] / data[name] if data[name] else float("nan")
    return "met" if wanted[0] <= ratio <= wanted[1] else "missed"


def _table(found: dict[str, Any]) -> str:
    """Markdown: the samples, the data, the one over the other, and whether that is as wanted."""
    lines = ["| | samples | data | ratio | wanted |", "| --- | --- | --- | --- | --- |"]
    ours, data = found["mean"], found["data"]["mean"]
    for name, label, wanted in ROWS:
        if name not in ours or name not in data:
            continue
        ratio = ours[name] / data[name] if data[name] else float("nan")
        verdict = _verdict(ours, data, name)
        if wanted is not None:
            verdict = f"{wanted[0]:g} to {wanted[1]:g}: {verdict}"
        lines.append(f"| {label} | {ours[name]:.4g} | {data[name]:.4g} | {ratio:.2f} | {verdict} |")
    return "\n".join(lines)


def _comparison(results: list[dict[str, Any]]) -> str:
    """Markdown: a row for each setting, a last one for the data; all three wanted, or which not."""
    lines = [
        "| temperature | top-p | parallels | "
        + " | ".join(label for _, label in COLUMNS)
        + " | as wanted |",
        "| --- " * (len(COLUMNS) + 4) + "|",
    ]
    for found in results:
        ours, data = found["mean"], found["data"]["mean"]
        missed = [label for name, label in COLUMNS if _verdict(ours, data, name) == "missed"]
        cells = [f"{found['settings'][name]:g}" for name in ("temperature", "top_p", "parallels")]
        cells += [f"{ours[name]:.4g}" for name, _ in COLUMNS]
        cells.append("not " + ", ".join(missed) if missed else "all")
        lines.append(f"| {' | '.join(cells)} |")
    data = results[0]["data"]["mean"]
    cells = ["data", "", "", *(f"{data[name]:.4g}" for name, _ in COLUMNS), ""]
    lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
