"""What wishes bring, and what they cost in likelihood; which pairs make a calm and a bold piano.

    python scripts/studies/wishes.py --checkpoint piano --data data/maestro

Primers are places of validation performances and the shipped motifs. Every wish continues every
primer once, one candidate, all of a primer side by side, closeness as by default. The cost is the
mean negative log-likelihood of the events under the model alone, in nats, beside that of the
continuations without a wish. Pairs of temperature and top-p are judged by how many continuations
degenerate and by `seam_distance`.
"""

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from music_transformer.checkpoint import load_checkpoint
from music_transformer.datasets import PreparedData
from music_transformer.generation import Generation, Settings
from music_transformer.generation.continuation import Continuation
from music_transformer.generation.loop import SampleSpec
from music_transformer.generation.steering import key_of
from music_transformer.midi import read_midi
from music_transformer.motifs import find_motifs
from music_transformer.sampling import SCALES, read_key

Measure = Callable[[Generation, list[int]], Any]


def in_key(made: Generation, motif: list[int]) -> float:
    """Share of the notes in the motif's key."""
    return _share_in(made, *key_of(motif))


def in_foreign_key(made: Generation, _: list[int]) -> float:
    """Share of the notes in F# minor, whatever the motif's key is."""
    return _share_in(made, *read_key("F# minor"))


def _share_in(made: Generation, tonic: int, mode: str) -> float:
    return float(np.isin((made.continuation.pitch - tonic) % 12, SCALES[mode]).mean())


def pace(made: Generation, motif: list[int]) -> float:
    """Notes a second, in those of the motif."""
    before = made.notes.sliced(0, made.report.primer_seconds)
    given = len(before) / max(made.report.primer_seconds, 0.1)
    return len(made.continuation) / made.report.seconds / given


def at_a_time(made: Generation, motif: list[int]) -> int:
    """The most composed notes that sound together."""
    notes = made.continuation
    edges = np.concatenate([notes.start, notes.end])
    steps = np.repeat([1, -1], len(notes))
    return int(steps[np.lexsort((steps, edges))].cumsum().max(initial=0))


PITCHES: dict[str, Measure] = {
    "lowest": lambda made, _: int(made.continuation.pitch.min()),
    "highest": lambda made, _: int(made.continuation.pitch.max()),
}
VELOCITY: dict[str, Measure] = {
    "velocity": lambda made, _: float(made.continuation.velocity.mean())
}
WISHES: dict[str, tuple[dict[str, Any], dict[str, Measure]]] = {
    "--key motif": ({"key": "motif"}, {"share in the key": in_key}),
    "--key 'F# minor'": ({"key": "F# minor"}, {"share in F# minor": in_foreign_key}),
    "--low C3 --high C5": ({"low": "C3", "high": "C5"}, PITCHES),
    "--pace 0.5": ({"pace": 0.5}, {"pace": pace}),
    "--pace 1": ({"pace": 1.0}, {"pace": pace}),
    "--pace 2": ({"pace": 2.0}, {"pace": pace}),
    "--loudness pp": ({"loudness": "pp"}, VELOCITY),
    "--loudness ff": ({"loudness": "ff"}, VELOCITY),
    "--voices 1": ({"voices": 1}, {"notes at a time": at_a_time}),
    "--voices 2": ({"voices": 2}, {"notes at a time": at_a_time}),
    "--voices 4": ({"voices": 4}, {"notes at a time": at_a_time}),
}
PAIRS = ((0.8, 0.95), (0.9, 0.9), (1, 0.9), (1, 1), (1.1, 0.98), (1.2, 0.95))


def main() -> int:
    """Draw, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--checkpoint", default="piano")
    parser.add_argument("--data", type=Path, default=Path("data/maestro"))
    parser.add_argument("--primers", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="the numbers as JSON")
    args = parser.parse_args()
    torch.set_num_threads(1)
    session = load_checkpoint(args.checkpoint, device="cpu")
    asked: dict[str, dict[str, Any]] = {"free": {}} | {
        name: said for name, (said, _) in WISHES.items()
    }
    asked |= {f"{t:g}, {p:g}": {"temperature": t, "top_p": p} for t, p in PAIRS}
    common = {"seconds": args.seconds, "seed": args.seed}
    specs = [SampleSpec(Settings(**common, **said)) for said in asked.values()]
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in asked}
    for primer in tqdm(_primers(PreparedData.open(args.data), args)):
        run = Continuation(session, primer, specs)
        for _ in run.ids():
            pass
        for name, made in zip(asked, run.generations(), strict=True):
            measures = WISHES[name][1] if name in WISHES else _ALL
            rows[name].append(_judged(made, measures))
        if args.out is not None:  # a study that is interrupted leaves what it has
            args.out.write_text(json.dumps(rows, indent=1))
    print(_table(rows))
    return 0


_ALL = {name: measure for _, measures in WISHES.values() for name, measure in measures.items()}


def _judged(made: Generation, measures: dict[str, Measure]) -> dict[str, Any]:
    report = made.report
    found = (
        {name: measure(made, made.primer_ids) for name, measure in measures.items()}
        if len(made.continuation)
        else {}
    )
    remote = report.seam_distance
    return {"nll": report.nll, "broken": list(report.broken_rules), "distance": remote, **found}


def _primers(data: PreparedData, args: argparse.Namespace) -> list[Any]:
    """Ten seconds of events of validation performances, then the motifs."""
    pieces = data.pieces("validation")
    random = np.random.default_rng(args.seed)
    found: list[Any] = []
    for index in np.linspace(0, len(pieces) - 1, args.primers).astype(int):
        notes = data.tokenizer.decode(pieces[index][1:-1].astype(np.int64))
        at = float(random.choice(notes.start[notes.start < max(notes.end_time - 30, 1)]))
        piece = notes.sliced(at, at + 30)
        found.append(data.tokenizer.split_opening(piece, seconds=10, events=1)[0])
    found += [read_midi(path) for path in find_motifs().values()]
    random.shuffle(found)
    return found


def _table(rows: dict[str, list[dict[str, Any]]]) -> str:
    lines = ["| asked | came: median (lowest to highest) | free | nats | distance | degenerate |"]
    lines.append("| --- | --- | --- | --- | --- | --- |")
    for name, judged in rows.items():
        measures = [one for one in _ALL if name in WISHES and one in judged[0]]
        came, free = (
            "; ".join(
                f"{one} {_spread([row[one] for row in table if one in row])}" for one in measures
            )
            for table in (judged, rows["free"])
        )
        nll, distance = (
            np.mean([row[key] for row in judged if row[key] is not None])
            for key in ("nll", "distance")
        )
        broken = sum(bool(row["broken"]) for row in judged)
        lines.append(
            f"| {name} | {came} | {free} | {nll:.2f} | {distance:.2f} | {broken} of {len(judged)} |"
        )
    return "\n".join(lines)


def _spread(values: list[float]) -> str:
    return f"{np.median(values):.3g} ({min(values):.3g} to {max(values):.3g})"


if __name__ == "__main__":
    sys.exit(main())
