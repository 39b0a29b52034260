"""`encode FILE.mid`: the event ids of a MIDI file, as a JSON list on stdout."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from music_transformer.cli.part import add_part_arguments, read_part

if TYPE_CHECKING:
    from music_transformer.representations.base import Representation

_EXAMPLES = """\
examples:
  music-transformer encode data/motifs/fur_elise_opening.mid > ids.json
  music-transformer encode data/motifs/fur_elise_opening.mid --symbols
  music-transformer encode chorale.mid --tokenizer chorale
  music-transformer encode waltz.mid --from bar:5 --to bar:9 --drop-silence
"""


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Add `encode` to the command line."""
    parser = subparsers.add_parser(
        "encode",
        help="print the event ids of a MIDI file",
        description="Print the event ids of a MIDI file as a JSON list.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", metavar="FILE.mid", help="the MIDI file to read")
    parser.add_argument("--symbols", action="store_true", help="print names instead of ids")
    add_tokenizer_arguments(parser)
    add_part_arguments(parser)
    parser.add_argument(
        "--drop-silence", action="store_true", help="begin with the first note (default: as read)"
    )
    parser.set_defaults(run=run)


def add_tokenizer_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags that choose a tokenizer; `decode` has the same."""
    parser.add_argument(
        "--tokenizer",
        metavar="KIND",
        default="performance",
        help="performance: 388 events of 10 ms; chorale: four voices of sixteenths "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--pedal",
        choices=("sustain", "events"),
        default=None,
        help="performance only. sustain: longer notes; events: PEDAL_ON and PEDAL_OFF as events "
        "of their own (default: sustain)",
    )


def tokenizer_of(args: argparse.Namespace) -> Representation:
    """The tokenizer that the flags name.

    Raises:
        ConfigError: there is no such kind, or `--pedal` with one that knows no pedal.
    """
    from music_transformer.representations import representation_from_config

    settings = {} if args.pedal is None else {"pedal": args.pedal}
    return representation_from_config({"kind": args.tokenizer, **settings})


def run(args: argparse.Namespace) -> int:
    """Read, encode, print."""
    from music_transformer.cli.output import naming, print_json

    tokenizer = tokenizer_of(args)
    notes = read_part(args.file, args)
    with naming(args.file):
        ids = tokenizer.encode(notes, keep_silence=not args.drop_silence)
    print_json(tokenizer.symbols(ids) if args.symbols else ids)
    return 0
