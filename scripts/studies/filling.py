"""What a model that fills gaps makes of what it is told, and how its fillings join.

    python scripts/studies/filling.py --checkpoint piano-fill --data data/maestro
    python scripts/studies/filling.py --checkpoint piano-fill --data data/maestro --draw 12

One gap in each piece of the split, of 4, 8 and 16 s in turn, at a place drawn by a seed. First the
NLL of what the pianist plays in it, told what comes after it, told what comes after another gap,
and told nothing; 95 % intervals from a bootstrap over pieces. Then, for some of them, fillings at
the defaults: how far they are from what stands on either side, over how far the pianist is
(`seam.drift`), and what is kept of the first note behind the gap.
"""

import argparse
import json

import numpy as np
import torch
from seam import drift

from music_transformer.checkpoint.session import Session, load_checkpoint
from music_transformer.datasets.prepared import PreparedData
from music_transformer.datasets.windows import Window
from music_transformer.evaluation.compare import paired_difference
from music_transformer.evaluation.nll import EventLosses, event_losses, piece_nlls
from music_transformer.evaluation.seam import part, seam_distances
from music_transformer.generation.filling import fill, kept_beside
from music_transformer.notes import NoteSequence, to_steps
from music_transformer.representations.accompaniment.skyline import later
from music_transformer.representations.performance.primer import LATER_SECONDS, window_for
from music_transformer.representations.performance.vocabulary import TIME_SHIFT, VELOCITY, split_at

GAPS, AROUND = (4.0, 8.0, 16.0), 20.0  # seconds; there is music for so long before and behind
Gap = tuple[NoteSequence, float, float]


def gaps_of(data: PreparedData, split: str, seed: int) -> list[Gap]:
    """Notes and gap of each piece that is long enough; the gap on the grid of the events."""
    random, found = np.random.default_rng(seed), []
    for number, piece in enumerate(data.pieces(split)):
        notes = data.tokenizer.decode(piece)
        seconds = GAPS[number % len(GAPS)]
        room = notes.end_time - seconds - 2 * AROUND
        at = AROUND + round(random.random() * max(room, 0), 2)
        if room > 0 and len(part(notes, at, at + seconds)) > 3:
            found.append((notes, at, at + seconds))
    return found


def windows_of(session: Session, gaps: list[Gap], told: str) -> list[Window]:
    """A window each, in which only the events of the gap count."""
    windows, tokenizer = [], session.tokenizer
    for number, (notes, start, end) in enumerate(gaps):
        kept = kept_beside(notes, start, end)
        if told != "true":
            kept = kept.selected(kept.start < start)
        if told == "other":
            notes_of, _, other_end = gaps[(number + 1) % len(gaps)]
            stands_in = part(notes_of, other_end, other_end + LATER_SECONDS)
            moved = later(stands_in, end)
            kept = NoteSequence(
                pitch=np.append(kept.pitch, moved.pitch),
                velocity=np.append(kept.velocity, moved.velocity),
                start=np.append(kept.start, moved.start),
                end=np.append(kept.end, moved.end),
            )
        shown, _ = window_for(tokenizer, kept, start, end)
        _, rest = split_at(tokenizer.encode(notes), int(to_steps(start)))
        gap, _ = split_at(rest, int(to_steps(end)) - int(to_steps(start)))
        ids = torch.tensor([*shown, *gap])
        targets = torch.full((len(ids) - 1,), tokenizer.pad)
        first = len(shown) + (TIME_SHIFT <= gap[0] < VELOCITY)  # a rest that was cut in two
        targets[first - 1 :] = ids[first:]
        windows.append(Window(ids[:-1], targets, torch.arange(len(ids) - 1), number))
    return windows


def by_piece(losses: EventLosses) -> tuple[list[float], list[int]]:
    return [p.nll for p in piece_nlls(losses)], [p.events for p in piece_nlls(losses)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--checkpoint", default="piano-fill")
    parser.add_argument("--data", required=True)
    parser.add_argument("--split", default="validation")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--draw", type=int, default=0, help="fillings to draw (default: none)")
    args = parser.parse_args()
    session = load_checkpoint(args.checkpoint, "cpu")
    gaps = gaps_of(PreparedData.open(args.data), args.split, args.seed)
    if args.draw:
        print(json.dumps(joins(session, gaps[:: max(1, len(gaps) // args.draw)][: args.draw])))
        return
    losses = {
        told: event_losses(session.model, session.tokenizer, windows_of(session, gaps, told))
        for told in ("true", "other", "nothing")
    }
    nlls = {told: by_piece(each) for told, each in losses.items()}
    for told, each in losses.items():
        against = paired_difference(nlls[told][0], nlls["true"][0], nlls["true"][1])
        print(
            f"told {told}: {each.loss.mean():.4f} nats over {len(each.loss)} events of "
            f"{len(gaps)} gaps; over told true {against.mean:+.4f} "
            f"({against.low:+.4f} to {against.high:+.4f})"
        )


def joins(session: Session, gaps: list[Gap]) -> dict[str, object]:
    """The drift at both seams, and the worst time of the first kept note behind a gap."""
    ours: dict[str, list[dict[str, float]]] = {"before": [], "after": []}
    truth: dict[str, list[dict[str, float]]] = {"before": [], "after": []}
    late = 0.0
    for notes, start, end in gaps:
        [filling] = fill(session, notes, start=start, end=end, seed=0)
        before, after = part(notes, start - 10, start), part(notes, end, end + 10)
        for side, middle in ((ours, filling.continuation), (truth, part(notes, start, end))):
            side["before"].append(seam_distances(before, middle))
            side["after"].append(seam_distances(middle, after))
        first = notes.start[notes.start >= end].min()
        whole = filling.notes
        late = max(late, abs(float(whole.start[whole.start >= end - 1e-6].min() - first)))
        print(f"{start:.2f} to {end:.2f} s: {len(filling.continuation)} notes", flush=True)
    found: dict[str, object] = {"gaps": len(gaps), "first_kept_onset_off_by": late}
    for join in ours:
        one = drift(ours[join], truth[join])
        found[join] = {"drift": one.drift, "interval": one.interval, **one.by_measure}
    return found


if __name__ == "__main__":
    main()
