"""Notes to an inline SVG, which a notebook shows: no library, no file."""

from __future__ import annotations

from html import escape

import numpy as np

from music_transformer.notes import FloatArray, NoteSequence


def piano_roll_svg(notes: NoteSequence, *, width: int = 800, height: int = 240) -> str:
    """An inline SVG: time to the right, pitch upwards, louder notes darker, pedals below.

    One path for each of eight bands of velocity, so that an hour of piano stays a small picture.
    """
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
