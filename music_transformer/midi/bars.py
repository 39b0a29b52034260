"""Where bars begin, and which part of a file a user means by `--from` and `--to`."""

from __future__ import annotations

import math

import numpy as np

from music_transformer.errors import ConfigError, MidiError
from music_transformer.notes import FloatArray, NoteSequence, TimeSignatures

_SAME_SECONDS = 1e-6
_COMMON_TIME = TimeSignatures([0.0], [4], [4])  # the metre of a MIDI file that names none


def bar_lines(notes: NoteSequence) -> FloatArray:
    """The seconds at which bars begin, to the end of the notes; none where the metre is unknown.

    The metre is known from time signatures and a tempo map. A bar begins at each time signature.
    """
    if not len(notes.tempos):
        return notes.time_signatures.seconds[:0]
    return notes.time_signatures.bar_lines(notes.tempos, notes.end_time)


def seconds_of(text: str, notes: NoteSequence) -> float:
    """The second that a text means: ``12.5``, ``bar:5`` (where it begins), ``-10`` (from the end).

    Bars count from 1, in 4/4 where the file names no metre. ConfigError outside the notes.
    """
    end = notes.end_time
    if text.startswith("bar:"):
        if not len(notes.tempos):
            raise ConfigError(f"{text}: the file has no beat; say it in seconds.")
        metre = notes.time_signatures if len(notes.time_signatures) else _COMMON_TIME
        last_bar = 4.0 * 255 * float(notes.tempos.seconds_per_quarter.max())
        lines = metre.bar_lines(notes.tempos, end + last_bar)
        lines = lines[: int((lines < end - 1e-6).sum()) + 1]  # the last bar ends with the file
        number = text.removeprefix("bar:")
        if not (number.isdecimal() and len(number) < 9 and 1 <= int(number) <= len(lines)):
            raise ConfigError(f"{text}: the file has the bars 1 to {max(len(lines) - 1, 0)}.")
        return min(float(lines[int(number) - 1]), end)
    try:
        seconds = float(text)
    except ValueError as error:
        raise ConfigError(
            f"{text}: give seconds, a bar such as bar:5, or -10 for ten seconds before the end."
        ) from error
    seconds += end if text.startswith("-") else 0.0
    if not (math.isfinite(seconds) and -1e-6 <= seconds <= end + 1e-6):
        raise ConfigError(f"{text}: the file lasts from 0 to {end:.2f} seconds.")
    return min(max(seconds, 0.0), end)


def part_of(notes: NoteSequence, start: str | None, stop: str | None) -> NoteSequence:
    """The part of the notes from `start` to `stop`, each as in `seconds_of`; None is the whole way.

    Raises ConfigError where these do not follow each other, MidiError for a part without notes.
    """
    if start is None and stop is None:
        return notes
    first, last = span_of(notes, start, stop)
    part = notes.sliced(first, last)
    if not len(part):
        raise MidiError(f"no note sounds from {first:.2f} s to {last:.2f} s.")
    return part


def span_of(notes: NoteSequence, start: str | None, stop: str | None) -> tuple[float, float]:
    """The seconds between which `part_of` lies, and its ConfigErrors."""
    first = 0.0 if start is None else _at_event(seconds_of(start, notes), notes)
    last = notes.end_time if stop is None else _at_event(seconds_of(stop, notes), notes)
    if first >= last:
        raise ConfigError(f"--from is second {first:.2f}, --to {last:.2f}; choose a later --to.")
    return first, last


def _at_event(second: float, notes: NoteSequence) -> float:
    """The start or end of a note that lies there but for a rounding error, else the second."""
    for column in (notes.start, notes.end):
        nearest = float(column[np.abs(column - second).argmin()]) if len(column) else second
        if abs(nearest - second) < _SAME_SECONDS:
            return nearest
    return second
