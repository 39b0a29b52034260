"""Which notes of a MIDI file a command takes: the flags, and reading by them."""

from __future__ import annotations

import argparse
import math
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


def read_given(path: str | os.PathLike[str], args: argparse.Namespace) -> NoteSequence:
    """What a model is to go on from: `read_part`, if it can be written again.

    A rest of more than two bars at its end (4 s without a metre) is said on stderr.

    Raises:
        MidiError: as `read_part`, or what a file cannot hold, see `check_writable`.
        ConfigError: as `read_part`.
    """
    from music_transformer.cli.output import warn
    from music_transformer.midi import check_writable

    notes = read_part(path, args)
    check_writable(notes, os.fspath(path))
    last = float(notes.sustained().end.max(initial=0.0))
    most, rest = 4.0, notes.end_time - last
    if len(notes.time_signatures) and len(notes.tempos):
        bar = float(notes.time_signatures.bar_quarters()[-1])
        most = 2 * bar * notes.tempos.quarter_at(notes.end_time)
    if len(notes) and rest > most + 0.01:
        warn(
            f"{os.fspath(path)}: it ends with a rest of {rest:.1f} s, which counts; "
            f"--to -{math.floor(rest * 100) / 100:g} drops it."
        )
    return notes
