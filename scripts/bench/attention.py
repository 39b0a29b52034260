"""Time and memory of relative attention: `auto` against the paper's skew and against no term.

B = 1, H = 8, D = 64, one table a head, forward and backward, float32.

    python scripts/bench/attention.py [--quick]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch
from measure import in_fresh_process, in_turn, judged, machine, peak_growth_mib, table
from torch import Tensor
from torch.nn import functional as F

from music_transformer.ops import relative_attention
from music_transformer.ops.reference import relative_logits_by_gather
from music_transformer.ops.skew import relative_logits_by_skew

HEADS, D_HEAD, BLOCK = 8, 64, 512
FORMS = ("auto", "skew", "sdpa", "local")


def both_ways(form: str, length: int) -> Callable[[], None]:
    """Forward and backward of one form of attention."""
    generator = torch.Generator().manual_seed(0)

    def random(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator).requires_grad_()

    query, key, value = (random(1, HEADS, length, D_HEAD) for _ in range(3))
    rel_embedding = random(HEADS, length, D_HEAD)
    upstream = torch.randn(query.shape, generator=generator)

    def forward() -> Tensor:
        if form == "sdpa":
            return F.scaled_dot_product_attention(query, key, value, is_causal=True)
        block = BLOCK if form == "local" else None
        implementation = "auto" if form == "local" else form
        return relative_attention(
            query, key, value, rel_embedding, block=block, implementation=implementation
        )

    def call() -> None:
        forward().backward(upstream)  # type: ignore[no-untyped-call]
        for tensor in (query, key, value, rel_embedding):
            tensor.grad = None

    return call


def time_table(quick: bool) -> str:
    """Times at several lengths, with their ratios."""
    rounds = 1 if quick else 5
    rows = []
    for length in (512, 2048) if quick else (512, 1024, 2048, 4096):
        calls = {form: both_ways(form, length) for form in ("auto", "skew", "sdpa")}
        seconds = in_turn(calls, rounds)
        fast = length >= 2048
        skew, sdpa = seconds["skew"] / seconds["auto"], seconds["auto"] / seconds["sdpa"]
        rows.append(
            [
                length,
                *(f"{1000 * seconds[form]:.0f}" for form in ("auto", "skew", "sdpa")),
                judged(skew, 3) if fast else f"{skew:.2f}",
                judged(sdpa, 2.5, at_most=True) if fast else f"{sdpa:.2f}",
                judged(seconds["skew"] / seconds["sdpa"], 10, at_most=True),
            ]
        )
    header = ["L", "auto, ms", "skew, ms", "SDPA, ms", "skew / auto", "auto / SDPA", "skew / SDPA"]
    return table(header, rows)


def local_table(quick: bool) -> str:
    """Local attention against global at a long input."""
    length = 4096 if quick else 8192
    seconds = in_turn(
        {form: both_ways(form, length) for form in ("auto", "local")}, 1 + 2 * (not quick)
    )
    ratio = seconds["auto"] / seconds["local"]
    row = [length, f"{1000 * seconds['auto']:.0f}", f"{1000 * seconds['local']:.0f}"]
    return table(
        ["L", "global auto, ms", f"local (N = {BLOCK}), ms", "global / local"],
        [[*row, f"{ratio:.2f}" if quick else judged(ratio, 4)]],
    )


def memory_table(quick: bool) -> str:
    """Peak memory of forward and backward beyond the inputs."""
    rows = []
    for length, least in ((2048, 9), (4096, 18), (8192, None), (16384, None)):
        if quick and length > 4096:
            continue
        auto = in_fresh_process(__file__, "--peak", "auto", length)
        local = in_fresh_process(__file__, "--peak", "local", length)
        skew = in_fresh_process(__file__, "--peak", "skew", length) if least else None
        rows.append(
            [
                length,
                judged(auto, 200, at_most=True) if length == 8192 else f"{auto:.0f}",
                f"{local:.0f}",
                f"{skew:.0f}" if skew else "",
                judged(skew / auto, least) if skew and least else "",
            ]
        )
    return table(["L", "auto, MiB", "local, MiB", "skew, MiB", "skew / auto"], rows)


def paper_table() -> str:
    """Table 1 of the paper, measured: relative logits of one head with D = 64."""
    rows = []
    for length in (650, 2048, 3500):
        shaw = in_fresh_process(__file__, "--peak", "gathered-logits", length)
        skew = in_fresh_process(__file__, "--peak", "skewed-logits", length)
        gathered, logits = (4 * n / 1e6 for n in (length**2 * D_HEAD, length**2))
        rows.append(
            [
                length,
                f"{shaw:.1f}",
                f"{gathered / 1.048576:.0f} + {logits / 1.048576:.1f}",
                f"{skew:.1f}",
                f"{4 * length * D_HEAD / 2**20:.2f} + {logits / 1.048576:.1f}",
            ]
        )
    header = ["L", "gathered (Shaw), MiB", "L L D + L L", "skewed, MiB", "L D + L L"]
    return table(header, rows)


def logits_only(form: str, length: int) -> Callable[[], object]:
    """The relative logits of one head, without gradients."""
    query, tables = torch.randn(1, 1, length, D_HEAD), torch.randn(1, 1, length, D_HEAD)
    function = relative_logits_by_gather if form == "gathered-logits" else relative_logits_by_skew

    def call() -> Tensor:
        with torch.no_grad():
            return function(query, tables, length)

    return call


def peak(form: str, length: int) -> float:
    """Peak memory of one form in this process, in MiB."""
    make = logits_only if form.endswith("logits") else both_ways
    make(form, 130)()
    return peak_growth_mib(make(form, length))


def report(quick: bool) -> str:
    """All tables, as Markdown."""
    parts = [
        "### Relative attention",
        f"B = 1, H = {HEADS}, D = {D_HEAD}, one table a head, forward and backward; CPU time of "
        f"one thread, in turns, median of {1 if quick else 5}.",
        machine() + ".",
        time_table(quick),
        local_table(quick),
        "Peak memory of forward and backward, beyond the inputs:",
        memory_table(quick),
        "Table 1 of the paper, measured: peak memory of the relative logits of one head, D = 64, "
        "beside what the formula gives.",
        paper_table(),
    ]
    return "\n\n".join(parts)


def main() -> None:
    """Parse the arguments and print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="one round, shorter inputs")
    parser.add_argument("--peak", nargs=2, metavar=("FORM", "L"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.peak:
        print(peak(args.peak[0], int(args.peak[1])))
    else:
        print(report(args.quick))


if __name__ == "__main__":
    main()
