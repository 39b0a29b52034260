"""What a model attends to: arcs over a piano roll, and maps of all events by all events.

Source: Huang et al. 2018, "Music Transformer", figures 8 and 9: lines from a query to the notes it
attends to, one colour a head, as wide as the weight; the notes that receive weight stand out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from music_transformer.errors import ConfigError
from music_transformer.notes import NoteSequence
from music_transformer.render.pianoroll import (
    INK,
    draw_keyboard,
    new_figure,
    pitch_limits,
    pitch_name,
    rectangles,
    style_axes,
    style_legend,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Floats = NDArray[np.float64]

#: Told apart by colour-blind readers too (Okabe and Ito); more heads begin again.
HEAD_COLORS = (
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f3c8d", "#8c8c00"
)  # fmt: skip
SMALLEST_WEIGHT = 0.01
_WIDEST_POINTS = 9.0
_CURVE_POINTS = 40


def plot_attention(
    notes: NoteSequence,
    weights: Floats,
    *,
    query: int,
    heads: Sequence[int] | None = None,
    primer_end: float | None = None,
    title: str | None = None,
) -> Figure:
    """Arcs from one note to the notes it attends to; the caller saves the figure.

    Args:
        notes: the whole piece.
        weights: (H, M), from the query to each note; what is missing to 1 went elsewhere.
        query: the row of the note that attends.
        heads: the ones drawn, None for all.
        primer_end: seconds, marked by a line.

    Raises:
        ConfigError: a head or a note that is not there, weights of another number of notes.
    """
    heads = _checked_heads(heads, len(weights))
    if weights.shape[1] != len(notes) or not 0 <= query < len(notes):
        raise ConfigError(
            f"note {query} with weights on {weights.shape[1]} notes: the piece has {len(notes)}."
        )
    seconds = max(notes.end_time, 1.0)
    figure = new_figure(max(0.4 * seconds, 9.0), 5.4)
    axes = figure.add_subplot()
    low, high = pitch_limits(notes)
    draw_keyboard(axes, low, high)
    _draw_notes(axes, notes, weights[list(heads)].sum(axis=0) / len(heads), query)
    _draw_arcs(axes, notes, weights, query, heads, (low, high))
    axes.set_xlim(0, seconds)
    axes.set_xlabel("seconds", color=INK)
    if primer_end is not None:
        axes.axvline(primer_end, color=INK, linewidth=0.9, linestyle=(0, (4, 3)), zorder=4)
    what = f"{pitch_name(int(notes.pitch[query]))} at {notes.start[query]:.2f} s"
    axes.set_title(
        f"{title}, {what}" if title else what, loc="left", color=INK, fontsize=11, pad=24
    )
    _draw_legend(axes, weights, heads)
    return figure


def plot_attention_map(
    weights: Floats,
    *,
    heads: Sequence[int] | None = None,
    first_event: int = 0,
    title: str | None = None,
) -> Figure:
    """The weights of all events on all events, one panel a head; the caller saves the figure.

    Args:
        weights: (H, L, L), rows are queries.
        heads: the ones drawn, None for all; ConfigError for one that is not there.
        first_event: the number of the first row and column.
    """
    heads = _checked_heads(heads, len(weights))
    columns = math.ceil(math.sqrt(len(heads)))
    rows = math.ceil(len(heads) / columns)
    figure = new_figure(4.0 * columns + 1.0, 3.9 * rows + 0.5, layout="compressed")
    from matplotlib.colors import PowerNorm

    length = weights.shape[1]
    shown = weights[list(heads)]
    norm = PowerNorm(0.5, vmin=0.0, vmax=float(np.quantile(shown, 0.999)) or 1.0)
    edge = (first_event - 0.5, first_event + length - 0.5)
    panels = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    for axes, head, color in zip(panels.flat, heads, _colors(heads), strict=False):
        future = np.triu(np.ones((length, length), bool), 1)
        image = axes.imshow(
            np.ma.masked_where(future, weights[head]),
            cmap="magma_r",
            norm=norm,
            extent=(*edge, *edge[::-1]),
            interpolation="nearest" if length <= 256 else "antialiased",
        )
        axes.set_title(f"head {head}", color=color, fontsize=10, loc="left")
        style_axes(axes)
    for axes in panels.flat[len(heads) :]:
        axes.set_visible(False)
    for axes in panels[:, 0]:
        axes.set_ylabel("event that attends", color=INK)
    for axes in panels[-1]:
        axes.set_xlabel("event attended to", color=INK)
    bar = figure.colorbar(image, ax=panels, fraction=0.03, label="weight")
    bar.outline.set_visible(False)
    if title is not None:
        figure.suptitle(title, color=INK, fontsize=11)
    return figure


def _checked_heads(heads: Sequence[int] | None, count: int) -> Sequence[int]:
    chosen = list(range(count) if heads is None else dict.fromkeys(heads))
    for head in chosen:
        if not 0 <= head < count:
            raise ConfigError(f"head {head}: the model has heads 0 to {count - 1}.")
    if not chosen:
        raise ConfigError(f"no heads chosen; there are 0 to {count - 1}.")
    return chosen


def _colors(heads: Sequence[int]) -> list[str]:
    return [HEAD_COLORS[head % len(HEAD_COLORS)] for head in heads]


def _draw_notes(axes: Axes, notes: NoteSequence, received: Floats, query: int) -> None:
    """The bars: faint, darker the more weight (M,) they receive; the query in full ink."""
    from matplotlib.collections import PolyCollection

    strength = np.sqrt(received / max(float(received.max(initial=0.0)), 1e-9))  # (M,)
    colors = np.zeros((len(notes), 4))
    colors[:, 3] = 0.12 + 0.6 * strength
    colors[query] = (0, 0, 0, 1)
    bars = PolyCollection(
        list(rectangles(notes, shortest=notes.end_time / 500)), facecolors=colors, zorder=2
    )
    axes.add_collection(bars, autolim=False)
    axes.plot(
        notes.start[query],
        notes.pitch[query],
        marker="o",
        color="black",
        markersize=7,
        markeredgecolor="white",
        zorder=6,
    )


def _draw_arcs(
    axes: Axes,
    notes: NoteSequence,
    weights: Floats,
    query: int,
    heads: Sequence[int],
    pitches: tuple[int, int],
) -> None:
    """One curve for each head and note with enough weight; the strongest on top."""
    from matplotlib.collections import LineCollection

    low, high = pitches
    head, note = np.nonzero(weights[list(heads)] >= SMALLEST_WEIGHT)  # (arcs,)
    weight = weights[list(heads)][head, note]  # (arcs,)
    by_weight = np.argsort(weight)
    head, note, weight = head[by_weight], note[by_weight], weight[by_weight]
    ends = np.stack([notes.start[note], notes.pitch[note]], axis=-1)  # (arcs, 2)
    begin = np.array([notes.start[query], notes.pitch[query]], float)  # (2,)
    away = (begin[0] - ends[:, 0]) / max(notes.end_time, 1.0)  # (arcs,)
    # Heads bend differently, so that two arcs to one note are both seen.
    bend = (0.25 + 0.35 * head / max(len(heads), 1)) * (high - low) * np.sqrt(np.abs(away))
    middle = (ends + begin) / 2
    middle[:, 1] = np.minimum(middle[:, 1] + bend, 2 * high - np.maximum(ends[:, 1], begin[1]))
    t = np.linspace(0, 1, _CURVE_POINTS)[:, None, None]  # (points, 1, 1)
    curves = (1 - t) ** 2 * begin + 2 * t * (1 - t) * middle + t**2 * ends  # (points, arcs, 2)
    colors = _colors(heads)
    arcs = LineCollection(
        list(curves.swapaxes(0, 1)),
        linewidths=np.clip(1.5 * _WIDEST_POINTS * weight, 0.4, _WIDEST_POINTS),
        colors=[colors[number] for number in head],
        alpha=0.65,
        capstyle="round",
        zorder=5,
    )
    axes.add_collection(arcs, autolim=False)


def _draw_legend(axes: Axes, weights: Floats, heads: Sequence[int]) -> None:
    """The colour of each head, and how much of its weight is on notes at all."""
    from matplotlib.lines import Line2D

    lines = [Line2D([], [], color=color, linewidth=3) for color in _colors(heads)]
    labels = [f"head {head}: {weights[head].sum():.0%} on notes" for head in heads]
    many = len(heads) > 4
    columns, size = (4, 7) if many else (len(heads), 9)
    style_legend(axes, lines, labels, ncols=columns, fontsize=size, handlelength=1.2)
