"""`music-transformer listening-test`: build a blind test from checkpoints, analyse its answers."""

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from music_transformer.cli import output
from music_transformer.errors import ConfigError
from music_transformer.sampling import Sampling

if TYPE_CHECKING:
    from music_transformer.study.analysis import Analysis

DESCRIPTION = (
    "The paper's listening test. `build` makes a page that plays pairs of continuations of the "
    "same primer, by every two of the models and the real music, and collects answers; `analyse` "
    "tests and counts them."
)
EPILOG = """\
examples:
  music-transformer listening-test build --checkpoints piano checkpoints/mine \\
      --primers my_midi_files --out out/study
  music-transformer listening-test analyse answers-*.json --key out/study.key.json --out wins.png
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of both steps."""
    steps = parser.add_subparsers(metavar="build|analyse", required=True)
    parser = steps.add_parser(
        "build",
        help="make the page, its clips, and the key",
        description="Write a folder with index.html and its clips, to be given to listeners, and "
        "beside it the key, which they must not see.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--checkpoints", nargs="+", required=True, metavar="C", help="models by name or folder")
    add("--primers", type=Path, required=True, metavar="FOLDER", help="MIDI files, whole")
    add("--out", type=Path, required=True, metavar="FOLDER", help="of the page")
    add("--key", type=Path, metavar="FILE", help="where the key goes (default: OUT.key.json)")
    add("--no-real", action="store_true", help="leave out how the pieces really go on")
    add("--primer-seconds", type=float, default=10.0, help="of the primers (default: 10)")
    add("--events", type=int, default=512, help="of the continuations (default: 512)")
    add(
        "--primer-gap",
        type=float,
        default=2.5,
        help="seconds of silence behind them (default: 2.5)",
    )
    add("--limit", type=int, metavar="N", help="take only the first N primers")
    add("--temperature", type=float, help="of all models (default: their own, else 1)")
    add("--top-p", type=float, metavar="P", help="of all models (default: their own, else 0.95)")
    add("--seed", type=int, default=0, help="of the music and of the order")
    add("--format", choices=("opus", "wav"), default="opus", help="of the clips (default: opus)")
    add("--soundfont", type=Path, metavar="FONT", help="as in `render`")
    add("--device", default="auto", help="cpu, cuda, mps or auto (default)")
    add("--force", action="store_true", help="replace an earlier test in --out")
    parser.set_defaults(step=run_build)

    parser = steps.add_parser(
        "analyse",
        help="test and count the answers",
        description="Kruskal-Wallis over the sources, Wilcoxon signed-rank of each pair with "
        "Bonferroni's correction, Mann-Whitney, and who won how often.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("answers", nargs="+", type=Path, metavar="ANSWERS", help="files saved from the page")
    add("--key", type=Path, required=True, metavar="FILE", help="written by build")
    add("--out", type=Path, metavar="F.png", help="draw wins and pairs: png, svg")
    add("--force", action="store_true", help="overwrite --out when it exists")
    add("--json", action="store_true", help="one JSON object on stdout")
    parser.set_defaults(step=run_analyse)


def run(args: argparse.Namespace) -> int:
    """Take the step that was named."""
    return int(args.step(args))


def run_build(args: argparse.Namespace) -> int:
    """Compose and play every clip, write page and key; their paths go to stdout."""
    from music_transformer.study.analysis import REAL

    names = [Path(checkpoint).name for checkpoint in args.checkpoints]
    sources = [*names, *([] if args.no_real else [REAL])]
    if len(set(sources)) < len(sources) or len(sources) < 2:
        raise ConfigError(
            f"the sources are {', '.join(sources)}: give two or more, each with its own name."
        )
    for name in ("events", "limit"):
        if getattr(args, name) is not None and getattr(args, name) < 1:
            raise ConfigError(f"--{name} {getattr(args, name)}; choose 1 or more.")
    sampling = Sampling(args.temperature, top_p=args.top_p)
    key_path = args.key or args.out.with_name(f"{args.out.name}.key.json")

    from music_transformer.checkpoint.session import load_checkpoint
    from music_transformer.study import build as study

    study.check_places(args.out, key_path, force=args.force)
    settings = study.StudySettings(
        primer_seconds=args.primer_seconds,
        events=args.events,
        primer_gap=args.primer_gap,
        real=not args.no_real,
        sampling=sampling,
        seed=args.seed,
        suffix=f".{args.format}",
        soundfont=args.soundfont,
    )
    sessions = {
        name: load_checkpoint(checkpoint, device=args.device)
        for name, checkpoint in zip(names, args.checkpoints, strict=True)
    }
    output.say_device(args.device, sessions[names[0]].device)
    study.check_tokenizers(sessions)
    pieces, left_out = study.split_pieces(
        args.primers, sessions[names[0]], settings, limit=args.limit
    )
    for line in left_out:
        output.warn(line)
    with output.counter("listening-test", unit="clip", disable=False) as progress:
        key = study.build_study(args.out, sessions, pieces, settings, progress=progress)
    with output.atomic_path(key_path, replace=args.force) as temporary:
        temporary.write_text(json.dumps(asdict(key), indent=1) + "\n", encoding="utf-8")
    print(args.out / study.PAGE)
    print(key_path)
    return 0


def run_analyse(args: argparse.Namespace) -> int:
    """Read, test, print; draw where asked to."""
    from music_transformer.study.analysis import analyse, plot_study, read_answers, read_key

    if args.out is not None:
        output.check_picture(args.out, args.force)
    key = read_key(args.key)
    answers = [answer for path in args.answers for answer in read_answers(path, key)]
    analysis = analyse(key, answers)
    if args.out is not None:
        with output.atomic_path(args.out, replace=args.force) as temporary:
            plot_study(analysis).savefig(temporary)
    if args.json:
        output.print_json(asdict(analysis))
    else:
        print(_table(analysis))
        if args.out is not None:
            print(args.out)
    return 0


def _table(analysis: "Analysis") -> str:
    """Everything on one screen."""
    width = max(len(source) for source in analysis.wins)
    lines = [
        f"{analysis.answers} answers of {analysis.listeners} listeners",
        f"Kruskal-Wallis over {len(analysis.wins)} sources: chi2({analysis.degrees}) = "
        f"{analysis.kruskal:.2f}, p = {analysis.kruskal_p:.3g}",
        "",
        f"{'source':<{width}}   won equal  lost",
    ]
    for source, (won, equal, lost) in sorted(analysis.wins.items(), key=lambda item: -item[1][0]):
        lines.append(f"{source:<{width}} {won:5d} {equal:5d} {lost:5d}")
    lines += ["", f"{'pair':<{2 * width + 5}}   won equal  lost  Wilcoxon p   Mann-Whitney p"]
    for pair in analysis.pairs:
        star = " *" if pair.significant else ""
        lines.append(
            f"{pair.first:>{width}} and {pair.second:<{width}} {pair.wins:5d} {pair.ties:5d} "
            f"{pair.losses:5d}  {pair.wilcoxon_p:10.3g} {pair.mann_whitney_p:16.3g}{star}"
        )
    lines.append(f"* Wilcoxon signed-rank below 0.01 / {len(analysis.pairs)} (Bonferroni)")
    return "\n".join(lines)
