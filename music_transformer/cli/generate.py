"""`music-transformer generate`: a primer goes in, its continuation comes out."""

import argparse
import dataclasses
import importlib.util
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from music_transformer.errors import ConfigError, RenderError

if TYPE_CHECKING:
    from music_transformer.evaluation.memorisation import KnownRun, MemorisationIndex
    from music_transformer.generation import Generation, Settings

EPILOG = """\
examples:
  music-transformer generate data/motifs/fur_elise_opening.mid --checkpoint piano --out a.mid
  music-transformer generate motif.mid --checkpoint piano --seconds 60 --samples 3 --wav --plot \\
      --out b.mid
  music-transformer generate --checkpoint bach --seconds 20 --out chorale.mid

--samples 3 --out b.mid writes b-1.mid, b-2.mid and b-3.mid.
"""

#: Extra of the package and library behind each flag that needs one.
_EXTRAS = {"wav": ("audio", "midirenderer"), "plot": ("plot", "matplotlib")}


def add_parser(subparsers: Any) -> None:
    """Add `generate` to the subcommands."""
    parser = subparsers.add_parser(
        "generate",
        help="continue a motif, or compose from nothing",
        description="Continue the music of a MIDI file, or compose from nothing where none is "
        "given. The same command on the same machine writes the same file.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "primer", nargs="?", type=Path, metavar="PRIMER.mid", help="what to continue"
    )
    parser.add_argument("--checkpoint", required=True, help="a model's name or folder")
    parser.add_argument("--out", type=Path, required=True, metavar="OUT.mid", help="where to write")
    parser.add_argument("--force", action="store_true", help="overwrite files that exist")
    _add_length(parser)
    add_sampling(parser)
    _add_care(parser)
    _add_primer(parser)
    parser.add_argument("--wav", action="store_true", help="write the sound too, as OUT.wav")
    parser.add_argument(
        "--primer-gap",
        type=float,
        metavar="SECONDS",
        help="with --wav: silence between primer and continuation (2.5 in the paper's test)",
    )
    parser.add_argument("--plot", action="store_true", help="write the piano roll too, as OUT.png")
    parser.add_argument("--device", default="auto", help="cpu, cuda, mps or auto (default)")
    parser.add_argument(
        "--quantise", action="store_true", help="on a CPU: int8 layers, faster and nearly as good"
    )
    parser.add_argument(
        "--json", action="store_true", help="print files and reports as one JSON object"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Check, read, generate, write; the paths go to stdout."""
    from music_transformer.cli.output import check_output

    files = output_files(args)
    for path in (path for sample in files for path in sample.values()):
        check_output(path, args.force)
    check_extras(args)
    if args.resample < 0:
        raise ConfigError(f"--resample {args.resample}; choose 0 or more.")
    if args.primer_gap is not None:
        _check_gap(args)

    from music_transformer.generation import Settings

    names = [field.name for field in dataclasses.fields(Settings)]
    settings = Settings(**{name: getattr(args, name) for name in names})
    if math.isinf(settings.asked):
        raise ConfigError(f"--seconds {args.seconds} never ends; choose a number.")
    generations, index = _generate(args, settings)
    with ExitStack() as stack:  # every file appears, or none does
        for sample, generation in zip(files, generations, strict=True):
            _write(stack, sample, generation, args)
    runs = [None if index is None else index.longest_run(one.continuation) for one in generations]
    _print(args, files, generations, runs)
    return 0


def _add_length(parser: argparse.ArgumentParser) -> None:
    length = parser.add_argument_group("how much")
    length.add_argument(
        "--seconds", type=float, help="length past the end of the primer (default: 30)"
    )
    length.add_argument("--events", type=int, help="length in events instead of seconds")
    length.add_argument("--samples", type=int, default=1, help="continuations (default: 1)")


def add_sampling(parser: argparse.ArgumentParser) -> None:
    """Add the flags that say how events are drawn."""
    sampling = parser.add_argument_group("how it is drawn")
    sampling.add_argument("--seed", type=int, default=0, help="another seed, another continuation")
    sampling.add_argument(
        "--temperature",
        type=float,
        help="below 1 safer, above 1 wilder, 0 always the likeliest event (default: what the "
        "checkpoint says, else 1)",
    )
    sampling.add_argument("--top-k", type=int, metavar="K", help="only the K likeliest events")
    sampling.add_argument(
        "--top-p",
        type=float,
        metavar="P",
        help="only the likeliest events that make up P of the probability; 1 for all (default: "
        "what the checkpoint says, else 0.95)",
    )
    sampling.add_argument(
        "--min-p", type=float, metavar="P", help="only events P times as likely as the likeliest"
    )
    sampling.add_argument(
        "--parallels",
        type=float,
        default=0.005,
        metavar="FACTOR",
        help="chorales: make parallel fifths and octaves FACTOR times as probable as the model "
        "does; 1 leaves them to the model, 0 forbids them (default: %(default)s)",
    )
    sampling.add_argument(
        "--context", type=int, help="events the model reads at once (default: its own)"
    )


def _add_care(parser: argparse.ArgumentParser) -> None:
    care = parser.add_argument_group("when a model gets stuck")
    care.add_argument(
        "--resample",
        type=int,
        default=0,
        metavar="N",
        help="draw a continuation that degenerates again, up to N times, and keep the best "
        "(default: %(default)s)",
    )
    care.add_argument(
        "--hold-seconds",
        type=float,
        default=2.0,
        metavar="S",
        help="from this age on the end of a note grows likelier, in proportion to its age; inf "
        "leaves it to the model (default: %(default)g)",
    )
    care.add_argument(
        "--max-note-seconds",
        type=float,
        default=8.0,
        metavar="S",
        help="close a note that has lasted so long (default: %(default)g)",
    )


def _add_primer(parser: argparse.ArgumentParser) -> None:
    primer = parser.add_argument_group("the primer")
    primer.add_argument("--primer-seconds", type=float, help="read only its last part")
    primer.add_argument(
        "--keep-silence", action="store_true", help="keep the time before its first note"
    )
    primer.add_argument(
        "--without-primer", action="store_true", help="write the continuation alone"
    )


def output_files(args: argparse.Namespace) -> list[dict[str, Path]]:
    """The files of each sample, by kind."""
    if args.samples < 1:
        raise ConfigError(f"--samples {args.samples}; choose 1 or more.")
    if args.out.suffix.lower() in (".wav", ".png"):
        raise ConfigError(f"{args.out}: give --out the name of the MIDI file, ending in .mid.")
    suffixes = {"midi": args.out.suffix}
    suffixes |= {"wav": ".wav"} if args.wav else {}
    suffixes |= {"plot": ".png"} if args.plot else {}
    stems = [args.out.stem]
    if args.samples > 1:
        stems = [f"{args.out.stem}-{number}" for number in range(1, args.samples + 1)]
    return [
        {kind: args.out.with_name(stem + suffix) for kind, suffix in suffixes.items()}
        for stem in stems
    ]


def check_extras(args: argparse.Namespace) -> None:
    """Refuse before the work what could not be written after it."""
    for flag, (extra, library) in _EXTRAS.items():
        if getattr(args, flag) and importlib.util.find_spec(library) is None:
            raise RenderError(
                f"--{flag} needs the [{extra}] extra: pip install music-transformer[{extra}]"
            )


def _check_gap(args: argparse.Namespace) -> None:
    """Refuse a silence that would be nowhere."""
    if not (args.wav and args.primer is not None and not args.without_primer):
        raise ConfigError("--primer-gap is heard between a primer and its continuation, in --wav.")
    if not 0 <= args.primer_gap < math.inf:
        raise ConfigError(f"--primer-gap {args.primer_gap:g}; choose 0 seconds or more.")


def _generate(
    args: argparse.Namespace, settings: "Settings"
) -> "tuple[list[Generation], MemorisationIndex | None]":
    """The samples, and what the model's training data are known by."""
    from music_transformer.cli.output import naming, report_warnings, say_device
    from music_transformer.midi import read_midi

    primer = None
    if args.primer is not None:
        primer = read_midi(args.primer)
        report_warnings(args.primer, primer.warnings)

    from music_transformer.checkpoint import load_checkpoint
    from music_transformer.evaluation.memorisation import find_index
    from music_transformer.generation import generate_batch
    from music_transformer.model.quantised import quantise_linears

    session = load_checkpoint(args.checkpoint, device=args.device)
    if args.quantise:
        session = dataclasses.replace(session, model=quantise_linears(session.model))
    say_device(args.device, session.device)
    index = find_index(session.path)  # a damaged one is refused before the work
    with naming(args.primer or "without a primer"), _progress(settings) as progress:
        generations = generate_batch(
            session,
            primer,
            samples=args.samples,
            resample=args.resample,
            progress=progress,
            **dataclasses.asdict(settings),
        )
    return generations, index


@contextmanager
def _progress(settings: "Settings") -> Iterator[Callable[[float, float], None]]:
    """A bar on stderr, and the function that tells it how much is done and how much there is."""
    from tqdm import tqdm

    numbers = "{n:.0f}/{total:.0f} events" if settings.events is not None else "{n:.1f}/{total:g} s"
    form = "{desc}: {percentage:3.0f}%|{bar}| " + numbers + " [{elapsed}<{remaining}]"
    with tqdm(total=settings.asked, desc="generate", leave=False, bar_format=form) as bar:

        def report(done: float, total: float) -> None:
            bar.update(done - bar.n)

        yield report


def _write(
    stack: ExitStack, files: dict[str, Path], generation: "Generation", args: argparse.Namespace
) -> None:
    """Write the files of one sample under temporary names that `stack` turns into theirs."""
    from music_transformer.cli.output import atomic_path
    from music_transformer.midi import write_midi

    notes = generation.continuation if args.without_primer else generation.notes
    write_midi(notes, stack.enter_context(atomic_path(files["midi"])))
    if "wav" in files:
        from music_transformer.render.audio import render_wav, with_primer_gap

        heard = notes
        if args.primer_gap is not None:
            heard = with_primer_gap(
                notes, primer_end=generation.report.primer_seconds, gap=args.primer_gap
            )
        render_wav(heard, stack.enter_context(atomic_path(files["wav"])))
    if "plot" in files:
        from music_transformer.render.pianoroll import plot_pianoroll

        has_primer = args.primer is not None and not args.without_primer
        primer_end = generation.report.primer_seconds if has_primer else None
        figure = plot_pianoroll(notes, primer_end=primer_end, title=files["midi"].stem)
        figure.savefig(stack.enter_context(atomic_path(files["plot"])))


def _print(
    args: argparse.Namespace,
    files: list[dict[str, Path]],
    generations: "Sequence[Generation]",
    runs: "Sequence[KnownRun | None]",
) -> None:
    from music_transformer.cli.output import print_json, say, warn

    for sample, generation, known in zip(files, generations, runs, strict=True):
        for attempt, rules in generation.report.discarded:
            say(f"{sample['midi']}: attempt {attempt} was discarded ({', '.join(rules)})")
        for warning in generation.report.warnings:
            warn(f"{sample['midi']}: {warning}.")
        say(f"{sample['midi']}: longest run of notes also in training: {_length(known)}")
        if not args.json:
            for path in sample.values():
                print(path)
    if args.json:
        print_json(
            {
                "checkpoint": args.checkpoint,
                "primer": args.primer,
                "samples": [
                    {
                        **sample,
                        "report": generation.report.to_dict(),
                        "memorisation": None if known is None else dataclasses.asdict(known),
                    }
                    for sample, generation, known in zip(files, generations, runs, strict=True)
                ],
            }
        )


def _length(known: "KnownRun | None") -> str:
    """The length of a run in words."""
    if known is None:
        return "not checked (the checkpoint has no index)"
    if known.notes == 0:
        return f"none of {known.shortest} notes or more"
    return f"{known.notes} notes, {known.start:.1f} to {known.end:.1f} s after the primer"
