"""What a model expects in the places of real pieces, beside what the pianists did: ends, or pace.

    python scripts/studies/along_real_music.py ends --checkpoint piano --windows 48
    python scripts/studies/along_real_music.py pace --checkpoint piano --windows 12

The model reads windows of real pieces; looked at are the events of the later three quarters, within
the grammar. Nothing is sampled.

**ends**: does a model end notes as often as pianists do? For every note that sounds, the
probability of its end is added up by the age of the note, and beside it the ends that really came.
A ratio of 1 is a calibrated model; below 1, notes of that age end too seldom, and a sample, which
has to live with its own notes, holds them. Two more columns: the same with a nucleus (`--top-p`),
and with `--hold-seconds`.

**pace**: what do temperature and top-p do to the pace of the music? The filtered distributions give
an expected number of notes begun and an expected time that passes; their ratio is the pace, notes
per second, that the filters would play at in the very places where the pianist played on. The
unlikely events that a filter leaves out are not alike: long rests are spread over a hundred
TIME_SHIFTs, each of them unlikely, so leaving them out quickens the music.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot
from tqdm import tqdm

from music_transformer.checkpoint import load_checkpoint
from music_transformer.datasets import PreparedData
from music_transformer.generation.processors import age_held_notes, apply_temperature, keep_top_p
from music_transformer.notes import STEPS_PER_SECOND
from music_transformer.representations.performance.grammar import PerformanceGrammar
from music_transformer.representations.performance.vocabulary import (
    MAX_SHIFT,
    N_PITCHES,
    NOTE_OFF,
    TIME_SHIFT,
    VELOCITY,
)

AGES = (0.0, 0.5, 1.0, 2.0, 3.0, 5.0, 8.0)  # seconds; the last is open
SHIFT_SECONDS = torch.arange(1, MAX_SHIFT + 1, dtype=torch.float64) / STEPS_PER_SECOND


@dataclass(frozen=True)
class Places:
    """The later three quarters of a window, N places between two events.

    Attributes:
        logits: (N, V) float64 of the event that follows, -inf where the grammar forbids it.
        came: (N, V) float64, 1 at the event that really followed.
        ages: (N, 128) steps that each pitch has sounded, -1 where it does not.
    """

    logits: Tensor
    came: Tensor
    ages: np.ndarray


def main() -> int:
    """Read, add up, print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    tables = parser.add_subparsers(required=True, metavar="ends|pace")
    ends = tables.add_parser("ends", help="how often notes end, by their age")
    _add_shared(ends, windows=48)
    ends.add_argument("--top-p", type=float, default=0.95, help="(%(default)s)")
    ends.add_argument("--hold-seconds", type=float, default=2.0, help="(%(default)s)")
    ends.set_defaults(table=_ends)
    pace = tables.add_parser("pace", help="notes per second, by temperature and top-p")
    _add_shared(pace, windows=12)
    pace.add_argument("--temperatures", type=float, nargs="+", default=[0.9, 0.95, 1.0])
    pace.add_argument("--top-ps", type=float, nargs="+", default=[0.9, 0.95, 0.98, 1.0])
    pace.set_defaults(table=_pace)
    args = parser.parse_args()
    torch.set_num_threads(1)
    args.table(args)
    return 0


def _add_shared(parser: argparse.ArgumentParser, windows: int) -> None:
    """Add the flags of both tables."""
    parser.add_argument("--checkpoint", default="piano", help="(%(default)s)")
    parser.add_argument("--data", default="data/maestro", help="prepared data (%(default)s)")
    parser.add_argument("--split", default="validation", help="(%(default)s)")
    parser.add_argument("--windows", type=int, default=windows, help="(%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the places drawn (%(default)s)")
    parser.add_argument("--device", default="cpu", help="(%(default)s)")


def _ends(args: argparse.Namespace) -> None:
    """Print the ends of notes that came, and those expected in three ways over them."""
    totals = np.zeros((4, len(AGES)))
    for places in _windows(args):
        logits = places.logits
        nucleus = keep_top_p(logits, args.top_p)
        held = age_held_notes(logits, places.ages, [args.hold_seconds] * len(logits))
        expected = [one.softmax(dim=-1) for one in (logits, nucleus, held)]
        bins = np.searchsorted(AGES, places.ages / STEPS_PER_SECOND, side="right") - 1  # (N, 128)
        sounds = bins >= 0
        for total, events in zip(totals, [places.came, *expected], strict=True):
            ends = events[:, NOTE_OFF:TIME_SHIFT].numpy()  # (N, 128)
            total += np.bincount(bins[sounds], weights=ends[sounds], minlength=len(AGES))
    print(
        f"| age of the note | ends, really | model | top-p {args.top_p:g} "
        f"| hold {args.hold_seconds:g} s |"
    )
    print("| --- " * 5 + "|")
    for age, (real, *others) in zip(AGES, totals.T, strict=True):
        ratios = " | ".join(f"{other / real:.2f}" if real else "" for other in others)
        print(f"| from {age:g} s | {real:.0f} | {ratios} |")


def _pace(args: argparse.Namespace) -> None:
    """Print the pace of every temperature with every top-p, and that of the pianists."""
    grid = {(t, p): torch.zeros(2) for t in args.temperatures for p in args.top_ps}
    truth = torch.zeros(2)
    for places in _windows(args):
        truth += _notes_and_seconds(places.came)
        for (temperature, top_p), total in grid.items():
            filtered = keep_top_p(apply_temperature(places.logits, temperature), top_p)
            total += _notes_and_seconds(filtered.softmax(dim=-1))
    print("| temperature | " + " | ".join(f"top-p {top_p:g}" for top_p in args.top_ps) + " |")
    print("| --- " * (1 + len(args.top_ps)) + "|")
    for temperature in args.temperatures:
        paces = [float(grid[temperature, p][0] / grid[temperature, p][1]) for p in args.top_ps]
        print(f"| {temperature:g} | " + " | ".join(f"{pace:.2f}" for pace in paces) + " |")
    print(f"\nThe pianists: {float(truth[0] / truth[1]):.2f} notes a second.")


def _notes_and_seconds(probabilities: Tensor) -> Tensor:
    """(2,) expected notes begun and expected seconds that pass, over all rows (N, V)."""
    notes = probabilities[:, :NOTE_OFF].sum()
    seconds = (probabilities[:, TIME_SHIFT:VELOCITY] * SHIFT_SECONDS).sum()
    return torch.stack([notes, seconds]).float()


def _windows(args: argparse.Namespace) -> Iterator[Places]:
    """Windows of the model's context at drawn places of drawn pieces, as the model reads them."""
    session = load_checkpoint(args.checkpoint, device=args.device)
    pieces = PreparedData.open(args.data).pieces(args.split)
    rng = np.random.default_rng(args.seed)
    length = session.config.context
    for index in tqdm(rng.integers(0, len(pieces), args.windows).tolist(), leave=False):
        first = int(rng.integers(0, max(len(pieces[index]) - length, 1)))
        window = pieces[index][first : first + length].astype(np.int64)
        yield _read(session.model, torch.from_numpy(window))


@torch.inference_mode()
def _read(model: torch.nn.Module, window: Tensor) -> Places:
    """What `model` expects in the places of `window` (L,)."""
    device = next(model.parameters()).device
    logits = model(window[None].to(device))[0, :-1].cpu().double()  # (L-1, V)
    grammar = PerformanceGrammar(logits.shape[1], may_wait=True)
    allowed = torch.zeros(logits.shape, dtype=torch.bool)  # (L-1, V)
    ages = np.zeros((len(logits), N_PITCHES), dtype=np.int64)  # (L-1, 128)
    for place, event in enumerate(window[:-1].tolist()):
        grammar.advance(event)
        allowed[place] = torch.from_numpy(grammar.mask())
        ages[place] = grammar.ages
    came = one_hot(window[1:], logits.shape[1]).double()  # (L-1, V)
    later = slice(len(window) // 4, None)
    return Places(logits.masked_fill(~allowed, -math.inf)[later], came[later], ages[later])


if __name__ == "__main__":
    sys.exit(main())
