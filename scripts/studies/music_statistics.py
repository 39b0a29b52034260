"""What music is like in numbers: of MIDI files, of prepared data, or of both side by side.

    python scripts/studies/music_statistics.py out/continuation.mid
    python scripts/studies/music_statistics.py a.mid b.mid c.mid --seconds 30 --json
    python scripts/studies/music_statistics.py --data data/jsb --split validation
    python scripts/studies/music_statistics.py chorale.mid --chorale --data data/jsb --split train

Several pieces give mean and standard deviation. Files and `--data` together are printed side by
side, with the distance of their pitch classes; parallels are then counted over all pair-motions
together.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from describe_music import average, beside, describe, describe_chorale
from tqdm import tqdm

from music_transformer.checkpoint.hub import find_checkpoint
from music_transformer.cli.main import exit_code
from music_transformer.cli.output import naming, print_json, warn
from music_transformer.datasets import PreparedData
from music_transformer.errors import CheckpointError, ConfigError
from music_transformer.evaluation.memorisation import MemorisationIndex, find_index
from music_transformer.midi import read_midi
from music_transformer.notes import NoteSequence
from music_transformer.representations import ChoraleTokenizer
from music_transformer.representations.base import DEFAULT_SECONDS_PER_BEAT
from music_transformer.representations.chorale.grid import SIXTEENTHS_PER_BEAT
from music_transformer.representations.ids import Ints

Numbers = dict[str, float | list[float]]


def main(argv: Sequence[str] | None = None) -> int:
    """Describe every piece, average, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("files", nargs="*", metavar="FILE.mid")
    parser.add_argument("--chorale", action="store_true", help="read the files as four voices")
    parser.add_argument("--data", help="folder made by `prepare`, in place of files or beside them")
    parser.add_argument("--split", default="validation", help="of --data (default: %(default)s)")
    parser.add_argument("--pieces", type=int, help="so many of them, evenly spread (default: all)")
    parser.add_argument("--seconds", type=float, help="of each piece from its first note on")
    parser.add_argument(
        "--checkpoint", help="also the longest run of notes that its training data have"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    args = parser.parse_args(argv)
    if not args.files and args.data is None:
        raise ConfigError("give MIDI files, or --data, or both.")
    if args.checkpoint is not None and not args.files:
        raise ConfigError("--checkpoint looks for notes of MIDI files: give some.")
    for name in ("pieces", "seconds"):
        value = getattr(args, name)
        if value is not None and not 0 < value < math.inf:
            raise ConfigError(f"--{name} {value}: choose a number above 0.")
    if args.files and args.data is not None:
        _print_beside(args)
        return 0
    described = _describe_data(args) if args.data is not None else _describe_files(args)
    summary = average([numbers for _, numbers in described])
    if args.json:
        each = [{"name": name, **numbers} for name, numbers in described]
        print_json({"pieces": len(described), **summary, "each": each})
    else:
        print(_table([name for name, _ in described], summary["mean"], summary["sd"]))
    return 0


def _print_beside(args: argparse.Namespace) -> None:
    """Files beside data of their kind."""
    tokenizer = PreparedData.open(args.data).tokenizer
    if bool(tokenizer.voices) != args.chorale:
        mend = "add --chorale" if tokenizer.voices else "leave --chorale out"
        raise ConfigError(
            f"{args.data} holds a {tokenizer.kind} each: {mend}, to read the files like it."
        )
    described, data = _describe_files(args), _describe_data(args)
    names = [name for name, _ in described]
    sides = beside([numbers for _, numbers in described], [numbers for _, numbers in data])
    if args.json:
        each = [{"name": name, **numbers} for name, numbers in described]
        print_json({**sides, "each": each})
        return
    title = names[0] if len(names) == 1 else f"{len(names)} files"
    print(_beside_table(sides, title, f"{args.split} of {args.data}"))


def _beside_table(sides: dict[str, Any], title: str, data_title: str) -> str:
    """A line per number: its mean in the pieces and in the data, and the one over the other."""
    means, reference = sides["mean"], sides["data"]["mean"]
    lines = [f"{title} beside {data_title} ({sides['data']['pieces']} pieces)"]
    lines.append(f"  {'':<28}{'here':>12}{'data':>12}{'ratio':>9}")
    for name, value in means.items():
        if name not in reference:
            continue
        if isinstance(value, list):
            for label, parts in (("", value), ("  of the data", reference[name])):
                shares = " ".join(f"{part:.3f}" for part in parts)
                lines.append(f"  {label or name:<28}{shares}")
            continue
        ratio = f"{value / reference[name]:9.2f}" if reference[name] else " " * 9
        lines.append(f"  {name:<28}{value:12.4g}{reference[name]:12.4g}{ratio}".rstrip())
    return "\n".join(lines)


def _describe_files(args: argparse.Namespace) -> list[tuple[str, Numbers]]:
    chorale = ChoraleTokenizer()
    index = _index(args)
    described = []
    for path in args.files:
        notes = read_midi(path)
        for problem, count in notes.warnings.items():
            warn(f"{path}: {problem} ({count}x)")
        with naming(path):
            if args.chorale:
                beat = chorale.seconds_per_beat(notes)
                grid = chorale.decode_grid(chorale.encode(notes))
                numbers = _describe_grid(grid, beat, args.seconds)
            else:
                numbers = _describe_notes(notes, args.seconds)
        if index is not None:
            numbers["longest_known_run_notes"] = float(index.longest_run(notes).notes)
        described.append((path, numbers))
    return described


def _index(args: argparse.Namespace) -> MemorisationIndex | None:
    """What the training data of `--checkpoint` are known by."""
    if args.checkpoint is None:
        return None
    folder = find_checkpoint(args.checkpoint)
    if (index := find_index(folder)) is None:
        raise CheckpointError(
            f"{folder} has no index of its training data; scripts/release/memorization_index.py "
            "builds one."
        )
    return index


def _describe_data(args: argparse.Namespace) -> list[tuple[str, Numbers]]:
    data = PreparedData.open(args.data)
    pieces, names = data.pieces(args.split), data.names(args.split)
    count = min(args.pieces or len(pieces), len(pieces))
    chosen = (np.arange(count) * len(pieces) / count).astype(int).tolist()
    described = []
    for i in tqdm(chosen, unit="piece", leave=False, disable=None):
        ids = pieces[i][1:-1]
        grid = data.tokenizer.decode_grid(ids)
        if grid is not None:
            numbers = _describe_grid(grid, DEFAULT_SECONDS_PER_BEAT, args.seconds)
        else:
            numbers = _describe_notes(data.tokenizer.decode(ids), args.seconds)
        described.append((names[i], numbers))
    return described


def _describe_notes(notes: NoteSequence, seconds: float | None) -> Numbers:
    if seconds is not None and len(notes):
        first = float(notes.start.min())
        notes = notes.sustained().sliced(first, first + seconds)
    return describe(notes)


def _describe_grid(grid: Ints, seconds_per_beat: float, seconds: float | None) -> Numbers:
    """Statistics of a grid (T, 4), or of its first `seconds`, whole sixteenths."""
    if seconds is not None:
        grid = grid[: max(1, round(seconds / seconds_per_beat * SIXTEENTHS_PER_BEAT))]
    return describe_chorale(grid)


def _table(names: list[str], mean: Numbers, sd: Numbers) -> str:
    """A line per number; lists (pitch classes, inter-onset bins) on one line."""
    title = names[0] if len(names) == 1 else f"{len(names)} pieces: mean, standard deviation"
    lines = [title]
    for name, value in mean.items():
        if isinstance(value, list):
            shown = " ".join(f"{part:.3f}" for part in value)
        else:
            shown = f"{value:12.4g}" + (f" {sd[name]:12.4g}" if len(names) > 1 else "")
        lines.append(f"  {name:<28}{shown}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(exit_code(main))
