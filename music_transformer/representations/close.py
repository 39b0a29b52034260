"""What music may end on."""

from collections.abc import Iterable

_ABOVE_THE_BASS = ({0}, {0, 3}, {0, 4}, {0, 3, 7}, {0, 4, 7})  # semitones modulo 12


def is_close(pitches: Iterable[int]) -> bool:
    """Whether pitches are octaves of one, or a triad on the lowest, whose fifth may lack."""
    low, *others = sorted(pitches) or [0]
    return bool(others) and {0, *((pitch - low) % 12 for pitch in others)} in _ABOVE_THE_BASS
