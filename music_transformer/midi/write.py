"""Notes to a MIDI file, through mido.

Track 0 of the file holds the map alone: tempo, metre, key, and `title` as its name. All programs
are piano (program 0), the pedal becomes controller 64 and a closing rest moves the end-of-track.

The one loss is time: it is rounded to ticks, by 0.1 ms at most and never to another step of 10 ms,
so that the file gives the same events; see `_choose_grid`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from music_transformer.errors import ConfigError, MidiError
from music_transformer.files import atomic_path
from music_transformer.midi.events import check_gaps
from music_transformer.midi.tempo import MAX_TEMPO, TempoMap
from music_transformer.notes import (
    DRUM_CHANNEL,
    SUSTAIN,
    FloatArray,
    IntArray,
    NoteSequence,
    Tempos,
    to_steps,
)

if TYPE_CHECKING:
    import mido

_log = logging.getLogger(__name__)

MILLISECOND_DIVISION = 500  # ticks per quarter that make a tick 1 ms at 120 bpm
_DIVISIONS = (480, 384, MILLISECOND_DIVISION, 960, 1024, 10_000)  # tried where none was read
_EXACT_SECONDS = 1e-9
_CLOSE_SECONDS = 1e-4
_MAX_TRACKS = 2**15 - 1  # with the map's; what mido writes
_MAX_DELTA = 2**28 - 1


class _Order(IntEnum):
    """The order at one tick: the pedal first, as readers take it, then ends before beginnings.

    A note of no length has both at one tick: it comes between, its on before its off.
    """

    META = 0
    LIFT = 1
    PRESS = 2
    OFF = 3
    BRIEF = 4
    ON = 5


_Rows: TypeAlias = "list[tuple[int, _Order, int, mido.Message | mido.MetaMessage]]"
# tick, order, order within, message


def write_midi(
    notes: NoteSequence,
    path: str | os.PathLike[str],
    *,
    overwrite: bool = True,
    track_names: Sequence[str] | None = None,
) -> Path:
    """Write notes as a type 1 file, whole or not at all, a missing folder too; returns the path.

    `read_midi` gives the same notes, tempo map, metre, key and names again: exactly where times are
    on the 10 ms grid or come from one file, within 0.1 ms elsewhere. Notes of one track, channel
    and pitch that lie one inside the other trade their ends: MIDI cannot say which one stops.

    Raises:
        ConfigError: the file exists and `overwrite` is False.
        MidiError: the file cannot be written, or not read again (see `check_writable`).
    """
    path = Path(path)
    if not overwrite and path.exists():
        raise ConfigError(f"{path}: the file exists; choose another name or allow overwriting.")
    file = _to_mido(
        notes, list(notes.track_names if track_names is None else track_names), str(path)
    )
    try:
        with atomic_path(path) as temporary:
            file.save(temporary)
    except OSError as error:
        raise MidiError(f"{path}: cannot be written ({error.strerror or error}).") from error
    return path


def check_writable(notes: NoteSequence, name: str) -> None:
    """Refuse what a MIDI file cannot hold, or `read_midi` would not read again; `name` is the file.

    Ask before the work: what begins with a primer can be written where the primer can. Raises
    MidiError for too many tracks, drums, or over an hour without any note.
    """
    n_tracks = max(int(notes.track.max(initial=0)) + 1, len(notes.track_names))
    if n_tracks >= _MAX_TRACKS:
        raise MidiError(f"{name}: {n_tracks} tracks do not fit into a MIDI file of {_MAX_TRACKS}.")
    if (notes.channel == DRUM_CHANNEL).any():
        raise MidiError(
            f"{name}: notes on channel {DRUM_CHANNEL} would be played by drums; give them another."
        )
    played = np.isin(notes.pedals.channel, notes.channel)
    times = np.append(notes.pedals.end[played], notes.end_time)
    try:
        check_gaps(notes.start, notes.end, times)
    except MidiError as error:
        raise MidiError(f"{name}: {error}; cut the silence.") from error


def _to_mido(notes: NoteSequence, names: list[str], name: str) -> mido.MidiFile:
    import mido

    check_writable(notes, name)
    columns = (notes.start, notes.end, notes.pedals.start, notes.pedals.end, [notes.end_time])
    grid = _choose_grid(np.concatenate(columns), notes.tempos)
    slowest = float(notes.tempos.seconds_per_quarter.max(initial=0.0))
    if slowest * 1e6 > MAX_TEMPO:
        _log.warning(
            "%s: a quarter of %.3g s is slower than a MIDI tempo can be (%.3g s): at 120 bpm"
            " all times are written as they are, the bar lines are lost",
            *(name, slowest, MAX_TEMPO / 1e6),
        )
    bounds = np.cumsum([len(column) for column in columns])[:-1]
    start, end, down, lift, [last_tick] = np.split(grid.ticks, bounds)
    tracks: list[_Rows] = [[] for _ in range(max(int(notes.track.max(initial=0)) + 1, len(names)))]
    _add_pedals(tracks, notes, down, lift)
    _add_notes(tracks, notes, start, end)
    file = mido.MidiFile(type=1, ticks_per_beat=grid.division, charset="utf-8")
    for rows, text in zip(
        [_map_rows(notes, grid.tempo_map, int(last_tick)), *tracks],
        [notes.title, *names, *[""] * (len(tracks) - len(names))],
        strict=True,
    ):
        rows.sort(key=lambda row: row[:3])
        track, now = mido.MidiTrack(), 0
        if text:
            text = text.encode(errors="replace").decode()  # a lone surrogate is no text
            track.append(mido.MetaMessage("track_name", name=text))
        rows.append((int(last_tick), _Order.META, 0, mido.MetaMessage("end_of_track")))
        for tick, _, _, message in rows:
            while tick - now > _MAX_DELTA:  # a track may be silent for longer than a number holds
                track.append(mido.MetaMessage("text", time=_MAX_DELTA))
                now += _MAX_DELTA
            message.time = tick - now
            now = tick
            track.append(message)
        file.tracks.append(track)
    return file


def _map_rows(notes: NoteSequence, tempo_map: TempoMap, last_tick: int) -> _Rows:
    """Tempo, metre and key; what comes after the end of the music acts on nothing."""
    import mido

    metre, key = notes.time_signatures, notes.key_signatures
    rows: _Rows = []
    for tick, tempo in _lists(tempo_map.ticks, tempo_map.tempos):
        rows.append((tick, _Order.META, 0, mido.MetaMessage("set_tempo", tempo=tempo)))
    for tick, above, below in _lists(
        tempo_map.nearest_ticks(metre.seconds), metre.numerator, metre.denominator
    ):
        message = mido.MetaMessage("time_signature", numerator=above, denominator=below)
        rows.append((tick, _Order.META, 1, message))
    for tick, sharps, minor in _lists(tempo_map.nearest_ticks(key.seconds), key.sharps, key.minor):
        message = mido.MetaMessage("key_signature", key=_key_name(sharps, minor))
        rows.append((tick, _Order.META, 2, message))
    return [row for row in rows if row[0] <= last_tick]


def _lists(*columns: IntArray) -> Iterator[tuple[int, ...]]:
    """The rows of some columns."""
    return zip(*(column.tolist() for column in columns), strict=True)


def _key_name(sharps: int, minor: int) -> str:
    """The name of a key as mido has it, such as Bb or F#m: its place on the circle of fifths."""
    place = sharps + 1 + 3 * minor  # 0 is F
    return "FCGDAEB"[place % 7] + ("b" if place < 0 else "#" * (place // 7)) + "m" * minor


def _add_pedals(tracks: list[_Rows], notes: NoteSequence, down: IntArray, lift: IntArray) -> None:
    """Controller 64, in the first track that uses the channel, else in the first of all."""
    import mido

    first_track: dict[int, int] = {}
    for track, channel in sorted(set(_lists(notes.track, notes.channel))):
        first_track.setdefault(channel, track)
    for channel, press, release in _lists(notes.pedals.channel, down, lift):
        if press == release:
            continue
        for tick, order, value in ((press, _Order.PRESS, 127), (release, _Order.LIFT, 0)):
            message = mido.Message("control_change", channel=channel, control=SUSTAIN, value=value)
            tracks[first_track.get(channel, 0)].append((tick, order, 0, message))


def _add_notes(tracks: list[_Rows], notes: NoteSequence, start: IntArray, end: IntArray) -> None:
    import mido

    columns = (start, end, notes.pitch, notes.velocity, notes.channel, notes.track)
    for begin, stop, pitch, velocity, channel, track in _lists(*columns):
        on = mido.Message("note_on", channel=channel, note=pitch, velocity=velocity)
        off = mido.Message("note_off", channel=channel, note=pitch, velocity=64)
        if begin == stop:
            tracks[track] += [(begin, _Order.BRIEF, pitch, on), (stop, _Order.BRIEF, pitch, off)]
        else:
            # of two that start together the shorter goes first: its off comes first
            tracks[track] += [(begin, _Order.ON, stop, on), (stop, _Order.OFF, pitch, off)]


class _Grid(NamedTuple):
    """A way to put times on ticks, and what it costs."""

    division: int  # ticks per quarter
    tempo_map: TempoMap
    ticks: IntArray  # of all times
    error_seconds: float  # by which they miss at most


def _choose_grid(seconds: FloatArray, tempos: Tempos) -> _Grid:
    """The grid that keeps the times best, and among good ones the one that keeps the beat.

    That is the tempo map of the notes where its own division, or a usual one, hits every time; else
    milliseconds if these do and no file was read; else the map with a fine division, where that
    misses by 0.1 ms at most; else tenths of milliseconds.
    """
    coarse = _grid(seconds, Tempos(), MILLISECOND_DIVISION)
    plain = [coarse, _grid(seconds, Tempos(), 10 * MILLISECOND_DIVISION)]
    exact, close = [], []
    if len(tempos) and tempos.seconds_per_quarter.max() * 1e6 <= MAX_TEMPO:
        divisions = (tempos.division,) if tempos.division else _DIVISIONS
        exact = [_grid(seconds, tempos, division) for division in divisions]
        close = [_grid(seconds, tempos, tempos.fine_division())]
    candidates = [*exact, *close] if tempos.division else [*exact, *plain, *close]
    for grid in candidates:
        if grid.error_seconds <= _EXACT_SECONDS:
            return grid
    return next((grid for grid in close if grid.error_seconds <= _CLOSE_SECONDS), plain[-1])


def _grid(seconds: FloatArray, tempos: Tempos, division: int) -> _Grid:
    """The times on ticks; one that would come to lie in another step of 10 ms moves back by one."""
    tempo_map = TempoMap.from_seconds(tempos, division)
    ticks = tempo_map.nearest_ticks(seconds)
    ticks = ticks + np.sign(to_steps(seconds) - to_steps(tempo_map.seconds(ticks)))
    error = float(np.abs(tempo_map.seconds(ticks) - seconds).max())
    if np.diff(np.sort(ticks), prepend=0).max() > _MAX_DELTA:
        error = np.inf
    return _Grid(division, tempo_map, ticks, error)
