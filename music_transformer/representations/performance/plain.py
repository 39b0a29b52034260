"""Motifs as users have them: the opening of a performance with what only a concert has taken out.

A motif that somebody wants continued is seldom a recording. It is one line or a few chords, without
pedal, of one loudness, on a grid, often exported from notation. `made_plain` turns the first
seconds of a performance into that and leaves the rest as it was played, at the same pace and in the
same key; a model that is trained on a share of such windows learns to go on from them.

What is taken out is drawn: which notes stay, and for each of velocity, grid and pedal whether it is
changed at all, so that motifs between a recording and an exercise occur too.
"""

import numpy as np

from music_transformer.notes import STEPS_PER_SECOND, NoteSequence, Pedals, to_steps
from music_transformer.representations.base import Representation
from music_transformer.representations.ids import Floats, IdArray, Ints, Mask
from music_transformer.representations.performance.vocabulary import (
    MAX_SHIFT,
    rest,
    shift_steps,
    velocity_in_force,
)

SHORTEST_SECONDS, LONGEST_SECONDS = 2.0, 15.0  # of an opening

#: What may stay of the notes, and how often; most motifs that are typed or hummed are one line.
VOICES = {"line": 0.4, "outer": 0.2, "upper": 0.15, "chords": 0.15, "lower": 0.1}
VELOCITIES = {"flat": 0.6, "stepped": 0.25, "played": 0.15}
GRID_SHARE = 0.7
DRY_SHARE = 0.8  # without pedal

_CHORD_SECONDS = 0.035  # onsets closer than this are one chord: hands are no machines
_LEAP = 12  # semitones below the last note of the line from which a note is accompaniment
_LEAP_SECONDS = 1.0  # after a longer pause the line may go on anywhere
_STEP_SECONDS = 3.0  # a stepped velocity lasts so long, as a dynamic mark does


def made_plain(notes: NoteSequence, seconds: float, rng: np.random.Generator) -> NoteSequence:
    """The notes with those that begin in the first `seconds` made plain; the others as they were.

    No plain note lasts beyond `seconds`, as no note of a motif lasts beyond its file. To make all
    of a primer plain, give its `end_time`. Where nothing begins in time, nothing changes.
    """
    steps = to_steps(notes.start)
    limit = int(to_steps(seconds))
    opening = np.flatnonzero(steps < limit)
    if not len(opening):
        return notes
    pitch, start = notes.pitch[opening], notes.start[opening]
    chord = np.cumsum(np.diff(start, prepend=start[0]) > _CHORD_SECONDS, dtype=np.int64)
    rows = opening[_voices(pitch, start, chord, _draw(VOICES, rng))]
    chord = chord[np.searchsorted(opening, rows)]
    start, end = notes.start[rows], np.minimum(notes.end[rows], seconds)
    velocity = _velocities(notes.velocity[rows], start, _draw(VELOCITIES, rng))
    held = end - start
    onset = start[np.searchsorted(chord, chord)]  # of the first note of each chord
    if rng.random() < GRID_SHARE:
        start = onset = _on_grid(onset, rng)
    if rng.random() < DRY_SHARE:  # the pedal off, and the keys released for the next chord
        chords = np.unique(onset)
        following = np.append(chords[1:], seconds)[np.searchsorted(chords, onset)]
        held = np.minimum(held, following - start) * rng.uniform(0.5, 1.0)
    end = np.clip(start + held, start, limit / STEPS_PER_SECOND)
    # Of chords that the grid has moved onto one line the first stays, and none beyond the opening.
    stays = (chord == chord[np.searchsorted(onset, onset)]) & (to_steps(start) < limit)
    later = np.flatnonzero(steps >= limit)
    changed = {"start": start, "end": end, "velocity": velocity}
    pedals = notes.pedals
    down = pedals.end > seconds
    return notes.selected(np.append(rows[stays], later)).replaced(
        **{n: np.append(c[stays], getattr(notes, n)[later]) for n, c in changed.items()},
        pedals=Pedals(
            pedals.channel[down], np.maximum(pedals.start[down], seconds), pedals.end[down]
        ),
    )


def plain_crop(
    tokenizer: Representation,
    events: IdArray,
    *,
    first: int,
    length: int,
    factor: float,
    rng: np.random.Generator,
) -> tuple[IdArray, int, bool]:
    """The music from event `first` on, its opening made plain, as a piece of its own.

    It begins with its first onset: nothing sounds before it, as nothing sounds before a motif.

    Returns:
        At most `length` canonical ids, fewer only at the end of the piece; how many of them are the
        opening, half of `length` at most; and whether that end is reached.
    """
    seconds, seed = rng.uniform(SHORTEST_SECONDS, LONGEST_SECONDS), rng.integers(2**63)
    head = velocity_in_force(events[:first])
    taken = 2 * length  # an opening of which little stays needs more of the piece behind it
    while True:
        part = events[first : first + taken]
        at_end = first + taken >= len(events)
        tail: list[int] = [] if at_end else rest(MAX_SHIFT)  # what sounds lasts beyond the part
        notes = tokenizer.decode(np.concatenate([head, part, tail]).astype(np.int64))
        if not len(notes) and at_end:
            return part[:0], 0, True
        notes = notes.stretched(factor)
        begin = float(notes.start.min(initial=notes.end_time))
        notes = notes.sliced(begin, notes.end_time)
        seconds = min(seconds, notes.end_time / 2)
        plain = made_plain(notes, seconds, np.random.default_rng(seed))  # the same when repeated
        begins_in_time = to_steps(plain.start) < to_steps(seconds)
        opening = len(tokenizer.encode_array(plain.selected(begins_in_time)))
        if opening > length // 2:  # most of a window is to be learned from
            seconds /= 2
            continue
        ids: IdArray = tokenizer.encode_array(plain)
        if not at_end:  # the last step of the part may lack events
            last = to_steps(tokenizer.duration_seconds(part) * factor - begin)
            ids = _before(ids, int(last))
        if len(ids) >= length or at_end:
            return ids[:length], opening, at_end and len(ids) <= length
        taken *= 2


def _draw(shares: dict[str, float], rng: np.random.Generator) -> str:
    return str(rng.choice(list(shares), p=list(shares.values())))


def _voices(pitch: Ints, start: Floats, chord: Ints, voices: str) -> Mask:
    """Which of the notes (N,), by start, in chords of these numbers, stay; all instead of none."""
    lowest, highest = np.full(chord[-1] + 1, 127), np.zeros(chord[-1] + 1, dtype=np.int64)
    np.minimum.at(lowest, chord, pitch)
    np.maximum.at(highest, chord, pitch)
    middle = (int(pitch.min()) + int(pitch.max())) / 2  # between the hands
    if voices == "line":
        kept = (pitch == highest[chord]) & _goes_on(start, chord, highest)[chord]
    elif voices == "outer":
        kept = (pitch == highest[chord]) | (pitch == lowest[chord])
    elif voices == "chords":
        kept = np.bincount(chord)[chord] > 1
    else:
        kept = pitch >= middle if voices == "upper" else pitch < middle
    return kept if kept.any() else np.ones(len(pitch), dtype=bool)


def _goes_on(start: Floats, chord: Ints, highest: Ints) -> Mask:
    """Which chords have a note of the line on top, not an accompaniment far below it: (C,)."""
    _, first = np.unique(chord, return_index=True)
    is_line = np.ones(len(highest), dtype=bool)
    last, since = int(highest[0]), float(start[first[0]])
    for index, (top, onset) in enumerate(zip(highest.tolist(), start[first].tolist(), strict=True)):
        is_line[index] = top > last - _LEAP or onset - since > _LEAP_SECONDS
        if is_line[index]:
            last, since = top, onset
    return is_line


def _velocities(velocity: Ints, start: Floats, kind: str) -> Ints:
    """The mean of the opening, the mean of every three seconds, or what was played: (N,).

    Means, so that the loudness does not jump where the performance goes on.
    """
    if kind == "played":
        return velocity
    mark = ((start - start[0]) // _STEP_SECONDS).astype(np.int64) * (kind == "stepped")
    means = np.bincount(mark, velocity) / np.maximum(np.bincount(mark), 1)
    mean: Ints = np.rint(means[mark]).astype(np.int64)
    return mean


def _on_grid(onset: Floats, rng: np.random.Generator) -> Floats:
    """Onsets of chords on a grid that begins with the first: (N,).

    The lines of the grid lie as far apart as chords usually do, or half as far.
    """
    between = np.diff(np.unique(onset))
    usual = float(np.median(between)) if len(between) else 0.5
    period = float(np.clip(usual * rng.choice([0.5, 1.0]), 0.08, 0.6))
    on_grid: Floats = onset[0] + np.rint((onset - onset[0]) / period) * period
    return on_grid


def _before(ids: IdArray, step: int) -> IdArray:
    """The ids before a step; a rest that leads up to it is left out, for it may go on."""
    shifts = shift_steps(ids)
    end = int(np.searchsorted(np.cumsum(shifts) - shifts, step))
    while end and shifts[end - 1]:
        end -= 1
    return ids[:end]
