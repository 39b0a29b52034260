"""`music-transformer fill`: what stands before and after a gap is kept, the gap is composed."""

import argparse
from contextlib import ExitStack
from pathlib import Path

from music_transformer.cli import options, output
from music_transformer.sampling import CARE, CHOICE, DRAWN, WISH

DESCRIPTION = (
    "Compose what begins between --from and --to anew. All other notes of the file are kept as "
    "they are, note by note, and the first one behind the gap comes on time."
)
EPILOG = """\
examples:
  music-transformer fill data/motifs/fur_elise_opening.mid --from bar:2 --to bar:4
  music-transformer fill take.mid --from 12.5 --to 20 --samples 3 --out out/take.mid --wav
  music-transformer fill chorale.mid --from bar:3 --to bar:5 --voice alto --voice tenor \\
      --checkpoint bach --out out/chorale.mid
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("file", type=Path, metavar="FILE.mid", help="the music with the gap")
    add("--checkpoint", default="piano-fill", help="its name or folder (default: %(default)s)")
    options.add_results(parser, "where to write (default: out/NAME-filled.mid)")
    add(
        "--voice",
        action="append",
        default=[],
        help="chorales: compose this voice alone (soprano, alto, tenor, bass); may be repeated",
    )
    add("--samples", type=int, default=1, help="fillings (default: 1)")
    options.add_part_arguments(parser)
    options.add_settings(parser, (WISH, DRAWN, CARE, CHOICE))


def run(args: argparse.Namespace) -> int:
    """Check, read, compose, write; the paths go to stdout."""
    if args.out is None:
        args.out = Path("out") / f"{args.file.stem}-filled.mid"
    settings, files = options.settings_from(args), options.result_files(args)
    begin, stop = args.begin, args.stop
    args.begin = args.stop = None  # all of the file is read
    notes = options.read_given(args.file, args)

    from music_transformer.midi.bars import span_of

    with output.naming(args.file):
        start, end = span_of(notes, begin, stop)

    from music_transformer.generation.filling import fill

    session = output.load_model(args)
    with (
        output.naming(args.file),
        output.counter("fill", bar_format="{desc}: {percentage:3.0f}%|{bar}|") as progress,
    ):
        fillings = fill(
            session,
            notes,
            start=start,
            end=end,
            voices=args.voice,
            samples=args.samples,
            on_progress=progress,
            settings=settings,
        )
    with ExitStack() as stack:  # every file appears, or none does
        for sample, filling in zip(files, fillings, strict=True):
            output.write_results(stack, sample, filling.notes, args, gap=(start, end))
    for sample, filling in zip(files, fillings, strict=True):
        for warning in filling.report.warnings:
            output.warn(f"{sample['midi']}: {warning}.")
    reports = [filling.report for filling in fillings]
    output.print_samples(args, files, reports, file=args.file, gap={"from": start, "to": end})
    return 0
