"""A melody as the encoder reads it, and how one is found in piano music.

| ids | in a step of 100 ms |
| --- | --- |
| 0-127 | a note of this pitch starts |
| 128-255 | a note of the pitch ``id - 128`` is held |
| 256 | silence |
| 257 | PAD, put behind the shorter melodies of a batch |

One id a step, ten steps a second, one note at a time. Lost are, in this order: velocities, what a
later note covers, all but one of the notes that start in one step, time finer than 100 ms. Times
are first rounded to 10 ms, as those of events are, so both sides agree on what comes first. A note
starts in the step that holds its onset and is held in every further step of which it fills half.

**The skyline rule** (`melody_rows`) says which notes of a piano piece are its melody. Times are
those of the keys; the pedal does not count. From the first step to the last:

1. notes below `LOWEST` (G3) or held shorter than `SHORTEST` are accompaniment;
2. of the notes that start in one step the highest may be melody;
3. it is not while a higher melody note is held on for more than `LEGATO` beyond its onset;
4. it is not if it lies more than `FALL` semitones below the last melody note, and that ended less
   than `REST` ago: what then comes is the accompaniment showing through a rest or under the pedal.

It takes whole notes as they are, so melody and rest together are the music, each note once. It
fails where the melody is not on top: tunes of the left hand or of inner voices, hands that cross,
runs and broken chords that rise above the tune. ``docs/accompaniment.md`` has numbers.

Source: Huang et al. 2018, "Music Transformer", section 4.2 (melodies at 10 steps a second). The
paper's heuristic is not published; the rule and the ids are this project's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from music_transformer.errors import MidiError, TokenError
from music_transformer.notes import STEPS_PER_SECOND as PERFORMANCE_STEPS
from music_transformer.notes import NoteSequence, to_steps
from music_transformer.tokenizers.performance import PerformanceTokenizer
from music_transformer.tokenizers.vocabulary import N_IDS, N_PITCHES, Ids, Ints, check_ids

STEPS_PER_SECOND = 10
HELD = N_PITCHES
SILENCE = 2 * N_PITCHES
PAD = SILENCE + 1
N_MELODY_IDS = PAD + 1
MAX_STEPS = 1_000_000  # a day and more
VELOCITY = 80  # of decoded notes: the grid has none

LOWEST = 55
SHORTEST = 0.05  # seconds
LEGATO = 0.1  # seconds
FALL = 7  # semitones
REST = 1.0  # seconds

_EVENT_STEPS = PERFORMANCE_STEPS // STEPS_PER_SECOND  # steps of 10 ms in one of 100 ms
_ROUNDING = 1e-9  # seconds: the difference of two times may lie a rounding error below its value


@dataclass(frozen=True)
class MelodyTokenizer:
    """One voice, in steps of 100 ms."""

    kind: ClassVar[str] = "melody"
    vocab_size: ClassVar[int] = N_MELODY_IDS
    pad: ClassVar[int] = PAD
    silence: ClassVar[int] = SILENCE

    def encode(self, notes: NoteSequence, steps: int | None = None) -> NDArray[np.uint16]:
        """The ids of a melody from second 0 on: (S,).

        Of several notes that start in one step the longest counts, of equally long ones the
        highest; a later note ends the one before.

        Args:
            notes: in seconds; the pedal does not count.
            steps: S; default up to the latest end. What is later is cut off.

        Raises:
            TokenError: more than `MAX_STEPS`.
        """
        first, after = _grid_times(notes)
        if steps is None:
            steps = int(after.max(initial=0))
        if not 0 <= steps <= MAX_STEPS:
            raise TokenError(f"a melody of {steps} steps: expected 0 to {MAX_STEPS:,}.")
        order = np.lexsort((-notes.pitch, notes.start - notes.end, first))
        leads = np.append(True, np.diff(first[order]) > 0)[: len(order)]
        rows = order[leads & (first[order] < steps)]
        return _painted(notes.pitch[rows], first[rows], after[rows], steps)

    def decode(self, ids: Ids) -> NoteSequence:
        """The notes of any sequence of known ids: start and end on steps, velocity 80.

        A held pitch that no note of this pitch comes before starts a note. PAD is skipped. Silence
        at the end counts as time.

        Raises:
            TokenError: an id outside 0..257, named with its position.
        """
        array = check_ids(ids, N_MELODY_IDS)
        array = array[array != PAD]
        pitch = np.where(array < SILENCE, array % HELD, -1)
        before = np.append(-1, pitch[:-1])[: len(pitch)]
        begins = np.flatnonzero((pitch >= 0) & ((array < HELD) | (pitch != before)))
        edges = np.flatnonzero((array < HELD) | (pitch != before))
        ends = np.append(edges, len(array))[np.searchsorted(edges, begins, side="right")]
        return NoteSequence(
            pitch=pitch[begins],
            velocity=np.full(len(begins), VELOCITY),
            start=begins / STEPS_PER_SECOND,
            end=ends / STEPS_PER_SECOND,
            end_time=len(array) / STEPS_PER_SECOND,
        )

    def symbols(self, ids: Ids) -> list[str]:
        """The name of each id, such as ``START 60``, ``HELD 60`` or ``SILENCE``."""
        names = {SILENCE: "SILENCE", PAD: "PAD"}
        return [
            names.get(i) or (f"START {i}" if i < HELD else f"HELD {i - HELD}")
            for i in check_ids(ids, N_MELODY_IDS).tolist()
        ]

    def duration_seconds(self, ids: Ids) -> float:
        """How long the ids last, without PAD."""
        array = check_ids(ids, N_MELODY_IDS)
        return float((array != PAD).sum()) / STEPS_PER_SECOND

    def to_config(self) -> dict[str, Any]:
        """What says how the ids were made."""
        return {"kind": self.kind}


@dataclass(frozen=True)
class AccompanimentTokenizer:
    """A melody on one side, the events of what accompanies it on the other.

    As a `Tokenizer` it is that of the accompaniment: the 391 ids of `PerformanceTokenizer`.
    """

    kind: ClassVar[str] = "accompaniment"
    vocab_size: ClassVar[int] = N_IDS
    source_vocab_size: ClassVar[int] = N_MELODY_IDS
    pad: ClassVar[int] = PerformanceTokenizer.pad
    start: ClassVar[int] = PerformanceTokenizer.start
    end: ClassVar[int] = PerformanceTokenizer.end
    melody: ClassVar[MelodyTokenizer] = MelodyTokenizer()
    performance: ClassVar[PerformanceTokenizer] = PerformanceTokenizer()

    def encode(self, notes: NoteSequence, *, keep_silence: bool = True) -> list[int]:
        """The canonical ids of an accompaniment."""
        return self.performance.encode(notes, keep_silence=keep_silence)

    def encode_array(self, notes: NoteSequence, *, keep_silence: bool = True) -> NDArray[np.uint16]:
        """The canonical ids of an accompaniment as an array (N,)."""
        return self.performance.encode_array(notes, keep_silence=keep_silence)

    def decode(self, ids: Ids) -> NoteSequence:
        """The notes of any sequence of known ids of an accompaniment."""
        return self.performance.decode(ids)

    def symbols(self, ids: Ids) -> list[str]:
        """The name of each event of an accompaniment."""
        return self.performance.symbols(ids)

    def duration_seconds(self, ids: Ids) -> float:
        """The sum of all time shifts of an accompaniment."""
        return self.performance.duration_seconds(ids)

    def to_config(self) -> dict[str, Any]:
        """What `tokenizer_from_config` needs to make an equal tokenizer."""
        return {"kind": self.kind}


def melody_rows(notes: NoteSequence, *, track: int | None = None) -> NDArray[np.bool_]:
    """Which notes are the melody: (N,), by the skyline rule above or all those of a track.

    Raises:
        MidiError: no note is on the given track.
    """
    if track is not None:
        on_track: NDArray[np.bool_] = notes.track == track
        if not on_track.any():
            known = ", ".join(map(str, np.unique(notes.track).tolist())) or "none"
            raise MidiError(f"there are no notes on track {track}; tracks with notes: {known}.")
        return on_track
    taken = np.zeros(len(notes), dtype=bool)
    last_pitch, last_end = -1, -np.inf
    for row in _highest_of_steps(notes).tolist():
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

    Raises:
        MidiError: no note is on the given track.
    """
    rows = melody_rows(notes, track=track)
    return notes.selected(rows), notes.selected(~rows)


def extract_melody(notes: NoteSequence, *, track: int | None = None) -> NoteSequence:
    """The melody of piano music by the skyline rule, or all notes of a given track.

    Raises:
        MidiError: no note is on the given track.
    """
    return split_melody(notes, track=track)[0]


def as_performance(
    notes: NoteSequence, *, track: int | None = None
) -> tuple[NoteSequence, NoteSequence]:
    """Melody and rest as they are learned: the melody by its keys, the rest as the pedal holds it.

    The pedal is applied to the whole before it is divided, so that a note still ends at the next
    onset of its pitch, whichever side that is on.

    Raises:
        MidiError: no note is on the given track.
    """
    rows = melody_rows(notes, track=track)
    melody = notes.selected(rows)
    marked = NoteSequence(
        pitch=notes.pitch,
        velocity=notes.velocity,
        start=notes.start,
        end=notes.end,
        channel=notes.channel,
        track=rows.astype(np.int64),
        pedals=notes.pedals,
    ).sustained()
    return (
        NoteSequence(
            pitch=melody.pitch, velocity=melody.velocity, start=melody.start, end=melody.end
        ),
        marked.selected(marked.track == 0),
    )


def _highest_of_steps(notes: NoteSequence) -> Ints:
    """Rows of the highest note that starts in each step, of those that may be melody at all."""
    long_enough = notes.end - notes.start >= SHORTEST - _ROUNDING
    rows = np.flatnonzero((notes.pitch >= LOWEST) & long_enough)
    step = _step_of(notes.start[rows])
    order = np.lexsort((-notes.pitch[rows], step))
    leads = np.append(True, np.diff(step[order]) > 0)[: len(order)]
    highest: Ints = rows[order[leads]]
    return highest


def _step_of(seconds: NDArray[np.float64]) -> Ints:
    """The steps of 100 ms that hold these times, once they are rounded as events are."""
    return to_steps(seconds) // _EVENT_STEPS


def _grid_times(notes: NoteSequence) -> tuple[Ints, Ints]:
    """The step in which each note starts, and the one after the last that it is held in."""
    first = _step_of(notes.start)
    after = (to_steps(notes.end) + _EVENT_STEPS // 2) // _EVENT_STEPS
    return first, np.maximum(first + 1, after)


def _painted(pitch: Ints, first: Ints, after: Ints, steps: int) -> NDArray[np.uint16]:
    """The grid of notes that start in different, rising steps below `steps`: (S,)."""
    after = np.minimum(after, np.append(first[1:], steps)[: len(first)])
    lengths = after - first
    ids = np.full(steps, SILENCE, dtype=np.uint16)
    note = np.repeat(np.arange(len(first)), lengths)
    within = np.arange(len(note)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    ids[first[note] + within] = pitch[note] + HELD
    ids[first] = pitch
    return ids
