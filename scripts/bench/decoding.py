"""Cached decoding against reading everything again, and against the memory bandwidth.

6 layers, d 512, 8 heads, filter 1024: 1024 events after 256, float32, one thread. One event needs
all weights, the keys and values so far and as many rows of the tables: their bytes over the
bandwidth is the least time an event can take at batch 1. Where this PyTorch can, also with linear
layers in int8.

    python scripts/bench/decoding.py [--quick]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace

import torch
from measure import cpu_seconds, in_turn, judged, machine, table

from music_transformer.model import ModelConfig, MusicTransformer
from music_transformer.model.quantised import ENGINES, quantise_linears

PRIMER, EVENTS = 256, 1024
CONFIG = ModelConfig(n_layers=6, d_model=512, n_heads=8, d_ff=1024, dropout=0.0, context=2048)


def build(attention: str) -> MusicTransformer:
    """A model with random weights; what it says does not matter here."""
    torch.manual_seed(0)
    return MusicTransformer(replace(CONFIG, attention=attention)).eval()


def cached(model: MusicTransformer, batch: int, events: int) -> Callable[[], None]:
    """Decode ``events`` greedily in the middle of the stretch, or all of it."""
    start = PRIMER + (EVENTS - events) // 2
    cache = model.new_cache(batch)
    primer = torch.randint(0, CONFIG.vocab_size, (batch, start))

    def call() -> None:
        cache.length = start  # the primer was read before the clock started
        ids = primer[:, -1:]
        for _ in range(events):
            ids = model(ids, cache=cache)[:, -1].argmax(-1, keepdim=True)  # (B, 1)

    model(primer, cache=cache)
    return call


def recompute(model: MusicTransformer, length: int) -> Callable[[], object]:
    """Read ``length`` ids for the one event after them."""
    ids = torch.randint(0, CONFIG.vocab_size, (1, length))
    return lambda: model(ids)[:, -1].argmax(-1)


def recompute_seconds(quick: bool) -> dict[str, float]:
    """Mean seconds of an event by recomputing: Simpson's rule over the lengths of the stretch."""
    lengths = [PRIMER + EVENTS // 2] if quick else [PRIMER + EVENTS * n // 4 for n in range(5)]
    weights = [1.0] if quick else [1 / 12, 4 / 12, 2 / 12, 4 / 12, 1 / 12]
    total = {"skew": 0.0, "auto": 0.0}
    models = {name: build(name) for name in total}
    for length, weight in zip(lengths, weights, strict=True):
        calls = {name: recompute(model, length) for name, model in models.items()}
        for name, seconds in in_turn(calls, 1 if quick else 3).items():
            total[name] += weight * seconds
    return total


def bandwidth() -> float:
    """Bytes a second that one thread reads from memory."""
    numbers = torch.ones(1 << 26)  # 256 MiB, more than any cache
    seconds = min(cpu_seconds(numbers.sum) for _ in range(5))
    return numbers.numel() * numbers.element_size() / seconds


def bytes_of_an_event(model: MusicTransformer) -> float:
    """What must be read for one event, half-way through the stretch."""
    seen = PRIMER + EVENTS // 2
    tables = ("input.embedding", "rel_embedding")
    weights = sum(p.numel() for n, p in model.named_parameters() if not n.endswith(tables))
    weights -= model.input.embedding.weight.numel()
    per_position = CONFIG.n_layers * 3 * CONFIG.attention_width  # key, value, table
    return 4.0 * (weights + per_position * seen)


@torch.no_grad()
def report(quick: bool) -> str:
    """The table, as Markdown."""
    int8 = torch.backends.quantized.engine in ENGINES
    events, rounds = (32, 1) if quick else (EVENTS, 3)
    model = build("auto")
    calls = {f"batch {batch}": cached(model, batch, events) for batch in (1, 8)}
    if int8:
        calls["batch 1, int8 linears"] = cached(quantise_linears(model), 1, events)
    seconds = {name: spent / events for name, spent in in_turn(calls, rounds).items()}
    again = recompute_seconds(quick)
    one, eight = seconds["batch 1"], seconds["batch 8"] / 8
    limit = bandwidth() / bytes_of_an_event(model)
    rows: list[list[object]] = [
        ["cached, batch 1", f"{1 / one:.1f}", ""],
        ["cached, batch 8", f"{1 / eight:.1f}", judged(one / eight, 1.8) + " x batch 1"],
        ["recomputed with skew", f"{1 / again['skew']:.2f}", judged(again["skew"] / one, 50)],
        ["recomputed with auto", f"{1 / again['auto']:.2f}", judged(again["auto"] / one, 20)],
        ["limit by memory bandwidth", f"{limit:.1f}", judged(100 / one / limit, 40) + " %"],
    ]
    if int8:
        name = "batch 1, int8 linears"
        gain = f"{seconds[name] / one:.2f}"
        rows.insert(2, [f"cached, {name}", f"{1 / seconds[name]:.1f}", gain])
    header = ["one thread", "events a second", "cached batch 1 against it"]
    parts = [
        "### Cached decoding",
        f"6 layers, d 512, 8 heads, filter 1024; {EVENTS} events after {PRIMER}"
        + (f" (quick: {events} in the middle)" if quick else "")
        + "; recomputing is timed at "
        + ("one length" if quick else "five lengths and integrated")
        + ".",
        machine() + ".",
        table(header, rows),
    ]
    return "\n\n".join(parts)


def main() -> None:
    """Parse the arguments and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="32 events, one round")
    args = parser.parse_args()
    torch.set_num_threads(1)
    print(report(args.quick))


if __name__ == "__main__":
    main()
