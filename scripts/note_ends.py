"""Does a model end notes as often as pianists do? By the age of the note, on real music.

    python scripts/note_ends.py --checkpoint piano --data data/maestro --windows 48

The model reads windows of real pieces. For every event of the later three quarters of a window, and
every note that sounds there, the probability it gives to the end of that note is added up by the
age of the note, and beside it the ends that really came. A ratio of 1 is a calibrated model; below
1, notes of that age end too seldom, and a sample, which has to live with its own notes, holds them.
Two more columns: the same with a nucleus (`--top-p`), and with `--hold-seconds`.
"""

from __future__ import annotations

import argparse
import math
import sys
from itertools import pairwise

import numpy as np
import torch
from tqdm import tqdm

from music_transformer.checkpoint import load_checkpoint
from music_transformer.datasets import PreparedData
from music_transformer.generation.filters import Filters
from music_transformer.generation.grammar import PerformanceGrammar
from music_transformer.generation.held import age_held_notes
from music_transformer.notes import STEPS_PER_SECOND
from music_transformer.tokenizers.vocabulary import N_PITCHES, NOTE_OFF, TIME_SHIFT

AGES = (0.0, 0.5, 1.0, 2.0, 3.0, 5.0, 8.0)  # seconds; the last is open


def main() -> int:
    """Read, add up, print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--checkpoint", default="piano", help="(%(default)s)")
    parser.add_argument("--data", default="data/maestro", help="prepared data (%(default)s)")
    parser.add_argument("--split", default="validation", help="(%(default)s)")
    parser.add_argument("--windows", type=int, default=48, help="(%(default)s)")
    parser.add_argument("--top-p", type=float, default=0.95, help="(%(default)s)")
    parser.add_argument("--hold-seconds", type=float, default=2.0, help="(%(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()

    torch.set_num_threads(1)
    session = load_checkpoint(args.checkpoint, device=args.device)
    pieces = PreparedData.open(args.data).pieces(args.split)
    rng = np.random.default_rng(args.seed)
    length = session.config.context
    totals = np.zeros((4, len(AGES)))
    for index in tqdm(rng.integers(0, len(pieces), args.windows).tolist(), leave=False):
        first = int(rng.integers(0, max(len(pieces[index]) - length, 1)))
        window = pieces[index][first : first + length].astype(np.int64)
        totals += _window(session.model, window, args)
    names = ("really", "model", f"top-p {args.top_p:g}", f"hold {args.hold_seconds:g} s")
    print("| age of the note | ends, really | " + " | ".join(names[1:]) + " |")
    print("| --- " * 5 + "|")
    for age, (real, *others) in zip(AGES, totals.T, strict=True):
        ratios = " | ".join(f"{other / real:.2f}" if real else "" for other in others)
        print(f"| from {age:g} s | {real:.0f} | {ratios} |")
    return 0


@torch.inference_mode()
def _window(model: torch.nn.Module, window: np.ndarray, args: argparse.Namespace) -> np.ndarray:
    """(4, ages) ends of notes: those that came, and what was expected in three ways."""
    ids = torch.from_numpy(window)
    device = next(model.parameters()).device
    logits = model(ids[None].to(device))[0].cpu().double()  # (L, V)
    grammar = PerformanceGrammar(logits.shape[1], may_wait=True)
    totals = np.zeros((4, len(AGES)))
    for place, (event, following) in enumerate(pairwise(window.tolist())):
        grammar.advance(event)
        if place < len(window) // 4:
            continue
        ages = grammar.ages / STEPS_PER_SECOND  # (128,) seconds; negative: silent
        bins = np.searchsorted(AGES, ages, side="right") - 1
        allowed = torch.from_numpy(grammar.mask().copy())
        row = logits[place].masked_fill(~allowed, -math.inf)[None]  # (1, V)
        came = np.zeros(N_PITCHES)
        if NOTE_OFF <= following < TIME_SHIFT:
            came[following - NOTE_OFF] = 1.0
        aged = age_held_notes(row, grammar.ages[None], [args.hold_seconds])
        ends = [came]
        for one in (row, Filters(top_p=args.top_p)(row), aged):
            ends.append(one.softmax(dim=-1)[0, NOTE_OFF:TIME_SHIFT].numpy())
        for kind, end in enumerate(ends):
            totals[kind] += np.bincount(
                bins[bins >= 0], weights=end[bins >= 0], minlength=len(AGES)
            )
    return totals


if __name__ == "__main__":
    sys.exit(main())
