"""Notes: what was played, as numpy columns in seconds; what all rooms hand to each other.

`NoteSequence` knows neither ticks (see `midi`) nor events (see `representations`). Unlike
pretty_midi it has no object per note, the pedal and a closing rest are part of the music, and
nothing is lost when notes of one pitch overlap.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from music_transformer.errors import MidiError
from music_transformer.pretty import from_pretty, to_pretty
from music_transformer.timeline import (
    STEPS_PER_SECOND,
    SUSTAIN,
    BoolArray,
    FloatArray,
    IntArray,
    KeySignatures,
    Pedals,
    Tempos,
    TimeSignatures,
    check_lengths,
    check_order,
    int_column,
    pedal_spans,
    set_columns,
    time_column,
    to_steps,
)

if TYPE_CHECKING:
    import pretty_midi

__all__ = [
    "DRUM_CHANNEL",
    "STEPS_PER_SECOND",
    "SUSTAIN",
    "BoolArray",
    "FloatArray",
    "IntArray",
    "KeySignatures",
    "NoteSequence",
    "Pedals",
    "Tempos",
    "TimeSignatures",
    "pedal_spans",
    "set_notebook_view",
    "to_steps",
]

DRUM_CHANNEL = 9

_COLUMNS = ("pitch", "velocity", "start", "end", "channel", "track")
_METRE = ("tempos", "time_signatures", "key_signatures")
_BESIDE = ("pedals", "warnings", "end_time", *_METRE, "track_names", "title")

_notebook_view: Callable[[NoteSequence], str] | None = None


class NoteSequence:
    """Notes of one piece. All arguments are by keyword and may be any sequences of numbers.

    Times are float64 seconds from the start of the file. Rows are sorted by start, then pitch,
    track, channel, end and velocity, so that equal music has equal columns; all are read-only.

    Args:
        pitch: (N,) 0..127.
        velocity: (N,) 1..127.
        start: (N,) seconds, >= 0.
        end: (N,) seconds, >= start: when the key goes up.
        channel: (N,) 0..15; default 0.
        track: (N,) >= 0; default 0. A track of a MIDI file that holds the tempo map alone does not
            count: `read_midi` and `write_midi` keep it apart.
        pedals: spans of the sustain pedal, until `sustained` makes longer notes; default none.
        warnings: what a reader survived, and how often.
        end_time: seconds; a closing rest counts. Default: the last end of a note or span.
        tempos, time_signatures, key_signatures: beat, metre and key; default unknown.
        track_names: the name of each track, from track 0 on; default none.
        title: the name of the track that holds the tempo map alone; default none.

    Raises:
        MidiError: columns of different lengths, or a number out of range.
    """

    __slots__ = (*_COLUMNS, *_BESIDE)
    pitch: IntArray
    velocity: IntArray
    start: FloatArray
    end: FloatArray
    channel: IntArray
    track: IntArray
    pedals: Pedals
    warnings: dict[str, int]
    end_time: float
    tempos: Tempos
    time_signatures: TimeSignatures
    key_signatures: KeySignatures
    track_names: tuple[str, ...]
    title: str

    def __init__(
        self,
        *,
        pitch: ArrayLike,
        velocity: ArrayLike,
        start: ArrayLike,
        end: ArrayLike,
        channel: ArrayLike | None = None,
        track: ArrayLike | None = None,
        pedals: Pedals | None = None,
        warnings: Mapping[str, int] | None = None,
        end_time: float | None = None,
        tempos: Tempos | None = None,
        time_signatures: TimeSignatures | None = None,
        key_signatures: KeySignatures | None = None,
        track_names: Sequence[str] = (),
        title: str = "",
    ) -> None:
        pitches = int_column("pitch", pitch, 0, 127)
        zeros = np.zeros(len(pitches), np.int64)
        columns: dict[str, NDArray[Any]] = {
            "pitch": pitches,
            "velocity": int_column("velocity", velocity, 1, 127),
            "start": time_column("start", start),
            "end": time_column("end", end),
            "channel": zeros if channel is None else int_column("channel", channel, 0, 15),
            "track": zeros if track is None else int_column("track", track, 0, 2**31 - 1),
        }
        check_lengths(columns)
        check_order("notes", columns["start"], columns["end"])
        order = _row_order(columns)
        if order is not None:
            columns = {name: column[order] for name, column in columns.items()}
        set_columns(self, **columns)

        self.pedals = Pedals() if pedals is None else pedals
        last = max(float(self.end.max(initial=0.0)), float(self.pedals.end.max(initial=0.0)))
        if end_time is not None and not np.isfinite(end_time):
            raise MidiError(f"end_time is {end_time}; it must be a number of seconds.")
        self.warnings = dict(warnings or {})
        self.end_time = last if end_time is None else max(last, float(end_time))
        self.tempos = Tempos() if tempos is None else tempos
        self.time_signatures = TimeSignatures() if time_signatures is None else time_signatures
        self.key_signatures = KeySignatures() if key_signatures is None else key_signatures
        self.track_names = tuple(track_names)
        self.title = title

    def __len__(self) -> int:
        return len(self.pitch)

    def __repr__(self) -> str:
        counts = f"{len(self)} notes, {len(self.pedals)} pedals"
        return f"NoteSequence({counts}, {self.end_time:.3f} seconds)"

    def equals(self, other: NoteSequence) -> bool:
        """Whether the other holds the same notes, pedals and end; not what `same_score` asks."""
        return (
            self.end_time == other.end_time
            and self.pedals.equals(other.pedals)
            and all(np.array_equal(getattr(self, name), getattr(other, name)) for name in _COLUMNS)
        )

    def same_score(self, other: NoteSequence) -> bool:
        """Whether the other has the same tempo map, metre, key and names."""
        return (self.track_names, self.title) == (other.track_names, other.title) and all(
            getattr(self, name).equals(getattr(other, name)) for name in _METRE
        )

    def sustained(self) -> NoteSequence:
        """The same notes with the pedal turned into longer notes; no pedals are left.

        A note whose key goes up while the pedal of its channel is down lasts to the lift. Then an
        onset of a pitch cuts whatever sounds of that pitch on any channel, unless both began within
        one step of 10 ms. Calling it again changes nothing.
        """
        end = self.end.copy()
        for channel in np.unique(self.pedals.channel):
            here = self.pedals.channel == channel
            down, lift = self.pedals.start[here], self.pedals.end[here]
            rows = np.flatnonzero(self.channel == channel)
            span = np.searchsorted(down, end[rows], side="right") - 1
            held = (span >= 0) & (end[rows] < lift[span])
            end[rows[held]] = lift[span[held]]
        end = np.minimum(end, _next_onsets(self.pitch, self.start))
        return self.replaced(end=end, pedals=Pedals())

    def stretched(self, factor: float) -> NoteSequence:
        """The same music with every time multiplied by `factor` (> 1: slower)."""
        if not (np.isfinite(factor) and factor > 0):
            raise MidiError(f"stretched: factor is {factor}; it must be a number above 0.")
        pedals, metre, key = self.pedals, self.time_signatures, self.key_signatures
        return self.replaced(
            start=self.start * factor,
            end=self.end * factor,
            pedals=Pedals(pedals.channel, pedals.start * factor, pedals.end * factor),
            end_time=self.end_time * factor,
            tempos=self.tempos.stretched(factor),
            time_signatures=metre.at(metre.seconds * factor),
            key_signatures=key.at(key.seconds * factor),
        )

    def transposed(self, semitones: int) -> NoteSequence:
        """The same music `semitones` higher, its key too; MidiError outside the pitches 0..127."""
        low, high = int(self.pitch.min(initial=127)), int(self.pitch.max(initial=0))
        if len(self) and not (low + semitones >= 0 and high + semitones <= 127):
            raise MidiError(
                f"transposed: pitches would be {low + semitones}..{high + semitones} after "
                f"{semitones:+d} semitones; 0..127 exist."
            )
        return self.replaced(
            pitch=self.pitch + (semitones if len(self) else 0),
            key_signatures=self.key_signatures.transposed(semitones % 12),
        )

    def sliced(self, start: float, end: float) -> NoteSequence:
        """What sounds from second `start` to second `end`, cut at both and counted from `start`.

        Call `sustained` first where notes that only the pedal holds should count as sounding. Tempo
        and key are those in force; the metre too, from the next bar line on, so that bars stay
        where they are. The result ends at ``end - start``.
        """
        if not (np.isfinite([start, end]).all() and 0 <= start <= end):
            raise MidiError(
                f"sliced: {start} to {end} is not a stretch of time; need 0 <= start <= end."
            )
        inside = ((self.end > start) | (self.start >= start)) & (self.start < end)
        return self.selected(inside).replaced(
            start=np.clip(self.start[inside], start, end) - start,
            end=np.clip(self.end[inside], start, end) - start,
            pedals=self.pedals.sliced(start, end),
            end_time=end - start,
            **self.score(start, end),
        )

    def score(self, start: float, end: float) -> dict[str, Any]:
        """Tempo map, metre and key from second `start` to `end`, counted from `start`, by name."""
        return {
            "tempos": self.tempos.sliced(start, end),
            "time_signatures": self.time_signatures.part(self.tempos, start, end),
            "key_signatures": self.key_signatures.sliced(start, end),
        }

    def followed_by(self, continuation: NoteSequence, *, at: float | None = None) -> NoteSequence:
        """These notes, untouched, and then others on tracks of their own: a motif and what follows.

        All of this sequence stays as it is (times off the grid, pedals, tracks, channels, names),
        and its tempo, metre and key at second `at` hold from there on. A note of the motif that
        ends in the continuation is given its new end first: ``motif.replaced(end=...)``.

        `continuation` begins at second `at` (default: the end, closing rest included). Its tracks
        come behind those here, under its own `track_names`, or else "continuation"; its channels
        are moved to free ones while there are any, so that neither part touches the keys or the
        pedal of the other.
        """
        at = self.end_time if at is None else at
        base = max(int(self.track.max(initial=-1)) + 1, len(self.track_names))
        names = [*self.track_names, *[""] * (base - len(self.track_names))]
        used = {*self.channel.tolist(), *self.pedals.channel.tolist()}
        theirs = sorted({*continuation.channel.tolist(), *continuation.pedals.channel.tolist()})
        free = [channel for channel in range(16) if channel not in {*used, DRUM_CHANNEL}]
        channels = np.arange(16)
        if len(theirs) <= len(free):
            channels[theirs] = free[: len(theirs)]
        ours, new = self.pedals, continuation.pedals
        moved = {
            "start": continuation.start + at,
            "end": continuation.end + at,
            "channel": channels[continuation.channel],
            "track": continuation.track + base,
        }
        return self.with_notes(continuation.replaced(**moved, pedals=Pedals())).replaced(
            pedals=Pedals(
                np.append(ours.channel, channels[new.channel]),
                np.append(ours.start, new.start + at),
                np.append(ours.end, new.end + at),
            ),
            end_time=at + continuation.end_time,
            track_names=(*names, *(continuation.track_names or ("continuation",))),
            **{name: getattr(self, name).until(math.nextafter(at, math.inf)) for name in _METRE},
        )

    def to_pretty_midi(self) -> pretty_midi.PrettyMIDI:
        """The notes as a `pretty_midi.PrettyMIDI`, see `pretty`: `end_time` is lost."""
        return to_pretty(self, sustain=SUSTAIN)

    @classmethod
    def from_pretty_midi(cls, midi: pretty_midi.PrettyMIDI) -> NoteSequence:
        """The notes of a `pretty_midi.PrettyMIDI`, without its drums; see `pretty`."""
        plain = from_pretty(midi, sustain=SUSTAIN)
        made = {
            "pedals": pedal_spans(*plain["pedals"]),
            "tempos": Tempos(*plain["tempos"]),
            "time_signatures": TimeSignatures(*plain["time_signatures"]),
            "key_signatures": KeySignatures(*plain["key_signatures"]),
        }
        return cls(**(plain | made))

    def with_notes(self, others: NoteSequence) -> NoteSequence:
        """The same with the notes of another sequence too, as they are; all else stays."""
        both = {n: np.append(getattr(self, n), getattr(others, n)) for n in _COLUMNS}
        return self.replaced(**both)

    def selected(self, rows: IntArray | BoolArray) -> NoteSequence:
        """The notes of some rows, by index or by mask; all else as it is."""
        return self.replaced(**{name: getattr(self, name)[rows] for name in _COLUMNS})

    def replaced(self, **changes: Any) -> NoteSequence:
        """The sequence with some columns, or other parts, changed."""
        return NoteSequence(**({name: getattr(self, name) for name in self.__slots__} | changes))

    def _repr_html_(self) -> str | None:
        return None if _notebook_view is None else _notebook_view(self)


def set_notebook_view(view: Callable[[NoteSequence], str] | None) -> None:
    """Let notebooks show what `view` makes of notes (HTML), which only rooms above can make."""
    global _notebook_view
    _notebook_view = view


def _next_onsets(pitch: IntArray, start: FloatArray) -> FloatArray:
    """(N,) seconds: the next onset of each note's pitch in a later step; inf where none comes."""
    order = np.argsort(pitch.astype(np.int8), kind="stable")  # rows are sorted by start already
    pitch, start = pitch[order], start[order]
    step = to_steps(start)
    opens = np.ones(len(pitch), bool)  # the first note of each group of one pitch and step
    opens[1:] = (pitch[1:] != pitch[:-1]) | (step[1:] != step[:-1])
    first = np.flatnonzero(opens)
    follows = np.full(len(first), np.inf)  # by group
    same = pitch[first[1:]] == pitch[first[:-1]]
    follows[:-1][same] = start[first[1:]][same]
    result = np.empty(len(pitch))
    result[order] = follows[np.cumsum(opens) - 1]
    return result


def _row_order(columns: Mapping[str, NDArray[Any]]) -> IntArray | None:
    """The order that sorts the rows, or None when they are sorted already."""
    start, pitch = columns["start"], columns["pitch"]
    if _rises(start, pitch):
        return None
    order = np.lexsort((pitch, start))
    if _rises(start[order], pitch[order]):  # most music: the other columns decide nothing
        return order
    keys = ("velocity", "end", "channel", "track", "pitch", "start")
    return np.lexsort([columns[key] for key in keys])


def _rises(start: FloatArray, pitch: IntArray) -> bool:
    same = start[1:] == start[:-1]
    return bool(((start[1:] > start[:-1]) | (same & (pitch[1:] > pitch[:-1]))).all())
