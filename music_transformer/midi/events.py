"""Events of a MIDI file to notes, in columns: tracks merged, notes paired, ticks made seconds."""

from __future__ import annotations

from array import array
from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from music_transformer.errors import MidiError
from music_transformer.midi.pairing import pair
from music_transformer.midi.pedal import read_pedals
from music_transformer.midi.tempo import TempoMap
from music_transformer.notes import (
    DRUM_CHANNEL,
    SUSTAIN,
    BoolArray,
    FloatArray,
    IntArray,
    NoteSequence,
)

MAX_GAP_SECONDS = 3600.0
N_PIANO_PROGRAMS = 8

_NOTE_OFF, _NOTE_ON, _CONTROL, _PROGRAM = 0x8, 0x9, 0xB, 0xC


@dataclass
class RawEvents:
    """What the reader writes down: channel events in file order, one track after the other.

    `ticks` are absolute; a code is ``status << 16 | first data byte << 8 | second data byte``.
    """

    division: int = 0  # as in the header
    ticks: array[int] = field(default_factory=lambda: array("q"))
    codes: array[int] = field(default_factory=lambda: array("i"))
    first_events: list[int] = field(default_factory=list)  # of each track: where it starts
    end_ticks: list[int] = field(default_factory=list)  # of each track
    tempos: list[tuple[int, int]] = field(default_factory=list)  # tick, microseconds per quarter
    warnings: Counter[str] = field(default_factory=Counter)


class _Columns(NamedTuple):
    """The same, (E,) each: `kind` is the upper half of the status, `first`, `second` are 0..127."""

    ticks: IntArray
    track: IntArray
    kind: IntArray
    channel: IntArray
    first: IntArray
    second: IntArray


def to_notes(events: RawEvents, tempo_map: TempoMap, *, piano_only: bool) -> NoteSequence:
    """The notes and pedals of a file; the drums are left out.

    Raises:
        MidiError: no notes, or over an hour without any; the message lacks the name of the file.
    """
    warnings = events.warnings
    columns = _without_drums(_columns(events), warnings)
    onsets, end_ticks = _paired(columns, events.end_ticks, warnings)
    if piano_only:
        kept = _is_piano(columns, onsets)
        warnings["note of another instrument dropped"] += int((~kept).sum())
        onsets, end_ticks = onsets[kept], end_ticks[kept]
    if len(onsets) == 0:
        raise MidiError(_why_empty(warnings))

    is_pedal = (columns.kind == _CONTROL) & (columns.first == SUSTAIN)
    if piano_only:  # `--pedal events` would take the pedal of a string part for the piano's
        is_pedal &= np.isin(columns.channel, columns.channel[onsets])
    is_note = columns.kind <= _NOTE_ON
    pedals = read_pedals(
        columns.ticks[is_pedal],
        columns.channel[is_pedal],
        columns.second[is_pedal],
        int(columns.ticks[is_note | is_pedal].max()),
        tempo_map,
    )
    start, end = tempo_map.seconds(columns.ticks[onsets]), tempo_map.seconds(end_ticks)
    last_second = _check_gaps(np.concatenate([start, end, pedals.start, pedals.end]))
    end_time = float(tempo_map.seconds(np.array([max(events.end_ticks)], np.int64))[0])
    if end_time > last_second + MAX_GAP_SECONDS:
        warnings["closing rest of over an hour dropped"] += 1
        end_time = last_second
    return NoteSequence(
        pitch=columns.first[onsets],
        velocity=columns.second[onsets],
        start=start,
        end=end,
        channel=columns.channel[onsets],
        track=columns.track[onsets],
        pedals=pedals,
        warnings=+warnings,  # without those that never happened
        end_time=end_time,
        tempos=tempo_map.in_seconds(),
    )


def _columns(events: RawEvents) -> _Columns:
    """Codes taken apart, data bytes above 127 clipped."""
    codes = np.array(events.codes, np.int64)
    first, second = codes >> 8 & 0xFF, codes & 0xFF
    too_large = int((first > 127).sum() + (second > 127).sum())
    if too_large:
        events.warnings["data byte above 127"] += too_large
        first, second = np.minimum(first, 127), np.minimum(second, 127)
    counts = np.diff([*events.first_events, len(codes)])
    track = np.repeat(np.arange(len(counts)), counts)
    ticks = np.array(events.ticks, np.int64)
    return _Columns(ticks, track, codes >> 20, codes >> 16 & 0x0F, first, second)


def _without_drums(columns: _Columns, warnings: Counter[str]) -> _Columns:
    is_drum = columns.channel == DRUM_CHANNEL
    if not is_drum.any():
        return columns
    is_drum_note = is_drum & (columns.kind == _NOTE_ON) & (columns.second > 0)
    warnings["drum note dropped"] += int(is_drum_note.sum())
    return _Columns(*(column[~is_drum] for column in columns))


def _paired(
    columns: _Columns, track_ends: list[int], warnings: Counter[str]
) -> tuple[IntArray, IntArray]:
    """Rows of the N onsets, and the (N,) ticks at which their keys go up."""
    rows = np.flatnonzero(columns.kind <= _NOTE_ON)
    key = (columns.track[rows] * 16 + columns.channel[rows]) * 128 + columns.first[rows]
    is_on = (columns.kind[rows] == _NOTE_ON) & (columns.second[rows] > 0)
    pairs = pair(key, is_on)
    warnings["stray note-off"] += pairs.n_stray
    warnings["note never released"] += pairs.n_unreleased
    onsets = rows[pairs.onsets]
    end_of_track = np.array(track_ends, np.int64)[columns.track[onsets]]
    return onsets, np.where(pairs.ends < 0, end_of_track, columns.ticks[rows[pairs.ends]])


def _is_piano(columns: _Columns, onsets: IntArray) -> BoolArray:
    """(N,) whether the channel of each onset has a piano program at that moment."""
    rank = np.empty(len(columns.ticks), np.int64)  # the place of each event as tracks play together
    rank[np.argsort(columns.ticks, kind="stable")] = np.arange(len(rank))
    kept = np.ones(len(onsets), bool)
    for channel in np.unique(columns.channel[onsets]):
        changes = np.flatnonzero((columns.kind == _PROGRAM) & (columns.channel == channel))
        changes = changes[np.argsort(rank[changes])]
        programs = np.append(0, columns.first[changes])  # a channel starts as a piano
        here = columns.channel[onsets] == channel
        kept[here] = programs[np.searchsorted(rank[changes], rank[onsets[here]])] < N_PIANO_PROGRAMS
    return kept


def _why_empty(warnings: Counter[str]) -> str:
    if warnings["note of another instrument dropped"]:
        return "the file holds no notes of a piano"
    if warnings["drum note dropped"]:
        return "the file holds no notes but drums"
    return "the file holds no notes"


def _check_gaps(times: FloatArray) -> float:
    """The last of the moments at which a note or pedal begins or ends.

    Raises:
        MidiError: over an hour passes without one, before the first or between two.
    """
    times = np.sort(np.append(times, 0.0))
    gaps = np.diff(times)
    row = int(gaps.argmax())
    if gaps[row] > MAX_GAP_SECONDS:
        raise MidiError(
            f"{gaps[row] / 3600:.3g} hours pass without a note after second {times[row]:.0f}: "
            "a delta time or the tempo is damaged"
        )
    return float(times[-1])
