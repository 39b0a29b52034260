"""How continuations end: on a triad or octaves, and how many notes were cut.

    python scripts/studies/endings.py --checkpoint piano --data data/maestro
    python scripts/studies/endings.py --checkpoint bach --data data/jsb

The first events of pieces of the validation split are continued side by side, each by one
candidate, with every ``--end`` in turn. The last chord is what sounds half-way between the last
onset and the end; a note is cut if no event of the model ended it.
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
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
from music_transformer.sampling import ENDS, Settings


def continued(
    session: Session, primers: Sequence[list[int]], settings: Settings
) -> list[tuple[Sample, NoteSequence]]:
    """One sample of each primer, all of one length, and what it adds."""
    tokenizer, samples, notes = session.tokenizer, [], []
    for number, ids in enumerate(primers):
        primer = tokenizer.read_primer(ids, keep_silence=True)
        limits = Limits(
            seconds=settings.seconds,
            ending_seconds=settings.ending_seconds,
            note_seconds=settings.max_note_seconds or 0,
        )
        grammar = tokenizer.grammar(primer, limits)
        spec = SampleSpec(settings, number)
        sample = Sample(spec, grammar, primer=primer.ids, end=tokenizer.end)
        sample.steering = steering_of(settings, primer.ids, performance=tokenizer.has_seam)
        samples.append(sample)
    first = torch.tensor([[tokenizer.start, *ids] for ids in primers])
    window = Window(session.model, len(samples), context=session.config.context)
    with evaluating(session.model), tqdm(unit="event", desc=settings.end) as bar:
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
    parser.add_argument("--seconds", type=float, default=20.0)
    args = parser.parse_args()
    session, data = load_checkpoint(args.checkpoint), PreparedData.open(args.data)
    pieces = data.pieces("validation")
    chosen = np.linspace(0, len(pieces) - 1, args.pieces).astype(int).tolist()
    primers = [np.asarray(pieces[n][1 : args.primer_events + 1], int).tolist() for n in chosen]
    usual = Settings(seconds=args.seconds).or_else(session.sampling).resolved()
    for end in ENDS:
        made = continued(session, primers, replace(usual, end=end))
        cut = [sample.grammar.notes_cut for sample, _ in made]
        seconds = [sample.grammar.seconds for sample, _ in made]
        found = {
            "end": end,
            "pieces": len(made),
            "on_a_triad_or_octave": sum(closes(notes) for _, notes in made),
            "notes_cut": sum(cut),
            "pieces_with_a_cut_note": sum(count > 0 for count in cut),
            "mean_seconds": round(float(np.mean(seconds)), 1),
            "longest_seconds": round(max(seconds), 1),
        }
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
