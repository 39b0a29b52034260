"""The pictures of docs/positions.md.

    python scripts/figures/positions_figures.py [--out docs/figures] [--checkpoint bach]

clocks, similarity, buckets and slopes come from formulas alone. With --checkpoint, also the terms
of which the logits of a trained head are the sum, on one of the motifs in data/ (no other music is
shown).
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from music_transformer.positions import sinusoidal_pe, t5_bucket, wavelengths

MOTIF = Path(__file__).resolve().parents[2] / "data" / "motifs" / "bach_bwv846_prelude_bars1-4.mid"
SHOWN = 64  # ids of it


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


def trained_head(checkpoint: str) -> Figure:
    """The logits of one head of the first layer on a motif, term by term, and its weights."""
    import torch

    from music_transformer.checkpoint import load_checkpoint
    from music_transformer.midi import read_midi
    from music_transformer.model.introspection import attention_weights

    session = load_checkpoint(checkpoint, device="cpu")
    ids = [session.tokenizer.start, *session.tokenizer.encode(read_midi(MOTIF))][:SHOWN]
    model, tensor = session.model.double(), torch.tensor([ids])
    with torch.no_grad():
        terms = terms_of_the_first_layer(model, tensor)
        weights = attention_weights(model, tensor, layers=[0])[0]  # (H, L, L)
    seen = torch.ones(SHOWN, SHOWN, dtype=torch.bool).tril()
    logits = torch.stack(list(terms.values())).sum(0)  # (H, L, L)
    # The model's own weights, which were read off the layer itself, are those of the sum.
    torch.testing.assert_close(logits.masked_fill(~seen, -torch.inf).softmax(-1), weights)
    spread = torch.stack([_spread_over_keys(term, seen) for term in terms.values()])  # (5, H)
    head = int(spread.min(dim=0).values.argmax())
    for number, row in enumerate(spread.T.tolist()):
        parts = ", ".join(f"{name} {value:.2f}" for name, value in zip(terms, row, strict=True))
        print(f"head {number}: {parts}")
    figure = Figure(figsize=(7.5, 4.8), layout="constrained")
    axes: Any = figure.subplots(2, 3, sharex=True, sharey=True)
    limit = max(term[head][seen].abs().max() for term in terms.values()).item()
    for ax, (name, term), row in zip(axes.flat[:5], terms.items(), spread, strict=True):
        image = ax.imshow(
            term[head].masked_fill(~seen, torch.nan), cmap="RdBu", vmin=-limit, vmax=limit
        )
        ax.set_title(f"{name} (spread {row[head]:.2f})", fontsize=8)
    figure.colorbar(image, ax=axes[:, :2], shrink=0.5, location="left", label="logit")
    axes[1, 2].imshow(weights[head].masked_fill(~seen, torch.nan), cmap="viridis", vmin=0)
    axes[1, 2].set_title("weights: softmax of the sum", fontsize=8)
    for ax in axes[1]:
        ax.set_xlabel("key")
    for ax in axes[:, 0]:
        ax.set_ylabel("query")
    figure.suptitle(f"{Path(checkpoint).name}: first layer, head {head}", fontsize=9)
    return figure


def terms_of_the_first_layer(model: Any, ids: Any) -> dict[str, Any]:
    """What the logits of each head are the sum of: five terms (H, L, L), the mask left out.

    The first layer reads LayerNorm(content + position). Content is what the id brings, position all
    the rest: sinusoids and the labels of voice and step, the same whatever is played. With its
    deviation taken as given, LayerNorm is linear, so queries and keys are such sums too and their
    product has four terms (Dai et al. 2019; Ke et al. 2021); its constant counts as position. The
    relative term, query times the vectors of distance, step and interval, is the fifth. How long a
    voice has held its note counts as content.
    """
    import torch

    from music_transformer.errors import ConfigError
    from music_transformer.model.positions import Reading

    layer, length = model.layers[0], ids.shape[1]
    attention, norm = layer.attention, layer.attention_norm
    place = torch.arange(length)
    if model.config.attention_position != "relative" or model.config.input_position == "none":
        raise ConfigError("--checkpoint: choose a model with positions in its input and relative.")
    other = torch.zeros_like(ids)
    position, of_other = (
        model.input(given, Reading(given, place, length, length)) - _content(model.input, given)
        for given in (ids, other)
    )  # (1, L, d)
    torch.testing.assert_close(position, of_other)  # the same whatever is played
    content = _content(model.input, ids)
    x = content + position
    deviation = (x.var(-1, correction=0, keepdim=True) + norm.eps).sqrt()  # (1, L, 1)
    content, position = (
        norm.weight * (part - part.mean(-1, keepdim=True)) / deviation
        for part in (content, position)
    )
    parts = {"content": content, "position": position + norm.bias}
    query, key = (
        {name: attention._heads(projection(part)) for name, part in parts.items()}
        for projection in (attention.query, attention.key)
    )
    scale = model.config.d_head**-0.5
    terms = {
        f"{of_query}-{of_key}": (query[of_query] @ key[of_key].mT)[0] * scale
        for of_query in parts
        for of_key in parts
    }
    relative = _relative_logits(model, ids, place, sum(query.values()))
    return terms | {"relative": relative[0] * scale}


def _relative_logits(model: Any, ids: Any, place: Any, query: Any) -> Any:
    """Query times the vectors of distance, step and interval in the first layer: (1, H, L, L)."""
    from music_transformer.model.chorale import Tables, VoiceTurns, operands
    from music_transformer.model.positions import Reading
    from music_transformer.ops.skew import relative_logits_by_skew

    attention, config = model.layers[0].attention, model.config
    time, interval = (
        getattr(attention, name, None) for name in ("time_embedding", "pitch_embedding")
    )
    tables = Tables(attention.rel_embedding, time, interval, config.voice_labels)
    turns = VoiceTurns(config)(Reading(ids, place, ids.shape[1], ids.shape[1]))
    d = config.d_head
    query, key, by_voice = operands(query, query, tables, turns)  # columns past d are of intervals
    distances = relative_logits_by_skew(query[..., :d], by_voice, ids.shape[1])
    return distances + query[..., d:] @ key[..., d:].mT


def _content(inputs: Any, ids: Any) -> Any:
    """What the ids bring into the input of a model: (1, L, d)."""
    d = inputs.config.d_model
    content = inputs.embedding(ids) * d**0.5
    if inputs.merge is not None:
        content = content @ inputs.merge.weight[:, :d].T
    if getattr(inputs, "held_embedding", None) is not None:
        content = content + inputs.held_labels(ids, ids.shape[1])
    return content


def _spread_over_keys(term: Any, seen: Any) -> Any:
    """Standard deviation over the keys a query sees, mean over queries: (H,).

    What a term adds to all keys of a query alike moves no weight.
    """
    import torch

    rows = [term[:, i, : i + 1].std(-1, correction=0) for i in range(1, len(seen))]
    return torch.stack(rows).mean(0)


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
        figures["positions_terms"] = trained_head(args.checkpoint)
    for name, figure in figures.items():
        path = args.out / f"{name}.png"
        figure.savefig(path, dpi=110, metadata={"Software": None})
        print(path)


if __name__ == "__main__":
    main()
