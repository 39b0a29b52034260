"""`download`: a corpus from its official source, released weights, or a better piano.

What comes is checked by size and sha256; an interrupted download goes on when it is run again.
"""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from music_transformer.cli.output import Bar, check_output, print_json
from music_transformer.errors import ConfigError

if TYPE_CHECKING:
    from music_transformer.datasets.download import Download

DESCRIPTION = (
    "Fetch a corpus from its official source, released weights from the project's releases, or "
    "the sound of a better piano, checked by size and sha256. An interrupted download goes on "
    "when the command is given again."
)
EPILOG = """\
examples:
  music-transformer download jsb --out data/Jsb16thSeparated.json
  music-transformer download maestro --out data/maestro-v3.0.0-midi.zip
  music-transformer download piano --out checkpoints/piano
  music-transformer download piano-soundfont
  music-transformer download piano --from clone/checkpoints/piano --out checkpoints/piano
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "what",
        metavar="WHAT",
        help="jsb, maestro, bach, piano, piano-accompaniment, piano-fill or piano-soundfont",
    )
    add(
        "--out",
        type=Path,
        help="file to make, or an existing folder to put it in; a folder to make for a checkpoint "
        "(default, of piano-soundfont alone: data/piano.sf2)",
    )
    source = parser.add_mutually_exclusive_group()
    source.add_argument(
        "--from", dest="source", type=Path, help="a local copy, checked; no network"
    )
    source.add_argument("--url", help="another place of the same file")
    add("--force", action="store_true", help="replace what is at --out")
    add("--json", action="store_true", help="print path and sha256 as JSON")


def run(args: argparse.Namespace) -> int:
    """Fetch or copy, print where it is."""
    from music_transformer.datasets.download import CHECKPOINTS, DOWNLOADS, SOUNDFONT_PACKAGE

    if args.what == SOUNDFONT_PACKAGE.name:
        return _soundfont(args)
    known = ", ".join((*DOWNLOADS, *CHECKPOINTS, SOUNDFONT_PACKAGE.name))
    if args.out is None and args.what in known.split(", "):
        raise ConfigError(f"download {args.what}: say where to put it, with --out.")
    if args.what in DOWNLOADS:
        return _corpus(args, DOWNLOADS[args.what])
    if args.what in CHECKPOINTS:
        return _checkpoint(args, CHECKPOINTS[args.what])
    raise ConfigError(f"download {args.what}: unknown; choose from {known}.")


def _corpus(args: argparse.Namespace, download: "Download") -> int:
    """Fetch or copy one file."""
    from music_transformer.datasets.download import copy_file, fetch

    out = check_output(args.out / download.file if args.out.is_dir() else args.out, args.force)
    print(f"{download.name}: {download.terms}", file=sys.stderr)
    if args.source is not None:
        copy_file(download, args.source, out)
    else:
        fetch(download, out, url=args.url, progress=Bar())
    return _print(args, out, size=download.size, sha256=download.sha256)


def _soundfont(args: argparse.Namespace) -> int:
    """Fetch or copy the sound font of a better piano."""
    from music_transformer.datasets.download import PIANO_SOUNDFONT, copy_soundfont, fetch_soundfont
    from music_transformer.render.audio import PIANO_FONT, PIANO_FONT_PATH

    out = args.out or PIANO_FONT_PATH
    out = check_output(out / PIANO_FONT_PATH.name if out.is_dir() else out, args.force)
    print(f"{args.what}: {PIANO_SOUNDFONT.terms}", file=sys.stderr)
    if args.source is not None:
        copy_soundfont(args.source, out)
    else:
        fetch_soundfont(out, url=args.url, progress=Bar())
    font = PIANO_FONT if args.out is None else out
    print(f"{args.what}: use it with --soundfont {font}", file=sys.stderr)
    return _print(args, out, size=PIANO_SOUNDFONT.size, sha256=PIANO_SOUNDFONT.sha256)


def _print(args: argparse.Namespace, out: Path, **checked: Any) -> int:
    """Print where it is, and in JSON what was checked."""
    if args.json:
        print_json({"path": str(out), **checked})
    else:
        print(out)
    return 0


def _checkpoint(args: argparse.Namespace, download: "Download") -> int:
    """Fetch released weights, or copy them from a folder or an archive."""
    from music_transformer.checkpoint.hub import (
        copy_checkpoint,
        fetch_checkpoint,
        unpack_checkpoint,
    )
    from music_transformer.checkpoint.session import check_replaceable

    if args.out.exists() and not args.force:
        raise ConfigError(f"{args.out}: it exists; --force replaces the folder of a checkpoint.")
    check_replaceable(args.out)
    print(f"{download.name}: {download.terms}", file=sys.stderr)
    if args.source is None:
        fetch_checkpoint(download, args.out, url=args.url, progress=Bar())
    elif args.source.is_dir():
        copy_checkpoint(args.source, args.out)
    else:
        unpack_checkpoint(download, args.source, args.out)
    return _print(args, args.out)
