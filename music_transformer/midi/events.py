"""Events of a MIDI file to notes, in columns: tracks merged, notes paired, ticks made seconds."""

from __future__ import annotations

from array import array
from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from music_transformer.errors import MidiError
from music_transformer.midi.pairing import (
    ALL_SOUND_OFF,
    PEDAL_CONTROLLERS,
    Pairs,
    pair,
    read_pedals,
    shared_pedals,
)
from music_transformer.midi.tempo import TempoMap
from music_transformer.notes import (
    DRUM_CHANNEL,
    SUSTAIN,
    BoolArray,
    FloatArray,
    IntArray,
    KeySignatures,
    NoteSequence,
    Pedals,
    TimeSignatures,
)

MAX_GAP_SECONDS = 3600.0
N_PIANO_PROGRAMS = 8
_NOTES_OF_TRACK = 16 * 128

_NOTE_OFF, _NOTE_ON, _CONTROL, _PROGRAM = 0x8, 0x9, 0xB, 0xC
# All sound off, all notes off, and the four changes of mode, which end all notes as well.
_RELEASES_ALL = (ALL_SOUND_OFF, 123, 124, 125, 126, 127)


@dataclass
class RawEvents:
    """What the reader writes down: channel events in file order, one track after the other.

    `ticks` are absolute; a code is ``status << 16 | first data byte << 8 | second data byte``. At
    one tick tempo changes act first, then pedals, then the rest in this order.
    """

    division: int = 0  # as in the header
    ticks: array[int] = field(default_factory=lambda: array("q"))
    codes: array[int] = field(default_factory=lambda: array("i"))
    first_events: list[int] = field(default_factory=list)  # of each track: where it starts
    end_ticks: list[int] = field(default_factory=list)  # of each track
    tempos: list[tuple[int, int]] = field(default_factory=list)  # tick, microseconds per quarter
    metres: list[tuple[int, int, int]] = field(default_factory=list)  # tick, numerator, denominator
    keys: list[tuple[int, int, int]] = field(default_factory=list)  # tick, sharps, 1 for minor
    names: dict[int, str] = field(default_factory=dict)  # by track
    last_tempos: dict[int, int] = field(default_factory=dict)  # by track: tick of its last tempo
    warnings: Counter[str] = field(default_factory=Counter)

    def add_track(self, other: RawEvents) -> None:
        """Append the one track of another."""
        number = len(self.end_ticks)
        self.first_events.append(len(self.ticks))
        self.ticks += other.ticks
        self.codes += other.codes
        self.end_ticks += other.end_ticks
        self.tempos += other.tempos
        self.metres += other.metres
        self.keys += other.keys
        if other.names:
            self.names[number] = other.names[0]
        if other.last_tempos:
            self.last_tempos[number] = other.last_tempos[0]
        self.warnings += other.warnings


class _Columns(NamedTuple):
    """The same, (E,) each: `kind` is the upper half of the status, `first`, `second` are 0..127."""

    ticks: IntArray
    track: IntArray
    kind: IntArray
    channel: IntArray
    first: IntArray
    second: IntArray


def to_notes(events: RawEvents, *, piano_only: bool, one_pedal: bool) -> NoteSequence:
    """The notes, pedals, tempo map, metre, key and names of a file; the drums are left out.

    Raises MidiError, without the name of the file, where there are no notes, none for over an hour,
    or no time.
    """
    tempo_map = TempoMap.of_division(events.division, events.tempos)
    warnings = events.warnings
    columns = _without_drums(_columns(events), warnings)
    onsets, end_ticks = _paired(columns, events.end_ticks, warnings)
    if piano_only:
        kept = _is_piano(columns, onsets)
        warnings["note of another instrument dropped"] += int((~kept).sum())
        onsets, end_ticks = onsets[kept], end_ticks[kept]
    if len(onsets) == 0:
        raise MidiError(_why_empty(warnings))

    channels = np.unique(columns.channel[onsets])
    pedals, last_tick = _pedals(columns, channels, tempo_map, one_pedal, warnings)
    start, end = tempo_map.seconds(columns.ticks[onsets]), tempo_map.seconds(end_ticks)
    last_second = check_gaps(start, end, pedals.end)
    end_time = float(tempo_map.seconds(_music_ends(events, last_tick)))
    if end_time > last_second + MAX_GAP_SECONDS:
        warnings["closing rest of over an hour dropped"] += 1
        end_time = last_second
    end_time = max(end_time, last_second)
    is_map_apart = len(events.end_ticks) > 1 and events.first_events[1] == 0
    names = [events.names.get(track, "") for track in range(len(events.end_ticks))]
    upto = np.nextafter(end_time, np.inf)
    return NoteSequence(
        pitch=columns.first[onsets],
        velocity=columns.second[onsets],
        start=start,
        end=end,
        channel=columns.channel[onsets],
        track=columns.track[onsets] - is_map_apart,
        pedals=pedals,
        warnings=+warnings,  # without those that never happened
        end_time=end_time,
        tempos=tempo_map.in_seconds().until(upto),
        time_signatures=TimeSignatures(*tempo_map.changes(events.metres)).until(upto),
        key_signatures=KeySignatures(*tempo_map.changes(events.keys)).until(upto),
        track_names=names[is_map_apart:] if any(names[is_map_apart:]) else (),
        title=names[0] if is_map_apart else "",
    )


def _music_ends(events: RawEvents, last_tick: int) -> IntArray:
    """The tick of the last end-of-track; one that only follows late tempo events makes no rest."""
    last_tempos = (events.last_tempos.get(track, 0) for track in range(len(events.end_ticks)))
    ends = zip(events.end_ticks, last_tempos, strict=True)
    return np.array(max([last_tick, *(end for end, last in ends if last <= last_tick)]), np.int64)


def _pedals(
    columns: _Columns,
    channels: IntArray,
    tempo_map: TempoMap,
    one_pedal: bool,
    warnings: Counter[str],
) -> tuple[Pedals, int]:
    """The pedals of the channels with notes, and the tick of the last note or pedal event.

    The pedals of other channels hold nothing, unless `one_pedal` works on all.
    """
    is_control = (columns.kind == _CONTROL) & np.isin(columns.first, PEDAL_CONTROLLERS)
    has_notes = np.isin(columns.channel, channels)
    is_sustain = is_control & (columns.first == SUSTAIN)
    if not one_pedal:
        strays = int((is_sustain & ~has_notes & (columns.second >= SUSTAIN)).sum())
        warnings["pedal of a channel without notes ignored"] += strays
        is_control &= has_notes
        is_sustain &= has_notes
    last_tick = int(columns.ticks[(columns.kind <= _NOTE_ON) | is_sustain].max())
    pedals = read_pedals(
        columns.ticks[is_control],
        columns.channel[is_control],
        columns.first[is_control],
        columns.second[is_control],
        last_tick,
        tempo_map,
    )
    return (shared_pedals(pedals, channels) if one_pedal else pedals), last_tick


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
    note = columns.channel[rows] * 128 + columns.first[rows]
    track = columns.track[rows] * _NOTES_OF_TRACK
    key = track + note
    limits = np.array(track_ends, np.int64)[columns.track[rows]]  # (E,) where it ends at the latest
    ends_silent = None
    is_release = (columns.kind == _CONTROL) & np.isin(columns.first, _RELEASES_ALL)
    if is_release.any():
        part, limits, ends_silent = _between_releases(columns, rows, is_release, limits)
        key += part * (len(track_ends) * _NOTES_OF_TRACK)
    is_on = (columns.kind[rows] == _NOTE_ON) & (columns.second[rows] > 0)
    pairs = pair(key, is_on, ends_silent)
    lost = pairs.unreleased | (pairs.ends < 0)
    shared = np.intersect1d(note[pairs.strays], note[pairs.onsets[lost]])
    if len(shared):  # an off may stand in another track: there the tracks are one
        key -= np.where(np.isin(note, shared), track, 0)
        order = np.argsort(columns.ticks[rows], kind="stable")
        pairs = _pair_in_order(key, is_on, ends_silent, order)
    warnings["stray note-off"] += len(pairs.strays)
    warnings["note never released"] += pairs.n_unreleased
    return rows[pairs.onsets], np.where(
        pairs.ends < 0, limits[pairs.onsets], columns.ticks[rows[pairs.ends]]
    )


def _pair_in_order(
    key: IntArray, is_on: BoolArray, ends_silent: BoolArray | None, order: IntArray
) -> Pairs:
    """`pair` of rows that act in another order; the answer counts them as they are."""
    silent = None if ends_silent is None else ends_silent[order]
    pairs = pair(key[order], is_on[order], silent)
    ends = np.where(pairs.ends < 0, -1, order[pairs.ends])
    return pairs._replace(onsets=order[pairs.onsets], ends=ends, strays=order[pairs.strays])


def _between_releases(
    columns: _Columns, rows: IntArray, is_release: BoolArray, limits: IntArray
) -> tuple[IntArray, IntArray, BoolArray]:
    """For (E,) note events: how many times all keys of the channel were released before, when they
    are the next time (else `limits`), and whether they are.
    """
    rank = _ranks(columns)
    part, limits, closed = np.zeros(len(rows), np.int64), limits.copy(), np.zeros(len(rows), bool)
    for channel in np.unique(columns.channel[is_release]):
        here = np.flatnonzero(columns.channel[rows] == channel)
        releases = np.flatnonzero(is_release & (columns.channel == channel))
        releases = releases[np.argsort(rank[releases])]
        number = np.searchsorted(rank[releases], rank[rows[here]])
        part[here], closed[here] = number, number < len(releases)
        ticks = np.append(columns.ticks[releases], 0)[number]
        limits[here] = np.where(closed[here], ticks, limits[here])
    return part, limits, closed


def _ranks(columns: _Columns) -> IntArray:
    """(E,) the place of each event as the tracks play together."""
    rank = np.empty(len(columns.ticks), np.int64)
    rank[np.argsort(columns.ticks, kind="stable")] = np.arange(len(rank))
    return rank


def _is_piano(columns: _Columns, onsets: IntArray) -> BoolArray:
    """(N,) whether the channel of each onset has a piano program at that moment."""
    rank = _ranks(columns)
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


def check_gaps(start: FloatArray, end: FloatArray, lifts: FloatArray) -> float:
    """The last second at which a note ends or a pedal, which may hold the last note, is lifted.

    Raises MidiError where over an hour passes without a note, before the first or between two.
    """
    last = float(end.max(initial=0.0))
    times = np.sort(np.concatenate([[0.0], start, end, lifts[lifts > last]]))
    gaps = np.diff(times, prepend=0.0)
    row = int(gaps.argmax())
    if gaps[row] > MAX_GAP_SECONDS:
        raise MidiError(
            f"{gaps[row] / 3600:.3g} hours pass without a note after second {times[row - 1]:.0f}"
        )
    return float(times[-1])
