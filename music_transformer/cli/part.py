"""Which notes of a MIDI file a command takes: the flags, and reading by them."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from music_transformer.notes import NoteSequence


def add_part_arguments(parser: argparse.ArgumentParser) -> None:
    """Add `--from`, `--to`, `--one-pedal` and `--piano-only`."""
    parser.add_argument(
        "--from",
        dest="begin",
        metavar="PLACE",
        help="where the part begins: seconds, a bar (bar:5), or seconds before the end (-10)",
    )
    parser.add_argument(
        "--to", dest="stop", metavar="PLACE", help="where the part ends, said in the same way"
    )
    parser.add_argument(
        "--one-pedal",
        action="store_true",
        help="one pedal for all channels: a Disklavier's hands have a channel each",
    )
    parser.add_argument(
        "--piano-only", action="store_true", help="keep only programs 0-7, the pianos"
    )


def read_part(path: str | os.PathLike[str], args: argparse.Namespace) -> NoteSequence:
    """The notes that the flags name; what was survived in the file is said on stderr.

    Raises:
        MidiError: the file cannot be read, or the part has no notes.
        ConfigError: `--from` or `--to` means no place in the file.
    """
    from music_transformer.cli.output import naming, report_warnings
    from music_transformer.midi import part_of, read_midi

    notes = read_midi(path, piano_only=args.piano_only, one_pedal=args.one_pedal)
    report_warnings(path, notes.warnings)
    with naming(path):
        return part_of(notes, args.begin, args.stop)
