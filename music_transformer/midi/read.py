"""Bytes of a MIDI file to notes.

Our own reader rather than mido's: it survives small damage that mido, pretty_midi and symusic
raise on, counts what it survived, names track (from 1) and byte (from 0) where it gives up, and is
several times as fast: one plain loop writes each channel event of a track down as two numbers, and
what follows (`events`, `pairing`) works on whole columns.

Source: "Standard MIDI Files 1.0", MIDI Manufacturers Association.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_left
from pathlib import Path

from music_transformer.errors import MidiError
from music_transformer.midi.events import RawEvents, to_notes
from music_transformer.notes import NoteSequence

MAX_BYTES = 8 * 2**20  # MAESTRO's largest file has 0.5 MiB; a larger one is no piece of music

#: The names that MIDI files have: plain, karaoke (.kar), wrapped in RIFF (.rmi).
SUFFIXES = (".mid", ".midi", ".kar", ".rmi")

_META = 0xFF  # the status of a meta event; its kinds that are taken:
_TRACK_NAME, _END_OF_TRACK, _TEMPO, _METRE, _KEY = 0x03, 0x2F, 0x51, 0x58, 0x59
_SYSEX, _SYSEX_GOES_ON = 0xF0, 0xF7
_META_SIZES = {
    0x00: (0, 2),  # sequence number
    0x20: (1,),  # channel prefix
    0x21: (1,),  # port
    _TEMPO: (3,),
    0x54: (5,),  # SMPTE offset
    _METRE: (4,),
    _KEY: (2,),
}
_SYSTEM_DATA_BYTES = {0xF1: 1, 0xF2: 2, 0xF3: 1}
_LARGEST_DENOMINATOR = 7  # as a power of two: 128


def read_midi(
    path: str | os.PathLike[str], *, piano_only: bool = False, one_pedal: bool = False
) -> NoteSequence:
    """The notes of a MIDI file, with its pedal, tempo map, metre, key and names.

    Tracks count from 0, without a first one that holds nothing but that map.

    Args:
        path: a Standard MIDI File of type 0 or 1, bare or wrapped in RIFF (.rmi).
        piano_only: keep only notes played while their channel has one of the programs 0-7.
            Without it all channels but the drums become piano.
        one_pedal: the pedal of any channel works on all: Disklaviers write each hand on a channel
            of its own and the pedal on one of them, or on a third.

    Raises:
        MidiError: no such file, not MIDI, damaged beyond understanding, over an hour without any
            note, or no notes at all.
    """
    name = _shown(os.fspath(path))
    try:
        with Path(path).open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except IsADirectoryError as error:
        raise MidiError(f"{name}: this is a folder; name a MIDI file in it.") from error
    except FileNotFoundError as error:
        raise MidiError(f"{name}: there is no such file; check the path.") from error
    except (OSError, ValueError) as error:
        if os.path.isdir(path):  # Windows opens no folders: PermissionError
            raise MidiError(f"{name}: this is a folder; name a MIDI file in it.") from error
        reason = getattr(error, "strerror", None) or str(error)
        raise MidiError(f"{name}: cannot be opened ({reason}); check the path.") from error
    return read_midi_bytes(data, name, piano_only=piano_only, one_pedal=one_pedal)


def read_midi_bytes(
    data: bytes, name: str, *, piano_only: bool = False, one_pedal: bool = False
) -> NoteSequence:
    """`read_midi` of a file that is in memory already; `name` is what errors call it."""
    try:
        return to_notes(_walk_chunks(data), piano_only=piano_only, one_pedal=one_pedal)
    except MidiError as error:
        mend = "" if str(error).endswith(".") else "; restore it from its source, or leave it out."
        raise MidiError(f"{name}: {error}{mend}") from error


def _walk_chunks(data: bytes) -> RawEvents:
    """Read the header and every track; skip what is neither."""
    if len(data) > MAX_BYTES:
        raise MidiError(f"more than {MAX_BYTES >> 20} MiB; no MIDI file of a piece is so large.")
    events = RawEvents()
    position, n_tracks = _read_header(data, events)
    tracks = [found.start() for found in re.finditer(b"MTrk", data)]
    while position < len(data):
        kind, size = data[position : position + 4], _uint32(data, position + 4)
        start = position + 8
        if kind == b"MTrk":
            position = _read_track(data, start, size, tracks, events)
        elif _is_chunk_name(kind) and start + size <= len(data):
            events.warnings["unknown chunk"] += 1
            position = start + size
        elif (following := _next_track(data, position, tracks)) < len(data):
            events.warnings[f"bytes between tracks, at byte {position}"] += 1
            position = following
        elif len(events.end_ticks) < n_tracks:
            number = len(events.end_ticks) + 1
            raise MidiError(f"byte {position}: track {number} should start here and does not")
        else:
            events.warnings["bytes after the last chunk"] += 1
            break
    found = len(events.end_ticks)
    if found == 0:
        raise MidiError("the file holds no track")
    if found != n_tracks:
        events.warnings["wrong number of tracks in the header"] += 1
    return events


def _next_track(data: bytes, position: int, tracks: list[int]) -> int:
    """Where the first MTrk at or after a place stands; the end of the file if none does."""
    row = bisect_left(tracks, position)
    return tracks[row] if row < len(tracks) else len(data)


def _read_header(data: bytes, events: RawEvents) -> tuple[int, int]:
    """Find and check MThd; returns where the next chunk starts and how many tracks are promised."""
    position = 0
    if data[:4] == b"RIFF" and data[8:12] == b"RMID":
        position = 12
        while data[position : position + 4] not in (b"data", b""):
            size = int.from_bytes(data[position + 4 : position + 8], "little")
            position += 8 + size + size % 2
        position += 8
    while data[position : position + 4] != b"MThd":
        start = position + 8
        if not _is_chunk_name(data[position : position + 4]) or start > len(data):
            raise MidiError("this is not a MIDI file; it does not start with MThd.")
        position = start + _uint32(data, position + 4)
        events.warnings["unknown chunk"] += 1
    size = _uint32(data, position + 4)
    start = position + 8
    if size < 6 or start + 6 > len(data):
        raise MidiError(f"byte {start}: the header is cut short")
    midi_type, n_tracks, events.division = (
        int.from_bytes(data[at : at + 2], "big") for at in (start, start + 2, start + 4)
    )
    if midi_type == 2:
        raise MidiError(
            "MIDI type 2 holds separate patterns, not one piece; save it as type 0 or 1."
        )
    if midi_type > 2:
        raise MidiError(f"byte {start}: MIDI type {midi_type} does not exist")
    return start + size, n_tracks


def _read_track(data: bytes, start: int, size: int, tracks: list[int], events: RawEvents) -> int:
    """Append the events of one track, said to have `size` bytes from `start` on, to `events`;
    returns where the next chunk starts.

    A length that leads to no chunk is not believed; the end-of-track, or else the next MTrk of
    `tracks`, ends the track. Where neither does, the length was right and junk follows.
    """
    stop = said = start + size
    if said < len(data) and not _is_chunk_name(data[said : said + 4]):
        stop = _next_track(data, said, tracks)
    found, failure = None, None
    for limit in (min(stop, len(data)), said)[: 1 + (said < stop)]:
        track = RawEvents()
        try:
            position, ended = _read_events(data, start, limit, track)
        except _DamageError as error:
            what = str(error).format("file" if limit == len(data) else "track")
            failure = failure or MidiError(f"track {len(events.end_ticks) + 1}, {what}")
            continue
        found = track
        if ended:
            break
    if found is None:
        assert failure is not None
        raise failure
    events.add_track(found)
    if not ended:
        if said > len(data):
            raise MidiError(
                f"track {len(events.end_ticks)}, byte {len(data)}: the file ends "
                f"{said - len(data)} bytes before its track, after tick {events.end_ticks[-1]}"
            )
        events.warnings["missing end-of-track"] += 1
        return position
    following = _next_track(data, position, tracks)
    wrong = f"wrong length of a track, at byte {start - 4}"
    if position > said:
        events.warnings[wrong] += 1
        return position
    if following < said or said > len(data):
        events.warnings[wrong] += 1
        return following
    if position < said:
        events.warnings["bytes after an end-of-track"] += 1
    return said


def _read_events(data: bytes, start: int, limit: int, events: RawEvents) -> tuple[int, bool]:
    """Append the events from one byte to another; returns where they end, and if by end-of-track.

    Data bytes above 127 are clipped later, column by column.
    """
    add_tick, add_code = events.ticks.append, events.codes.append
    position, tick, status = start, 0, 0
    ended = False
    event = start  # where the event being read starts
    try:
        while position < limit:
            event = position
            byte = data[position]
            position += 1
            if byte < 0x80:
                tick += byte
            else:
                delta, position = _read_varlen(data, event)
                tick += delta
            byte = data[position]
            if byte >= 0x80:
                position += 1
                if byte >= 0xF0:
                    position, ended = _read_system_event(data, position, limit, byte, tick, events)
                    if ended:
                        break
                    continue
                status = byte
            elif not status:
                raise _DamageError("a data byte stands where an event should begin")
            if 0xC0 <= status < 0xE0:  # program change, channel pressure: one data byte
                add_code(status << 16 | data[position] << 8)
                position += 1
            else:
                add_code(status << 16 | data[position] << 8 | data[position + 1])
                position += 2
            add_tick(tick)
        if position > limit:
            raise IndexError
    except (IndexError, _DamageError) as error:
        reason = "the {} ends inside an event" if isinstance(error, IndexError) else str(error)
        raise _DamageError(f"byte {event}: {reason} after tick {tick}") from error
    events.end_ticks.append(tick)
    return position, ended


class _DamageError(Exception):
    """Damage that cannot be survived; `{}` stands for file or track."""


def _read_system_event(
    data: bytes, position: int, limit: int, status: int, tick: int, events: RawEvents
) -> tuple[int, bool]:
    """Read a meta event, SysEx or stray system message whose status ends at `position`.

    Returns where the next event starts, and whether this was the end-of-track. Running status
    outlives these events: the standard says it does not, files say it does.
    """
    if status in (_META, _SYSEX, _SYSEX_GOES_ON):
        size, start = _read_varlen(data, position + (status == _META))
        end = start + size
        if end > limit:
            raise IndexError
        if status != _META:
            return end, False
        kind = data[position]
        if kind == _END_OF_TRACK:
            return end, True
        _read_meta(kind, data[start:end], tick, events)
        return end, False
    events.warnings["system message"] += 1
    return position + _SYSTEM_DATA_BYTES.get(status, 0), False


def _read_meta(kind: int, content: bytes, tick: int, events: RawEvents) -> None:
    """Take tempo, metre, key or name; count what is malformed and ignore the other kinds."""
    track = len(events.end_ticks)
    if kind in _META_SIZES and len(content) not in _META_SIZES[kind]:
        events.warnings["malformed meta event"] += 1
    elif kind == _TEMPO:
        events.last_tempos[track] = tick
        tempo = int.from_bytes(content, "big")
        if tempo:
            events.tempos.append((tick, tempo))
        else:
            events.warnings["tempo 0"] += 1
    elif kind == _METRE:
        if content[0] and content[1] <= _LARGEST_DENOMINATOR:
            events.metres.append((tick, content[0], 1 << content[1]))
        else:
            events.warnings["bad time signature"] += 1
    elif kind == _KEY:
        sharps = int.from_bytes(content[:1], "big", signed=True)
        if -7 <= sharps <= 7 and content[1] <= 1:
            events.keys.append((tick, sharps, content[1]))
        else:
            events.warnings["bad key signature"] += 1
    elif kind == _TRACK_NAME:
        try:
            name = content.decode()
        except UnicodeDecodeError:
            name = content.decode("latin-1")  # of older files
        events.names.setdefault(track, name)


def _read_varlen(data: bytes, position: int) -> tuple[int, int]:
    """A variable-length number (at most four bytes, seven bits each) and where it ends."""
    value = 0
    for position in range(position, position + 4):  # noqa: B020
        byte = data[position]
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, position + 1
    raise _DamageError("a number is longer than four bytes")


def _uint32(data: bytes, position: int) -> int:
    return int.from_bytes(data[position : position + 4], "big")


def _is_chunk_name(kind: bytes) -> bool:
    return len(kind) == 4 and all(0x20 <= byte < 0x7F for byte in kind)


def _shown(path: str | bytes) -> str:
    """A path fit for a message of one line."""
    text = os.fsdecode(path)
    return text if text.isprintable() else ascii(text)
