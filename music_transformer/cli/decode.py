"""`decode IDS.json --out F.mid`: a MIDI file from a JSON list of event ids."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from music_transformer.cli.options import add_tokenizer_arguments, tokenizer_of
from music_transformer.errors import TokenError

DESCRIPTION = "Write the MIDI file of a JSON list of event ids, and print its path."
EPILOG = """\
examples:
  music-transformer decode ids.json --out copy.mid
  music-transformer encode motif.mid | music-transformer decode - --out copy.mid
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("file", metavar="IDS.json", help="a JSON list of ids; - reads stdin")
    add("--out", metavar="FILE.mid", required=True, help="the MIDI file to write")
    add("--force", action="store_true", help="overwrite an existing file")
    add_tokenizer_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Read, decode, write."""
    from music_transformer.cli.output import check_output, naming
    from music_transformer.midi.write import write_midi

    tokenizer = tokenizer_of(args)
    path = check_output(args.out, args.force)
    name = "stdin" if args.file == "-" else args.file
    text = sys.stdin.buffer.read() if args.file == "-" else Path(name).read_bytes()
    ids = _parse(text, name)
    with naming(name):
        notes = tokenizer.decode(ids)
    if not len(notes):
        raise TokenError(f"{name}: {len(ids)} ids, but no note among them; nothing to write.")
    write_midi(notes, path)
    print(path)
    return 0


def _parse(text: bytes, name: str) -> list[int]:
    """The list of integers that the text holds; TokenError for anything else."""
    try:
        ids = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise TokenError(
            f"{name}: no JSON ({error}); expected a list of ids such as [376, 60, 305, 188]."
        ) from error
    if not isinstance(ids, list):
        raise TokenError(f"{name}: holds a JSON {type(ids).__name__}, expected a list of ids.")
    for position, value in enumerate(ids):
        if type(value) is not int:  # true and false are int for Python
            hint = "; encode without --symbols prints ids" if isinstance(value, str) else ""
            raise TokenError(f"{name}: {value!r:.40} at position {position} is not an id{hint}.")
    return ids
