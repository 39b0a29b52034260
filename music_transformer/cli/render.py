"""`music-transformer render`: a MIDI file to sound."""

import argparse
from pathlib import Path
from typing import Any

from music_transformer.errors import ConfigError

EPILOG = """\
example:
  music-transformer render data/motifs/fur_elise_opening.mid --out fur_elise.wav
"""


def add_parser(subparsers: Any) -> None:
    """Add `render` to the subcommands."""
    parser = subparsers.add_parser(
        "render",
        help="turn a MIDI file into sound",
        description="Play a MIDI file on a sampled piano, pedal applied, into a 16-bit stereo WAV.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("midi", type=Path, metavar="FILE.mid")
    parser.add_argument("--out", type=Path, required=True, metavar="F.wav", help="where to write")
    parser.add_argument("--force", action="store_true", help="overwrite --out when it exists")
    parser.add_argument(
        "--soundfont",
        type=Path,
        metavar="FONT.sf2",
        help="the instrument (default: the font inside the installed pretty_midi)",
    )
    parser.add_argument(
        "--piano-only", action="store_true", help="keep only the tracks of programs 0 to 7"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Read, play, write; the path goes to stdout."""
    from music_transformer.cli.output import check_output, report_warnings
    from music_transformer.midi import read_midi
    from music_transformer.render.audio import render_wav

    if args.out.suffix.lower() != ".wav":
        raise ConfigError(f"{args.out}: sound is written as WAV; give --out a name ending in .wav.")
    check_output(args.out, args.force)
    notes = read_midi(args.midi, piano_only=args.piano_only)
    report_warnings(args.midi, notes.warnings)
    render_wav(notes, args.out, soundfont=args.soundfont)
    print(args.out)
    return 0
