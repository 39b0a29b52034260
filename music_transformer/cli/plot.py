"""`music-transformer plot`: a MIDI file to a picture, alone or with what a model attends to."""

import argparse
import contextlib
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from music_transformer.cli.options import add_part_arguments, read_part
from music_transformer.cli.output import check_picture, load_model
from music_transformer.errors import ConfigError, RenderError
from music_transformer.files import atomic_path

if TYPE_CHECKING:
    from music_transformer.notes import NoteSequence

DESCRIPTION = (
    "Draw a MIDI file as a piano roll: seconds, pitches, louder is darker, and bar lines where "
    "the file names its metre. With --attention: what a model attended to when it came to a note."
)
EPILOG = """\
examples:
  music-transformer plot data/motifs/fur_elise_opening.mid --out fur_elise.png
  music-transformer plot out/continuation.mid --primer-end 10.3 --out continuation.png
  music-transformer plot waltz.mid --from bar:5 --to bar:13 --out eight_bars.png
  music-transformer plot out/continuation.mid --attention --checkpoint piano --query 20s \\
      --layer 2 --heads 0,1,3 --out attention.png
  music-transformer plot out/continuation.mid --attention-map --checkpoint piano --out map.png
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("midi", type=Path, metavar="FILE.mid")
    add("--out", type=Path, required=True, metavar="F.png", help="where to write: png, svg or pdf")
    add("--force", action="store_true", help="overwrite --out when it exists")
    add(
        "--primer-end",
        type=float,
        metavar="SECONDS",
        help="what starts before it has its own color",
    )
    add_part_arguments(parser)
    add("--max-notes", type=int, default=50_000, help="refuse to draw more (default: %(default)s)")
    attention = parser.add_argument_group("what a model attends to")
    kind = attention.add_mutually_exclusive_group()
    kind.add_argument(
        "--attention",
        action="store_true",
        help="arcs from one note to those attended to: a colour for each head, width is weight",
    )
    kind.add_argument(
        "--attention-map",
        action="store_true",
        help="a map for each head: every event by every event, up to the query",
    )
    attention.add_argument("--checkpoint", help="the model: its name or folder")
    attention.add_argument(
        "--query",
        default="-1",
        metavar="NOTE",
        help="the note that attends: its number in the order of onsets, from 0, or a time such as "
        "8.5s (default: the last note)",
    )
    attention.add_argument(
        "--layer", type=int, default=-1, help="from 0, or from the last, -1 (default)"
    )
    attention.add_argument("--heads", metavar="0,2,5", help="the heads drawn (default: all)")
    attention.add_argument("--device", default="auto", help="cpu, cuda, mps or auto (default)")


def run(args: argparse.Namespace) -> int:
    """Read, draw, write; the path goes to stdout."""
    from music_transformer.midi.bars import bar_lines
    from music_transformer.render.pianoroll import plot_pianoroll

    wants_attention = args.attention or args.attention_map
    if wants_attention != (args.checkpoint is not None):
        raise ConfigError(
            "--attention and --attention-map need a --checkpoint, and a --checkpoint one of them."
        )
    heads = _heads(args.heads)
    if args.primer_end is not None and not 0 <= args.primer_end < math.inf:
        raise ConfigError(f"--primer-end {args.primer_end:g}; choose 0 seconds or more.")
    check_picture(args.out, args.force)
    notes = read_part(args.midi, args)
    if len(notes) > args.max_notes:
        raise RenderError(
            f"{args.midi}: {len(notes):,} notes are more than {args.max_notes:,}: take a part "
            "(--from, --to), or raise --max-notes."
        )
    if wants_attention:
        figure = _attention(args, notes, heads)
    else:
        figure = plot_pianoroll(
            notes, primer_end=args.primer_end, title=args.midi.stem, bars=bar_lines(notes)
        )
    with atomic_path(args.out, replace=args.force) as temporary:
        figure.savefig(temporary)
    print(args.out)
    return 0


def _attention(args: argparse.Namespace, notes: "NoteSequence", heads: list[int] | None) -> Any:
    """The figure, which only `render` knows the type of."""
    from music_transformer.render.attention_plot import plot_attention, plot_attention_map
    from music_transformer.render.pianoroll import new_figure

    new_figure(1, 1)  # a missing extra is said before the model works
    from music_transformer.evaluation.attention import note_attention

    found = note_attention(load_model(args), notes, **_query(args.query), layer=args.layer)
    title = f"{args.midi.stem}, layer {found.layer}"
    if args.attention_map:
        return plot_attention_map(
            found.by_event, heads=heads, first_event=found.first_event, title=title
        )
    return plot_attention(
        found.notes,
        found.by_note,
        query=found.query,
        heads=heads,
        primer_end=args.primer_end,
        title=title,
    )


def _heads(text: str | None) -> list[int] | None:
    """`0,2,5` as numbers."""
    if text is None:
        return None
    try:
        return [int(part) for part in text.split(",")]
    except ValueError as error:
        raise ConfigError(f"--heads {text}; give numbers such as 0,2,5.") from error


def _query(text: str) -> dict[str, Any]:
    """The number of a note, or a time such as `8.5s`, as `note_attention` takes them."""
    with contextlib.suppress(ValueError):
        return {"query": int(text)}
    with contextlib.suppress(ValueError):
        return {"at_seconds": float(text.removesuffix("s"))}
    raise ConfigError(f"--query {text}; give the number of a note, or a time such as 8.5s.")
