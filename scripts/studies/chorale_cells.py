"""Two bars of a chorale filled in three ways, in numbers of voice-leading beside what Bach wrote.

    python scripts/studies/chorale_cells.py --checkpoint bach --data data/jsb --pieces 12

Blind: from left to right. Ahead: of eight draws one is kept, by how likely it makes what follows.
Blocks: then sixteen blocks are drawn again (`fill`'s way). Numbers are of the gap and the
sixteenths beside it. A step is a voice's from one note to another; a range is from the lowest to
the highest note of a voice in the gap, the mean over the four. The mean NLL is that of the 16
sixteenths behind the gap, under the model, after what was filled.
"""

import argparse

import numpy as np
import torch
from describe_music import parallels

from music_transformer.checkpoint.session import Session, load_checkpoint
from music_transformer.datasets.prepared import PreparedData
from music_transformer.generation.cells import fill_cells
from music_transformer.representations.chorale.grid import SILENCE
from music_transformer.representations.ids import Ints
from music_transformer.sampling import Settings

WAYS = {"blind": (1, 0), "ahead": (8, 0), "blocks": (8, 16)}
BEGIN, LENGTH, BEHIND = 32, 32, 16  # sixteenths


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--checkpoint", default="bach")
    parser.add_argument("--data", required=True)
    parser.add_argument("--pieces", type=int, default=12)
    args = parser.parse_args()
    session, data = load_checkpoint(args.checkpoint, "cpu"), PreparedData.open(args.data)
    end = BEGIN + LENGTH
    decoded = [session.tokenizer.decode_grid(ids) for ids in data.pieces("validation")]
    grids = [grid for grid in decoded if grid is not None and len(grid) >= end + BEHIND]
    chosen = grids[:: max(1, len(grids) // args.pieces)][: args.pieces]
    print(
        "| | parallels | mean step | steps over a fourth | over an octave | range of a voice ",
        end="",
    )
    print("| outside Bach's | into what follows | NLL of what follows |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    train = [session.tokenizer.decode_grid(ids) for ids in data.pieces("train")]
    known = np.concatenate([grid for grid in train if grid is not None]).astype(float)
    known[known < 0] = np.nan
    lowest, highest = np.nanmin(known, axis=0), np.nanmax(known, axis=0)  # (4,)
    for way in ("Bach", *WAYS):  # a study that is interrupted leaves what it has
        each = chosen
        if way in WAYS:
            each = [filled(session, grid, way, seed) for seed, grid in enumerate(chosen)]
        count = [parallels(grid[BEGIN - 1 : end + 1]) for grid in each]
        motions = sum(one["pair_motions"] for one in count)
        bad = sum(
            one["pair_motions"] * (one["parallel_fifths"] + one["parallel_octaves"])
            for one in count
        )
        parts = [np.where(grid < 0, np.nan, grid)[BEGIN - 1 : end + 1] for grid in each]
        steps = np.concatenate([np.abs(np.diff(part, axis=0)) for part in parts])  # NaN at silence
        steps = steps[steps > 0]
        inside = [part[1:-1] for part in parts]
        width = np.nanmean([np.nanmax(one, axis=0) - np.nanmin(one, axis=0) for one in inside])
        out = np.mean([(one < lowest) | (one > highest) for one in inside])
        leap = np.nanmean([np.abs(part[-1] - part[-2]) for part in parts])
        behind = np.mean([nll_behind(session, grid, end) for grid in each])
        print(
            f"| {way} | {bad / max(motions, 1):.4f} of {motions:.0f} | {steps.mean():.2f} "
            f"| {(steps > 5).mean():.3f} | {(steps > 12).mean():.3f} | {width:.1f} | {out:.4f} "
            f"| {leap:.2f} | {behind:.3f} |",
            flush=True,
        )


def filled(session: Session, grid: Ints, way: str, seed: int) -> Ints:
    """The chorale with its gap filled in one of the ways."""
    missing = np.zeros(grid.shape, dtype=bool)
    missing[BEGIN : BEGIN + LENGTH] = True
    return fill_cells(session, grid, missing, Settings(seed=seed), WAYS[way])[0]


@torch.inference_mode()
def nll_behind(session, grid, end) -> float:  # type: ignore[no-untyped-def]
    """Mean NLL of the cells behind the gap."""
    ids = torch.tensor([[session.tokenizer.start, *np.where(grid < 0, SILENCE, grid).ravel()]])
    ids = ids[:, : 1 + 4 * (end + BEHIND)]
    logits = session.model(ids).log_softmax(-1)[0, :-1].gather(1, ids[0, 1:, None])[:, 0]
    return -float(logits[4 * end :].mean())


if __name__ == "__main__":
    main()
