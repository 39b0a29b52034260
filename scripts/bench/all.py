"""All measurements of attention, training and decoding, into docs/benchmarks.md.

Run it with nothing else running: about half an hour on one core. Every ratio is printed with its
target, and marked where it is missed. Reading and encoding MIDI has a script of its own, codec.py.

    python scripts/bench/all.py --write docs/benchmarks.md
    python scripts/bench/all.py --quick
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import attention
import decoding
import torch
import training_step

BEGIN = "<!-- scripts/bench/all.py: begin -->"
END = "<!-- scripts/bench/all.py: end -->"


def put(page: Path, text: str) -> None:
    """Replace what stands between the two marks of ``page``; append both where there are none."""
    old = page.read_text(encoding="utf-8") if page.exists() else ""
    before, _, rest = old.partition(BEGIN)
    after = rest.partition(END)[2]
    new = f"{before.rstrip()}\n\n{BEGIN}\n\n{text}\n\n{END}\n{after.rstrip()}".strip() + "\n"
    temporary = page.with_name(page.name + ".tmp")
    temporary.write_text(new, encoding="utf-8")
    os.replace(temporary, page)


def main() -> None:
    """Parse the arguments, measure, print and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="smaller and once; for trying out")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="also put the tables there")
    args = parser.parse_args()
    torch.set_num_threads(1)
    command = "`python scripts/bench/all.py" + (" --quick`" if args.quick else "`")
    parts = [f"## Attention, training and decoding\n\n{command}"]
    for measured in (attention, training_step, decoding):
        parts.append(measured.report(args.quick))
        print(parts[-1], flush=True)
    if args.write:
        put(args.write, "\n\n".join(parts))


if __name__ == "__main__":
    main()
