"""`music-transformer plot`: a MIDI file to a picture."""

import argparse
from pathlib import Path
from typing import Any

from music_transformer.errors import ConfigError

SUFFIXES = (".png", ".svg", ".pdf")

EPILOG = """\
examples:
  music-transformer plot data/motifs/fur_elise_opening.mid --out fur_elise.png
  music-transformer plot out/continuation.mid --primer-end 10.3 --out continuation.png
"""


def add_parser(subparsers: Any) -> None:
    """Add `plot` to the subcommands."""
    parser = subparsers.add_parser(
        "plot",
        help="draw a MIDI file as a piano roll",
        description="Draw a MIDI file as a piano roll: seconds, pitches, louder is darker.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("midi", type=Path, metavar="FILE.mid")
    parser.add_argument(
        "--out", type=Path, required=True, metavar="F.png", help="where to write: png, svg or pdf"
    )
    parser.add_argument("--force", action="store_true", help="overwrite --out when it exists")
    parser.add_argument(
        "--primer-end",
        type=float,
        metavar="SECONDS",
        help="draw what starts before this in the primer's colour, the rest in the continuation's",
    )
    parser.add_argument(
        "--piano-only", action="store_true", help="keep only the tracks of programs 0 to 7"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Read, draw, write; the path goes to stdout."""
    from music_transformer.cli.output import atomic_path, check_output, report_warnings
    from music_transformer.midi import read_midi
    from music_transformer.render.pianoroll import plot_pianoroll

    if args.out.suffix.lower() not in SUFFIXES:
        raise ConfigError(
            f"{args.out}: give --out a name ending in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}."
        )
    check_output(args.out, args.force)
    notes = read_midi(args.midi, piano_only=args.piano_only)
    report_warnings(args.midi, notes.warnings)
    figure = plot_pianoroll(notes, primer_end=args.primer_end, title=args.midi.name)
    with atomic_path(args.out) as temporary:
        figure.savefig(temporary)
    print(args.out)
    return 0
