"""One motif, continued by several models to twice the length they were trained on: piano rolls.

    python scripts/figures/continuation_figure.py data/motifs/fur_elise_opening.mid \\
        --checkpoints checkpoints/relative checkpoints/baseline checkpoints/lstm --out figure.png

The paper's figure: a model with relative attention goes on with a motif as long as it is let; one
that counts positions holds out for the length it was trained on and falls apart after it; an LSTM
drifts away. To show just that, each model reads all of its past at once, twice as much as in
training (`generate` alone would drop the oldest half in time). The dashed line is the end of the
motif, the dotted one the end of the training length, counted in events from START.

The training length is what a checkpoint says of its training windows; `--length` sets one for all.
`--midi FOLDER` keeps what is drawn as MIDI files.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tqdm import tqdm

from music_transformer.checkpoint import Session, load_checkpoint
from music_transformer.errors import ConfigError, MusicTransformerError
from music_transformer.files import atomic_path
from music_transformer.generation import Generation, generate
from music_transformer.midi import read_midi, write_midi
from music_transformer.model.registry import kind_of
from music_transformer.notes import NoteSequence
from music_transformer.render.pianoroll import (
    INK,
    draw_pianoroll,
    draw_title,
    new_figure,
    pitch_limits,
)

TIMES = 2  # the training length


@dataclass(frozen=True)
class Row:
    """One model's continuation, as it is drawn; times in seconds."""

    title: str
    notes: NoteSequence
    primer_end: float
    training_end: float


def main() -> int:
    """Continue, draw, save."""
    args = _arguments()
    try:
        _check(args)
        primer = read_midi(args.motif)
        rows = [row_of(name, primer, args) for name in args.checkpoints]
        figure = draw(rows)
        with atomic_path(args.out) as temporary:
            figure.savefig(temporary)
        print(args.out)
        for number, row in enumerate(rows if args.midi else []):
            path = args.midi / f"{number}-{Path(args.checkpoints[number]).name}.mid"
            path.parent.mkdir(parents=True, exist_ok=True)
            write_midi(row.notes, path)
            print(path)
    except (MusicTransformerError, OSError) as error:
        print(f"{Path(__file__).name}: error: {error}", file=sys.stderr)
        return 2 if isinstance(error, ConfigError) else 3
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("motif", type=Path, metavar="MOTIF.mid")
    parser.add_argument(
        "--checkpoints", nargs="+", required=True, help="names or folders, in order"
    )
    parser.add_argument("--out", type=Path, required=True, metavar="F.png", help="png, svg or pdf")
    parser.add_argument("--force", action="store_true", help="overwrite --out when it exists")
    parser.add_argument("--midi", type=Path, metavar="FOLDER", help="keep the MIDI files there")
    parser.add_argument("--length", type=int, help="training length in events, for all models")
    parser.add_argument("--primer-seconds", type=float, help="keep the last part of the motif")
    parser.add_argument("--temperature", type=float, help="what each checkpoint says, else 1")
    parser.add_argument("--top-p", type=float, help="what each checkpoint says, else 0.95")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="auto")
    return parser.parse_args()


def _check(args: argparse.Namespace) -> None:
    """Refuse before the work what could not be written after it, or makes no sense."""
    if args.out.exists() and not args.force:
        raise ConfigError(f"{args.out}: the file exists; add --force to overwrite it.")
    if args.out.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise ConfigError(f"{args.out}: give --out a name ending in .png, .svg or .pdf.")
    if args.length is not None and args.length < 1:
        raise ConfigError(f"--length {args.length}; choose 1 or more.")
    new_figure(1, 1)  # a missing extra is said before the models work


def row_of(name: str, primer: NoteSequence, args: argparse.Namespace) -> Row:
    """The motif as one model continues it, to `TIMES` the length it was trained on.

    Raises:
        ConfigError: the model continues nothing, or the motif alone is as long.
    """
    session = load_checkpoint(name, device=args.device)
    if kind_of(session.config) not in ("decoder", "rnn"):
        raise ConfigError(f"{name}: a {kind_of(session.config)} does not continue a motif.")
    length = args.length or training_length(session)
    settings = {
        "temperature": args.temperature,
        "top_p": args.top_p,
        "seed": args.seed,
        "primer_seconds": args.primer_seconds,
    }
    given = len(generate(session, primer, events=0, **settings).primer_ids)
    events = TIMES * length - 1 - given  # START is one of those that a model reads
    if events < 1:
        raise ConfigError(
            f"{args.motif}: its {given} events fill {TIMES} x {length}; keep the last part of "
            "it with --primer-seconds."
        )
    with tqdm(total=events, desc=Path(name).name, unit="event", leave=False) as bar:
        made = generate(
            session,
            primer,
            events=events,
            context=TIMES * length,
            candidates=1,
            resample=0,
            on_progress=lambda done, _asked: bar.update(int(done) - bar.n),
            **settings,
        )
    return Row(
        title=f"{described(session)} ({Path(name).name}, trained on {length} events)",
        notes=made.notes,
        primer_end=made.report.primer_seconds,
        training_end=_seconds_of(session, made, length - 1),
    )


def training_length(session: Session) -> int:
    """Events in the windows a model was trained on."""
    window = session.training.get("config", {}).get("window")
    return int(window or session.config.context)


def described(session: Session) -> str:
    """What kind of model it is, in a few words."""
    config = session.config
    if kind_of(config) == "rnn":
        return "LSTM" if config.attention == "none" else "LSTM with attention"
    where = "Transformer" if config.block is None else "Local Transformer"
    if config.attention_position != "none":
        return f"{where}, {config.attention_position} attention"
    return f"{where}, positions {config.input_position}"


def _seconds_of(session: Session, made: Generation, events: int) -> float:
    """When the first so many events end; a chorale's events all last equally long."""
    if session.tokenizer.kind == "chorale":
        return made.notes.end_time * events / len(made.ids)
    return float(session.tokenizer.decode(made.ids[:events]).end_time)


def draw(rows: list[Row]) -> Any:
    """The figure: piano rolls above each other, on the same seconds and pitches."""
    longest = max(row.notes.end_time for row in rows)
    limits = [pitch_limits(row.notes) for row in rows]
    pitches = (min(low for low, _ in limits), max(high for _, high in limits))
    figure = new_figure(min(max(0.2 * longest, 9.0), 20.0), 0.6 + 2.6 * len(rows))
    panels = figure.subplots(len(rows), 1, sharex=True, squeeze=False)[:, 0]
    for axes, row in zip(panels, rows, strict=True):
        draw_pianoroll(axes, row.notes, primer_end=row.primer_end, pitches=pitches)
        draw_title(axes, row.title)
        axes.axvline(row.training_end, color=INK, linewidth=1.4, linestyle=":", zorder=4)
        axes.annotate(
            "training length",
            (row.training_end, 1),
            xycoords=("data", "axes fraction"),
            xytext=(3, -3),
            textcoords="offset points",
            va="top",
            color=INK,
            fontsize=8,
            bbox={"facecolor": "white", "alpha": 0.8, "linewidth": 0, "pad": 1},
        )
    panels[-1].set_xlim(0, max(longest, 1.0))
    panels[-1].set_xlabel("seconds", color=INK)
    return figure


if __name__ == "__main__":
    sys.exit(main())
