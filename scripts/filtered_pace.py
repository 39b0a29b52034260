"""What temperature and top-p do to the pace of the music, before anything is sampled.

    python scripts/filtered_pace.py --checkpoint piano --data data/maestro --windows 12

The model reads windows of real pieces. For every event of the later three quarters, the filtered
distribution gives an expected number of notes begun and an expected time that passes; their ratio
is the pace, notes per second, that the filters would play at in the very places where the pianist
played on. The unlikely events that a filter leaves out are not alike: long rests are spread over a
hundred TIME_SHIFTs, each of them unlikely, so leaving them out quickens the music.
"""

from __future__ import annotations

import argparse
import math
import sys

import numpy as np
import torch
from tqdm import tqdm

from music_transformer.checkpoint import load_checkpoint
from music_transformer.datasets import PreparedData
from music_transformer.generation.filters import Filters
from music_transformer.generation.grammar import PerformanceGrammar
from music_transformer.notes import STEPS_PER_SECOND
from music_transformer.tokenizers.vocabulary import MAX_SHIFT, NOTE_OFF, TIME_SHIFT, VELOCITY

SHIFT_SECONDS = torch.arange(1, MAX_SHIFT + 1, dtype=torch.float64) / STEPS_PER_SECOND


def main() -> int:
    """Read, add up, print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--checkpoint", default="piano", help="(%(default)s)")
    parser.add_argument("--data", default="data/maestro", help="prepared data (%(default)s)")
    parser.add_argument("--split", default="validation", help="(%(default)s)")
    parser.add_argument("--windows", type=int, default=12, help="(%(default)s)")
    parser.add_argument("--temperatures", type=float, nargs="+", default=[0.9, 0.95, 1.0])
    parser.add_argument("--top-ps", type=float, nargs="+", default=[0.9, 0.95, 0.98, 1.0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()

    torch.set_num_threads(1)
    session = load_checkpoint(args.checkpoint, device=args.device)
    pieces = PreparedData.open(args.data).pieces(args.split)
    rng = np.random.default_rng(args.seed)
    length = session.config.context
    grid = {(t, p): torch.zeros(2) for t in args.temperatures for p in args.top_ps}
    truth = torch.zeros(2)
    for index in tqdm(rng.integers(0, len(pieces), args.windows).tolist(), leave=False):
        first = int(rng.integers(0, max(len(pieces[index]) - length, 1)))
        window = pieces[index][first : first + length].astype(np.int64)
        logits = _logits(session.model, window)  # (L - 1, V)
        later = slice(len(window) // 4, None)
        really = torch.nn.functional.one_hot(torch.from_numpy(window[1:]), logits.shape[1])
        truth += _notes_and_seconds(really[later].double())
        for (temperature, top_p), total in grid.items():
            filtered = Filters(temperature, top_p=top_p)(logits[later])
            total += _notes_and_seconds(filtered.softmax(dim=-1))
    print("| temperature | " + " | ".join(f"top-p {top_p:g}" for top_p in args.top_ps) + " |")
    print("| --- " * (1 + len(args.top_ps)) + "|")
    for temperature in args.temperatures:
        paces = [float(grid[temperature, p][0] / grid[temperature, p][1]) for p in args.top_ps]
        print(f"| {temperature:g} | " + " | ".join(f"{pace:.2f}" for pace in paces) + " |")
    print(f"\nThe pianists: {float(truth[0] / truth[1]):.2f} notes a second.")
    return 0


@torch.inference_mode()
def _logits(model: torch.nn.Module, window: np.ndarray) -> torch.Tensor:
    """(L - 1, V) logits of the events after the first, within the grammar."""
    device = next(model.parameters()).device
    logits = model(torch.from_numpy(window)[None].to(device))[0, :-1].cpu().double()  # (L - 1, V)
    grammar = PerformanceGrammar(logits.shape[1], may_wait=True)
    allowed = np.zeros(logits.shape, dtype=bool)
    for place, event in enumerate(window[:-1].tolist()):
        grammar.advance(event)
        allowed[place] = grammar.mask()
    masked: torch.Tensor = logits.masked_fill(~torch.from_numpy(allowed), -math.inf)
    return masked


def _notes_and_seconds(probabilities: torch.Tensor) -> torch.Tensor:
    """(2,) expected notes begun and expected seconds that pass, over all rows (N, V)."""
    notes = probabilities[:, :NOTE_OFF].sum()
    seconds = (probabilities[:, TIME_SHIFT:VELOCITY] * SHIFT_SECONDS).sum()
    return torch.stack([notes, seconds]).float()


if __name__ == "__main__":
    sys.exit(main())
