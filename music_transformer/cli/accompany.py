"""`music-transformer accompany`: a melody goes in, the same melody with its accompaniment out."""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from music_transformer.cli.generate import add_sampling, check_extras, output_files
from music_transformer.errors import ConfigError

if TYPE_CHECKING:
    from music_transformer.checkpoint import Session
    from music_transformer.generation import Accompaniment
    from music_transformer.notes import NoteSequence

EPILOG = """\
examples:
  music-transformer accompany data/motifs/ode_to_joy_melody.mid --checkpoint bach --out ode.mid
  music-transformer accompany melody.mid --checkpoint bach --candidates 16 --samples 3 \\
      --out three.mid --wav --plot

--samples 3 --out three.mid writes three-1.mid (the likeliest), three-2.mid and three-3.mid.
"""

TRACK_NAMES = ("soprano", "alto", "tenor", "bass")

Progress = Callable[[float, float], None]
Accompanist = Callable[
    ["Session", "NoteSequence", argparse.Namespace, Progress], "list[Accompaniment]"
]


def add_parser(subparsers: Any) -> None:
    """Add `accompany` to the subcommands."""
    parser = subparsers.add_parser(
        "accompany",
        help="keep a melody and compose the voices under it",
        description="Compose alto, tenor and bass under a melody, which is kept note by note. "
        "Several candidates are drawn and the likeliest is written. The same command on the same "
        "machine writes the same file.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("melody", type=Path, metavar="MELODY.mid", help="what to accompany")
    parser.add_argument("--checkpoint", required=True, help="a chorale model's name or folder")
    parser.add_argument("--out", type=Path, required=True, metavar="OUT.mid", help="where to write")
    parser.add_argument("--force", action="store_true", help="overwrite files that exist")
    choice = parser.add_argument_group("how many")
    choice.add_argument(
        "--candidates", type=int, default=8, help="to draw and rank (default: %(default)s)"
    )
    choice.add_argument(
        "--samples", type=int, default=1, help="of them to write, the likeliest (default: 1)"
    )
    add_sampling(parser)
    melody = parser.add_argument_group("the melody")
    melody.add_argument(
        "--keep-key",
        action="store_true",
        help="let the model read it where it is, even outside the range of a soprano",
    )
    melody.add_argument(
        "--keep-silence", action="store_true", help="compose before its first note too"
    )
    parser.add_argument("--wav", action="store_true", help="write the sound too, as OUT.wav")
    parser.add_argument("--plot", action="store_true", help="write the piano roll too, as OUT.png")
    parser.add_argument("--device", default="auto", help="cpu, cuda, mps or auto (default)")
    parser.add_argument(
        "--json", action="store_true", help="print files, ranking and reports as one JSON object"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Check, read, compose, write the likeliest; the paths go to stdout."""
    from music_transformer.cli.output import check_output

    files = output_files(args)
    if args.candidates < args.samples:
        raise ConfigError(
            f"--candidates {args.candidates}; choose {args.samples} or more, as many as --samples."
        )
    for path in (path for sample in files for path in sample.values()):
        check_output(path, args.force)
    check_extras(args)

    from music_transformer.generation import Filters

    Filters(args.temperature, args.top_k, args.top_p, args.min_p)  # refused before the model loads
    ranked = _accompany(args)
    with ExitStack() as stack:  # every file appears, or none does
        for sample, accompaniment in zip(files, ranked, strict=False):
            _write(stack, sample, accompaniment)
    _print(args, files, ranked)
    return 0


def _accompany(args: argparse.Namespace) -> "list[Accompaniment]":
    from music_transformer.cli.output import report_warnings, say_device
    from music_transformer.midi import read_midi

    melody = read_midi(args.melody)
    report_warnings(args.melody, melody.warnings)

    from music_transformer.checkpoint import load_checkpoint

    session = load_checkpoint(args.checkpoint, device=args.device)
    accompanist = _accompanist(args.checkpoint, session)
    say_device(args.device, session.device)
    with _progress() as progress:
        return accompanist(session, melody, args, progress)


def _accompanist(name: str, session: "Session") -> Accompanist:
    """What composes with this kind of checkpoint.

    Raises:
        ConfigError: nothing does.
    """
    kind = session.tokenizer.kind
    if kind not in _ACCOMPANISTS:
        raise ConfigError(
            f"the checkpoint {name} does not accompany, it continues a {kind}; take one of "
            "chorales, such as bach."
        )
    return _ACCOMPANISTS[kind]


def _chorale(
    session: "Session", melody: "NoteSequence", args: argparse.Namespace, progress: Progress
) -> "list[Accompaniment]":
    from music_transformer.generation import accompany

    return accompany(
        session,
        melody,
        candidates=args.candidates,
        temperature=args.temperature,
        top_k=args.top_k,
        top_p=args.top_p,
        min_p=args.min_p,
        seed=args.seed,
        context=args.context,
        keep_key=args.keep_key,
        keep_silence=args.keep_silence,
        progress=progress,
    )


#: What composes, by the kind of the checkpoint's tokenizer.
_ACCOMPANISTS: dict[str, Accompanist] = {"chorale": _chorale}


@contextmanager
def _progress() -> Iterator[Progress]:
    """A bar on stderr, and the function that tells it how much is done and how much there is."""
    from tqdm import tqdm

    with tqdm(desc="accompany", unit="event", leave=False) as bar:

        def report(done: float, total: float) -> None:
            bar.total = total
            bar.update(done - bar.n)

        yield report


def _write(stack: ExitStack, files: dict[str, Path], accompaniment: "Accompaniment") -> None:
    """Write the files of one candidate under temporary names that `stack` turns into theirs."""
    from music_transformer.cli.output import atomic_path
    from music_transformer.midi import write_midi

    notes = accompaniment.notes
    midi = stack.enter_context(atomic_path(files["midi"]))
    write_midi(notes, midi, track_names=TRACK_NAMES)
    if "wav" in files:
        from music_transformer.render.audio import render_wav

        render_wav(notes, stack.enter_context(atomic_path(files["wav"])))
    if "plot" in files:
        from music_transformer.render.pianoroll import plot_pianoroll

        figure = plot_pianoroll(notes, melody_track=0, title=files["midi"].stem)
        figure.savefig(stack.enter_context(atomic_path(files["plot"])))


def _print(
    args: argparse.Namespace, files: list[dict[str, Path]], ranked: "Sequence[Accompaniment]"
) -> None:
    from music_transformer.cli.output import print_json, warn

    for warning in ranked[0].report.warnings:
        warn(f"{args.melody}: {warning}.")
    if not args.json:
        best, worst = ranked[0].report, ranked[-1].report
        print(
            f"candidate {best.candidate} of {len(ranked)} is the likeliest: {best.nll:.3f} nats "
            f"per composed note (the last: {worst.nll:.3f})",
            file=sys.stderr,
        )
        for sample in files:
            for path in sample.values():
                print(path)
        return
    print_json(
        {
            "checkpoint": args.checkpoint,
            "melody": args.melody,
            "ranking": [
                {
                    "rank": each.report.rank,
                    "candidate": each.report.candidate,
                    "nll": each.nll,
                    "melody_nll": each.report.melody_nll,
                }
                for each in ranked
            ],
            "samples": [
                {**sample, "report": each.report.to_dict()}
                for sample, each in zip(files, ranked, strict=False)
            ],
        }
    )
