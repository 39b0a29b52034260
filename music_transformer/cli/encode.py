"""`encode FILE.mid`: the event ids of a MIDI file, as a JSON list on stdout."""

from __future__ import annotations

import argparse

from music_transformer.cli.options import (
    add_part_arguments,
    add_tokenizer_arguments,
    read_part,
    tokenizer_of,
)
from music_transformer.cli.output import naming, print_json

DESCRIPTION = "Print the event ids of a MIDI file as a JSON list."
EPILOG = """\
examples:
  music-transformer encode data/motifs/fur_elise_opening.mid > ids.json
  music-transformer encode data/motifs/fur_elise_opening.mid --symbols
  music-transformer encode chorale.mid --tokenizer chorale
  music-transformer encode waltz.mid --from bar:5 --to bar:9 --drop-silence
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("file", metavar="FILE.mid", help="the MIDI file to read")
    add("--symbols", action="store_true", help="print names instead of ids")
    add_tokenizer_arguments(parser)
    add_part_arguments(parser)
    add("--drop-silence", action="store_true", help="begin with the first note (default: as read)")


def run(args: argparse.Namespace) -> int:
    """Read, encode, print."""
    tokenizer = tokenizer_of(args)
    notes = read_part(args.file, args)
    with naming(args.file):
        ids = tokenizer.encode(notes, keep_silence=not args.drop_silence)
    print_json(tokenizer.symbols(ids) if args.symbols else ids)
    return 0
