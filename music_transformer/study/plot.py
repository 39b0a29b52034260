"""The outcome of a listening test as a figure: how often each source won, and every pair.

Source: Huang et al. 2018, "Music Transformer", figure 7 (wins of each source).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from music_transformer.render.pianoroll import INK, new_figure, style_axes, style_legend
from music_transformer.study.analysis import Analysis, Pair

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WON, EQUAL, LOST = "#0f4f8a", "#d5d5d0", "#c8642f"
#: From "the second, strongly" to "the first, strongly".
_POINTS = (LOST, "#e3b295", EQUAL, "#87a7c4", WON)
_ANSWERS = ("right, strongly", "right", "equal", "left", "left, strongly")


def plot_study(analysis: Analysis) -> Figure:
    """Both panels; the caller saves the figure. RenderError where [plot] is not installed."""
    figure = new_figure(12, 1.6 + 0.5 * max(len(analysis.wins), len(analysis.pairs)))
    left, right = figure.subplots(1, 2, width_ratios=[1, 1.3])
    _draw_wins(left, analysis.wins)
    _draw_pairs(right, analysis.pairs)
    return figure


def _draw_wins(axes: Axes, wins: Mapping[str, tuple[int, int, int]]) -> None:
    names = sorted(wins, key=lambda name: (wins[name][0], -wins[name][2]))
    start = [0] * len(names)
    for part, (label, color) in enumerate((("won", WON), ("equal", EQUAL), ("lost", LOST))):
        counts = [wins[name][part] for name in names]
        bars = axes.barh(names, counts, left=start, color=color, label=label, height=0.62)
        axes.bar_label(
            bars,
            [str(count) if count else "" for count in counts],
            label_type="center",
            color=INK if color == EQUAL else "white",
            fontsize=9,
        )
        start = [first + count for first, count in zip(start, counts, strict=True)]
    axes.set_xlabel("comparisons", color=INK)
    axes.legend(
        loc="lower left", bbox_to_anchor=(0, 1), ncols=3, frameon=False, fontsize=9, labelcolor=INK
    )
    style_axes(axes)


def _draw_pairs(axes: Axes, pairs: Sequence[Pair]) -> None:
    """Shares of the five answers; those for the left name lie to the left of the middle."""
    rows = range(len(pairs))[::-1]
    for row, pair in zip(rows, pairs, strict=True):
        total = max(sum(pair.counts), 1)
        shares = [count / total for count in pair.counts[::-1]]  # the first's best first
        begin = -(shares[0] + shares[1] + shares[2] / 2)
        for share, color in zip(shares, _POINTS[::-1], strict=True):
            axes.barh(row, share, left=begin, color=color, height=0.62)
            begin += share
        star = " *" if pair.significant else ""
        axes.text(-1.04, row, pair.first, ha="right", va="center", color=INK, fontsize=9)
        axes.text(1.04, row, pair.second + star, ha="left", va="center", color=INK, fontsize=9)
    axes.axvline(0, color=INK, linewidth=0.8)
    axes.set_xlim(-1, 1)
    axes.set_ylim(-0.6, len(pairs) - 0.4)
    axes.set_yticks([])
    axes.set_xticks([-1, -0.5, 0, 0.5, 1], ["100 %", "50 %", "0", "50 %", "100 %"])
    axes.set_xlabel("share of answers    (* significant after Bonferroni)", color=INK)
    from matplotlib.patches import Patch

    handles = [Patch(color=color) for color in _POINTS[::-1]]
    style = {"ncols": 5, "fontsize": 8, "handlelength": 1, "columnspacing": 1}
    place = {"loc": "lower center", "bbox_to_anchor": (0.5, 1), "borderaxespad": None}
    style_legend(axes, handles, _ANSWERS[::-1], **place, **style)
    style_axes(axes)
