"""`music-transformer accompany`: a melody goes in, the same melody with its accompaniment out."""

import argparse
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from music_transformer.cli import options, output
from music_transformer.errors import ConfigError
from music_transformer.sampling import CARE, DRAWN, ENDING

if TYPE_CHECKING:
    from music_transformer.notes import NoteSequence

DESCRIPTION = (
    "Compose what goes with a melody, which is kept note by note: with a chorale model alto, "
    "tenor and bass, with a model of accompaniments a piano. The likeliest of several candidates "
    "is written. The same command on the same machine writes the same file."
)
EPILOG = """\
examples:
  music-transformer accompany data/motifs/ode_to_joy_melody.mid --checkpoint bach --out ode.mid
  music-transformer accompany data/motifs/ode_to_joy_melody.mid \\
      --checkpoint piano-accompaniment --out piano.mid
  music-transformer accompany melody.mid --checkpoint bach --candidates 16 --samples 3 \\
      --out three.mid --wav --plot

--samples 3 --out three.mid writes three-1.mid (the likeliest), three-2.mid and three-3.mid.
"""

CHORALE_CANDIDATES = 8
PARTS = ("both", "accompaniment", "melody")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("melody", type=Path, metavar="MELODY.mid", help="what to accompany")
    add("--checkpoint", required=True, help="name or folder: bach, piano-accompaniment, ...")
    options.add_results(parser, "where to write (default: out/MELODY-accompanied.mid)")
    choice = parser.add_argument_group("how many")
    choice.add_argument(
        "--candidates",
        type=int,
        help=f"to draw and rank (default: of a chorale {CHORALE_CANDIDATES}, of a piano as many as "
        "--samples)",
    )
    choice.add_argument("--samples", type=int, default=1, help="likeliest to write (default: 1)")
    options.add_settings(parser, (DRAWN, CARE, ENDING))
    melody = parser.add_argument_group("the melody")
    melody.add_argument(
        "--keep-key",
        action="store_true",
        help="chorales: let the model read it where it is, even outside a soprano's range",
    )
    melody.add_argument("--keep-silence", action="store_true", help="compose before its first note")
    options.add_part_arguments(parser)
    add(
        "--parts",
        choices=PARTS,
        default="both",
        help="what to write (default: %(default)s, on tracks of their own)",
    )


def run(args: argparse.Namespace) -> int:
    """Check, read, compose, write the likeliest; the paths go to stdout."""
    if args.out is None:
        args.out = Path("out") / f"{args.melody.stem}-accompanied.mid"
    settings = options.settings_from(args)
    files = options.result_files(args)
    if args.candidates is not None and args.candidates < args.samples:
        raise ConfigError(
            f"--candidates {args.candidates}; choose {args.samples} or more, as many as --samples."
        )
    melody = options.read_given(args.melody, args)
    session = output.load_model(args)
    by_piano = session.tokenizer.has_melody
    if by_piano and args.keep_key:
        raise ConfigError("--keep-key is for chorales: a piano model has no range; leave it out.")
    candidates = args.candidates
    if candidates is None:  # a piano draws them one after another, so no more than are written
        candidates = args.samples if by_piano else max(CHORALE_CANDIDATES, args.samples)

    from music_transformer.generation.accompaniment import accompany

    form = "{desc}: {percentage:3.0f}%|{bar}| [{elapsed}<{remaining}]"
    with output.naming(args.melody), output.counter("accompany", bar_format=form) as progress:
        ranked = accompany(
            session,
            melody,
            candidates=candidates,
            keep_key=args.keep_key,
            settings=settings,
            on_progress=progress,
        )
    melody_track = None if args.parts == "accompaniment" else 0
    with ExitStack() as stack:  # every file appears, or none does
        for sample, one in zip(files, ranked, strict=False):
            notes = _only(one.notes, args.parts)
            output.write_results(stack, sample, notes, args, melody_track=melody_track)
    best, worst = ranked[0].report, ranked[-1].report
    for warning in best.warnings:
        output.warn(f"{args.melody}: {warning}.")
    if len(ranked) > 1 and not args.json:
        output.say(
            f"candidate {best.sample + 1} of {len(ranked)} is kept: {best.nll:.3f} nats "
            f"per {'event' if by_piano else 'composed note'} (the last: {worst.nll:.3f})"
        )
    reports = [one.report for one in ranked]
    ranking = []
    for report in reports:
        place = {"rank": report.rank, "candidate": report.sample, "nll": report.nll}
        surprise = report.to_dict().get("melody_nll")  # where the model has an opinion on that
        ranking.append(place if surprise is None else place | {"melody_nll": surprise})
    output.print_samples(args, files, reports, melody=args.melody, ranking=ranking)
    return 0


def _only(notes: "NoteSequence", parts: str) -> "NoteSequence":
    """The tracks that are asked for, the first of them track 0."""
    from music_transformer.notes import Pedals

    if parts == "both":
        return notes
    if parts == "melody":
        return notes.selected(notes.track == 0).replaced(track_names=notes.track_names[:1])
    chosen = notes.selected(notes.track > 0)
    names = notes.track_names[1:]
    return chosen.replaced(track=chosen.track - 1, pedals=Pedals(), track_names=names)
