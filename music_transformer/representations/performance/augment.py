"""Augmentation of performances: another tempo, other keys, and openings as plain as users' motifs.

Each piece is played at one of five tempos and moved by up to three semitones. Transposing keeps a
stream canonical, so it is an addition. Stretching is not: two steps may become one, which reorders
and merges events. `stretched_crop` gives exactly what decoding, stretching and encoding the whole
piece would, but only around the crop: a piece has up to 90,000 ids, a window a few hundred.

A motif that somebody wants continued is seldom a recording: one line or a few chords, without
pedal, of one loudness, on a grid. `made_plain` turns the first seconds of a performance into that
and leaves the rest as it was played; a model trained on a share of such windows learns to go on
from them. Which notes stay is drawn, and for each of velocity, grid and pedal whether it is changed
at all, so that motifs between a recording and an exercise occur too.

Source: Huang et al. 2018, "Music Transformer", section 4.2 (the factors and the transpositions).
"""

from fractions import Fraction

import numpy as np

from music_transformer.notes import STEPS_PER_SECOND, NoteSequence, Pedals, to_steps
from music_transformer.representations.base import Representation
from music_transformer.representations.ids import Floats, IdArray, Ints, Mask
from music_transformer.representations.performance.vocabulary import (
    MAX_SHIFT,
    N_PITCHES,
    NOTE_OFF,
    NOTE_ON,
    PEDAL_OFF,
    PEDAL_ON,
    TIME_SHIFT,
    rest,
    shift_steps,
    velocity_in_force,
)

STRETCHES = (0.95, 0.975, 1.0, 1.025, 1.05)
TRANSPOSITIONS = range(-3, 4)
PIANO = (21, 108)  # lowest and highest key

_REACH = 3  # steps: stretching by a few per cent never makes events further apart than this meet
_SPARE = 64  # ids to look at beyond what a crop needs if stretching changes nothing

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


def stretched_crop(
    tokenizer: Representation, events: IdArray, *, first: int, length: int, factor: float
) -> tuple[IdArray, bool]:
    """At most `length` ids of the piece played `factor` times as long; whether its end is reached.

    They begin as many ids after the first id of their (stretched) step as event `first` does in its
    own. `events` (N,) has no START and END; there are fewer than `length` only at its end.
    """
    margin = _SPARE + length // 4
    while True:
        stop = min(len(events), first + length + margin)
        crop, at_end = _stretch_between(tokenizer, events[: stop + 1], first, stop, factor)
        if len(crop) >= length or at_end:
            return crop[:length], at_end and len(crop) <= length
        margin *= 2


def _stretch_between(
    tokenizer: Representation, events: IdArray, first: int, stop: int, factor: float
) -> tuple[IdArray, bool]:
    """The stretched ids from event `first` up to about `stop`; all of `events` before it is known.

    Only the part from a little before `first` is decoded: what sounds there is struck again.
    """
    shifts = shift_steps(events)
    steps = np.cumsum(shifts) - shifts  # (N,) the time before each event
    at_end = stop == len(events)
    crop_step = int(steps[first]) if first < len(events) else int(shifts.sum())
    crop_group = int(np.searchsorted(steps, crop_step))
    offset = _warm_up(events, steps[:crop_group], crop_step)
    begin = int(np.searchsorted(steps, offset, side="right")) if offset else 0
    # Dropping whole periods leaves every rounding as it is in the whole piece.
    period = Fraction(factor).limit_denominator(1000).denominator
    base = offset // period * period
    if not at_end:
        stop = int(np.searchsorted(steps, steps[stop]))  # the steps before it are whole
    local = [
        rest(offset - base),
        _state_before(events[:begin]),
        rest(int(steps[begin]) - offset if begin else 0),
        events[begin:stop],
        [] if at_end else rest(MAX_SHIFT),  # what still sounds lasts beyond the crop
    ]
    ids = np.concatenate([np.asarray(part, dtype=np.int64) for part in local])
    stretched: IdArray = tokenizer.encode_array(tokenizer.decode(ids).stretched(factor))
    out_shifts = shift_steps(stretched)
    out_steps = np.cumsum(out_shifts) - out_shifts
    begin_out = int(np.searchsorted(out_steps, _place(crop_step - base, factor)))
    begin_out += first - crop_group
    if at_end:
        begin_out = min(begin_out, len(stretched) - 1)  # events that merged leave at least one
    else:
        stretched = _before(stretched, _place(int(steps[stop]) - base, factor))
    return stretched[begin_out:], at_end


def _warm_up(events: IdArray, steps: Ints, crop_step: int) -> int:
    """The step after which to decode so that all is right from `crop_step` on; or 0: a little
    before the last NOTE_ON that cannot meet the crop, which leaves the velocity in force.
    """
    before = int(np.searchsorted(steps, crop_step - _REACH, side="right"))
    note_on = np.flatnonzero(events[:before] < NOTE_OFF)
    return max(0, int(steps[note_on[-1]]) - _REACH) if len(note_on) else 0


def _state_before(events: IdArray) -> list[int]:
    """Ids that lead to the state after `events`: pedal, velocity and the notes that sound."""
    note_on = np.flatnonzero(events < NOTE_OFF)
    note_off = np.flatnonzero((events >= NOTE_OFF) & (events < TIME_SHIFT))
    last_on, last_off = np.full(N_PITCHES, -1), np.full(N_PITCHES, -1)
    last_on[events[note_on] - NOTE_ON] = note_on  # of equal indices the last is kept
    last_off[events[note_off] - NOTE_OFF] = note_off
    pedal = np.flatnonzero(events >= PEDAL_ON)
    return [
        *([PEDAL_ON] if len(pedal) and events[pedal[-1]] != PEDAL_OFF else []),
        *velocity_in_force(events).tolist(),
        *(NOTE_ON + np.flatnonzero(last_on > last_off)).tolist(),
    ]


def _place(step: int, factor: float) -> int:
    """The step that `step` falls on when stretched, rounded as the tokenizer rounds."""
    return int(to_steps(step / STEPS_PER_SECOND * factor))


def made_plain(notes: NoteSequence, seconds: float, rng: np.random.Generator) -> NoteSequence:
    """The notes with those that begin in the first `seconds` made plain; the others as they were.

    No plain note lasts beyond `seconds`, as no note of a motif lasts beyond its file.
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
    """The music from its first onset after event `first` on, its opening made plain.

    Gives at most `length` canonical ids, fewer only at the end of the piece; how many of them are
    the opening, half of `length` at most; and whether that end is reached.
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
    """The mean of the opening, the mean of every three seconds, or what was played: (N,)."""
    if kind == "played":
        return velocity
    # Means, so that the loudness does not jump where the performance goes on.
    mark = ((start - start[0]) // _STEP_SECONDS).astype(np.int64) * (kind == "stepped")
    means = np.bincount(mark, velocity) / np.maximum(np.bincount(mark), 1)
    mean: Ints = np.rint(means[mark]).astype(np.int64)
    return mean


def _on_grid(onset: Floats, rng: np.random.Generator) -> Floats:
    """Onsets (N,) on a grid from the first on, as wide as chords usually lie apart, or half."""
    between = np.diff(np.unique(onset))
    usual = float(np.median(between)) if len(between) else 0.5
    period = float(np.clip(usual * rng.choice([0.5, 1.0]), 0.08, 0.6))
    on_grid: Floats = onset[0] + np.rint((onset - onset[0]) / period) * period
    return on_grid


def _before(ids: IdArray, step: int) -> IdArray:
    """The ids before a step, without a rest that leads up to it, for that may go on."""
    shifts = shift_steps(ids)
    end = int(np.searchsorted(np.cumsum(shifts) - shifts, step))
    while end and shifts[end - 1]:
        end -= 1
    return ids[:end]
