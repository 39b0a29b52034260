"""One training step of a whole model with `auto` against the same model with the paper's skew.

python scripts/bench/training_step.py [--quick]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace

import torch
from measure import in_turn, judged, machine, table
from torch.nn import functional as F

from music_transformer.model import ModelConfig, MusicTransformer

#: name, config, batch size, the least ratio
LONG = ModelConfig(n_layers=6, d_model=512, n_heads=8, d_ff=1024, dropout=0.0, context=2048)
WIDE = ModelConfig(n_layers=5, d_model=256, n_heads=8, d_ff=1024, dropout=0.0, context=1024)
CASES = [
    ("6 layers, d 512, filter 1024, L = 2048, B = 1", LONG, 1, 2.2),
    ("5 layers, d 256, filter 1024, L = 1024, B = 4", WIDE, 4, 1.6),
]


def step(config: ModelConfig, batch: int) -> Callable[[], None]:
    """Forward, loss, backward and an update by AdamW."""
    torch.manual_seed(0)
    model = MusicTransformer(config)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    ids = torch.randint(0, config.vocab_size, (batch, config.context))

    def call() -> None:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(ids).flatten(0, 1), ids.flatten())
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return call


def report(quick: bool) -> str:
    """The table, as Markdown."""
    rounds = 1 if quick else 5
    rows = []
    for name, whole, batch, least in CASES:
        config = replace(whole, n_layers=1) if quick else whole
        calls = {how: step(replace(config, attention=how), batch) for how in ("auto", "skew")}
        seconds = in_turn(calls, rounds)
        ratio = judged(seconds["skew"] / seconds["auto"], least)
        rows.append([name, *(f"{seconds[how]:.2f}" for how in ("auto", "skew")), ratio])
    parts = [
        "### A training step",
        "Forward, loss, backward, AdamW; CPU time of one thread, in turns, "
        + ("one round of one layer." if quick else f"median of {rounds}."),
        machine() + ".",
        table(["model", "auto, s", "skew, s", "skew / auto"], rows),
    ]
    return "\n\n".join(parts)


def main() -> None:
    """Parse the arguments and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="one layer, one round")
    args = parser.parse_args()
    torch.set_num_threads(1)
    print(report(args.quick))


if __name__ == "__main__":
    main()
