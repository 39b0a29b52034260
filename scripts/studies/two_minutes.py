"""Two minutes of every shipped motif on ten seeds: how many continuations degenerate.

    python scripts/studies/two_minutes.py --checkpoint piano
    python scripts/studies/two_minutes.py --seconds 30 --samples 4 --json --out out/two_minutes

The samples of a motif are drawn side by side, as `generate --samples 10` draws them: sample i has
the generator (seed, i). A continuation degenerates when it breaks a rule of
music_transformer/generation/degeneration.py. `--out` keeps the MIDI files, the motif left out.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from music_transformer.checkpoint import load_checkpoint
from music_transformer.evaluation.memorisation import find_index
from music_transformer.generation import generate_batch
from music_transformer.midi import read_midi, write_midi
from music_transformer.sampling import DEFAULT_SAMPLING, Sampling

MOTIFS = Path(__file__).resolve().parents[2] / "data" / "motifs"


def main() -> int:
    """Draw, judge, print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--checkpoint", default="piano", help="(%(default)s)")
    parser.add_argument("--motifs", type=Path, default=MOTIFS, help="folder of MIDI files")
    parser.add_argument("--samples", type=int, default=10, help="of each (%(default)s)")
    parser.add_argument("--seconds", type=float, default=120.0, help="(%(default)s)")
    parser.add_argument("--resample", type=int, default=0, help="(%(default)s)")
    parser.add_argument("--temperature", type=float, help="(what the checkpoint says, else 1)")
    parser.add_argument("--top-p", type=float, help="(what the checkpoint says, else 0.95)")
    parser.add_argument("--hold-seconds", type=float, default=DEFAULT_SAMPLING.hold_seconds)
    parser.add_argument("--max-note-seconds", type=float, default=DEFAULT_SAMPLING.max_note_seconds)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print an object, not a table")
    parser.add_argument("--out", type=Path, help="folder for the MIDI files and result.json")
    args = parser.parse_args()

    torch.set_num_threads(args.threads)
    session = load_checkpoint(args.checkpoint, device=args.device)
    asked = Sampling(args.temperature, top_p=args.top_p)
    filters = asked.or_else(session.sampling).resolved()
    args.temperature, args.top_p = filters.temperature, filters.top_p  # for result.json
    index = find_index(session.path)
    rows: list[dict[str, Any]] = []
    for motif in tqdm(sorted(args.motifs.glob("*.mid")), unit="motif"):
        started = time.perf_counter()
        generations = generate_batch(
            session,
            read_midi(motif),
            samples=args.samples,
            seconds=args.seconds,
            temperature=args.temperature,
            top_p=args.top_p,
            hold_seconds=args.hold_seconds,
            max_note_seconds=args.max_note_seconds,
            seed=args.seed,
            resample=args.resample,
            candidates=1,
        )
        rules = Counter(rule for one in generations for rule in one.report.broken_rules)
        known = [index.longest_run(one.continuation).notes for one in generations] if index else []
        rows.append(
            {
                "motif": motif.stem,
                "samples": len(generations),
                "degenerate": sum(one.report.degenerate for one in generations),
                "rules": dict(rules),
                "drawn_again": sum(bool(one.report.discarded) for one in generations),
                "notes_closed": sum(one.report.long_notes_closed for one in generations),
                "notes": sum(one.report.notes for one in generations),
                "longest_known_run": max(known, default=None),
                "elapsed_seconds": time.perf_counter() - started,
                "warnings": [list(one.report.warnings) for one in generations],
            }
        )
        if args.out is not None:
            args.out.mkdir(parents=True, exist_ok=True)
            for one in generations:
                name = f"{motif.stem}-{one.report.sample}.mid"
                write_midi(one.continuation, args.out / name)
            about = {key: str(value) for key, value in vars(args).items()}
            result = json.dumps({"arguments": about, "motifs": rows}, indent=2)
            (args.out / "result.json").write_text(result + "\n")
    print(json.dumps(rows) if args.json else _table(rows))
    return 0


def _table(rows: list[dict[str, Any]]) -> str:
    """Markdown, a row for each motif and one for all."""
    lines = ["| motif | degenerate | by rule | notes closed | notes |", "| --- " * 5 + "|"]
    for row in rows:
        rules = ", ".join(f"{name} {count}" for name, count in row["rules"].items())
        lines.append(
            f"| {row['motif']} | {row['degenerate']} of {row['samples']} | {rules} | "
            f"{row['notes_closed']} | {row['notes']} |"
        )
    total = {name: sum(row[name] for row in rows) for name in ("degenerate", "samples", "notes")}
    closed = sum(row["notes_closed"] for row in rows)
    lines.append(
        f"| all | **{total['degenerate']} of {total['samples']}** | | {closed} | {total['notes']} |"
    )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
