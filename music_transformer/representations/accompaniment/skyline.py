"""How a melody is found in piano music, and how a melody and a piano go together.

**The skyline rule** (`melody_rows`), by the times of the keys, from the first step to the last:

1. notes below `LOWEST` (G3) or held shorter than `SHORTEST` are accompaniment;
2. of the notes that start in one step the highest may be melody;
3. it is not while a higher melody note is held on for more than `LEGATO` beyond its onset;
4. it is not if it lies more than `FALL` semitones below the last melody note, and that ended less
   than `REST` ago: what then comes is the accompaniment showing through a rest or under the pedal.

It fails where the melody is not on top: tunes of the left hand or of inner voices, hands that
cross, runs and broken chords that rise above the tune. ``docs/accompaniment.md`` has numbers. The
paper's heuristic (Huang et al. 2018, section 4.2) is not published; this rule is the project's own.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from music_transformer.errors import MidiError
from music_transformer.notes import STEPS_PER_SECOND as PERFORMANCE_STEPS
from music_transformer.notes import NoteSequence, Pedals, to_steps
from music_transformer.representations.chorale.grid import is_monophonic
from music_transformer.representations.ids import Ints

STEPS_PER_SECOND = 10  # of a melody

LOWEST = 55
SHORTEST = 0.05  # seconds
LEGATO = 0.1  # seconds
FALL = 7  # semitones
REST = 1.0  # seconds

EVENT_STEPS = PERFORMANCE_STEPS // STEPS_PER_SECOND  # steps of 10 ms in one of 100 ms
MELODY_TRACK, PIANO_TRACK = 0, 1
_ROUNDING = 1e-9  # seconds: the difference of two times may lie a rounding error below its value


def melody_rows(notes: NoteSequence, *, track: int | None = None) -> NDArray[np.bool_]:
    """Which notes are the melody: (N,), by the skyline rule above or all those of a track.

    Raises MidiError where no note is on that track, as all below do.
    """
    if track is not None:
        on_track: NDArray[np.bool_] = notes.track == track
        if not on_track.any():
            known = ", ".join(map(str, np.unique(notes.track).tolist())) or "none"
            raise MidiError(f"there are no notes on track {track}; tracks with notes: {known}.")
        return on_track
    long_enough = notes.end - notes.start >= SHORTEST - _ROUNDING
    rows = np.flatnonzero((notes.pitch >= LOWEST) & long_enough)
    step = step_of(notes.start[rows])
    order = np.lexsort((-notes.pitch[rows], step))
    highest = rows[order[np.append(True, np.diff(step[order]) > 0)[: len(order)]]]  # of each step
    taken = np.zeros(len(notes), dtype=bool)
    last_pitch, last_end = -1, -np.inf
    for row in highest.tolist():
        pitch, start = int(notes.pitch[row]), float(notes.start[row])
        if pitch < last_pitch and last_end > start + LEGATO:
            continue
        if pitch < last_pitch - FALL and start < last_end + REST:
            continue
        taken[row] = True
        last_pitch, last_end = pitch, float(notes.end[row])
    return taken


def split_melody(
    notes: NoteSequence, *, track: int | None = None
) -> tuple[NoteSequence, NoteSequence]:
    """The melody and the rest: each note of the music is in one of them, as it is.

    Both keep the pedals, tempos and the length of the whole.
    """
    rows = melody_rows(notes, track=track)
    return notes.selected(rows), notes.selected(~rows)


def as_performance(
    notes: NoteSequence, *, track: int | None = None
) -> tuple[NoteSequence, NoteSequence]:
    """Melody and rest as they are learned: the melody by its keys, the rest as the pedal holds it.

    The pedal is applied to the whole before it is divided, so that a note still ends at the next
    onset of its pitch, whichever side that is on.
    """
    rows = melody_rows(notes, track=track)
    marked = notes.replaced(track=rows.astype(np.int64)).sustained()
    return (notes.selected(rows).replaced(pedals=Pedals()), marked.selected(marked.track == 0))


def step_of(seconds: NDArray[np.float64]) -> Ints:
    """The steps of 100 ms that hold these times, once they are rounded as events are."""
    return to_steps(seconds) // EVENT_STEPS


def read_tune(notes: NoteSequence) -> tuple[NoteSequence, list[str]]:
    """The melody of some notes, on track and channel 0, and warnings of what was left out.

    One voice (legato may overlap a little) is kept as it is, of others what the rule of `skyline`
    takes. Raises MidiError where there is none.
    """
    if not len(notes):
        raise MidiError("the melody has no notes: there is nothing to accompany.")
    if is_monophonic(notes.start, notes.end):
        return _on_track(notes, MELODY_TRACK), []
    tune, _ = split_melody(notes)
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
