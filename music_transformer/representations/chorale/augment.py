"""Transposing chorales: as far as every voice stays inside what it sings in the training split."""

from collections.abc import Sequence

import numpy as np

from music_transformer.representations.chorale.grid import N_VOICES, SILENCE
from music_transformer.representations.ids import IdArray


def voice_ranges(pieces: Sequence[IdArray]) -> list[list[int]]:
    """Lowest and highest pitch of each voice; a voice that is silent has 0 and 127."""
    grid = np.concatenate([events.reshape(-1, N_VOICES) for events in pieces])  # (T, 4)
    ranges = []
    for voice in grid.T:
        pitches = voice[voice < SILENCE]
        ranges.append([int(pitches.min()), int(pitches.max())] if len(pitches) else [0, 127])
    return ranges


def transpositions(events: IdArray, voice_ranges: Sequence[Sequence[int]]) -> list[int]:
    """The transpositions that keep every voice of a chorale inside its range, 0 always.

    Args:
        events: (4 T,), without START and END.
        voice_ranges: lowest and highest pitch of soprano, alto, tenor, bass.
    """
    down, up = -127, 127
    for voice, (low, high) in zip(events.reshape(-1, N_VOICES).T, voice_ranges, strict=True):
        pitches = voice[voice < SILENCE]
        if len(pitches):
            down = max(down, low - int(pitches.min()))
            up = min(up, high - int(pitches.max()))
    if down > up or (down, up) == (-127, 127):  # outside already, or silent
        return [0]
    return sorted({0, *range(down, up + 1)})
