"""How continuations end: on a triad or octaves, and how many notes were cut.

    python scripts/studies/endings.py --checkpoint piano --data data/maestro
    python scripts/studies/endings.py --checkpoint bach --data data/jsb

The first events of pieces of the validation split are continued side by side, each by one
candidate, for some seconds, and then have some more to come to an end: a quarter of what a user
would ask for. Up to there ``--end cut`` draws the same music and stops. The last chord is what
sounds half-way between the last onset and the end; a note is cut if no event of the model ended it.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm

from music_transformer.checkpoint.session import Session, load_checkpoint
from music_transformer.datasets.prepared import PreparedData
from music_transformer.generation.loop import Sample, SampleSpec, draw_all
from music_transformer.generation.sampler import Window
from music_transformer.generation.steering import steering_of
from music_transformer.model.registry import evaluating
from music_transformer.notes import NoteSequence
from music_transformer.representations.base import Limits
from music_transformer.representations.close import closes
from music_transformer.sampling import Settings


def continued(
    session: Session, primers: Sequence[list[int]], limits: Limits
) -> list[tuple[Sample, NoteSequence]]:
    """One sample of each primer, all of one length, and what it adds."""
    tokenizer, samples, notes = session.tokenizer, [], []
    settings = Settings().or_else(session.sampling).resolved()
    for number, ids in enumerate(primers):
        grammar = tokenizer.grammar(tokenizer.read_primer(ids, keep_silence=True), limits)
        sample = Sample(SampleSpec(settings, number), grammar, primer=ids, end=tokenizer.end)
        sample.steering = steering_of(settings, ids, performance=tokenizer.has_seam)
        samples.append(sample)
    first = torch.tensor([[tokenizer.start, *ids] for ids in primers])
    window = Window(session.model, len(samples), context=session.config.context)
    with evaluating(session.model), tqdm(unit="event", desc="continue") as bar:
        for _ in draw_all(window, samples, first, tokenizer.pad):
            bar.update()
    for sample, ids in zip(samples, primers, strict=True):
        new = [*sample.drawn, *sample.closing]
        notes.append(tokenizer.continuation(tokenizer.read_primer(ids, keep_silence=True), new))
    return list(zip(samples, notes, strict=True))


def main() -> None:
    """Continue the primers with each end, and count."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--checkpoint", default="piano")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--pieces", type=int, default=50)
    parser.add_argument("--primer-events", type=int, default=128)
    parser.add_argument("--seconds", type=float, default=4.5)
    parser.add_argument("--ending-seconds", type=float, default=5.0)
    args = parser.parse_args()
    session, data = load_checkpoint(args.checkpoint), PreparedData.open(args.data)
    pieces = data.pieces("validation")
    chosen = np.linspace(0, len(pieces) - 1, args.pieces).astype(int).tolist()
    primers = [np.asarray(pieces[n][1 : args.primer_events + 1], int).tolist() for n in chosen]
    limits = Limits(seconds=args.seconds, ending_seconds=args.ending_seconds)
    made = continued(session, primers, limits)
    stopped = [notes.sliced(0, args.seconds) for _, notes in made]
    print(
        json.dumps(
            {
                "pieces": len(made),
                "closed_on_a_triad_or_octaves": sum(closes(notes) for _, notes in made),
                "closed_notes_cut": sum(sample.grammar.notes_cut for sample, _ in made),
                "cut_on_a_triad_or_octaves": sum(closes(notes) for notes in stopped),
                "cut_notes_cut": sum(
                    int(
                        (notes.end > args.seconds + 1e-6).sum()
                        - (notes.start >= args.seconds).sum()
                    )
                    for _, notes in made
                ),
                "mean_end_seconds": float(
                    np.mean([sample.grammar.seconds - args.seconds for sample, _ in made])
                ),
            }
        )
    )


if __name__ == "__main__":
    main()
