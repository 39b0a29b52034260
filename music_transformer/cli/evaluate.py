"""`evaluate`: the NLL of a model on a split of prepared data, beside the counting baselines."""

import argparse
import dataclasses
import math
from typing import TYPE_CHECKING, Any

from music_transformer.cli.output import counter, load_model, print_json, warn
from music_transformer.errors import CheckpointError, ConfigError, DatasetError

if TYPE_CHECKING:
    from music_transformer.checkpoint.session import Session
    from music_transformer.datasets.prepared import PreparedData
    from music_transformer.evaluation.compare import PairedDifference
    from music_transformer.evaluation.nll import NllReport

DESCRIPTION = (
    "Measure a model on a whole split in nats per event (chorales: per note; lower is better), "
    "beside what counting on the training split reaches. Choose by validation; report test once."
)
EPILOG = """\
examples:
  music-transformer evaluate --checkpoint bach --data data/jsb --split validation
  music-transformer evaluate --checkpoint bach --data data/jsb --lengths 128,256,512,1024
  music-transformer evaluate --checkpoint bach --against checkpoints/mine --data data/jsb
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--checkpoint", required=True, help="name or folder of the checkpoint")
    add("--data", required=True, help="folder made by `prepare`")
    add("--split", default="validation", help="default: %(default)s")
    windows = parser.add_mutually_exclusive_group()
    windows.add_argument(
        "--context", type=int, help="window length in events (default: the model's)"
    )
    windows.add_argument(
        "--lengths",
        type=_lengths,
        metavar="N,N,...",
        help="instead of one context: the NLL in windows of each of these lengths, and by place in "
        "the window",
    )
    add(
        "--against",
        metavar="CHECKPOINT",
        help="a second model on the same pieces: the difference and its 95 %% interval",
    )
    add("--device", default="auto", help="cpu, cuda, mps or auto (default)")
    add("--quantise", action="store_true", help="measure it with int8 layers (CPU), as in generate")
    add("--batch-size", type=int, default=8, help="windows at a time (default: 8)")
    add("--no-baselines", action="store_true", help="leave the counting baselines out")
    add("--json", action="store_true", help="one JSON object on stdout, key nll")


def _lengths(text: str) -> list[int]:
    """``256,512`` -> [256, 512]."""
    try:
        lengths = [int(part) for part in text.split(",")]
    except ValueError:
        lengths = []
    if min(lengths, default=0) < 1:
        raise argparse.ArgumentTypeError(
            f"{text!r}: lengths are whole numbers from 1 up with commas between, such as 128,256"
        )
    return lengths


def run(args: argparse.Namespace) -> int:
    """Measure and print; baselines are counted first, since they are quick and may refuse."""
    from music_transformer.checkpoint.session import load_checkpoint
    from music_transformer.datasets.prepared import PreparedData
    from music_transformer.evaluation.baselines import count_baselines
    from music_transformer.evaluation.compare import paired_difference, shuffled_nll

    data = PreparedData.open(args.data).verify()
    session = load_model(args)
    _check_tokenizer(session, data)
    if args.split == "test":
        warn("the test split is to be reported once; choose between models by validation.")
    if args.lengths:
        if args.against:
            raise ConfigError("--against compares whole reports; leave --lengths out.")
        return _run_lengths(args, session, data)
    baselines = None if args.no_baselines else count_baselines(data, args.split)
    report = _measure(args, session, data)
    result: dict[str, Any] = {}
    lines = [_table(report, baselines)]
    if args.against:
        second = load_checkpoint(args.against, device=args.device)
        _check_tokenizer(second, data)
        other = _measure(args, second, data)
        result["against"] = {**dataclasses.asdict(other), "checkpoint": str(second.path)}
        result["difference"] = None
        lines += [f"\nagainst {second.path}", _table(other, None), ""]
        if len(report.by_piece) > 1:
            difference = paired_difference(
                [one.nll for one in report.by_piece],
                [one.nll for one in other.by_piece],
                [one.events for one in report.by_piece],
            )
            result["difference"] = difference.to_dict()
            lines.append(_told(difference))
        else:
            by = f"difference {report.nll - other.nll:+.4f}"
            lines.append(f"{by} on one piece, which says nothing of others")
    elif data.tokenizer.has_melody:
        with counter("evaluate", unit="window") as progress:
            shuffled = shuffled_nll(
                session.model, data, report, batch_size=args.batch_size, progress=progress
            )
        result |= shuffled.to_dict()
        lines.append(f"with the melodies of other pieces {shuffled.nll:.4f}")
        lines.append(f"  the right melody is worth {_interval(shuffled.difference)}")
    if args.json:
        parts = dataclasses.asdict(report)
        print_json({**parts, "baselines": baselines, **_origin(args, session, data), **result})
    else:
        print("\n".join(lines))
    return 0


def _origin(args: argparse.Namespace, session: "Session", data: "PreparedData") -> dict[str, str]:
    """What was measured on what, in JSON."""
    return {"checkpoint": str(session.path), "data": str(args.data), "data_checksum": data.checksum}


def _measure(args: argparse.Namespace, session: "Session", data: "PreparedData") -> "NllReport":
    """The report of one model."""
    from music_transformer.evaluation.nll import evaluate_nll

    with counter("evaluate", unit="window") as progress:
        report = evaluate_nll(
            session.model,
            data,
            args.split,
            context=args.context,
            batch_size=args.batch_size,
            progress=progress,
        )
    _check_number(session, report.nll)
    return report


def _check_number(session: "Session", nll: float) -> None:
    if not math.isfinite(nll):
        raise CheckpointError(
            f"{session.path}: its NLL is {nll}, so some of its weights are no numbers; restore "
            "them, or train again."
        )


def _interval(difference: "PairedDifference") -> str:
    return (
        f"{difference.mean:+.4f}, 95 % interval {difference.low:+.4f} to {difference.high:+.4f} "
        f"over {difference.pieces} pieces"
    )


def _told(difference: "PairedDifference") -> str:
    """The difference in words: which is better, or that it is not known."""
    verdict = {
        -1: "the first is better",
        0: "no order: the interval holds 0",
        1: "the second is better",
    }[difference.order]
    return (
        f"difference {_interval(difference)}: {verdict}\n"
        f"  the first is better on {difference.better_on} of them; other seeds of training would "
        "add to the interval"
    )


def _run_lengths(args: argparse.Namespace, session: "Session", data: "PreparedData") -> int:
    """Measure at each length; baselines do not depend on it and are left out."""
    from music_transformer.evaluation.compare import nll_by_length

    with counter("evaluate", unit="window") as progress:
        results = nll_by_length(
            session.model,
            data,
            args.split,
            args.lengths,
            batch_size=args.batch_size,
            progress=progress,
        )
    for result in results:
        _check_number(session, result.nll)
    if args.json:
        lengths = [dataclasses.asdict(result) for result in results]
        found = {"lengths": lengths, "context": session.config.context, "split": args.split}
        print_json(found | _origin(args, session, data))
        return 0
    print(f"NLL on {args.split} by length of the window; trained on {session.config.context}")
    for result in results:
        error = "" if result.standard_error is None else f" +- {result.standard_error:.3f}"
        print(f"  {result.length:>6}  {result.nll:.4f}{error}")
        for place in result.by_place:
            span = f"{place.first}-{place.last}"
            print(f"          at places {span:<12}{place.nll:7.3f}")
    return 0


def _check_tokenizer(session: "Session", data: "PreparedData") -> None:
    ours, theirs = session.tokenizer.to_config(), data.tokenizer.to_config()
    if ours != theirs:
        raise DatasetError(
            f"{data.path}: prepared with the tokenizer {theirs}, but {session.path} reads {ours}; "
            "prepare the data with the tokenizer of the checkpoint."
        )


def _table(report: "NllReport", baselines: dict[str, float] | None) -> str:
    """The report for people, best read top down: the number, its parts, what counting reaches."""
    protocol = report.protocol
    unit = "nats per note" if protocol["kind"] == "chorale" else "nats per event"
    error = "" if report.standard_error is None else f" +- {report.standard_error:.3f}"
    parts: list[tuple[str, float | None]] = [
        (f"quarter {i} of the window", value) for i, value in enumerate(report.by_quarter, start=1)
    ]
    parts += list((report.by_voice or {}).items())
    parts += [
        ("on the beat", report.on_beat),
        ("half-beats", report.half_beats),
        ("odd sixteenths", report.odd_sixteenths),
        ("off the beat", report.off_beat),
        ("without its mask", report.nll_without_mask),
    ]
    lines = [
        f"NLL {report.nll:.4f} {unit}, {protocol['split']}, "
        f"{report.events:,} events in {report.pieces} pieces",
        f"  mean over pieces {report.mean_over_pieces:.4f}{error}",
        f"  windows of {protocol['context']} every {protocol['stride']}, START and END not counted",
        *(f"  {name:<28}{value:7.3f}" for name, value in parts if value is not None),
    ]
    if baselines is not None:
        lines.append("baselines, counted on train")
        lines += [f"  {name:<52} {value:7.3f}" for name, value in baselines.items()]
    return "\n".join(lines)
