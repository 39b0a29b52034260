"""Notes: what was played, as numpy columns in seconds.

`NoteSequence` is the one thing that all rooms hand to each other. It knows seconds, pitches and
keys; it knows neither ticks (see `midi`) nor events (see `tokenizers`).

Conventions:
    * times are float64 seconds from the start of the file, `end` is the moment the key goes up;
    * rows are sorted by start, then pitch, then track, channel, end and velocity, so that equal
      music has equal columns; every column is read-only;
    * the sustain pedal is kept as spans (`Pedals`) beside the notes, until `sustained` turns it
      into longer notes.

Differs from pretty_midi: no object per note, the pedal and a closing rest are part of the music,
and nothing is lost when notes of one pitch overlap.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from music_transformer.errors import MidiError

if TYPE_CHECKING:
    import pretty_midi

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

DRUM_CHANNEL = 9
SUSTAIN = 64  # the controller number of the sustain pedal, and the value from which it is down
STEPS_PER_SECOND = 100

_player: Callable[[NoteSequence], str] | None = None


def to_steps(seconds: ArrayLike) -> IntArray:
    """Numbers of the 10 ms steps nearest to times in seconds; halves go up.

    The 1e-6 lets a time that stands for a half, but lies a rounding error below it, go up too.
    """
    steps = np.floor(np.asarray(seconds, np.float64) * STEPS_PER_SECOND + 0.5 + 1e-6)
    return steps.astype(np.int64)


@dataclass(frozen=True, eq=False, init=False)
class Pedals:
    """Spans in which the sustain pedal of a channel is down: (N,) columns, sorted, no overlaps.

    Spans of one channel may touch: the pedal was lifted and pressed again at that moment.
    """

    channel: IntArray
    start: FloatArray
    end: FloatArray

    def __init__(self, channel: ArrayLike = (), start: ArrayLike = (), end: ArrayLike = ()) -> None:
        columns = (
            _int_column("pedals.channel", channel, 0, 15),
            _time_column("pedals.start", start),
            _time_column("pedals.end", end),
        )
        _check_lengths(("pedals.channel", "pedals.start", "pedals.end"), columns)
        channels, starts, ends = columns
        _check_order("pedals", starts, ends)
        order = np.lexsort((ends, starts, channels))
        channels, starts, ends = _without_overlaps(channels[order], starts[order], ends[order])
        _set_columns(self, channel=channels, start=starts, end=ends)

    def __len__(self) -> int:
        return len(self.channel)

    def equals(self, other: Pedals) -> bool:
        """Whether the other holds the same spans."""
        return all(
            np.array_equal(getattr(self, name), getattr(other, name))
            for name in ("channel", "start", "end")
        )


@dataclass(frozen=True, eq=False, init=False)
class Tempos:
    """The tempo map in seconds: from `seconds[i]` on, a quarter lasts `seconds_per_quarter[i]`.

    Empty when the beat is unknown (a file with SMPTE time, notes that come from events).
    """

    seconds: FloatArray
    seconds_per_quarter: FloatArray

    def __init__(self, seconds: ArrayLike = (), seconds_per_quarter: ArrayLike = ()) -> None:
        times = _time_column("tempos.seconds", seconds)
        quarters = _time_column("tempos.seconds_per_quarter", seconds_per_quarter)
        _check_lengths(("tempos.seconds", "tempos.seconds_per_quarter"), (times, quarters))
        if (quarters <= 0).any():
            raise MidiError("tempos.seconds_per_quarter holds 0; a quarter must last some time.")
        order = np.argsort(times, kind="stable")
        _set_columns(self, seconds=times[order], seconds_per_quarter=quarters[order])

    def __len__(self) -> int:
        return len(self.seconds)

    def quarters(self, seconds: ArrayLike) -> FloatArray:
        """Times counted in quarters since second 0; same shape as `seconds`.

        Before the first tempo, and when the map is empty, a quarter lasts half a second (120 bpm),
        as it does in a MIDI file that says nothing.
        """
        times, lengths, at_change = self._segments()
        wanted = np.asarray(seconds, np.float64)
        row = np.maximum(np.searchsorted(times, wanted, side="right") - 1, 0)
        quarters: FloatArray = at_change[row] + (wanted - times[row]) / lengths[row]
        return quarters

    def at_quarters(self, quarters: ArrayLike) -> FloatArray:
        """The seconds at which so many quarters have passed: the inverse of `quarters`."""
        times, lengths, at_change = self._segments()
        wanted = np.asarray(quarters, np.float64)
        row = np.maximum(np.searchsorted(at_change, wanted, side="right") - 1, 0)
        seconds: FloatArray = times[row] + (wanted - at_change[row]) * lengths[row]
        return seconds

    def _segments(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """From second 0 on: when each tempo begins, its quarter, the quarters passed till then."""
        times, lengths = self.seconds, self.seconds_per_quarter
        if len(times) == 0 or times[0] > 0:
            times, lengths = np.append(0.0, times), np.append(0.5, lengths)
        return times, lengths, np.append(0.0, np.cumsum(np.diff(times) / lengths[:-1]))


@dataclass(frozen=True, eq=False, init=False, repr=False)
class NoteSequence:
    """Notes of one piece. All arguments are by keyword and may be any sequences of numbers.

    Args:
        pitch: (N,) 0..127.
        velocity: (N,) 1..127.
        start: (N,) seconds, >= 0.
        end: (N,) seconds, >= start: when the key goes up.
        channel: (N,) 0..15; default 0.
        track: (N,) >= 0; default 0.
        pedals: spans of the sustain pedal; default none.
        warnings: what a reader survived, and how often.
        end_time: seconds; a closing rest counts. Default: the last end of a note or span.
        tempos: the tempo map; default unknown.

    Raises:
        MidiError: columns of different lengths, or a number out of range.
    """

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
    ) -> None:
        pitches = _int_column("pitch", pitch, 0, 127)
        zeros = np.zeros(len(pitches), np.int64)
        columns: dict[str, NDArray[Any]] = {
            "pitch": pitches,
            "velocity": _int_column("velocity", velocity, 1, 127),
            "start": _time_column("start", start),
            "end": _time_column("end", end),
            "channel": zeros if channel is None else _int_column("channel", channel, 0, 15),
            "track": zeros if track is None else _int_column("track", track, 0, 2**31 - 1),
        }
        _check_lengths(tuple(columns), tuple(columns.values()))
        _check_order("notes", columns["start"], columns["end"])
        order = _row_order(columns)
        if order is not None:
            columns = {name: column[order] for name, column in columns.items()}
        _set_columns(self, **columns)

        pedals = Pedals() if pedals is None else pedals
        last = max(float(columns["end"].max(initial=0.0)), float(pedals.end.max(initial=0.0)))
        if end_time is not None and not np.isfinite(end_time):
            raise MidiError(f"end_time is {end_time}; it must be a number of seconds.")
        object.__setattr__(self, "pedals", pedals)
        object.__setattr__(self, "warnings", dict(warnings or {}))
        object.__setattr__(
            self, "end_time", last if end_time is None else max(last, float(end_time))
        )
        object.__setattr__(self, "tempos", Tempos() if tempos is None else tempos)

    def __len__(self) -> int:
        return len(self.pitch)

    def __repr__(self) -> str:
        counts = f"{len(self)} notes, {len(self.pedals)} pedals"
        return f"NoteSequence({counts}, {self.end_time:.3f} seconds)"

    def equals(self, other: NoteSequence) -> bool:
        """Whether the other holds the same notes, pedals and end; not tempos, not warnings."""
        return (
            self.end_time == other.end_time
            and self.pedals.equals(other.pedals)
            and all(np.array_equal(getattr(self, name), getattr(other, name)) for name in _COLUMNS)
        )

    def sustained(self) -> NoteSequence:
        """The same notes with the pedal turned into longer notes; no pedals are left.

        A note whose key goes up while the pedal of its channel is down lasts to the lift. Then an
        onset of a pitch cuts whatever sounds of that pitch on any channel. Onsets of one pitch
        within one step of 10 ms count as one onset and do not cut each other. Calling it again
        changes nothing.
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
        pedals, tempos = self.pedals, self.tempos
        return self.replaced(
            start=self.start * factor,
            end=self.end * factor,
            pedals=Pedals(pedals.channel, pedals.start * factor, pedals.end * factor),
            end_time=self.end_time * factor,
            tempos=Tempos(tempos.seconds * factor, tempos.seconds_per_quarter * factor),
        )

    def transposed(self, semitones: int) -> NoteSequence:
        """The same music `semitones` higher; MidiError when a pitch would leave 0..127."""
        pitch = self.pitch + semitones
        if len(pitch) and not (pitch.min() >= 0 and pitch.max() <= 127):
            raise MidiError(
                f"transposed: pitches would be {pitch.min()}..{pitch.max()} after {semitones:+d} "
                "semitones; 0..127 exist."
            )
        return self.replaced(pitch=pitch)

    def sliced(self, start: float, end: float) -> NoteSequence:
        """What sounds from second `start` to second `end`, cut at both and counted from `start`.

        A note or pedal that began earlier begins at 0; call `sustained` first where notes that only
        the pedal holds should count as sounding. The result ends at ``end - start``.
        """
        if not (np.isfinite([start, end]).all() and 0 <= start <= end):
            raise MidiError(
                f"sliced: {start} to {end} is not a stretch of time; need 0 <= start <= end."
            )
        inside = ((self.end > start) | (self.start >= start)) & (self.start < end)
        pedals = self.pedals
        down = (pedals.end > start) & (pedals.start < end)
        tempos = self.tempos
        row = max(int(np.searchsorted(tempos.seconds, start, side="right")) - 1, 0)
        row_end = int(np.searchsorted(tempos.seconds, end, side="left"))
        columns = {name: getattr(self, name)[inside] for name in _COLUMNS}
        columns["start"] = np.clip(columns["start"], start, end) - start
        columns["end"] = np.clip(columns["end"], start, end) - start
        return NoteSequence(
            **columns,
            pedals=Pedals(
                pedals.channel[down],
                np.clip(pedals.start[down], start, end) - start,
                np.clip(pedals.end[down], start, end) - start,
            ),
            warnings=self.warnings,
            end_time=end - start,
            tempos=Tempos(
                np.maximum(tempos.seconds[row:row_end] - start, 0.0),
                tempos.seconds_per_quarter[row:row_end],
            ),
        )

    def to_pretty_midi(self) -> pretty_midi.PrettyMIDI:
        """The notes as a `pretty_midi.PrettyMIDI`: one piano for each track and channel.

        Its ticks are milliseconds. pretty_midi has no closing rest: `end_time` is lost.
        """
        import pretty_midi

        result = pretty_midi.PrettyMIDI(resolution=500, initial_tempo=120.0)
        keys = sorted(set(zip(self.track.tolist(), self.channel.tolist(), strict=True)))
        silent = sorted(set(self.pedals.channel.tolist()) - {channel for _, channel in keys})
        for track, channel in keys + [(0, channel) for channel in silent]:
            piano = pretty_midi.Instrument(program=0)
            rows = np.flatnonzero((self.track == track) & (self.channel == channel))
            piano.notes = [
                pretty_midi.Note(velocity=velocity, pitch=pitch, start=start, end=end)
                for velocity, pitch, start, end in zip(
                    self.velocity[rows].tolist(),
                    self.pitch[rows].tolist(),
                    self.start[rows].tolist(),
                    self.end[rows].tolist(),
                    strict=True,
                )
            ]
            here = self.pedals.channel == channel
            for start, end in zip(
                self.pedals.start[here].tolist(), self.pedals.end[here].tolist(), strict=True
            ):
                piano.control_changes += [
                    pretty_midi.ControlChange(SUSTAIN, 127, start),
                    pretty_midi.ControlChange(SUSTAIN, 0, end),
                ]
            result.instruments.append(piano)
        return result

    @classmethod
    def from_pretty_midi(cls, midi: pretty_midi.PrettyMIDI) -> NoteSequence:
        """The notes of a `pretty_midi.PrettyMIDI`, without its drums.

        Instrument i becomes track i and, as when pretty_midi writes a file, the i-th channel that
        is not the drum channel (from the sixteenth on they are shared).
        """
        channels = [channel for channel in range(16) if channel != DRUM_CHANNEL]
        instruments = [instrument for instrument in midi.instruments if not instrument.is_drum]
        notes = [
            (note.pitch, note.velocity, note.start, note.end, channels[index % 15], index)
            for index, instrument in enumerate(instruments)
            for note in instrument.notes
            if note.velocity > 0
        ]
        controls = sorted(
            (
                (change.time, channels[index % 15], change.value)
                for index, instrument in enumerate(instruments)
                for change in instrument.control_changes
                if change.number == SUSTAIN
            ),
            key=lambda control: control[0],
        )
        last = max([note[3] for note in notes] + [time for time, _, _ in controls], default=0.0)
        pitch, velocity, start, end, channel, track = (
            zip(*notes, strict=True) if notes else ((),) * 6
        )
        times, bpm = midi.get_tempo_changes()
        return cls(
            pitch=pitch,
            velocity=velocity,
            start=start,
            end=end,
            channel=channel,
            track=track,
            pedals=pedal_spans(
                np.array([control[0] for control in controls], np.float64),
                np.array([control[1] for control in controls], np.int64),
                np.array([control[2] for control in controls], np.int64),
                last,
            ),
            tempos=Tempos(times, 60.0 / np.asarray(bpm, np.float64)),
        )

    def selected(self, rows: IntArray | BoolArray) -> NoteSequence:
        """The notes of some rows, by index or by mask; all else as it is."""
        return self.replaced(**{name: getattr(self, name)[rows] for name in _COLUMNS})

    def replaced(self, **changes: Any) -> NoteSequence:
        """The sequence with some columns, or other parts, changed."""
        names = (*_COLUMNS, "pedals", "warnings", "end_time", "tempos")
        return NoteSequence(**({name: getattr(self, name) for name in names} | changes))

    def _repr_html_(self) -> str:
        return piano_roll_svg(self) + ("" if _player is None else _player(self))


_COLUMNS = ("pitch", "velocity", "start", "end", "channel", "track")


def pedal_spans(
    seconds: FloatArray, channel: IntArray, value: IntArray, last_second: float
) -> Pedals:
    """Spans from the values of controller 64: down from 64 on, up below.

    Args:
        seconds: (N,) times, rising; rows of one time are in the order in which they act.
        channel: (N,) channels.
        value: (N,) 0..127.
        last_second: where a pedal that is never lifted ends.
    """
    channels, starts, ends = [], [], []
    for number in np.unique(channel):
        rows = channel == number
        time, down = seconds[rows], value[rows] >= SUSTAIN
        before = np.append(False, down[:-1])
        start, end = time[down & ~before], time[before & ~down]
        end = np.append(end, np.full(len(start) - len(end), max(last_second, time[-1])))
        kept = end > start
        channels.append(np.full(int(kept.sum()), number))
        starts.append(start[kept])
        ends.append(end[kept])
    if not channels:
        return Pedals()
    return Pedals(np.concatenate(channels), np.concatenate(starts), np.concatenate(ends))


def set_player(player: Callable[[NoteSequence], str] | None) -> None:
    """Let notebooks show what `player` returns (HTML of an audio player) under each piano roll.

    The package registers one at its root, because sound is made floors above this module.
    """
    global _player
    _player = player


def piano_roll_svg(notes: NoteSequence, *, width: int = 800, height: int = 240) -> str:
    """An inline SVG: time to the right, pitch upwards, louder notes darker, pedals below.

    One path for each of eight bands of velocity, so that an hour of piano stays a small picture.
    """
    low, high = (int(notes.pitch.min()), int(notes.pitch.max())) if len(notes) else (60, 60)
    caption = f"{len(notes)} notes, pitches {low} to {high}, {notes.end_time:.1f} s"
    row = (height - 26) / (high - low + 1)
    scale = width / (notes.end_time or 1.0)
    left, length = notes.start * scale, np.maximum((notes.end - notes.start) * scale, 0.5)
    middle = (high - notes.pitch + 0.5) * row
    band = notes.velocity // 16
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" style="max-width:100%;background:#fff"><title>{escape(caption)}</title>'
    ]
    for number in np.unique(band).tolist():
        rows = band == number
        bars = _bars(left[rows], middle[rows], length[rows])
        colour = f'stroke="#1f4e79" stroke-opacity="{0.3 + 0.1 * number:.1f}"'
        parts.append(f'<path d="{bars}" {colour} stroke-width="{row * 0.9:.2f}"/>')
    if len(notes.pedals):
        down, lift = notes.pedals.start * scale, notes.pedals.end * scale
        bars = _bars(down, np.full(len(down), height - 22.0), lift - down)
        parts.append(f'<path d="{bars}" stroke="#b5651d" stroke-width="3"/>')
    parts.append(
        f'<text x="4" y="{height - 6}" font-family="sans-serif" font-size="12" fill="#333">'
        f"{escape(caption)}</text></svg>"
    )
    return "".join(parts)


def _bars(left: FloatArray, middle: FloatArray, length: FloatArray) -> str:
    """The path of horizontal strokes."""
    rows = zip(left.tolist(), middle.tolist(), length.tolist(), strict=True)
    return "".join(f"M{x:.1f} {y:.1f}h{width:.1f}" for x, y, width in rows)


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


def _int_column(name: str, values: ArrayLike, low: int, high: int) -> IntArray:
    column = np.array(values)
    if column.ndim != 1 or (len(column) and column.dtype.kind not in "iu"):
        raise MidiError(
            f"{name} is {column.dtype} of shape {column.shape}; it must be one row of integers."
        )
    if len(column) and not (low <= column.min() and column.max() <= high):
        raise MidiError(f"{name} holds {column.min()}..{column.max()}; it must be {low}..{high}.")
    return column.astype(np.int64, copy=False)


def _time_column(name: str, values: ArrayLike) -> FloatArray:
    column = np.array(values)
    if column.ndim != 1 or (len(column) and column.dtype.kind not in "iuf"):
        raise MidiError(
            f"{name} is {column.dtype} of shape {column.shape}; it must be one row of seconds."
        )
    column = column.astype(np.float64, copy=False)
    if len(column) and not (np.isfinite(column).all() and column.min() >= 0):
        raise MidiError(f"{name} holds a time below 0 or not finite; it must be seconds from 0 on.")
    return column + 0.0  # -0.0 becomes 0.0


def _check_lengths(names: tuple[str, ...], columns: tuple[NDArray[Any], ...]) -> None:
    for name, column in zip(names, columns, strict=True):
        if len(column) != len(columns[0]):
            raise MidiError(
                f"{name} has {len(column)} rows, {names[0]} has {len(columns[0])}; "
                "all columns need the same number."
            )


def _check_order(name: str, start: FloatArray, end: FloatArray) -> None:
    wrong = np.flatnonzero(end < start)
    if len(wrong):
        row = int(wrong[0])
        raise MidiError(
            f"{name}: row {row} ends at {end[row]} s, before it starts at {start[row]} s."
        )


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


def _without_overlaps(
    channel: IntArray, start: FloatArray, end: FloatArray
) -> tuple[IntArray, FloatArray, FloatArray]:
    """Spans, sorted by channel and start, with those that overlap made one."""
    overlap = (channel[1:] == channel[:-1]) & (start[1:] < end[:-1])
    if not overlap.any():
        return channel, start, end
    spans: list[tuple[int, float, float]] = []
    for row in zip(channel.tolist(), start.tolist(), end.tolist(), strict=True):
        if spans and spans[-1][0] == row[0] and row[1] < spans[-1][2]:
            spans[-1] = (row[0], spans[-1][1], max(spans[-1][2], row[2]))
        else:
            spans.append(row)
    channels, starts, ends = zip(*spans, strict=True)
    return np.array(channels, np.int64), np.array(starts, np.float64), np.array(ends, np.float64)


def _set_columns(target: object, **columns: NDArray[Any]) -> None:
    for name, column in columns.items():
        column.flags.writeable = False
        object.__setattr__(target, name, column)
