"""What `reproduce_jsb.py` and `reproduce_maestro.py` share: a table of a paper, trained row by row.

Every run is one ``music-transformer train`` in a folder of its own and goes on where it stopped; it
is measured once it is finished (or the time of this call is over), and what was measured is kept
beside it. So a call that was killed, or that had ``--minutes``, is given again until all is done.

Two ways to fill the table:

- each row by its own preset, as large and as long as it says (beside the paper's numbers);
- ``--equal``: all rows in one small shape with the same steps and windows, so that only the idea of
  the row differs, several seeds each, compared piece by piece (`evaluation/compare.py`).

Validation chooses, and is all that is measured; ``--test`` measures the test split too, once for
each row, of whatever step validation chose.
"""

from __future__ import annotations

import argparse
import json
import math
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

from tqdm import tqdm

from music_transformer.checkpoint import load_checkpoint
from music_transformer.datasets import PreparedData
from music_transformer.errors import MusicTransformerError
from music_transformer.evaluation.compare import paired_difference
from music_transformer.evaluation.nll import evaluate_nll

SHORTEST_SLICE_MINUTES = 0.05

_BY_QUARTER = "by quarter of the window"
_COSTS = ("parameters", "events a run", "minutes a run")


@dataclass(frozen=True)
class Row:
    """One row of a table of the paper.

    Attributes:
        name: as the paper has it.
        preset: its own recipe.
        paper: the paper's validation NLL, nats per event.
        small_preset: what the row is in the small shape, together with `small`.
        small: settings on top of it.
        note: what a reader of the table should know.
    """

    name: str
    preset: str
    paper: float
    small_preset: str
    small: tuple[str, ...] = ()
    note: str = ""


@dataclass(frozen=True)
class Table:
    """A table of the paper.

    Attributes:
        title: of the table that is written.
        unit: of its numbers.
        rows: in the paper's order.
        small_shape: what ``--equal`` makes of every row, in words.
        equal_settings: settings of all rows of ``--equal``.
        steps: of ``--equal``, unless given.
        windows: of the split to measure in ``--equal``, unless given; None for all.
        known: numbers of the paper that are not trained here.
    """

    title: str
    unit: str
    rows: tuple[Row, ...]
    small_shape: str
    equal_settings: tuple[str, ...]
    steps: int
    windows: int | None = None
    known: tuple[tuple[str, float], ...] = ()


@dataclass
class Clock:
    """The minutes of this call; None for no end."""

    minutes: float | None
    started: float = field(default_factory=time.monotonic)

    @property
    def left(self) -> float | None:
        """Minutes left."""
        if self.minutes is None:
            return None
        return self.minutes - (time.monotonic() - self.started) / 60

    @property
    def is_over(self) -> bool:
        """Whether another slice is not worth its start."""
        return self.left is not None and self.left < SHORTEST_SLICE_MINUTES


def main(table: Table, description: str) -> int:
    """Train what is asked for, as far as the time goes, and write the table as it stands."""
    args = _arguments(table, description)
    signal.signal(signal.SIGTERM, _leave)
    try:
        return _equal(table, args) if args.equal else _full(table, args)
    except MusicTransformerError as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        return 130


def _arguments(table: Table, description: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [row.preset for row in table.rows]
    parser.add_argument("--data", required=True, help="folder that `prepare` made")
    parser.add_argument("--out", type=Path, required=True, help="folder for runs and tables")
    parser.add_argument(
        "--rows", nargs="+", choices=names, default=names, metavar="PRESET", help="default: all"
    )
    parser.add_argument(
        "--minutes", type=float, help="train so long in this call, all rows together, then stop"
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        dest="settings",
        metavar="KEY=VALUE",
        help="change a setting of every run, as in `train`",
    )
    parser.add_argument(
        "--test", action="store_true", help="measure finished rows on the test split, once"
    )
    parser.add_argument("--windows", type=int, help="measure about so many windows, not all")
    parser.add_argument("--device", default="auto")
    equal = parser.add_argument_group("all rows with an equal budget")
    equal.add_argument("--equal", action="store_true", help="compare the rows as equals")
    equal.add_argument("--steps", type=int, help=f"of each run (with --equal: {table.steps})")
    equal.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="(0 1 2)")
    equal.add_argument(
        "--scale",
        choices=("small", "paper"),
        default="small",
        help=f"small (default): {table.small_shape}; paper: every row in its own shape",
    )
    args = parser.parse_args()
    if args.minutes is not None and not args.minutes > 0:
        parser.error(f"--minutes {args.minutes:g}: choose more than 0.")
    if args.steps is not None and args.steps < 1:
        parser.error(f"--steps {args.steps}: choose 1 or more.")
    args.rows = [row for row in table.rows if row.preset in args.rows]
    return args


# --- the rows as the paper has them ---------------------------------------------------------------


def _full(table: Table, args: argparse.Namespace) -> int:
    """Every row by its own preset."""
    clock = Clock(args.minutes)
    steps = [f"steps={args.steps}"] if args.steps else []
    results: dict[str, dict[str, Any]] = {}
    for row in args.rows:
        run = args.out / row.preset
        settings = [*args.settings, *steps]
        result = _trained(run, row.preset, settings, 0, args, clock)
        if result is not None:
            results[row.preset] = {**_measured(run, result, "validation", args), **result}
            if args.test and result["reason"] == "finished":
                results[row.preset]["test"] = _measured(run, result, "test", args)["nll"]
    _write(args.out, full_table(table, args.rows, results), {"rows": results})
    return 0


def full_table(table: Table, rows: Sequence[Row], results: dict[str, dict[str, Any]]) -> str:
    """Markdown: the paper's number and ours, and how far each row is trained."""
    tested = any("test" in result for result in results.values())
    head = ["model", "paper", "ours", "trained", "parameters", _BY_QUARTER]
    head += ["ours, test"] * tested
    lines = [f"{table.title}: {table.unit}, validation, lower is better.", "", *_head(head)]
    for name, number in table.known:
        lines.append(_line([name, f"{number:g}", *[""] * (len(head) - 2)]))
    for row in rows:
        cells = [_named(row), f"{row.paper:g}"]
        result = results.get(row.preset)
        if result is None:
            lines.append(_line([*cells, "not trained yet", *[""] * (len(head) - 3)]))
            continue
        minutes = result["seconds"] / 60
        trained = (
            f"{result['step']:,} of {result['steps']:,} steps, {result['events'] / 1e6:.1f} M "
            f"events, {minutes:,.0f} min"
        )
        cells += [f"{result['nll']:.4f}", trained, f"{result['parameters'] / 1e6:.1f} M"]
        cells.append(_quarters([result]))
        cells += [f"{result['test']:.4f}" if "test" in result else ""] * tested
        lines.append(_line(cells))
    return "\n".join(lines) + "\n"


# --- the rows as equals ---------------------------------------------------------------------------


def _equal(table: Table, args: argparse.Namespace) -> int:
    """All rows with the same steps, windows and, at scale small, shape; several seeds."""
    args.steps = args.steps or table.steps
    if args.windows is None:
        args.windows = table.windows
    clock = Clock(args.minutes)
    out = args.out / f"equal-{args.scale}-steps{args.steps}"
    results: dict[str, list[dict[str, Any]]] = {row.preset: [] for row in args.rows}
    for seed in args.seeds:  # seeds outermost: a part of it is a comparison already
        for row in args.rows:
            small = args.scale == "small"
            settings = [
                *(table.equal_settings if small else ()),
                *(row.small if small else ()),
                *args.settings,
                f"steps={args.steps}",
                f"evaluate_every={args.steps}",
            ]
            run = out / f"{row.preset}-seed{seed}"
            preset = row.small_preset if small else row.preset
            result = _trained(run, preset, settings, seed, args, clock)
            if result is None or result["reason"] != "finished":
                continue
            found = {**_measured(run, result, "validation", args), **result, "seed": seed}
            results[row.preset].append(found)
    done = {name: runs for name, runs in results.items() if runs}
    differences = compare(done)
    missing = len(args.rows) * len(args.seeds) - sum(map(len, results.values()))
    text = equal_table(table, args.rows, done, differences, args)
    if missing:
        text += f"\n{missing} runs are not finished: give the same command again.\n"
    _write(out, text, {"rows": done, "differences": differences})
    return 0


def compare(results: dict[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Every two rows: the paired difference over pieces and seeds."""
    found = []
    for first, second in combinations(results, 2):
        a, b = results[first], results[second]
        difference = paired_difference(
            [[piece["nll"] for piece in run["by_piece"]] for run in a],
            [[piece["nll"] for piece in run["by_piece"]] for run in b],
            [piece["events"] for piece in a[0]["by_piece"]],
        )
        found.append({"first": first, "second": second, **difference.to_dict()})
    return found


def equal_table(
    table: Table,
    rows: Sequence[Row],
    results: dict[str, list[dict[str, Any]]],
    differences: Sequence[dict[str, Any]],
    args: argparse.Namespace,
) -> str:
    """Markdown: the rows, then every two of them and whether an order may be claimed."""
    shape = table.small_shape if args.scale == "small" else "every row in the shape of the paper"
    measured = "whole split" if args.windows is None else f"{args.windows} windows of it"
    lines = [
        f"{table.title}, equal budget: {args.steps:,} steps for every run, seeds "
        f"{' '.join(map(str, args.seeds))}; {shape}. {table.unit.capitalize()}, validation "
        f"({measured}).",
        "",
        *_head(["model", "paper", "mean", "sd over seeds", _BY_QUARTER, *_COSTS]),
    ]
    for row in rows:
        runs = results.get(row.preset)
        if runs is None:
            blank = [""] * (2 + len(_COSTS))
            lines.append(_line([_named(row), f"{row.paper:g}", "not trained yet", *blank]))
            continue
        nlls = [run["nll"] for run in runs]
        mean = sum(nlls) / len(nlls)
        spread = "one seed"
        if len(nlls) > 1:
            variance = sum((nll - mean) ** 2 for nll in nlls) / (len(nlls) - 1)
            spread = f"{math.sqrt(variance):.4f}"
        minutes = sum(run["seconds"] for run in runs) / len(runs) / 60
        millions = runs[0]["parameters"] / 1e6
        events = sum(run["events"] for run in runs) / len(runs) / 1e6
        cells = [_named(row), f"{row.paper:g}", f"{mean:.4f}", spread, _quarters(runs)]
        lines.append(_line([*cells, f"{millions:.2f} M", f"{events:.2f} M", f"{minutes:.1f}"]))
    names = {row.preset: row.name for row in rows}
    lines += [
        "",
        "Every two, first minus second, with the 95 % interval over pieces and seeds; an order is "
        "claimed only where it leaves out 0.",
        "",
        *_head(["first", "second", "difference", "interval", "pieces", "better"]),
    ]
    for one in differences:
        better = {-1: names[one["first"]], 0: "not known", 1: names[one["second"]]}[one["order"]]
        interval = f"{one['low']:+.4f} to {one['high']:+.4f}"
        pieces = f"{one['better_on']} of {one['pieces']} for the first"
        cells = [names[one["first"]], names[one["second"]], f"{one['mean']:+.4f}", interval]
        lines.append(_line([*cells, pieces, better]))
    return "\n".join(lines) + "\n"


# --- runs -----------------------------------------------------------------------------------------


def _trained(
    run: Path,
    preset: str,
    settings: Sequence[str],
    seed: int,
    args: argparse.Namespace,
    clock: Clock,
) -> dict[str, Any] | None:
    """How the run stands after this slice; None where it has no step yet."""
    kept = run.with_name(f"{run.name}.run.json")
    asked = {"preset": preset, "settings": [*settings], "seed": seed, "data": str(args.data)}
    before: dict[str, Any] | None = None
    if kept.is_file():
        before = json.loads(kept.read_text(encoding="utf-8"))
        if before["asked"] != asked:
            sys.exit(
                f"{run}: begun with {before['asked']}, now asked for {asked}; take another --out."
            )
        if before["reason"] == "finished":
            return before
    if clock.is_over:
        return before
    run.parent.mkdir(parents=True, exist_ok=True)
    minutes = "none" if clock.left is None else f"{clock.left:.6f}"
    free = ["checkpoint_minutes=3", f"max_minutes={minutes}"]  # of this call, not of the run
    sets = [part for setting in [*settings, *free] for part in ("--set", setting)]
    where = ["--data", args.data, "--out", run, "--seed", seed, "--device", args.device]
    print(f"{run}: {preset}, seed {seed}", file=sys.stderr)
    output = _tool("train", "--preset", preset, *where, "--resume", "--json", *sets)
    result = {**json.loads(output), "asked": asked}
    _keep(kept, result)
    return result


def _measured(
    run: Path, result: dict[str, Any], split: str, args: argparse.Namespace
) -> dict[str, Any]:
    """NLL of the run on a split, whole and by piece; measured anew only after further steps."""
    kept = run.with_name(f"{run.name}.{split}.json")
    asked = {"step": result["step"], "windows": args.windows}
    if kept.is_file():
        before: dict[str, Any] = json.loads(kept.read_text(encoding="utf-8"))
        if before["asked"] == asked:
            return before
    session = load_checkpoint(run, device=args.device)
    data = PreparedData.open(args.data)
    with tqdm(desc=f"{run.name}, {split}", unit="window", leave=False, disable=None) as bar:

        def report(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        found = evaluate_nll(session.model, data, split, max_windows=args.windows, progress=report)
    parameters = sum(parameter.numel() for parameter in session.model.parameters())
    measured = {**asdict(found), "parameters": parameters, "asked": asked}
    _keep(kept, measured)
    return measured


def _tool(*arguments: object) -> str:
    """What ``music-transformer ARGUMENTS`` prints; its end is ours, whichever way it comes."""
    command = [sys.executable, "-m", "music_transformer", *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            output, _ = process.communicate()
        except BaseException:  # Ctrl-C or SIGTERM: it saves its step, then we go
            process.terminate()
            process.wait()
            raise
    if process.returncode:
        sys.exit(process.returncode)  # it has said why
    return output


def _leave(number: int, _frame: object) -> None:
    sys.exit(128 + number)


def _keep(path: Path, value: dict[str, Any]) -> None:
    temporary = path.with_name(f"{path.name}.tmp")
    temporary.write_text(json.dumps(value) + "\n", encoding="utf-8")
    temporary.replace(path)


def _write(out: Path, text: str, results: dict[str, Any]) -> None:
    out.mkdir(parents=True, exist_ok=True)
    (out / "table.md").write_text(text, encoding="utf-8")
    _keep(out / "results.json", results)
    print(text)


def _quarters(runs: Sequence[dict[str, Any]]) -> str:
    """Mean NLL in the first to the last quarter of the window, over runs."""
    columns = zip(*(run["by_quarter"] for run in runs), strict=True)
    means = [sum(column) / len(column) if None not in column else None for column in columns]
    return " / ".join("-" if mean is None else f"{mean:.3f}" for mean in means)


def _named(row: Row) -> str:
    return f"{row.name} ({row.note})" if row.note else row.name


def _head(cells: Sequence[str]) -> Iterator[str]:
    yield _line(cells)
    yield _line(["---"] * len(cells))


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
