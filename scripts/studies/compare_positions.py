"""Every positional scheme on JSB with an equal budget: how well it does, and how far it reaches.

Each scheme is trained from the preset jsb-small with the same number of steps, on windows of one
length, with several seeds, then evaluated in windows of several lengths. Step labels are off: they
would tell every scheme where it is. A finished run is kept and not made again, so the script can be
stopped and started. It writes results.json, table.md and lengths.png into --out.

Intervals are 95 % over seeds (Student's t); with three seeds they are wide, as they should be.
Schemes with a table of absolute positions are read up to their table only.

    music-transformer prepare jsb --source Jsb16thSeparated.json --out data/jsb
    python scripts/studies/compare_positions.py --data data/jsb --out out/positions
    python scripts/studies/compare_positions.py --data data/jsb --out out/try --steps 20 --seeds 0
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

TRAINED_LENGTH = 256
LENGTHS = (128, 256, 512, 1024)
SCHEMES: dict[str, dict[str, object]] = {
    "none (NoPE)": {"attention_position": "none"},
    "sinusoidal": {"attention_position": "none", "input_position": "sinusoidal"},
    "learned": {"attention_position": "none", "input_position": "learned"},
    "relative": {"attention_position": "relative"},
    "relative + sinusoidal_concat": {
        "attention_position": "relative",
        "input_position": "sinusoidal_concat",
    },
    "relative, shared table": {"attention_position": "relative", "shared_table": True},
    "shaw": {"attention_position": "shaw", "clip_distance": 64},
    "t5": {"attention_position": "t5"},
    "alibi": {"attention_position": "alibi"},
    "rope": {"attention_position": "rope"},
    "untied": {"attention_position": "untied"},
}
ABSOLUTE = ("learned", "untied")  # no position past the trained length
T_95 = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776}  # two-sided, by number of seeds


def tool(*arguments: object) -> str:
    """What ``music-transformer ARGUMENTS`` prints."""
    command = [sys.executable, "-m", "music_transformer", *map(str, arguments)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def result_of(scheme: str, seed: int, args: argparse.Namespace) -> dict[int, float]:
    """NLL by length of one run; trained and measured where it is not on disk."""
    name = "".join(c if c.isalnum() else "-" for c in scheme)
    run = Path(args.out) / f"{name}-seed{seed}-steps{args.steps}"
    done = run.with_suffix(".json")
    if not done.exists():
        settings = {
            "input_position": "none",
            "step_labels": 0,
            "context": TRAINED_LENGTH,
            "steps": args.steps,
            "evaluate_every": args.steps,
            **SCHEMES[scheme],
        }
        sets = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
        where = ["--data", args.data, "--out", run, "--seed", seed]
        tool("train", "--preset", "jsb-small", *where, "--force", *sets)
        reach = [n for n in LENGTHS if scheme not in ABSOLUTE or n <= TRAINED_LENGTH]
        lengths = ",".join(map(str, reach))
        measured = ["--checkpoint", run, "--data", args.data, "--split", "validation"]
        done.write_text(tool("evaluate", *measured, "--lengths", lengths, "--json"))
    return {entry["length"]: entry["nll"] for entry in json.loads(done.read_text())["lengths"]}


def interval(values: list[float]) -> tuple[float, float | None]:
    """Mean, and half the width of its 95 % interval (None for one value)."""
    if len(values) < 2:
        return values[0], None
    t = T_95.get(len(values), 2.6)
    return statistics.mean(values), t * statistics.stdev(values) / len(values) ** 0.5


def table(results: dict[str, dict[int, list[float]]], args: argparse.Namespace) -> str:
    """The results as Markdown."""
    lines = [
        f"NLL in nats per note on validation chorales; jsb-small, {args.steps} steps on windows of "
        f"{TRAINED_LENGTH}, seeds {args.seeds}; mean +- half of the 95 % interval over seeds.",
        "",
        "| scheme | " + " | ".join(f"windows of {n}" for n in LENGTHS) + " |",
        "| --- |" + " --- |" * len(LENGTHS),
    ]
    for scheme, by_length in results.items():
        cells = []
        for length in LENGTHS:
            if length not in by_length:
                cells.append("past its table")
                continue
            mean, half = interval(by_length[length])
            cells.append(f"{mean:.3f}" + ("" if half is None else f" +- {half:.3f}"))
        lines.append(f"| {scheme} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def plot(results: dict[str, dict[int, list[float]]], path: Path) -> None:
    """NLL over the length of the window, one line a scheme."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.subplots()
    for shift, (scheme, by_length) in enumerate(results.items()):
        lengths = sorted(by_length)
        points = [interval(by_length[n]) for n in lengths]
        axes.errorbar(
            [n * 1.012 ** (shift - len(results) / 2) for n in lengths],
            [mean for mean, _ in points],
            [half or 0.0 for _, half in points],
            marker="o",
            markersize=3,
            capsize=2,
            linewidth=1,
            label=scheme,
        )
    axes.axvline(TRAINED_LENGTH, color="grey", linewidth=0.8, linestyle=":")
    axes.set_xscale("log", base=2)
    axes.set_xticks(LENGTHS, [str(n) for n in LENGTHS])
    axes.set_xlabel("length of the window (dotted: trained on)")
    axes.set_ylabel("nats per note, validation")
    axes.legend(fontsize="x-small", ncols=2)
    figure.savefig(path, dpi=150)


def main() -> None:
    """Train, measure, and write table and plot after each scheme."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", required=True, help="prepared JSB Chorales")
    parser.add_argument("--out", required=True, help="folder for runs and results")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--schemes", nargs="+", default=list(SCHEMES), choices=list(SCHEMES))
    args = parser.parse_args()
    out = Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    results: dict[str, dict[int, list[float]]] = {}
    for scheme in args.schemes:
        runs = [result_of(scheme, seed, args) for seed in args.seeds]
        results[scheme] = {n: [run[n] for run in runs] for n in LENGTHS if n in runs[0]}
        (out / "results.json").write_text(json.dumps(results, indent=1) + "\n")
        (out / "table.md").write_text(table(results, args))
        plot(results, out / "lengths.png")
    print((out / "table.md").read_text())


if __name__ == "__main__":
    main()
