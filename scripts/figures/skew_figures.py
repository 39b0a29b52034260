"""The paper's figures 10 and 11, drawn from the operator this project runs.

    python scripts/figures/skew_figures.py --out docs/figures

Every cell shows which distance its number belongs to: the distances themselves are fed to
`music_transformer.ops.skew.skew`, and the last panel is what it gives back. The panels between are
its two steps, pad and reshape. Hatched cells are left-overs that the mask hides.

Figure 11 (local attention): the queries are a block of N, the keys that block and the one before;
the paper draws the block before alone, with 2N - 1 distances. One call does both: L = N queries,
S = 2N keys.
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch.nn import functional as F

from music_transformer.ops.reference import causal_mask
from music_transformer.ops.skew import skew

NOTHING = -1.0  # stands for a number of the padded column
NO_CELL = -2.0  # where a row is not full
INK = "#333333"


def main() -> int:
    """Draw both figures and print their paths."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("docs/figures"), help="folder")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    for name, figure in (("skew_global", global_figure(5)), ("skew_local", local_figure(4))):
        path = args.out / f"{name}.png"
        figure.savefig(path)
        print(path)
    return 0


def steps(queries: int, keys: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Distances before, padded, reshaped, and after `skew`: the last is the real operator's."""
    before = torch.arange(keys - 1.0, -1.0, -1.0).expand(1, 1, queries, keys)  # (1, 1, L, S)
    padded = F.pad(before, (1, 0), value=NOTHING)  # (1, 1, L, 1+S)
    flat = padded.flatten(2)  # (1, 1, L * (1+S))
    # As rows of S numbers the same memory is one row longer; its first L numbers are cut off.
    lead = F.pad(flat, (keys - queries, 0), value=NO_CELL)
    reshaped = lead.view(1, 1, -1, keys)  # (1, 1, 1+L, S)
    after = skew(before + 1.0)[0, 0] - 1.0  # skew pads with zeros: they come back as NOTHING
    assert torch.equal(after, reshaped[0, 0, 1:]), "the steps drawn are not those of the operator"
    check_distances(after)
    return (before[0, 0].numpy(), padded[0, 0].numpy(), reshaped[0, 0].numpy(), after.numpy())


def check_distances(after: torch.Tensor) -> None:
    """Where the mask lets through, a cell's distance is query minus key."""
    queries, keys = after.shape
    position = torch.arange(keys)
    distance = position[keys - queries :, None] - position[None, :]  # (L, S)
    mask = causal_mask(queries, keys)
    assert torch.equal(after[mask], distance[mask].float())


def global_figure(length: int) -> Figure:
    """Figure 10: the skew of global attention, L queries and L keys."""
    before, padded, reshaped, after = steps(length, length)
    figure = new_figure(14, 3.7)
    panels = figure.subplots(1, 4)
    draw(panels[0], before, "$QE_r^T$: by distance", "distance", lambda j: str(length - 1 - j))
    draw(panels[1], padded, "pad a column on the left", "", lambda j: "")
    draw(
        panels[2],
        reshaped,
        "drop the first L numbers, reshape to (L, L)",
        "",
        lambda j: "",
        dropped=1,
    )
    mask = causal_mask(length, length).numpy()
    draw(panels[3], after, "$S_{rel}$: by key, masked", "key", str, hidden=~mask)
    figure.suptitle(
        f"Global attention, L = {length}: numbers are distances (query - key)",
        color=INK,
        fontsize=12,
    )
    return figure


def local_figure(block: int) -> Figure:
    """Figure 11: the skew of local attention, a block of N queries and 2N keys."""
    keys = 2 * block
    before, padded, reshaped, after = steps(block, keys)
    figure = new_figure(17, 3.4)
    panels = figure.subplots(1, 4, width_ratios=[keys, keys + 1, keys, keys])
    draw(panels[0], before, "$QE_r^T$: by distance", "distance", lambda j: str(keys - 1 - j))
    draw(panels[1], padded, "pad a column on the left", "", lambda j: "")
    draw(
        panels[2],
        reshaped,
        "drop the first N numbers, reshape to (N, 2N)",
        "",
        lambda j: "",
        dropped=1,
    )
    mask = causal_mask(block, keys).numpy()
    draw(panels[3], after, "$S_{rel}$: block before | own block, masked", "key", str, hidden=~mask)
    panels[3].axvline(block - 0.5, color=INK, linewidth=2)
    figure.suptitle(
        f"Local attention, N = {block}: a block of queries, the keys of two blocks",
        color=INK,
        fontsize=12,
    )
    return figure


def new_figure(width: float, height: float) -> Figure:
    """An empty figure, in inches."""
    figure = Figure(figsize=(width, height), dpi=130, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def draw(
    axes: Axes,
    cells: np.ndarray,
    title: str,
    columns: str,
    name: Callable[[int], str],
    *,
    hidden: np.ndarray | None = None,
    dropped: int = 0,
) -> None:
    """A matrix as colored cells with their distances; rows are queries."""
    rows, width = cells.shape
    farthest = max(cells.max(), 1.0)
    for i in range(rows):
        for j in range(width):
            value = cells[i, j]
            if value == NO_CELL:
                continue
            gone = i < dropped or (hidden is not None and bool(hidden[i, j]))
            depth = 0.15 + 0.75 * (1 - value / farthest)
            face = "#fdf3d0" if value == NOTHING else (1 - depth, 1 - 0.62 * depth, 1 - 0.3 * depth)
            cell = Rectangle(
                (j - 0.5, i - 0.5),
                1,
                1,
                facecolor="#f4f4f2" if gone else face,
                edgecolor="#c8c8c4" if gone else "white",
                linewidth=1,
                hatch="////" if gone else None,
            )
            axes.add_patch(cell)
            text = "pad" if value == NOTHING else f"{value:.0f}"
            ink = "#aaaaaa" if gone or value == NOTHING else ("white" if depth > 0.6 else INK)
            axes.text(
                j,
                i,
                text,
                ha="center",
                va="center",
                color=ink,
                fontsize=8 if value == NOTHING else 11,
            )
    axes.set_xlim(-0.5, width - 0.5)
    axes.set_ylim(rows - 0.5, -0.5)
    axes.set_aspect("equal")
    axes.set_title(title, fontsize=10.5, color=INK)
    axes.set_xticks(
        range(width) if columns else [], [name(j) for j in range(width)] if columns else []
    )
    axes.set_xlabel(columns, color=INK)
    numbered = rows if not dropped else 0
    axes.set_yticks(range(numbered), [str(i) for i in range(numbered)])
    if numbered:
        axes.set_ylabel("query", color=INK)
    axes.tick_params(length=0, colors=INK)
    for spine in axes.spines.values():
        spine.set_visible(False)


if __name__ == "__main__":
    sys.exit(main())
