"""A melody as an accompanist takes it: notes to keep, and a pitch for every sixteenth.

- One voice (legato may overlap a little): its notes are kept as they are; of several notes within
  one sixteenth the longest stands for it on the grid.
- More than one note at a time: the skyline, the highest pitch of every sixteenth. A note that a
  higher one covers for a while is cut there, one that is never the highest goes; a warning says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from music_transformer.errors import MidiError
from music_transformer.notes import NoteSequence, Pedals
from music_transformer.representations.base import Representation
from music_transformer.representations.chorale.grid import (
    SIXTEENTHS_PER_BEAT,
    is_monophonic,
    sixteenths,
)
from music_transformer.representations.ids import Floats, Ids, Ints

Range = tuple[int, int]

#: Lowest and highest pitch of each voice in the training split of JSB Chorales: for checkpoints
#: that do not say what theirs were.
JSB_RANGES: tuple[Range, ...] = ((60, 81), (52, 74), (46, 69), (36, 66))

LOOSE_SIXTEENTHS = 0.15  # mean distance of onsets from the grid; 0.25 is no relation at all
_HIGHEST_PITCH = 127


@dataclass(frozen=True, eq=False)
class Melody:
    """One voice."""

    notes: NoteSequence  # all on track 0 and channel 0, with the pedal and tempos of the file
    cells: Ints  # (T,) the pitch of every sixteenth from second 0 on, -1 for silence
    warnings: tuple[str, ...] = ()  # what was left out or rounded

    @property
    def leading_sixteenths(self) -> int:
        """The sixteenths in whole silent beats before the first note: the beat stays the beat."""
        first = int(np.argmax(self.cells >= 0))
        return first // SIXTEENTHS_PER_BEAT * SIXTEENTHS_PER_BEAT

    def outside(self, voice_range: Range, shift: int = 0) -> int:
        """How many sounding cells lie outside a range after a transposition."""
        low, high = voice_range
        sounding = self.cells[self.cells >= 0] + shift
        return int(((sounding < low) | (sounding > high)).sum())


def read_melody(notes: NoteSequence) -> Melody:
    """The melody of some notes; MidiError without any, TokenError if too long for a grid."""
    if not len(notes):
        raise MidiError("the melody has no notes: there is nothing to accompany.")
    warnings = []
    if is_monophonic(notes.start, notes.end):
        owners, rows, start, end = _in_time(notes), np.arange(len(notes)), notes.start, notes.end
        if lost := len(notes) - len(np.unique(owners[owners >= 0])):
            warnings.append(
                f"{lost} of the {len(notes)} notes of the melody are too short for the grid of "
                "sixteenths: they are kept, but the voices were composed without them"
            )
    else:
        owners, rows, start, end = _skyline(notes)
        warnings.append(
            "the melody has more than one note at a time: its highest notes are taken, "
            f"{len(rows)} notes from {len(notes)}"
        )
    beats = notes.tempos.quarters(start) * SIXTEENTHS_PER_BEAT
    if np.abs(beats - np.round(beats)).mean() > LOOSE_SIXTEENTHS:
        warnings.append(
            "the notes of the melody do not follow the sixteenths of its tempo: the harmony may "
            "change at odd places; quantise it, or set the tempo it was played in"
        )
    voice, pedals = np.zeros(len(rows), dtype=np.int64), notes.pedals
    kept = notes.replaced(
        pitch=notes.pitch[rows],
        velocity=notes.velocity[rows],
        start=start,
        end=end,
        channel=voice,
        track=voice,
        pedals=Pedals(np.zeros(len(pedals), dtype=np.int64), pedals.start, pedals.end),
        track_names=(),
    )
    return Melody(kept, np.where(owners >= 0, notes.pitch[owners], -1), tuple(warnings))


def transposition_into(melody: Melody, voice_range: Range) -> int:
    """The fewest semitones after which the fewest sixteenths of a melody lie outside a range."""
    sounding = melody.cells[melody.cells >= 0]
    shifts = range(-int(sounding.min()), _HIGHEST_PITCH + 1 - int(sounding.max()))
    return min(shifts, key=lambda shift: (melody.outside(voice_range, shift), abs(shift)))


def _in_time(notes: NoteSequence) -> Ints:
    """(T,) the note of each sixteenth, -1 for none: a later note ends the one before."""
    ends = np.minimum(notes.end, np.append(notes.start[1:], np.inf))
    begin, finish = sixteenths(notes.replaced(end=ends))
    return _painted(np.lexsort((ends - notes.start, finish, begin)), begin, finish)


def _skyline(notes: NoteSequence) -> tuple[Ints, Ints, Floats, Floats]:
    """(T,) the highest note of each sixteenth, -1 for none; rows, starts and ends of its notes."""
    begin, finish = sixteenths(notes)
    owners = _painted(np.lexsort((begin, notes.pitch)), begin, finish)  # the highest comes last
    edges = np.flatnonzero(np.diff(owners)) + 1
    first, after = np.append(0, edges), np.append(edges, len(owners))
    heard = owners[first] >= 0
    first, after, rows = first[heard], after[heard], owners[first[heard]]
    at = notes.tempos.at_quarters
    start = np.where(first == begin[rows], notes.start[rows], at(first / SIXTEENTHS_PER_BEAT))
    end = np.where(after == finish[rows], notes.end[rows], at(after / SIXTEENTHS_PER_BEAT))
    return owners, rows, start, end


def _painted(order: Ints, begin: Ints, finish: Ints) -> Ints:
    """(T,) the last note of `order` that sounds in each sixteenth, -1 for none."""
    owners = np.full(int(finish.max()), -1, dtype=np.int64)
    for note in order.tolist():
        owners[begin[note] : finish[note]] = note
    return owners


def voice_ranges(training: Mapping[str, Any]) -> tuple[Range, ...] | None:
    """Lowest and highest pitch of S A T B in a checkpoint's training data; None if unknown.

    What it does not name is taken to be JSB Chorales.
    """
    data = training.get("data")
    data = data if isinstance(data, Mapping) else {}
    if (named := data.get("voice_ranges")) is not None:
        return tuple((int(low), int(high)) for low, high in named)
    return JSB_RANGES if data.get("corpus", "jsb") == "jsb" else None


def voices_in_time(tokenizer: Representation, ids: Ids, motif: NoteSequence) -> NoteSequence:
    """The voices of a grid on the tempo map of a motif, as long and as loud as it is."""
    beats, at = tokenizer.decode(ids, seconds_per_beat=1.0), motif.tempos.at_quarters
    return beats.replaced(
        velocity=np.full(len(beats), round(float(np.median(motif.velocity)))),
        start=at(beats.start),
        end=at(beats.end),
        end_time=motif.end_time,
        tempos=motif.tempos,
    )
