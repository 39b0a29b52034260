"""Two minutes of every shipped motif on ten seeds, or after places of real pieces: what goes wrong.

    python scripts/studies/two_minutes.py --checkpoint piano --out out/two_minutes
    python scripts/studies/two_minutes.py --checkpoint piano --data data/maestro --primers 24
    python scripts/studies/two_minutes.py --candidates 1 --seconds 30 --samples 4 --json

Drawn as `generate` draws, but for the flags given. A continuation degenerates when it breaks a rule
of music_transformer/generation/degeneration.py. With `--data` the primers are ten seconds of pieces
of a split (as in seam.py), and the numbers of the continuations stand beside those of the music
that really follows, with the distance from the primer (`seam_distance`) every 15 s. `--out` keeps
the MIDI files, the primer left out.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from describe_music import describe
from seam import Place, places_of
from tqdm import tqdm

from music_transformer.checkpoint import load_checkpoint
from music_transformer.cli.main import exit_code
from music_transformer.cli.options import add_settings, settings_from
from music_transformer.cli.output import print_json
from music_transformer.datasets import PreparedData
from music_transformer.evaluation.memorisation import find_index
from music_transformer.evaluation.seam import PRIMER_SECONDS, seam_distance
from music_transformer.generation import generate
from music_transformer.generation.contest import SECTION_SECONDS
from music_transformer.midi import read_midi, write_midi
from music_transformer.notes import NoteSequence
from music_transformer.sampling import CARE, CHOICE, DRAWN

MOTIFS = Path(__file__).resolve().parents[2] / "data" / "motifs"
#: Numbers of `describe` that are shown, and their headings.
SHOWN = {
    "notes_per_second": "notes/s",
    "polyphony_mean": "polyphony",
    "note_seconds_mean": "note, s",
    "pitch_class_entropy_bits": "pitch-class bits",
    "velocity_mean": "velocity",
    "velocity_sd": "its sd",
    "repeated_ngram_share": "repeated 8-grams",
    "repeated_chord_ratio": "repeated chords",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Draw, judge, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--checkpoint", default="piano", help="(%(default)s)")
    parser.add_argument("--motifs", type=Path, default=MOTIFS, help="folder of MIDI files")
    parser.add_argument("--samples", type=int, default=10, help="of each motif (%(default)s)")
    parser.add_argument("--data", help="prepared performances: primers of these, not the motifs")
    parser.add_argument("--split", default="validation", help="(%(default)s)")
    parser.add_argument("--primers", type=int, default=24, help="of --data (%(default)s)")
    parser.add_argument("--seconds", type=float, default=120.0, help="(%(default)s)")
    add_settings(parser, (DRAWN, CARE, CHOICE))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print an object, not tables")
    parser.add_argument("--out", type=Path, help="folder for the MIDI files")
    args = parser.parse_args(argv)

    torch.set_num_threads(args.threads)
    session = load_checkpoint(args.checkpoint, device="cpu")
    index, settings = find_index(session.path), settings_from(args)
    rows: list[dict[str, Any]] = []
    for name, number, place in tqdm(list(_primers(args)), unit="primer"):
        real = args.data is not None
        made = generate(
            session,
            place.given,
            settings=settings,
            seconds=args.seconds,
            seed=args.seed + number,
            end="cut" if real else settings.end,  # as the truth is
        )
        row = {
            "primer": name,
            "rules": made.report.broken_rules,
            "closed": made.report.long_notes_closed,
            "notes": made.report.notes,
            "nll": made.report.nll,
            "known_run": index.longest_run(made.continuation).notes if index else None,
            "here": _numbers(place.primer, made.continuation, args.seconds),
            "truth": _numbers(place.primer, place.truth, args.seconds) if real else None,
        }
        rows.append(row)
        if args.out is not None:
            args.out.mkdir(parents=True, exist_ok=True)
            write_midi(made.continuation, args.out / f"{name}-{number}.mid")
        tqdm.write(f"{name} {number}: {', '.join(row['rules']) or 'no rule broken'}")
    if args.json:
        print_json(rows)
    else:
        print(_summary(rows))
    return 0


def _primers(args: argparse.Namespace) -> Iterator[tuple[str, int, Place]]:
    """The name of each primer, the number that is added to the seed, and the primer."""
    if args.data is None:
        for motif in sorted(args.motifs.glob("*.mid")):
            notes = read_midi(motif)
            for number in range(args.samples):
                yield motif.stem, number, Place(notes, notes, notes)
        return
    where = (PreparedData.open(args.data), args.split, args.primers, PRIMER_SECONDS, args.seconds)
    for number, place in enumerate(places_of(*where, seed=args.seed)):
        yield args.split, number, place


def _numbers(primer: NoteSequence, notes: NoteSequence, seconds: float) -> dict[str, Any]:
    """What the music is like as a whole, and how far each section is from the primer."""
    found = describe(notes)
    begins = np.arange(0, seconds - SECTION_SECONDS + 1e-9, SECTION_SECONDS)
    far = [seam_distance(primer, notes, float(begin)) for begin in begins]
    return {**{name: found[name] for name in SHOWN}, "distance": far}


def _summary(rows: list[dict[str, Any]]) -> str:
    """Markdown: what degenerates, and the means, beside the truth where it is known."""
    rules = Counter(rule for row in rows for rule in row["rules"])
    stuck = sum(bool(row["rules"]) for row in rows)
    closed, notes = (sum(row[name] for row in rows) for name in ("closed", "notes"))
    runs = [row["known_run"] for row in rows if row["known_run"] is not None]
    lines = [
        f"{stuck} of {len(rows)} degenerate {dict(rules) or ''}".rstrip(),
        f"{closed} of {notes} notes closed by a rule; longest run that the training data has: "
        f"{max(runs, default=0)} notes",
        "",
        "| mean over | " + " | ".join(SHOWN.values()) + " |",
        "| --- " * (len(SHOWN) + 1) + "|",
    ]
    sides = {side: [row[side] for row in rows if row[side]] for side in ("here", "truth")}
    means = {
        side: [float(np.mean([each[name] for each in found])) for name in SHOWN]
        for side, found in sides.items()
        if found
    }
    for side, values in means.items():
        lines.append(f"| {side} | " + " | ".join(f"{value:.3f}" for value in values) + " |")
    if "truth" in means:
        ratios = [here / true for here, true in zip(means["here"], means["truth"], strict=True)]
        lines.append("| ratio | " + " | ".join(f"{ratio:.2f}" for ratio in ratios) + " |")
    for side in means:
        far = np.array([each["distance"] for each in sides[side]])
        far = np.where(np.isfinite(far), far, np.nan)
        shown = " ".join(f"{value:.2f}" for value in np.nanmean(far, axis=0))
        lines.append(f"\ndistance from the primer every {SECTION_SECONDS:g} s, {side}: {shown}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(exit_code(main))
