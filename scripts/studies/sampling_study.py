"""Which temperature and top-p make continuations most like the true ones: a table, and a winner.

    python scripts/studies/sampling_study.py --checkpoint piano --data data/maestro
    python scripts/studies/sampling_study.py --temperatures 1 --top-ps 0.9 1 --primers 30

Every primer is the last 10 s before a place in a validation piece; what follows it in the piece is
the true continuation. Each setting continues each primer once, all settings side by side in one
batch (one primer, many settings: the window is shared, so this is about three times as fast as one
after the other). Continuation and truth are described by the numbers of `MEASURES`, notes that
sound at the join included.

**Distance.** For each number: the mean over primers of (sample - truth), divided by the standard
deviation of the truth over primers, absolute. The distance of a setting is the mean of these over
the numbers, a histogram counting as one. 0: the samples are like the data on average; 1: they are
off by one standard deviation of the data on average. Its standard error is that of a bootstrap over
primers; all settings continue the same primers, so differences between rows are surer than that.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from describe_music import describe
from tqdm import tqdm

from music_transformer.checkpoint import load_checkpoint
from music_transformer.datasets import PreparedData
from music_transformer.errors import MidiError, MusicTransformerError
from music_transformer.generation import Settings
from music_transformer.generation.continuation import Continuation
from music_transformer.generation.degeneration import degeneracies
from music_transformer.generation.loop import SampleSpec
from music_transformer.notes import NoteSequence
from music_transformer.sampling import DEFAULT_SAMPLING

FloatArray = npt.NDArray[np.float64]

#: Number of `describe`, and its heading in the table.
MEASURES: tuple[tuple[str, str], ...] = (
    ("notes_per_second", "notes/s"),
    ("polyphony_mean", "polyphony"),
    ("note_seconds_mean", "note s"),
    ("pitch_range", "range"),
    ("pitch_class_entropy_bits", "pitch-class bits"),
    ("inter_onset_share", "inter-onset"),
    ("velocity_mean", "velocity"),
    ("velocity_sd", "velocity sd"),
    ("repeated_ngram_share", "repeated 8-grams"),
    ("repeated_chord_ratio", "repeated chords"),
    ("longest_run_notes", "longest run"),
)
_SHOWN = ("inter_onset_share",)  # a histogram: shown as its total variation from the truth
_BOOTSTRAPS = 500


@dataclass(frozen=True)
class Excerpt:
    """A primer and how its piece goes on."""

    name: str
    primer: NoteSequence
    truth: dict[str, float | list[float]]


def main() -> int:
    """Draw, describe, compare, print."""
    args = _arguments()
    torch.set_num_threads(1)
    try:
        session = load_checkpoint(args.checkpoint, device=args.device)
        data = PreparedData.open(args.data)
        kinds = _settings(args)
    except MusicTransformerError as error:
        print(error, file=sys.stderr)
        return error.exit_code if hasattr(error, "exit_code") else 3
    planned = list(_excerpts(data, args))
    excerpts: list[Excerpt] = []
    latest = time.monotonic() + 60 * args.minutes
    found: dict[str, list[dict[str, float | list[float]]]] = {name: [] for name in kinds}
    stuck = dict.fromkeys(kinds, 0)
    closed = dict.fromkeys(kinds, 0)
    for excerpt in tqdm(planned, unit="primer"):
        if excerpts and time.monotonic() > latest:
            break
        excerpts.append(excerpt)
        specs = [SampleSpec(one) for one in kinds.values()]
        run = Continuation(session, excerpt.primer, specs)
        for _ in run.ids():
            pass
        for name, generation in zip(kinds, run.generations(), strict=True):
            found[name].append(_described(generation.notes, generation.report.primer_seconds, args))
            stuck[name] += bool(degeneracies(generation.continuation))
            closed[name] += generation.report.long_notes_closed
        if args.out is not None:  # a study that is interrupted leaves what it has
            _write(args.out, args, _table(found, excerpts, stuck, closed))
    print(_markdown(_table(found, excerpts, stuck, closed), args, len(excerpts)))
    return 0


def _table(
    found: dict[str, list[dict[str, float | list[float]]]],
    excerpts: Sequence[Excerpt],
    stuck: dict[str, int],
    closed: dict[str, int],
) -> list[dict[str, Any]]:
    """A row for the data and one for each setting, the nearest first."""
    table = [_row("the data", [one.truth for one in excerpts], excerpts)]
    for name, described in found.items():
        row = _row(name, described, excerpts)
        table.append(row | {"degenerate": stuck[name], "closed": closed[name]})
    table[1:] = sorted(table[1:], key=lambda row: float(row["distance"]))
    return table


def _write(path: Path, args: argparse.Namespace, table: list[dict[str, Any]]) -> None:
    """The arguments and the rows as JSON."""
    about = {key: str(value) for key, value in vars(args).items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"arguments": about, "rows": table}, indent=2) + "\n")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--checkpoint", default="piano", help="(%(default)s)")
    parser.add_argument("--data", default="data/maestro", help="prepared data (%(default)s)")
    parser.add_argument("--split", default="validation", help="(%(default)s)")
    parser.add_argument("--primers", type=int, default=10, help="(%(default)s)")
    parser.add_argument("--primer-seconds", type=float, default=10.0)
    parser.add_argument("--seconds", type=float, default=30.0, help="of each continuation")
    parser.add_argument("--temperatures", type=float, nargs="+", default=[0.9, 0.95, 1.0])
    parser.add_argument("--top-ps", type=float, nargs="+", default=[0.9, 0.95, 0.98, 1.0])
    parser.add_argument("--min-ps", type=float, nargs="+", default=[0.0])
    parser.add_argument(
        "--hold-seconds", type=float, nargs="+", default=[float("inf")], help="inf: not held"
    )
    parser.add_argument(
        "--max-note-seconds", type=float, nargs="+", default=[DEFAULT_SAMPLING.max_note_seconds]
    )
    parser.add_argument(
        "--also",
        nargs="+",
        default=[],
        metavar="T,TOP_P,MIN_P,HOLD,MAX",
        help="single settings beside the grid",
    )
    parser.add_argument(
        "--minutes", type=float, default=math.inf, help="begin no primer after so long"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, help="the numbers as JSON")
    return parser.parse_args()


def _settings(args: argparse.Namespace) -> dict[str, Settings]:
    """The settings by the name of their row."""
    grid = [
        (temperature, top_p, min_p, hold, longest)
        for temperature in args.temperatures
        for top_p in args.top_ps
        for min_p in args.min_ps
        for hold in args.hold_seconds
        for longest in args.max_note_seconds
    ]
    for text in args.also:
        temperature, top_p, min_p, hold, longest = (float(part) for part in text.split(","))
        grid.append((temperature, top_p, min_p, hold, longest))
    return {
        f"{temperature:g} | {top_p:g} | {min_p:g} | {hold:g} | {longest:g}": Settings(
            seconds=args.seconds,
            temperature=temperature,
            top_p=top_p,
            min_p=min_p,
            hold_seconds=hold,
            max_note_seconds=longest,
            seed=args.seed,
        )
        for temperature, top_p, min_p, hold, longest in grid
    }


def _excerpts(data: PreparedData, args: argparse.Namespace) -> list[Excerpt]:
    """As many excerpts as asked for, from pieces spread evenly over the split, at drawn places."""
    pieces, names = data.pieces(args.split), data.names(args.split)
    rng = np.random.default_rng(args.seed)
    needed = args.primer_seconds + args.seconds
    order = (np.arange(args.primers) * len(pieces) / args.primers).astype(int) % len(pieces)
    rng.shuffle(order)  # so that a study cut short has primers from everywhere
    excerpts = []
    for index in order.tolist():
        notes = data.tokenizer.decode(pieces[index][1:-1].tolist())
        first = rng.uniform(0.0, max(notes.end_time - needed, 0.0))
        cut = first + args.primer_seconds
        try:
            primer = notes.sliced(first, cut)
            truth = _described(notes, cut, args)
        except MidiError:
            continue
        if len(primer) and notes.end_time >= needed:
            excerpts.append(Excerpt(names[index], primer, truth))
    return excerpts


def _described(
    notes: NoteSequence, cut: float, args: argparse.Namespace
) -> dict[str, float | list[float]]:
    """The numbers of the continuation: what sounds from the cut on."""
    described = describe(notes.sliced(cut, cut + args.seconds))
    low, high = described["pitch_lowest"], described["pitch_highest"]
    assert isinstance(low, float)
    assert isinstance(high, float)
    return {**described, "pitch_range": high - low}


def _row(
    name: str, described: Sequence[dict[str, float | list[float]]], excerpts: Sequence[Excerpt]
) -> dict[str, Any]:
    """Means, distance and its standard error."""
    truths = [one.truth for one in excerpts]
    both = {
        measure: (_column(described, measure), _column(truths, measure)) for measure, _ in MEASURES
    }
    everyone = np.arange(len(excerpts))
    rng = np.random.default_rng(0)
    again = [_distance(both, rng.choice(everyone, len(everyone))) for _ in range(_BOOTSTRAPS)]
    means: dict[str, float] = {}
    for measure, (ours, theirs) in both.items():
        means[measure] = float(ours.mean())
        if measure in _SHOWN:
            means[measure] = float(np.abs(ours.mean(axis=0) - theirs.mean(axis=0)).sum() / 2)
    return {
        "name": name,
        **means,
        "distance": _distance(both, everyone),
        "error": float(np.std(again)),
        "parts": {measure: _part(*columns, everyone) for measure, columns in both.items()},
    }


def _column(described: Sequence[dict[str, float | list[float]]], measure: str) -> FloatArray:
    """(N, bins): a number has one bin."""
    return np.array([np.atleast_1d(one[measure]) for one in described], np.float64)


def _part(ours: FloatArray, theirs: FloatArray, chosen: npt.NDArray[np.int64]) -> float:
    """Mean over bins of the absolute mean difference in standard deviations of the truth.

    The difference is that of the excerpts chosen, the standard deviation that of all. A bin in
    which all truths are alike counts for nothing.
    """
    spread = theirs.std(axis=0)
    counted = spread > 0
    off = np.abs((ours - theirs)[chosen].mean(axis=0))
    return float((off[counted] / spread[counted]).sum() / max(int(counted.sum()), 1))


def _distance(
    both: dict[str, tuple[FloatArray, FloatArray]], chosen: npt.NDArray[np.int64]
) -> float:
    """Mean of the parts over the measures, for the excerpts chosen."""
    return float(np.mean([_part(ours, theirs, chosen) for ours, theirs in both.values()]))


def _markdown(table: list[dict[str, Any]], args: argparse.Namespace, primers: int) -> str:
    """The table for docs/piano.md."""
    headings = ["temperature", "top-p", "min-p", "hold s", "longest s", "distance"]
    headings += [heading for _, heading in MEASURES] + ["degenerate", "notes closed"]
    lines = [
        f"{primers} primers of {args.primer_seconds:g} s, continuations of {args.seconds:g} s, "
        f"{args.checkpoint}, {args.split} of {args.data}, seed {args.seed}",
        "",
        "| " + " | ".join(headings) + " |",
        "| --- " * len(headings) + "|",
    ]
    for row in table:
        name = row["name"] if "|" in row["name"] else f"{row['name']} | | | | "
        cells = [name, f"{row['distance']:.3f} ± {row['error']:.3f}"]
        cells += [f"{row[measure]:.3g}" for measure, _ in MEASURES]
        cells += [str(row.get("degenerate", "")), str(row.get("closed", ""))]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
