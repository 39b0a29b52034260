"""A melody and a piano as notes: what is kept of a file, and how the two go together."""

import numpy as np

from music_transformer.errors import MidiError
from music_transformer.notes import NoteSequence, Pedals
from music_transformer.representations.accompaniment.skyline import extract_melody
from music_transformer.representations.chorale.grid import is_monophonic

MELODY_TRACK, PIANO_TRACK = 0, 1


def read_tune(notes: NoteSequence) -> tuple[NoteSequence, list[str]]:
    """The melody of some notes, on track and channel 0, and warnings of what was left out.

    One voice (legato may overlap a little) is kept as it is, of others what the rule of `skyline`
    takes. Raises MidiError where there is none.
    """
    if not len(notes):
        raise MidiError("the melody has no notes: there is nothing to accompany.")
    if is_monophonic(notes.start, notes.end):
        return _on_track(notes, MELODY_TRACK), []
    tune = extract_melody(notes)
    if not len(tune):
        raise MidiError(
            "more than one note sounds at a time, and none of them is a melody (notes from G3 up "
            "are looked at); give the melody alone."
        )
    warning = (
        "the melody has more than one note at a time: its highest notes are taken, "
        f"{len(tune)} notes from {len(notes)}"
    )
    return _on_track(tune, MELODY_TRACK), [warning]


def _on_track(notes: NoteSequence, track: int) -> NoteSequence:
    """The notes and pedals on one track and the channel of its number."""
    pedals = Pedals(np.full(len(notes.pedals), track), notes.pedals.start, notes.pedals.end)
    number = np.full(len(notes), track)
    return notes.replaced(channel=number, track=number, pedals=pedals, warnings={}, track_names=())


def later(notes: NoteSequence, seconds: float) -> NoteSequence:
    """The notes alone, so much later; what would come before 0 comes at 0."""
    return NoteSequence(
        pitch=notes.pitch,
        velocity=notes.velocity,
        start=np.maximum(notes.start + seconds, 0.0),
        end=np.maximum(notes.end + seconds, 0.0),
    )


def giving_way(piano: NoteSequence, melody: NoteSequence) -> tuple[NoteSequence, int]:
    """The piano's notes, ended where the melody strikes their key, and how many were.

    One that would begin while the melody holds its key is left out.
    """
    start, end = piano.start, piano.end.copy()
    keep = np.ones(len(piano), dtype=bool)
    for pitch, begin, finish in zip(melody.pitch, melody.start, melody.end, strict=True):
        same = piano.pitch == pitch
        keep &= ~(same & (start >= begin) & (start < finish))
        cut = same & (start < begin) & (end > begin)
        end[cut] = begin
    changed = int((keep & (end < piano.end)).sum() + (~keep).sum())
    rows = np.flatnonzero(keep)
    return (
        NoteSequence(
            pitch=piano.pitch[rows], velocity=piano.velocity[rows], start=start[rows], end=end[rows]
        ),
        changed,
    )


def together(melody: NoteSequence, piano: NoteSequence) -> NoteSequence:
    """Both, each on its own track and channel, on the tempo map of the melody."""
    return melody.with_notes(_on_track(piano, PIANO_TRACK))
