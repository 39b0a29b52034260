"""Peak memory and time of a training step: as it is, with activation checkpointing, compiled.

    python scripts/bench/memory.py [--compile] [--quick]

Memory is the growth of the resident set during one forward and backward pass, in a fresh process.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable

import torch
from measure import in_fresh_process, in_turn, machine, peak_growth_mib, table
from torch import nn

from music_transformer.model import ModelConfig, MusicTransformer
from music_transformer.training.precision import checkpoint_layers, compiled

CASES = {
    "6 layers, d 256, att 512, filter 2048, L = 2048, B = 2": (
        ModelConfig(
            n_layers=6, d_model=256, d_attention=512, n_heads=8, d_ff=2048, context=2048,
            max_distance=1024,
        ),
        2,
    ),
    "4 layers, d 256, filter 1024, L = 512, B = 4": (
        ModelConfig(n_layers=4, d_model=256, n_heads=4, d_ff=1024, context=512, max_distance=512),
        4,
    ),
}  # fmt: skip
WAYS = ("plain", "checkpointed", "compiled")


def model_of(case: str, way: str) -> nn.Module:
    """The model as a training step calls it."""
    torch.manual_seed(0)
    model = MusicTransformer(CASES[case][0])
    if way == "checkpointed":
        checkpoint_layers(model)
    return compiled(model, torch.device("cpu")) if way == "compiled" else model


def passing(case: str, way: str) -> Callable[[], None]:
    """One forward and one backward pass."""
    config, batch = CASES[case]
    model = model_of(case, way)
    ids = torch.randint(0, config.vocab_size, (batch, config.context))

    def call() -> None:
        model.zero_grad(set_to_none=True)
        torch.autograd.backward(model(ids).logsumexp(-1).mean())

    return call


def report(with_compiler: bool, quick: bool) -> str:
    """The tables, as Markdown."""
    rows, notes = [], []
    for case in list(CASES)[1:] if quick else CASES:
        calls = {way: passing(case, way) for way in WAYS[: 3 if with_compiler else 2]}
        if with_compiler:
            begin = time.perf_counter()
            calls["compiled"]()
            notes.append(
                f"The first compiled step took {time.perf_counter() - begin:.0f} s: {case}."
            )
        seconds = in_turn(calls, 1 if quick else 5)
        peak = {way: in_fresh_process(__file__, "--peak", case, way) for way in WAYS[:2]}
        row = [case, *(f"{peak[way]:.0f}" for way in WAYS[:2])]
        row += [f"{peak['checkpointed'] / peak['plain']:.2f}"]
        row += [f"{seconds[way] / seconds['plain']:.2f}" for way in list(calls)[1:]]
        rows.append(row)
    header = ["model", "plain, MiB", "checkpointed, MiB", "ratio", "time checkpointed / plain"]
    header += ["time compiled / plain"] if with_compiler else []
    return "\n\n".join(["### Memory of a step", machine() + ".", table(header, rows), *notes])


def main() -> None:
    """Parse the arguments and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--compile", action="store_true", help="time torch.compile too")
    parser.add_argument("--quick", action="store_true", help="the smaller model, one round")
    parser.add_argument("--peak", nargs=2, metavar=("CASE", "WAY"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.peak:
        print(peak_growth_mib(passing(*args.peak)))
        sys.exit()
    print(report(args.compile, args.quick))


if __name__ == "__main__":
    main()
