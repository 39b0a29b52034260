"""What the page waits for: the first note of an answer, and one take beside four.

    python scripts/bench/takes.py --checkpoint piano

A phrase of eight notes is answered as *Live* does it, and a motif continued for ten seconds by one
take and by four side by side, in the composing thread's own code. CPU time of one thread, the
median of five answers; without the network, the browser, and the pause that ends a phrase.
"""

from __future__ import annotations

import argparse
import statistics
from typing import Any

import torch
from measure import cpu_seconds

from music_transformer.checkpoint import load_checkpoint
from music_transformer.midi import read_midi
from music_transformer.motifs import find_motifs
from music_transformer.notes import NoteSequence
from music_transformer.sampling import Settings
from music_transformer.web.models import available_models
from music_transformer.web.takes import Take, compose

PHRASE = NoteSequence(
    pitch=[60, 62, 64, 65, 67, 69, 71, 72],
    velocity=[80] * 8,
    start=[0.25 * beat for beat in range(8)],
    end=[0.25 * beat + 0.2 for beat in range(8)],
)


class _FirstNoteError(Exception):
    """A composed note was told: what is waited for is there."""


def first_note(session: Any, model: Any, seed: int) -> float:
    """CPU seconds from a phrase to the first note of its answer."""

    def tell(message: dict[str, Any]) -> None:
        if any(row[0] >= take.primer_seconds > 0 for row in message.get("notes", ())):
            raise _FirstNoteError

    take = Take(model, PHRASE, Settings(seconds=5, seed=seed, key="motif"), "live", tell)

    def answer() -> None:
        try:
            compose([take], session, lambda: None)
        except _FirstNoteError:
            return

    return cpu_seconds(answer)


def whole(session: Any, model: Any, count: int) -> float:
    """CPU seconds of so many takes that go on from a motif for ten seconds."""
    motif = read_midi(find_motifs()["fur_elise_opening"])
    takes = [
        Take(model, motif, Settings(seconds=10, seed=seed), "take", lambda _: None)
        for seed in range(count)
    ]
    return cpu_seconds(lambda: compose(takes, session, lambda: None))


def main() -> None:
    """Parse the arguments, measure, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--checkpoint", default="piano")
    args = parser.parse_args()
    torch.set_num_threads(1)
    session = load_checkpoint(args.checkpoint, device="cpu")
    [model] = available_models([args.checkpoint])
    answers = [first_note(session, model, seed) for seed in range(6)][1:]
    print(
        f"first note of an answer: {statistics.median(answers):.3f} s (at most {max(answers):.3f})"
    )
    one, four = whole(session, model, 1), whole(session, model, 4)
    print(f"one take of 10 s: {one:.1f} s, four: {four:.1f} s, {four / one:.2f} times as long")


if __name__ == "__main__":
    main()
