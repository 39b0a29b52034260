"""What music may end on."""

from collections.abc import Iterable

from music_transformer.notes import NoteSequence

_ABOVE_THE_BASS = ({0}, {0, 3}, {0, 4}, {0, 3, 7}, {0, 4, 7})  # semitones modulo 12


def is_close(pitches: Iterable[int]) -> bool:
    """Whether pitches are octaves of one, or a triad on the lowest, whose fifth may lack."""
    low, *others = sorted(pitches) or [0]
    return bool(others) and {0, *((pitch - low) % 12 for pitch in others)} in _ABOVE_THE_BASS


def closes(notes: NoteSequence) -> bool:
    """Whether what sounds half-way between the last onset and the end `is_close`."""
    if not len(notes):
        return False
    moment = (notes.start.max() + notes.end.max()) / 2
    return is_close(notes.pitch[(notes.start <= moment) & (notes.end > moment)].tolist())
