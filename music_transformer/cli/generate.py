"""`music-transformer generate`: a primer goes in, its continuation comes out."""

import argparse
import dataclasses
import math
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from music_transformer.cli import options, output
from music_transformer.errors import ConfigError
from music_transformer.sampling import CARE, CHOICE, DRAWN, ENDING, LENGTH, PRIMER, WISH, Settings

if TYPE_CHECKING:
    from music_transformer.evaluation.memorisation import MemorisationIndex
    from music_transformer.generation.report import Generation

DESCRIPTION = (
    "Continue the music of a MIDI file, or compose from nothing where none is given. The same "
    "command on the same machine writes the same file."
)
EPILOG = """\
examples:
  music-transformer generate motif.mid
  music-transformer generate data/motifs/fur_elise_opening.mid --checkpoint piano --out a.mid
  music-transformer generate motif.mid --checkpoint piano --seconds 60 --samples 3 --wav --plot \\
      --out b.mid
  music-transformer generate --checkpoint bach --seconds 20 --out chorale.mid

--samples 3 --out b.mid writes b-1.mid, b-2.mid and b-3.mid.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("primer", nargs="?", type=Path, metavar="PRIMER.mid", help="what to continue")
    add("--checkpoint", default="piano", help="a model's name or folder (default: %(default)s)")
    options.add_results(parser, "where to write (default: out/ and the name of the primer)")
    add("--samples", type=int, default=1, help="continuations (default: 1)")
    options.add_settings(parser, (LENGTH, ENDING, WISH, DRAWN, CARE, CHOICE, PRIMER))
    options.add_part_arguments(parser)
    add("--show-all", action="store_true", help="write all candidates of one sample, best first")
    add("--without-primer", action="store_true", help="write the continuation alone")
    add(
        "--primer-gap",
        type=float,
        metavar="SECONDS",
        help="with --wav: silence between primer and continuation (2.5 in the paper's test)",
    )
    add("--quantise", action="store_true", help="on a CPU: int8 layers, faster and nearly as good")


def run(args: argparse.Namespace) -> int:
    """Check, read, generate, write; the paths go to stdout."""
    if args.out is None:
        name = Path(args.checkpoint).name if args.primer is None else args.primer.stem
        args.out = Path("out") / f"{name}.mid"
    if args.show_all:
        if args.samples != 1 or args.candidates is None:
            raise ConfigError("--show-all shows the candidates of one sample; say --candidates N.")
        args.samples = args.candidates
    settings = options.settings_from(args)
    files = options.result_files(args)
    if args.primer is None and (args.begin or args.stop):
        raise ConfigError("--from and --to take a part of a primer, and none is given.")
    if args.primer_gap is not None:
        _check_gap(args)
    generations, index = _generate(args, settings)
    with ExitStack() as stack:  # every file appears, or none does
        for sample, generation in zip(files, generations, strict=True):
            _write(stack, sample, generation, args)
    known = [None if index is None else index.longest_run(one.continuation) for one in generations]
    for sample, generation, copied in zip(files, generations, known, strict=True):
        for attempt, rules in generation.report.discarded:
            if rules:
                output.say(
                    f"{sample['midi']}: attempt {attempt} was discarded ({', '.join(rules)})"
                )
        for warning in generation.report.warnings:
            output.warn(f"{sample['midi']}: {warning}.")
        compared = copied or "not compared with the training data (no index of it)"
        output.say(f"{sample['midi']}: {compared}.")
    runs = [{"memorisation": None if one is None else dataclasses.asdict(one)} for one in known]
    reports = [generation.report for generation in generations]
    output.print_samples(args, files, reports, runs, primer=args.primer)
    return 0


def _check_gap(args: argparse.Namespace) -> None:
    """Refuse a silence that would be nowhere."""
    if not (args.wav and args.primer is not None and not args.without_primer):
        raise ConfigError("--primer-gap is heard between a primer and its continuation, in --wav.")
    if not 0 <= args.primer_gap < math.inf:
        raise ConfigError(f"--primer-gap {args.primer_gap:g}; choose 0 seconds or more.")


def _generate(
    args: argparse.Namespace, settings: Settings
) -> "tuple[list[Generation], MemorisationIndex | None]":
    """The samples, and what the model's training data are known by."""
    primer = None if args.primer is None else options.read_given(args.primer, args)

    from music_transformer.evaluation.memorisation import find_index
    from music_transformer.generation.continuation import generate_batch

    session = output.load_model(args)
    index = find_index(session.path)  # a damaged one is refused before the work
    numbers = "{n:.0f}/{total:.0f} events" if settings.events is not None else "{n:.1f}/{total:g} s"
    form = "{desc}: {percentage:3.0f}%|{bar}| " + numbers + " [{elapsed}<{remaining}]"
    bar = output.counter("generate", total=settings.asked, bar_format=form, disable=False)
    with output.naming(args.primer or "without a primer"), bar as progress:
        generations = generate_batch(
            session,
            primer,
            samples=1 if args.show_all else args.samples,
            on_progress=progress,
            settings=settings,
        )
    if args.show_all:
        generations = [generations[0], *generations[0].others][: args.samples]
    return generations, index


def _write(
    stack: ExitStack, files: dict[str, Path], generation: "Generation", args: argparse.Namespace
) -> None:
    """Write the files of one sample under temporary names that `stack` turns into theirs."""
    notes = heard = generation.continuation if args.without_primer else generation.notes
    if args.primer_gap is not None:
        from music_transformer.render.audio import with_primer_gap

        end = generation.report.primer_seconds
        heard = with_primer_gap(notes, primer_end=end, gap=args.primer_gap)
    primer_end = None if args.primer is None else generation.report.primer_seconds
    primer_end = 0.0 if args.without_primer else primer_end
    output.write_results(stack, files, notes, args, heard=heard, primer_end=primer_end)
