"""What lies beside the notes in time: pedal spans, tempo map, time and key signatures.

All are read-only numpy columns in float64 seconds from the start of the music. What a change sets
(a tempo, a metre, a key) holds until the next change of its kind.
"""

from __future__ import annotations

from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from music_transformer.errors import MidiError

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

SUSTAIN = 64  # the controller number of the sustain pedal, and the value from which it is down
STEPS_PER_SECOND = 100
FINEST_DIVISION = 2**15 - 1  # ticks per quarter: what the header of a MIDI file can say
MAX_BARS = 20_000  # an evening's music has fewer; more is a damaged tempo or metre

_TICK_SECONDS = 1e-4  # as fine as a tick should be, so that rounding to ticks can be undone


def to_steps(seconds: ArrayLike) -> IntArray:
    """Numbers of the 10 ms steps nearest to times in seconds; halves, and 1e-6 less, go up."""
    steps = np.floor(np.asarray(seconds, np.float64) * STEPS_PER_SECOND + 0.5 + 1e-6)
    return steps.astype(np.int64)


class Columns:
    """Columns of one length; a subclass names them in `COLUMNS`."""

    __slots__ = ()
    COLUMNS: ClassVar[tuple[str, ...]] = ()

    def __len__(self) -> int:
        return len(getattr(self, self.COLUMNS[0]))

    def __repr__(self) -> str:
        columns = (f"{name}={getattr(self, name).tolist()}" for name in self.COLUMNS)
        return f"{type(self).__name__}({', '.join(columns)})"

    def equals(self, other: Columns) -> bool:
        """Whether the other has the same columns."""
        return all(
            np.array_equal(getattr(self, name), getattr(other, name)) for name in self.COLUMNS
        )


class Pedals(Columns):
    """Spans in which the sustain pedal of a channel is down: (N,) columns, sorted, no overlaps."""

    __slots__ = COLUMNS = ("channel", "start", "end")
    channel: IntArray
    start: FloatArray
    end: FloatArray

    def __init__(self, channel: ArrayLike = (), start: ArrayLike = (), end: ArrayLike = ()) -> None:
        channels = int_column("pedals.channel", channel, 0, 15)
        starts, ends = time_column("pedals.start", start), time_column("pedals.end", end)
        check_lengths({"pedals.channel": channels, "pedals.start": starts, "pedals.end": ends})
        check_order("pedals", starts, ends)
        order = np.lexsort((ends, starts, channels))
        channels, starts, ends = _without_overlaps(channels[order], starts[order], ends[order])
        set_columns(self, channel=channels, start=starts, end=ends)

    def sliced(self, start: float, end: float) -> Pedals:
        """What is down from `start` to `end`, counted from `start`."""
        down = (self.end > start) & (self.start < end)
        starts, ends = (
            np.clip(column[down], start, end) - start for column in (self.start, self.end)
        )
        return Pedals(self.channel[down], starts, ends)


_Changes = TypeVar("_Changes", bound="Changes")


class Changes(Columns):
    """Columns that begin with `seconds`, the sorted times from which the others hold."""

    __slots__ = ()
    seconds: FloatArray

    def _set(self, name: str, seconds: ArrayLike, **others: NDArray[Any]) -> None:
        """Set the columns of the changes of this name, sorted by time."""
        columns = {"seconds": time_column(f"{name}.seconds", seconds), **others}
        check_lengths({f"{name}.{column}": values for column, values in columns.items()})
        order = np.argsort(columns["seconds"], kind="stable")
        set_columns(self, **{column: values[order] for column, values in columns.items()})

    def at(self: _Changes, seconds: FloatArray, rows: Any = slice(None)) -> _Changes:
        """Some rows, at other times."""
        columns = {name: getattr(self, name)[rows] for name in self.COLUMNS}
        return type(self)(**(columns | {"seconds": seconds}))

    def until(self: _Changes, end: float) -> _Changes:
        """The changes before `end`; one at second 0 in any case."""
        rows = int(np.searchsorted(self.seconds, end, side="left")) if end > 0 else 1
        return self.at(self.seconds[:rows], slice(rows))

    def sliced(self: _Changes, start: float, end: float) -> _Changes:
        """What holds from `start` to `end`, counted from `start`."""
        row = max(int(np.searchsorted(self.seconds, start, side="right")) - 1, 0)
        part = self.until(end)
        return part.at(np.maximum(part.seconds[row:] - start, 0.0), slice(row, None))


class Tempos(Changes):
    """The tempo map in seconds: from `seconds[i]` on, a quarter lasts `seconds_per_quarter[i]`.

    Empty when the beat is unknown (a file with SMPTE time, notes that come from events).
    `division` is how many ticks a quarter has in the file that was read, 0 when there was none:
    a file that is written divides those further, so that what lay on a tick does so again.
    """

    COLUMNS = ("seconds", "seconds_per_quarter")
    __slots__ = ("division", *COLUMNS)
    seconds_per_quarter: FloatArray
    division: int

    def __init__(
        self, seconds: ArrayLike = (), seconds_per_quarter: ArrayLike = (), division: int = 0
    ) -> None:
        quarters = time_column("tempos.seconds_per_quarter", seconds_per_quarter)
        if (quarters <= 0).any():
            raise MidiError("tempos.seconds_per_quarter holds 0; a quarter must last some time.")
        self._set("tempos", seconds, seconds_per_quarter=quarters)
        self.division = division

    def at(self, seconds: FloatArray, rows: Any = slice(None)) -> Tempos:
        """Some rows, at other times."""
        return Tempos(seconds, self.seconds_per_quarter[rows], self.division)

    def stretched(self, factor: float) -> Tempos:
        """The same beats, each `factor` times as long."""
        return Tempos(self.seconds * factor, self.seconds_per_quarter * factor, self.division)

    def quarter_at(self, second: float) -> float:
        """How many seconds a quarter lasts there."""
        times, lengths, _ = self._segments()
        return float(lengths[max(int(np.searchsorted(times, second, side="right")) - 1, 0)])

    def fine_division(self) -> int:
        """Ticks per quarter, a multiple of `division`: a tick of 0.1 ms, or the most of a file."""
        division = self.division or 480
        slowest = float(self.seconds_per_quarter.max(initial=0.5))
        wanted = min(slowest / _TICK_SECONDS, FINEST_DIVISION)
        return division * max(min(-int(-wanted // division), FINEST_DIVISION // division), 1)

    def quarters(self, seconds: ArrayLike) -> FloatArray:
        """Times counted in quarters since second 0; before the first tempo they last 0.5 s."""
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


class TimeSignatures(Changes):
    """The metre: from `seconds[i]` on, where a bar begins, `numerator[i]` / `denominator[i]`."""

    __slots__ = COLUMNS = ("seconds", "numerator", "denominator")
    numerator: IntArray
    denominator: IntArray

    def __init__(
        self, seconds: ArrayLike = (), numerator: ArrayLike = (), denominator: ArrayLike = ()
    ) -> None:
        beats = int_column("time_signatures.numerator", numerator, 1, 255)
        below = int_column("time_signatures.denominator", denominator, 1, 128)
        if (below & (below - 1)).any():
            raise MidiError("time_signatures.denominator must be 1, 2, 4, 8, 16, 32, 64 or 128.")
        self._set("time_signatures", seconds, numerator=beats, denominator=below)

    def bar_quarters(self) -> FloatArray:
        """(N,) how many quarters a bar of each has."""
        return 4.0 * self.numerator / self.denominator

    def bar_lines(self, tempos: Tempos, end: float) -> FloatArray:
        """The seconds at which bars begin, up to and with `end`; none if they would be too many."""
        first = tempos.quarters(self.seconds)
        length = self.bar_quarters()
        until = np.append(first[1:], tempos.quarters(end))
        count = np.maximum(np.ceil((until - first) / length - 1e-6), 0.0)
        if len(count) and until[-1] >= first[-1]:  # a line at the very end counts
            count[-1] = np.floor((until[-1] - first[-1]) / length[-1] + 1e-6) + 1
        if count.sum() > MAX_BARS:
            return np.zeros(0)
        lines = [
            begin + step * np.arange(int(number))
            for begin, step, number in zip(first, length, count, strict=True)
        ]
        return tempos.at_quarters(np.concatenate([np.zeros(0), *lines]))

    def part(self, tempos: Tempos, start: float, end: float) -> TimeSignatures:
        """What holds from `start` to `end`, counted from `start`, and from the next bar line on."""
        part = self.sliced(start, end)
        row = len(self.until(end)) - len(part)
        if not len(part) or self.seconds[row] >= start:
            return part
        first, now = tempos.quarters([float(self.seconds[row]), start])
        length = self.bar_quarters()[row]
        line = first + np.ceil((now - first) / length - 1e-6) * length
        times = part.seconds.copy()
        times[0] = max(float(tempos.at_quarters(line)) - start, 0.0)
        later = len(times) > 1 and times[0] >= times[1] - 1e-6  # the next comes before that line
        rows = slice(int(later), None) if times[0] < end - start else slice(0)
        return part.at(times[rows], rows)


class KeySignatures(Changes):
    """The key: from `seconds[i]` on `sharps[i]` sharps (below 0: flats), `minor[i]` 1 or 0."""

    __slots__ = COLUMNS = ("seconds", "sharps", "minor")
    sharps: IntArray
    minor: IntArray

    def __init__(
        self, seconds: ArrayLike = (), sharps: ArrayLike = (), minor: ArrayLike = ()
    ) -> None:
        signs = int_column("key_signatures.sharps", sharps, -7, 7)
        modes = int_column("key_signatures.minor", minor, 0, 1)
        self._set("key_signatures", seconds, sharps=signs, minor=modes)

    def transposed(self, semitones: int) -> KeySignatures:
        """The keys so many semitones higher, with five flats to six sharps."""
        if semitones % 12 == 0:
            return self
        return KeySignatures(self.seconds, (self.sharps + 7 * semitones + 5) % 12 - 5, self.minor)


def pedal_spans(
    seconds: FloatArray, channel: IntArray, value: IntArray, last_second: float
) -> Pedals:
    """Spans from (N,) values 0..127 of controller 64: down from 64 on, up below.

    Rows rise in time, those of one time in the order in which they act. A pedal that is never
    lifted ends at `last_second`.
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


def int_column(name: str, values: ArrayLike, low: int, high: int) -> IntArray:
    """A new row of integers; MidiError where one of them is not in `low`..`high`."""
    column = _row(name, values, "integers", "iu")
    if len(column) and not (low <= column.min() and column.max() <= high):
        raise MidiError(f"{name} holds {column.min()}..{column.max()}; it must be {low}..{high}.")
    return column.astype(np.int64, copy=False)


def time_column(name: str, values: ArrayLike) -> FloatArray:
    """A new row of seconds; MidiError where one of them is below 0 or not finite."""
    column = _row(name, values, "seconds", "iuf").astype(np.float64, copy=False)
    if len(column) and not (np.isfinite(column).all() and column.min() >= 0):
        raise MidiError(f"{name} holds a time below 0 or not finite; it must be seconds from 0 on.")
    return column + 0.0  # -0.0 becomes 0.0


def _row(name: str, values: ArrayLike, what: str, kinds: str) -> NDArray[Any]:
    try:
        column = np.array(values)
    except (ValueError, OverflowError) as error:  # rows of several lengths
        raise MidiError(f"{name} is ragged; it must be one row of {what}.") from error
    if column.ndim != 1 or (len(column) and column.dtype.kind not in kinds):
        raise MidiError(
            f"{name} is {column.dtype} of shape {column.shape}; it must be one row of {what}."
        )
    return column


def check_lengths(columns: dict[str, NDArray[Any]]) -> None:
    """Raise MidiError where one column is longer than the first."""
    (first, rows), *others = ((name, len(column)) for name, column in columns.items())
    for name, number in others:
        if number != rows:
            raise MidiError(
                f"{name} has {number} rows, {first} has {rows}; all columns need the same number."
            )


def check_order(name: str, start: FloatArray, end: FloatArray) -> None:
    """Raise MidiError where a row ends before it starts."""
    wrong = np.flatnonzero(end < start)
    if len(wrong):
        row = int(wrong[0])
        raise MidiError(
            f"{name}: row {row} ends at {end[row]} s, before it starts at {start[row]} s."
        )


def set_columns(target: object, **columns: NDArray[Any]) -> None:
    """Make the columns read-only and attributes of `target`."""
    for name, column in columns.items():
        column.flags.writeable = False
        setattr(target, name, column)


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
