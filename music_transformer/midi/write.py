"""Notes to a MIDI file, through mido.

A note keeps its track and channel, all programs are piano (program 0), the pedal becomes controller
64 and a closing rest moves the end-of-track. The one loss is time: it is rounded to ticks. Without
a tempo map a tick is one millisecond (500 a quarter at 120 bpm), so steps of 10 ms are exact; a
tempo map is written where that costs no exactness.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from music_transformer.errors import ConfigError, MidiError
from music_transformer.files import atomic_path
from music_transformer.midi.tempo import MAX_TEMPO, TempoMap
from music_transformer.notes import (
    DRUM_CHANNEL,
    SUSTAIN,
    FloatArray,
    IntArray,
    NoteSequence,
    Tempos,
)

if TYPE_CHECKING:
    import mido

MILLISECOND_DIVISION = 500  # ticks per quarter that make a tick 1 ms at 120 bpm
_DIVISIONS = (480, 384, MILLISECOND_DIVISION, 960, 1024, 10_000)  # tried in turn under a tempo map
_EXACT_SECONDS = 1e-9
_CLOSE_SECONDS = 0.0005
_MAX_TRACKS = 2**16 - 1
_MAX_TICK = 2**28 - 1

# The order at one tick: the pedal first, as readers take it, then ends before beginnings. A note of
# no length has both at one tick: it comes between, its on before its off.
_Rows: TypeAlias = list[tuple[int, int, int, Any]]  # tick, order, order within, message
_META, _LIFT, _PRESS, _OFF, _BRIEF, _ON = range(6)


def write_midi(
    notes: NoteSequence,
    path: str | os.PathLike[str],
    *,
    overwrite: bool = True,
    track_names: Sequence[str] | None = None,
) -> Path:
    """Write notes as a type 1 file; returns the path.

    The file appears whole or not at all. `read_midi` gives the same notes back, exactly where times
    are on the 10 ms grid and within 0.5 ms elsewhere, except that notes of one track, channel and
    pitch that lie one inside the other trade their ends: MIDI cannot say which one stops.

    Args:
        notes: what to write; row ``track == i`` goes to the i-th track of the file.
        path: where to; a missing folder is made.
        overwrite: False refuses an existing file.
        track_names: the i-th is the name of the i-th track, as UTF-8.

    Raises:
        ConfigError: the file exists and `overwrite` is False.
        MidiError: the file cannot be written, or the notes do not fit into one.
    """
    path = Path(path)
    if not overwrite and path.exists():
        raise ConfigError(f"{path}: the file exists; choose another name or allow overwriting.")
    file = _to_mido(notes, list(track_names or ()), str(path))
    try:
        with atomic_path(path) as temporary:
            file.save(temporary)
    except OSError as error:
        raise MidiError(f"{path}: cannot be written ({error.strerror or error}).") from error
    return path


def _to_mido(notes: NoteSequence, names: list[str], name: str) -> mido.MidiFile:
    import mido

    columns = (notes.start, notes.end, notes.pedals.start, notes.pedals.end, [notes.end_time])
    grid = _choose_grid(np.concatenate(columns), notes.tempos)
    bounds = np.cumsum([len(column) for column in columns])[:-1]
    start, end, down, lift, [last_tick] = np.split(grid.ticks, bounds)
    n_tracks = max(int(notes.track.max(initial=0)) + 1, len(names))
    if n_tracks > _MAX_TRACKS or last_tick > _MAX_TICK:
        raise MidiError(
            f"{name}: {n_tracks} tracks and {last_tick} ticks do not fit into a MIDI file; "
            f"it holds {_MAX_TRACKS} and {_MAX_TICK}."
        )
    if (notes.channel == DRUM_CHANNEL).any():
        raise MidiError(
            f"{name}: notes on channel {DRUM_CHANNEL} would be played by drums; give them another."
        )
    tracks: list[_Rows] = [[] for _ in range(n_tracks)]
    for rows, text in zip(tracks, names, strict=False):
        rows.append((0, _META, 0, mido.MetaMessage("track_name", name=text)))
    for tick, tempo in zip(grid.tempo_map.ticks, grid.tempo_map.tempos, strict=True):
        tracks[0].append((int(tick), _META, 0, mido.MetaMessage("set_tempo", tempo=int(tempo))))
    _add_pedals(tracks, notes, down, lift)
    _add_notes(tracks, notes, start, end)

    file = mido.MidiFile(type=1, ticks_per_beat=grid.division, charset="utf-8")
    for rows in tracks:
        rows.sort(key=lambda row: row[:3])
        track, now = mido.MidiTrack(), 0
        for tick, _, _, message in rows:
            message.time = tick - now
            now = tick
            track.append(message)
        track.append(mido.MetaMessage("end_of_track", time=int(last_tick) - now))
        file.tracks.append(track)
    return file


def _add_pedals(tracks: list[_Rows], notes: NoteSequence, down: IntArray, lift: IntArray) -> None:
    """Controller 64, in the first track that uses the channel, else in the first of all."""
    import mido

    first_track: dict[int, int] = {}
    for track, channel in sorted(
        set(zip(notes.track.tolist(), notes.channel.tolist(), strict=True))
    ):
        first_track.setdefault(channel, track)
    for channel, *span in zip(
        notes.pedals.channel.tolist(), down.tolist(), lift.tolist(), strict=True
    ):
        if span[0] == span[1]:
            continue
        for tick, order, value in zip(span, (_PRESS, _LIFT), (127, 0), strict=True):
            message = mido.Message("control_change", channel=channel, control=SUSTAIN, value=value)
            tracks[first_track.get(channel, 0)].append((tick, order, 0, message))


def _add_notes(tracks: list[_Rows], notes: NoteSequence, start: IntArray, end: IntArray) -> None:
    import mido

    columns = (start, end, notes.pitch, notes.velocity, notes.channel, notes.track)
    for begin, stop, pitch, velocity, channel, track in zip(
        *(column.tolist() for column in columns), strict=True
    ):
        on = mido.Message("note_on", channel=channel, note=pitch, velocity=velocity)
        off = mido.Message("note_off", channel=channel, note=pitch, velocity=64)
        if begin == stop:
            tracks[track] += [(begin, _BRIEF, pitch, on), (stop, _BRIEF, pitch, off)]
        else:
            # of two that start together the shorter goes first: its off comes first
            tracks[track] += [(begin, _ON, stop, on), (stop, _OFF, pitch, off)]


class _Grid(NamedTuple):
    """A way to put times on ticks, and what it costs."""

    division: int  # ticks per quarter
    tempo_map: TempoMap
    ticks: IntArray  # of all times
    error_seconds: float  # by which they miss at most


def _choose_grid(seconds: FloatArray, tempos: Tempos) -> _Grid:
    """The grid that keeps the times best, and among good ones the one that keeps the beat.

    That is the tempo map of the notes where some usual division hits every time; else milliseconds
    if these do; else the tempo map where it misses by at most half of one; else milliseconds.
    """
    plain = _grid(seconds, Tempos(), MILLISECOND_DIVISION)
    grids = []
    if len(tempos) and tempos.seconds_per_quarter.max() * 1e6 <= MAX_TEMPO:
        grids = [_grid(seconds, tempos, division) for division in _DIVISIONS]
    for allowed in (_EXACT_SECONDS, _CLOSE_SECONDS):
        for grid in (*grids, plain):
            if grid.error_seconds <= allowed:
                return grid
    return plain


def _grid(seconds: FloatArray, tempos: Tempos, division: int) -> _Grid:
    tempo_map = TempoMap.from_seconds(tempos, division)
    ticks = tempo_map.nearest_ticks(seconds)
    error = float(np.abs(tempo_map.seconds(ticks) - seconds).max())
    if ticks.max() > _MAX_TICK:
        error = np.inf
    return _Grid(division, tempo_map, ticks, error)
