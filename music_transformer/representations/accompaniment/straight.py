"""Music to a melody that keeps strict time, as melodies of users do, made from a performance.

Pianists play freely, and what goes with a melody follows it. A melody that was written or typed
stands on a grid, and what goes with it should too. `straightened` bends the time of both sides so
that the onsets of the melody fall on a grid, and puts all others on the nearest line of it; a model
that is trained on a share of such segments learns to keep the time of a melody that keeps it.
"""

import numpy as np

from music_transformer.notes import NoteSequence
from music_transformer.representations.ids import Floats

SHORTEST_UNIT, LONGEST_UNIT = 0.2, 0.8  # seconds
PARTS = (4, 6)  # lines of the grid in a unit
_LEAST = 0.05  # seconds: melody onsets that are closer are ornaments


def straightened(
    accompaniment: NoteSequence, melody: NoteSequence, random: np.random.Generator
) -> tuple[NoteSequence, NoteSequence]:
    """Both sides of a piece in strict time, about as long as before.

    The unit of the grid is the melody's usual time between onsets, or half or twice as long; a line
    is a quarter or a sixth of it, whichever is nearer to what was played.
    """
    onsets = melody.start[np.append(True, np.diff(melody.start) > _LEAST)]
    if len(onsets) < 3:
        return accompaniment, melody
    between = np.diff(onsets)
    unit = float(np.median(between)) * float(random.choice([0.5, 1.0, 1.0, 2.0]))
    unit = float(np.clip(unit, SHORTEST_UNIT, LONGEST_UNIT))
    errors, grids = [], []
    for parts in PARTS:
        line = unit / parts
        steps = np.maximum(1, np.rint(between / unit) * parts)
        near = np.abs(between / unit - np.rint(between / unit)) <= 0.2
        steps = np.where(near, steps, np.maximum(1, np.rint(between / line)))
        grids.append(np.append(0.0, np.cumsum(steps)) * line)
        errors.append(float(np.abs(steps * line - between).mean()) * parts)
    chosen = int(np.argmin(errors))
    line, grid = unit / PARTS[chosen], grids[chosen]
    first = np.ceil(onsets[0] / line) * line  # what comes before keeps its place

    def bent(seconds: Floats) -> Floats:
        known = np.concatenate([[onsets[0] - 1e4], onsets, [onsets[-1] + 1e4]])
        placed = first + np.concatenate([[-1e4], grid, [grid[-1] + 1e4]])
        moved: Floats = np.rint(np.interp(seconds, known, placed) / line) * line
        return moved

    def side(notes: NoteSequence) -> NoteSequence:
        start = np.maximum(bent(notes.start), 0.0)
        return NoteSequence(
            pitch=notes.pitch,
            velocity=notes.velocity,
            start=start,
            end=np.maximum(bent(notes.end), start + line / 2),
        )

    return side(accompaniment), side(melody)
