"""The pictures of docs/positions.md.

    python scripts/positions_figures.py [--out docs/figures] [--checkpoint bach]

clocks, similarity, buckets and slopes come from formulas alone. With --checkpoint, also what the
logits of a trained head are made of: the product of content with content and the relative term, on
one of the motifs in data/ (no other music is shown).
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from music_transformer.positions import sinusoidal_pe, t5_bucket, wavelengths

MOTIF = Path(__file__).resolve().parent.parent / "data" / "motifs" / "fur_elise_opening.mid"


def clocks() -> Figure:
    """Positions 0, 1, 4 and 16 as the hands of six clocks, and the whole table beside them."""
    d, shown = 32, (0, 1, 4, 16)
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    parts: Any = figure.subfigures(1, 2, width_ratios=(1.2, 1))
    left, right = parts
    table = sinusoidal_pe(64, d)
    axes = left.subplots(len(shown), 6)
    for row, t in enumerate(shown):
        for column in range(6):
            ax = axes[row, column]
            sine, cosine = table[t, 4 * column : 4 * column + 2]
            ax.add_patch(_circle())
            ax.plot([0, 0.9 * sine], [0, 0.9 * cosine], linewidth=1.5)
            ax.set(xlim=(-1.1, 1.1), ylim=(-1.1, 1.1), aspect="equal", xticks=[], yticks=[])
            ax.spines[:].set_visible(False)
            if row == 0:
                ax.set_title(f"{wavelengths(d)[2 * column]:.0f}", fontsize=7)
            if column == 0:
                ax.set_ylabel(f"t = {t}", fontsize=8)
    left.suptitle("A position is a set of clock hands (title: positions in a turn)", fontsize=8)
    ax = right.subplots()
    image = ax.imshow(table, aspect="auto", cmap="RdBu", vmin=-1, vmax=1)
    ax.set(xlabel="column (sine, cosine, sine, ...)", ylabel="position")
    right.colorbar(image, ax=ax)
    return figure


def _circle() -> Any:
    from matplotlib.patches import Circle

    return Circle((0, 0), 1.0, fill=False, linewidth=0.6, color="grey")


def similarity() -> Figure:
    """How alike two positions are, by their offset, for two bases."""
    d, reach = 64, 1000
    figure = Figure(figsize=(7, 3), layout="constrained")
    ax = figure.subplots()
    for base, style in ((10000.0, "-"), (100.0, "--")):
        table = sinusoidal_pe(2 * reach + 1, d, base)
        products = table @ table[reach] / (d / 2)
        offsets = np.arange(-reach, reach + 1)
        ax.plot(offsets, products, style, linewidth=0.9, label=f"base {base:,.0f}")
    ax.set(xlabel="offset k", ylabel="p(t) . p(t+k) / (d/2)")
    ax.set_title(f"Similarity of sinusoids, d = {d}: even in k, the same for every t", fontsize=9)
    ax.legend()
    return figure


def buckets() -> Figure:
    """T5's bucket of each offset, in both directions and causal."""
    figure = Figure(figsize=(7, 3), layout="constrained")
    ax = figure.subplots()
    rel = np.arange(-140, 141)
    ax.step(rel, t5_bucket(rel), where="mid", label="bidirectional, 32 buckets")
    past = rel[rel <= 0]
    causal = t5_bucket(past, bidirectional=False)
    ax.step(past, causal, where="mid", linestyle="--", label="causal, 32 buckets")
    ax.set(xlabel="rel = key position - query position", ylabel="bucket")
    ax.set_title("T5: near offsets apart, far ones together", fontsize=9)
    ax.legend()
    return figure


def slopes() -> Figure:
    """ALiBi's penalty by distance for eight heads, and the weight it leaves to equal content."""
    from music_transformer.ops.positions import alibi_slopes

    figure = Figure(figsize=(8, 3), layout="constrained")
    left, right = figure.subplots(1, 2)
    distance = np.arange(256)
    for head, slope in enumerate(alibi_slopes(8).tolist(), start=1):
        left.plot(distance, -slope * distance, linewidth=0.9, label=f"head {head}")
        right.plot(distance, np.exp(-slope * distance), linewidth=0.9)
    left.set(xlabel="distance", ylabel="added to the logit", ylim=(-20, 0.5))
    right.set(xlabel="distance", ylabel="weight against distance 0")
    left.legend(fontsize="x-small", ncols=2)
    figure.suptitle("ALiBi: eight heads, eight horizons", fontsize=9)
    return figure


def relative_table(checkpoint: str) -> Figure:
    """Content term, relative term, their sum and the weights of a trained head on a motif."""
    import torch

    from music_transformer.checkpoint import load_checkpoint
    from music_transformer.midi import read_midi

    session = load_checkpoint(checkpoint, device="cpu")
    ids = session.tokenizer.encode(read_midi(MOTIF))[:127]
    tensor = torch.tensor([[session.tokenizer.start, *ids]])
    layer, inputs = session.model.layers[-1], []
    attention = layer.get_submodule("attention")
    handle = attention.register_forward_pre_hook(lambda _m, args: inputs.append(args[0]))
    with torch.no_grad():
        session.model(tensor)
        handle.remove()
        terms = four_terms(attention, inputs[0])
    figure = Figure(figsize=(9, 8), layout="constrained")
    for ax, (name, values) in zip(figure.subplots(2, 2).flat, terms.items(), strict=True):
        image = ax.imshow(values, cmap="viridis", interpolation="nearest")
        ax.set_title(name, fontsize=9)
        ax.set(xlabel="key", ylabel="query")
        figure.colorbar(image, ax=ax, shrink=0.8)
    title = f"{Path(checkpoint).name}: last layer, the head whose relative term varies most"
    figure.suptitle(title, fontsize=9)
    return figure


def four_terms(attention: Any, x: Any) -> dict[str, Any]:
    """The terms of the logits of one head, (L, L) each, where a key may be seen; NaN elsewhere.

    Sinusoids in the input would give four products, of content and position with content and
    position. Here the last three are one learned term, which varies with the query.
    """
    import torch

    from music_transformer.errors import ConfigError
    from music_transformer.ops.skew import relative_logits_by_skew

    if attention.rel_embedding is None:
        raise ConfigError("--checkpoint: its attention has no relative table; choose one that has.")
    query, key = (attention._heads(p(x)) for p in (attention.query, attention.key))  # (1, H, L, D)
    scale, length = query.shape[-1] ** -0.5, query.shape[2]
    content = (query @ key.mT)[0] * scale  # (H, L, L)
    relative = relative_logits_by_skew(query, attention.rel_embedding, length)[0] * scale
    seen = torch.ones(length, length, dtype=torch.bool).tril()
    head = int(relative[:, seen].std(-1).argmax())
    by_distance = torch.stack([relative[head].diagonal(-n).mean() for n in range(length)])
    distance = (torch.arange(length)[:, None] - torch.arange(length)).clamp(min=0)
    logits = (content + relative)[head]
    hidden = ~seen
    terms = {
        "content: query times key": content[head],
        "position: query times the vector of the distance": relative[head],
        "of it, what depends on the distance alone": by_distance[distance],
        "weights: softmax of the sum of the first two": logits.masked_fill(
            hidden, -torch.inf
        ).softmax(-1),
    }
    return {name: value.masked_fill(hidden, torch.nan).numpy() for name, value in terms.items()}


def main() -> None:
    """Draw and save."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("docs/figures"))
    parser.add_argument("--checkpoint", help="also draw the terms of a trained head")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    figures = {
        "positions_clocks": clocks(),
        "positions_similarity": similarity(),
        "positions_t5_buckets": buckets(),
        "positions_alibi": slopes(),
    }
    if args.checkpoint:
        figures["positions_terms"] = relative_table(args.checkpoint)
    for name, figure in figures.items():
        path = args.out / f"{name}.png"
        figure.savefig(path, dpi=110, metadata={"Software": None})
        print(path)


if __name__ == "__main__":
    main()
