"""What music may end on."""

from collections.abc import Iterable

from music_transformer.notes import NoteSequence

_ABOVE_THE_BASS = ({0}, {0, 3}, {0, 4}, {0, 3, 7}, {0, 4, 7})  # semitones modulo 12
_INVERTED = ({0, 3, 8}, {0, 5, 9}, {0, 4, 9}, {0, 5, 8})


def is_close(pitches: Iterable[int], *, inverted: bool = False) -> bool:
    """Whether pitches are octaves of one, or a triad on the lowest, whose fifth may lack.

    Args:
        inverted: any note of a whole triad may be the lowest.
    """
    low, *others = sorted(pitches) or [0]
    chords = (*_ABOVE_THE_BASS, *_INVERTED) if inverted else _ABOVE_THE_BASS
    return bool(others) and {0, *((pitch - low) % 12 for pitch in others)} in chords


def closes(notes: NoteSequence) -> bool:
    """Whether what sounds half-way between the last onset and the end is octaves or a triad."""
    if not len(notes):
        return False
    moment = (notes.start.max() + notes.end.max()) / 2
    sounding = notes.pitch[(notes.start <= moment) & (notes.end > moment)]
    return is_close(sounding.tolist(), inverted=True)
