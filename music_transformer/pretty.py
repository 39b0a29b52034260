"""pretty_midi objects to the arguments of `NoteSequence`, and back.

What pretty_midi lacks is a closing rest, and overlapping notes of one pitch once it writes a file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pretty_midi

    from music_transformer.timeline import Columns, Tempos

_CHANNELS = [channel for channel in range(16) if channel != 9]  # 9 is the drums'


def to_pretty(notes: Any, *, sustain: int) -> pretty_midi.PrettyMIDI:
    """One piano for each track and channel of a `NoteSequence`, on its tempo map, metre and key.

    `sustain` is the controller number of the pedal.
    """
    import pretty_midi

    division = notes.tempos.fine_division()
    result = pretty_midi.PrettyMIDI(resolution=division, initial_tempo=120.0)
    _set_tempos(result, notes.tempos, division)
    result.time_signature_changes = [
        pretty_midi.TimeSignature(numerator, denominator, second)
        for second, numerator, denominator in _rows(notes.time_signatures)
    ]
    result.key_signature_changes = [  # keys are numbered from C major to B minor
        pretty_midi.KeySignature((7 * sharps + 9 * minor) % 12 + 12 * minor, second)
        for second, sharps, minor in _rows(notes.key_signatures)
    ]
    keys = sorted(set(zip(notes.track.tolist(), notes.channel.tolist(), strict=True)))
    silent = sorted(set(notes.pedals.channel.tolist()) - {channel for _, channel in keys})
    names = dict(enumerate(notes.track_names))
    for track, channel in [*keys, *((0, channel) for channel in silent)]:
        piano = pretty_midi.Instrument(program=0, name=names.get(track, ""))
        rows = np.flatnonzero((notes.track == track) & (notes.channel == channel))
        columns = (notes.velocity, notes.pitch, notes.start, notes.end)
        piano.notes = [
            pretty_midi.Note(*note)
            for note in zip(*(column[rows].tolist() for column in columns), strict=True)
        ]
        for owner, start, end in _rows(notes.pedals):
            if owner == channel:
                piano.control_changes += [
                    pretty_midi.ControlChange(sustain, 127, start),
                    pretty_midi.ControlChange(sustain, 0, end),
                ]
        result.instruments.append(piano)
    return result


def from_pretty(midi: pretty_midi.PrettyMIDI, *, sustain: int) -> dict[str, Any]:
    """The arguments of a `NoteSequence`, and of what it is made from, with all but the drums.

    Instrument i becomes track i and, as when pretty_midi writes a file, the i-th channel that is
    not the drum channel (from the sixteenth on they are shared).
    """
    instruments = [instrument for instrument in midi.instruments if not instrument.is_drum]
    notes = [
        (note.pitch, note.velocity, note.start, note.end, _CHANNELS[index % 15], index)
        for index, instrument in enumerate(instruments)
        for note in instrument.notes
        if note.velocity > 0
    ]
    controls = sorted(
        (
            (change.time, _CHANNELS[index % 15], change.value)
            for index, instrument in enumerate(instruments)
            for change in instrument.control_changes
            if change.number == sustain
        ),
        key=lambda control: control[0],
    )
    last = max([note[3] for note in notes] + [time for time, _, _ in controls], default=0.0)
    names = ("pitch", "velocity", "start", "end", "channel", "track")
    columns = zip(*notes, strict=True) if notes else ((),) * 6
    times, bpm = midi.get_tempo_changes()
    metres, keys = midi.time_signature_changes, midi.key_signature_changes
    numbers = [key.key_number for key in keys]
    return {
        **dict(zip(names, columns, strict=True)),
        "pedals": (
            np.array([control[0] for control in controls], np.float64),
            np.array([control[1] for control in controls], np.int64),
            np.array([control[2] for control in controls], np.int64),
            last,
        ),
        "tempos": (times, 60.0 / np.asarray(bpm, np.float64), midi.resolution),
        "time_signatures": (
            [metre.time for metre in metres],
            [metre.numerator for metre in metres],
            [metre.denominator for metre in metres],
        ),
        "key_signatures": (
            [key.time for key in keys],
            [(7 * (number % 12 + 3 * (number // 12)) + 5) % 12 - 5 for number in numbers],
            [number // 12 for number in numbers],
        ),
        "track_names": [instrument.name for instrument in instruments],
    }


def _set_tempos(midi: pretty_midi.PrettyMIDI, tempos: Tempos, division: int) -> None:
    """Set the tempo map, for which pretty_midi has no public door."""
    if not len(tempos):
        return
    ticks = np.rint(tempos.quarters(tempos.seconds) * division).astype(int).tolist()
    scales = dict(zip(ticks, (tempos.seconds_per_quarter / division).tolist(), strict=True))
    midi._tick_scales = sorted(({0: 0.5 / division} | scales).items())
    midi._update_tick_to_time(max(ticks) + 1)


def _rows(columns: Columns) -> list[tuple[Any, ...]]:
    """The rows of the columns, as plain numbers."""
    names = columns.COLUMNS
    return list(zip(*(getattr(columns, name).tolist() for name in names), strict=True))
