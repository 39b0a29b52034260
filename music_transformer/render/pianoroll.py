"""Notes to a piano roll: seconds to the right, pitch upwards, louder is darker.

What was given and what was composed have two colours; what the pedal holds is a faint bar behind.
Figures are built on the Agg canvas and never through pyplot: no global state, no screen.
"""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from music_transformer.errors import RenderError
from music_transformer.notes import FloatArray, NoteSequence

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.figure import Figure


#: From the softest to the loudest note of each part.
PRIMER_SHADES = ("#b4c6de", "#0f2f55")
CONTINUATION_SHADES = ("#f6bd9f", "#8f2304")

_BLACK_KEYS = (1, 3, 6, 8, 10)
_KEY_NAMES = ("C", "C#", "D", "D#", "E", "F", "F#", "G", "G#", "A", "A#", "B")
INK = "#333333"
#: The width and the height of a picture at most: 3,900 pixels.
MOST_INCHES = 26.0
_MOST_BARS = 100  # with a line each


def pitch_name(pitch: int) -> str:
    """Return the name of a pitch with its octave; 60, the middle C, is C4."""
    return f"{_KEY_NAMES[pitch % 12]}{pitch // 12 - 1}"


def plot_pianoroll(
    notes: NoteSequence,
    *,
    primer_end: float | None = None,
    gap: tuple[float, float] | None = None,
    melody_track: int | None = None,
    title: str | None = None,
    bars: FloatArray | None = None,
) -> Figure:
    """The piano roll of `notes`; the caller saves it (`figure.savefig(path)`).

    Args:
        notes: any number, none included.
        primer_end: seconds; notes that start before it are the primer's, drawn in its own colour.
        gap: instead, the seconds between which notes that start there were composed.
        melody_track: instead, the track of a melody that was given; the others accompany it.
        title: printed above, on the left.
        bars: seconds at which bars begin (`midi.bar_lines`); a line each, numbered where they fit.
    """
    figure = new_figure(max(0.28 * notes.end_time, 9.0), 4.6)
    axes = figure.add_subplot()
    draw_pianoroll(axes, notes, primer_end=primer_end, gap=gap, melody_track=melody_track)
    if title is not None:
        draw_title(axes, title)
    axes.set_xlabel("seconds", color=INK)
    if bars is not None and len(bars):
        draw_bars(axes, bars)
    return figure


def draw_title(axes: Axes, title: str) -> None:
    """A title above, on the left."""
    axes.set_title(drawable(title), loc="left", color=INK, fontsize=11, parse_math=False)


def draw_bars(axes: Axes, bars: FloatArray) -> None:
    """Lines and numbers at the beginnings of bars, at every 2nd, 4th ... where there are many."""
    axes.grid(visible=False, axis="x")
    every = 2 ** max(0, math.ceil(math.log2(len(bars) / _MOST_BARS)))
    for number, second in list(enumerate(bars.tolist(), start=1))[::every]:
        axes.axvline(second, color="#c9c9c4", linewidth=0.8, zorder=1)
        axes.annotate(
            str(number),
            (second, 0),
            xycoords=("data", "axes fraction"),
            xytext=(2, 2),
            textcoords="offset points",
            color="#8a8a86",
            fontsize=7,
        )


def draw_pianoroll(
    axes: Axes,
    notes: NoteSequence,
    *,
    primer_end: float | None = None,
    gap: tuple[float, float] | None = None,
    melody_track: int | None = None,
    pitches: tuple[int, int] | None = None,
) -> None:
    """Draw what `plot_pianoroll` returns into axes; `pitches` are the lowest and highest row."""
    low, high = pitch_limits(notes) if pitches is None else pitches
    draw_keyboard(axes, low, high)
    composed = (primer_end, math.inf) if gap is None and primer_end is not None else gap
    _draw_notes(axes, notes, composed, melody_track)
    axes.set_xlim(0, max(notes.end_time, 1.0))
    for edge in filter(math.isfinite, composed or ()):
        axes.axvline(edge, color=INK, linewidth=0.9, linestyle=(0, (4, 3)), zorder=4)
    names = ("primer", "continuation") if melody_track is None else ("melody", "accompaniment")
    names = names if gap is None else ("kept", "composed")
    _draw_legend(axes, None if composed is None and melody_track is None else names)


def new_figure(
    width: float, height: float, *, layout: Literal["constrained", "compressed"] = "constrained"
) -> Figure:
    """An empty figure of so many inches, at most `MOST_INCHES`, which notebooks show as it is.

    Raises:
        RenderError: [plot] is not installed.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise RenderError(
            "a picture needs the [plot] extra: pip install music-transformer[plot]"
        ) from error

    class ShownFigure(Figure):
        def _repr_png_(self) -> bytes:
            page = io.BytesIO()
            self.savefig(page, format="png")
            return page.getvalue()

    size = min(width, MOST_INCHES), min(height, MOST_INCHES)
    figure = ShownFigure(figsize=size, dpi=150, layout=layout)
    FigureCanvasAgg(figure)
    return figure


def drawable(text: str) -> str:
    """The text with U+FFFD for what the font lacks: a file may have any name, bytes included."""
    from matplotlib.font_manager import FontProperties, findfont, get_font

    known = get_font(findfont(FontProperties())).get_charmap()
    return "".join(character if ord(character) in known else "\ufffd" for character in text)


def pitch_limits(notes: NoteSequence) -> tuple[int, int]:
    """The lowest and highest row: a third around the notes, and at least two octaves."""
    if not len(notes):
        return 48, 84
    low, high = int(notes.pitch.min()) - 3, int(notes.pitch.max()) + 3
    missing = max(0, 24 - (high - low))
    return max(0, low - missing // 2), min(127, high + (missing + 1) // 2)


def draw_keyboard(axes: Axes, low: int, high: int) -> None:
    """Grey rows for the black keys, a line below each C, names on the left."""
    for pitch in range(low, high + 1):
        if pitch % 12 in _BLACK_KEYS:
            axes.axhspan(pitch - 0.5, pitch + 0.5, color="#f3f3f1", linewidth=0, zorder=0)
        if pitch % 12 == 0:
            axes.axhline(pitch - 0.5, color="#d5d5d0", linewidth=0.8, zorder=1)
    wide = high - low > 26  # else there is room for every white key
    pitches = [p for p in range(low, high + 1) if not (p % 12 if wide else p % 12 in _BLACK_KEYS)]
    axes.set_yticks(pitches, [pitch_name(pitch) for pitch in pitches])
    axes.grid(axis="x", color="#ecece8", linewidth=0.8, zorder=1)
    axes.set_ylim(low - 0.5, high + 0.5)
    style_axes(axes)


def style_axes(axes: Axes) -> None:
    """Small labels and no frame but a line below."""
    axes.tick_params(length=0, colors=INK, labelsize=9)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color("#c8c8c4")


def style_legend(axes: Axes, handles: Sequence[Any], labels: Sequence[str], **style: Any) -> None:
    """A legend above the axes without a frame, on the left unless `style` says otherwise."""
    place: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (0, 1), "borderaxespad": 0.2}
    look = {"frameon": False, "fontsize": 9, "labelcolor": INK}
    axes.legend(handles, labels, **(place | look | style))


def _draw_notes(
    axes: Axes, notes: NoteSequence, composed: tuple[float, float] | None, melody_track: int | None
) -> None:
    """The bars: what the pedal holds behind, the keys in front."""
    from matplotlib.collections import PolyCollection

    # White rims part repeated notes; they would hide one that is only a few pixels wide.
    rims = np.where(notes.end - notes.start > notes.end_time / 120, 0.4, 0.0)  # (N,)
    for layer, alpha, linewidths in ((notes.sustained(), 0.35, [0.0]), (notes, 1.0, list(rims))):
        bars = PolyCollection(
            list(rectangles(layer, shortest=notes.end_time / 1000)),
            facecolors=_colors(layer, composed, melody_track),
            edgecolors="white",
            linewidths=linewidths,
            alpha=alpha,
            zorder=2 + alpha,
        )
        axes.add_collection(bars, autolim=False)


def rectangles(notes: NoteSequence, *, shortest: float) -> np.ndarray:
    """(N, 4, 2) corners in seconds and pitches; no note is narrower than `shortest` seconds."""
    left = notes.start[:, None]  # (N, 1)
    right = np.maximum(notes.end, notes.start + shortest)[:, None]  # (N, 1)
    x = np.concatenate([left, left, right, right], axis=1)  # (N, 4)
    y = notes.pitch[:, None] + np.array([-0.42, 0.42, 0.42, -0.42])  # (N, 4)
    return np.stack([x, y], axis=-1)  # (N, 4, 2)


def _colors(
    notes: NoteSequence, composed: tuple[float, float] | None, melody_track: int | None
) -> np.ndarray:
    """(N, 4) colours: the part by the onset or the track, the shade by the velocity."""
    loudness = notes.velocity / 127
    new = _shades(CONTINUATION_SHADES)(loudness)
    given = _shades(PRIMER_SHADES)(loudness)
    if melody_track is not None:
        return np.where((notes.track == melody_track)[:, None], given, new)
    if composed is None:
        return np.asarray(given)
    kept = (notes.start < composed[0]) | (notes.start >= composed[1])
    return np.where(kept[:, None], given, new)


def _shades(ends: tuple[str, str]) -> LinearSegmentedColormap:
    """The colours from soft to loud."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("velocity", list(ends))


def _draw_legend(axes: Axes, names: tuple[str, str] | None) -> None:
    """Which colour is whose (None: all is one), and that darker is louder; above the roll."""
    from matplotlib.legend_handler import HandlerTuple
    from matplotlib.patches import Patch

    labels = ("soft to loud",) if names is None else names
    parts = dict(zip(labels, (PRIMER_SHADES, CONTINUATION_SHADES), strict=False))
    swatches = [
        tuple(Patch(facecolor=_shades(shades)(level)) for level in (0.2, 0.5, 0.9))
        for shades in parts.values()
    ]
    handler = {tuple: HandlerTuple(ndivide=None, pad=0)}
    place = {"loc": "lower right", "bbox_to_anchor": (1, 1)}
    style_legend(axes, swatches, list(parts), handler_map=handler, ncols=2, **place)


def piano_roll_svg(notes: NoteSequence, *, width: int = 800, height: int = 240) -> str:
    """The same as an inline SVG, pedals below; one path a band of velocity keeps it small."""
    low, high = (int(notes.pitch.min()), int(notes.pitch.max())) if len(notes) else (60, 60)
    caption = f"{len(notes)} notes, pitches {low} to {high}, {notes.end_time:.1f} s"
    row = (height - 26) / (high - low + 1)
    scale = width / (notes.end_time or 1.0)
    left, length = notes.start * scale, np.maximum((notes.end - notes.start) * scale, 0.5)
    middle = (high - notes.pitch + 0.5) * row
    band = notes.velocity // 16
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" style="max-width:100%;background:#fff"><title>{escape(caption)}</title>'
    ]
    for number in np.unique(band).tolist():
        rows = band == number
        bars = _bars(left[rows], middle[rows], length[rows])
        colour = f'stroke="#1f4e79" stroke-opacity="{0.3 + 0.1 * number:.1f}"'
        parts.append(f'<path d="{bars}" {colour} stroke-width="{row * 0.9:.2f}"/>')
    if len(notes.pedals):
        down, lift = notes.pedals.start * scale, notes.pedals.end * scale
        bars = _bars(down, np.full(len(down), height - 22.0), lift - down)
        parts.append(f'<path d="{bars}" stroke="#b5651d" stroke-width="3"/>')
    parts.append(
        f'<text x="4" y="{height - 6}" font-family="sans-serif" font-size="12" fill="#333">'
        f"{escape(caption)}</text></svg>"
    )
    return "".join(parts)


def _bars(left: FloatArray, middle: FloatArray, length: FloatArray) -> str:
    """The path of horizontal strokes."""
    rows = zip(left.tolist(), middle.tolist(), length.tolist(), strict=True)
    return "".join(f"M{x:.1f} {y:.1f}h{width:.1f}" for x, y, width in rows)
