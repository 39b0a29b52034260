"""How well a model goes on from real primers, beside what the pianists really played.

    python scripts/studies/seam.py --checkpoint piano --data data/maestro
    python scripts/studies/seam.py --data data/maestro --plain --primers 48 --json
    python scripts/studies/seam.py --checkpoint piano --data data/maestro --top-p 0.9

Primers are drawn from the pieces of a split, as they are or, with `--plain`, made plain as the
motifs of users are (one line or a few chords, on a grid, without pedal). Nine measures say how far
the continuation is from its primer: the model's, the true one, and another piece's. `drift` is the
geometric mean of model over truth, with a bootstrap interval of 95 %: 1 is as near as the pianists
stay. It chooses how `generate` draws, as NLL chooses weights.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from tqdm import tqdm

from music_transformer.checkpoint import load_checkpoint
from music_transformer.cli.main import exit_code
from music_transformer.cli.options import add_settings, settings_from
from music_transformer.cli.output import print_json
from music_transformer.datasets import PreparedData
from music_transformer.errors import ConfigError
from music_transformer.evaluation.seam import MEASURES, part, seam_distances
from music_transformer.generation import generate
from music_transformer.notes import NoteSequence
from music_transformer.representations.ids import Floats
from music_transformer.representations.performance.augment import made_plain
from music_transformer.sampling import CARE, CHOICE, DRAWN

RESAMPLES = 1000


class Place(NamedTuple):
    """A place in a piece: what the model is given, its notes, and what really follows."""

    given: NoteSequence | list[int]
    primer: NoteSequence
    truth: NoteSequence


def main(argv: Sequence[str] | None = None) -> int:
    """Draw primers, continue them, measure."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--checkpoint", default="piano", help="default: %(default)s")
    parser.add_argument("--data", required=True, help="performances made by `prepare`")
    parser.add_argument("--split", default="validation", help="default: %(default)s")
    parser.add_argument("--primers", type=int, default=24, help="default: %(default)s")
    parser.add_argument(
        "--primer-seconds", dest="before", type=float, default=10.0, help="default: %(default)s"
    )
    parser.add_argument("--seconds", type=float, default=15.0, help="default: %(default)s")
    parser.add_argument("--plain", action="store_true", help="primers made plain, as motifs are")
    add_settings(parser, (DRAWN, CARE, CHOICE))
    parser.add_argument("--device", default="auto")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    args = parser.parse_args(argv)
    session = load_checkpoint(args.checkpoint, device=args.device)
    data = PreparedData.open(args.data)
    places = places_of(
        data, args.split, args.primers, args.before, args.seconds, seed=args.seed, plain=args.plain
    )
    primers, truths = [one.primer for one in places], [one.truth for one in places]
    settings = settings_from(args)
    continued = []
    for index, one in enumerate(tqdm(places, desc="continuing", unit="primer")):
        result = generate(session, one.given, settings=settings, seed=args.seed + index, end="cut")
        continued.append(part(result.continuation, 0, args.seconds))
    sides = {
        "model": [seam_distances(p, c) for p, c in zip(primers, continued, strict=True)],
        "truth": [seam_distances(p, t) for p, t in zip(primers, truths, strict=True)],
        "another": [
            seam_distances(p, t) for p, t in zip(primers, truths[1:] + truths[:1], strict=True)
        ],
    }
    model, another = (drift(sides[name], sides["truth"]) for name in ("model", "another"))
    mean = {
        name: {m: float(np.nanmean([one[m] for one in side])) for m in MEASURES}
        for name, side in sides.items()
    }
    if args.json:
        found = {"drift": model.drift, "interval": model.interval, "by_measure": model.by_measure}
        print_json({**found, "another": another.drift, "mean": mean, "primers": len(primers)})
        return 0
    print(f"{'':14}{'truth':>9}{'model':>9}{'another':>9}{'model / truth':>15}")
    for name in MEASURES:
        row = "".join(f"{mean[side][name]:9.3f}" for side in ("truth", "model", "another"))
        print(f"{name:14}{row}{model.by_measure[name]:15.2f}")
    low, high = model.interval
    print(f"drift {model.drift:.3f} ({low:.2f} to {high:.2f}); another piece {another.drift:.2f}")
    return 0


@dataclass(frozen=True)
class Drift:
    """How far continuations are from their primers, over how far the true ones are."""

    drift: float  # geometric mean of `by_measure`; 1 is like the truth
    interval: tuple[float, float]  # of `drift`, 95 %, bootstrap over primers
    by_measure: dict[str, float]  # mean distance over mean distance of the truth


def drift(given: Sequence[Mapping[str, float]], truth: Sequence[Mapping[str, float]]) -> Drift:
    """`seam_distances` of continuations against those of the true ones, primer by primer.

    Primers with a distance that is NaN are left out.
    """
    both = np.array([[[one[n] for n in MEASURES] for one in side] for side in (given, truth)])
    both = both[:, ~np.isnan(both).any(axis=(0, 2))]  # (2, N, measures)
    count = both.shape[1]
    drawn = np.random.default_rng(0).integers(count, size=(RESAMPLES, count))
    ratios = _ratios(both)
    means = np.exp(np.log(_ratios(both[:, drawn])).mean(axis=-1))  # (resamples,)
    low, high = np.quantile(means, [0.025, 0.975])
    return Drift(
        float(np.exp(np.log(ratios).mean())),
        (float(low), float(high)),
        {name: float(ratio) for name, ratio in zip(MEASURES, ratios, strict=True)},
    )


def _ratios(both: Floats) -> Floats:
    """(2, ..., N, measures) -> (..., measures), mean over mean."""
    mean = np.maximum(both.mean(axis=-2), 1e-9)
    ratios: Floats = mean[0] / mean[1]
    return ratios


def places_of(
    data: PreparedData,
    split: str,
    count: int,
    before: float,
    after: float,
    *,
    seed: int = 0,
    plain: bool = False,
) -> list[Place]:
    """Places with so many seconds before and after them, spread over the pieces of a split.

    The model is given events, in which notes that sound at the seam are still open: a primer whose
    notes all end there would say that the music ends. A plain motif ends so, as those of users do.
    """
    pieces, random = data.pieces(split), np.random.default_rng(seed)
    found = []
    for index in np.linspace(0, len(pieces) - 1, count).astype(int):
        notes = data.tokenizer.decode(pieces[index][1:-1].astype(np.int64))
        latest = notes.end_time - before - after
        at = float(random.uniform(0, max(latest, 0)))
        at = float(notes.start[np.searchsorted(notes.start, at)])  # an onset
        primer, truth = part(notes, at, at + before), part(notes, at + before, at + before + after)
        if len(primer) <= 4 or len(truth) <= 4 or latest <= 0:
            continue
        if plain:
            primer = made_plain(primer, before, random)
            found.append(Place(primer, part(primer, 0, before), truth))
        else:
            piece = notes.sliced(at, at + before + after)
            ids = data.tokenizer.split_opening(piece, seconds=before, events=1)[0]
            found.append(Place(ids, primer, truth))
    if not found:
        raise ConfigError(f"{data.path}: no piece of {split} is long enough for a primer.")
    return found


if __name__ == "__main__":
    sys.exit(exit_code(main))
