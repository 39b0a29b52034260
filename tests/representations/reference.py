"""The performance events once more: slow, obvious, in loops. The fast tokenizer must agree."""

from __future__ import annotations

import math
from typing import NamedTuple

NOTE_ON, NOTE_OFF, TIME_SHIFT, VELOCITY = 0, 128, 256, 356
PAD, START, END, PEDAL_ON, PEDAL_OFF = 388, 389, 390, 391, 392


class Note(NamedTuple):
    """A note in steps of 10 ms."""

    pitch: int
    start: int
    end: int
    velocity: int


def to_step(seconds: float) -> int:
    """The step that a time in seconds rounds to."""
    return math.floor(seconds * 100 + 0.5 + 1e-6)


def playable(notes: list[Note]) -> list[Note]:
    """The notes that one keyboard can play, by pitch, then start."""
    by_onset: dict[tuple[int, int], Note] = {}
    for note in notes:
        note = note._replace(end=max(note.end, note.start + 1))
        other = by_onset.get((note.pitch, note.start), note)
        by_onset[note.pitch, note.start] = note._replace(
            end=max(note.end, other.end), velocity=max(note.velocity, other.velocity)
        )
    result = []
    for pitch, start in sorted(by_onset):
        note = by_onset[pitch, start]
        later = [s for p, s in by_onset if p == pitch and s > start]
        result.append(note._replace(end=min([note.end, *later])))
    return result


def union(spans: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """The spans during which at least one of the given ones is open; touching ones stay apart."""
    result: list[tuple[float, float]] = []
    for start, end in sorted(spans):
        if result and start < result[-1][1]:
            result[-1] = (result[-1][0], max(result[-1][1], end))
        else:
            result.append((start, end))
    return result


def encode(notes: list[Note], pedal_steps: list[tuple[int, int]] = []) -> list[int]:  # noqa: B006
    """The ids of notes and pedal spans, all in steps."""
    events = []  # step, kind, pitch, velocity bin
    for down, up in pedal_steps:
        if down < up:
            events += [(up, 0, 0, 0), (down, 1, 0, 0)]
    for note in playable(notes):
        events.append((note.end, 2, note.pitch, 0))
        events.append((note.start, 3, note.pitch, note.velocity // 4))
    ids = []
    now, current_bin = 0, None
    for step, kind, pitch, velocity_bin in sorted(events):
        while step - now > 100:
            ids.append(TIME_SHIFT + 99)
            now += 100
        if step > now:
            ids.append(TIME_SHIFT + step - now - 1)
            now = step
        if kind == 3 and velocity_bin != current_bin:
            ids.append(VELOCITY + velocity_bin)
            current_bin = velocity_bin
        ids.append([PEDAL_OFF, PEDAL_ON, NOTE_OFF + pitch, NOTE_ON + pitch][kind])
    return ids


def decode(ids: list[int]) -> tuple[list[Note], list[tuple[int, int]], int]:
    """Notes, pedal spans and last time of any ids, in steps."""
    now, velocity = 0, 66
    sounding: dict[int, tuple[int, int]] = {}
    notes, pedals = [], []
    pedal_since = None

    def release(pitch: int) -> None:
        start, loudness = sounding.pop(pitch)
        notes.append(Note(pitch, start, now, loudness))

    for i in ids:
        if i < NOTE_OFF:
            if i in sounding:
                release(i)
            sounding[i] = (now, velocity)
        elif i < TIME_SHIFT:
            if i - NOTE_OFF in sounding:
                release(i - NOTE_OFF)
        elif i < VELOCITY:
            now += i - TIME_SHIFT + 1
        elif i < PAD:
            velocity = 4 * (i - VELOCITY) + 2
        elif i == PEDAL_ON and pedal_since is None:
            pedal_since = now
        elif i == PEDAL_OFF and pedal_since is not None:
            pedals.append((pedal_since, now))
            pedal_since = None
    for pitch in list(sounding):
        release(pitch)
    if pedal_since is not None:
        pedals.append((pedal_since, now))
    return playable(notes), [(down, up) for down, up in pedals if down < up], now
