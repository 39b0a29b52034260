"""Augmentation of performances: each played at one of five tempos, moved by up to three semitones.

All functions work on ids and give exactly what decoding, changing and encoding the whole piece
would give.

Transposing keeps a stream canonical, so it is an addition. Stretching is not: two steps may
become one, which reorders and merges events. `stretched_crop` therefore decodes and encodes, but
only around the crop, because a piece has up to 90,000 ids and a window a few hundred.

Source: Huang et al. 2018, "Music Transformer", section 4.2 (the factors and the transpositions).
"""

from fractions import Fraction

import numpy as np

from music_transformer.notes import STEPS_PER_SECOND, to_steps
from music_transformer.representations.base import Representation
from music_transformer.representations.ids import IdArray, Ints
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


def stretched_crop(
    tokenizer: Representation, events: IdArray, *, first: int, length: int, factor: float
) -> tuple[IdArray, bool]:
    """At most `length` ids of the piece played `factor` times as long; whether its end is reached.

    They begin where event `first` falls: as many ids after the first id of its (stretched) step as
    `first` lies after the first id of its step; and are as the piece's own canonical stream has
    them. `events` (N,) has no START and END; there are fewer than `length` only at its end.
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

    Only the part from a little before `first` is decoded; what sounds there is struck again just
    before it, and everything before `first` is dropped afterwards.
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
    stretched = tokenizer.encode_array(tokenizer.decode(ids).stretched(factor))
    out_shifts = shift_steps(stretched)
    out_steps = np.cumsum(out_shifts) - out_shifts
    begin_out = int(np.searchsorted(out_steps, _place(crop_step - base, factor)))
    begin_out += first - crop_group
    end_out = len(stretched)
    if at_end:
        begin_out = min(begin_out, end_out - 1)  # events that merged leave at least one
    else:
        end_out = int(np.searchsorted(out_steps, _place(int(steps[stop]) - base, factor)))
        while end_out > begin_out and out_shifts[end_out - 1]:  # how long this rest is, is unknown
            end_out -= 1
    return stretched[begin_out:end_out], at_end


def _warm_up(events: IdArray, steps: Ints, crop_step: int) -> int:
    """The step after which decoding has to begin so that all is right from `crop_step` on; or 0.

    A little before the last NOTE_ON that cannot meet the crop: it leaves the velocity in force.
    `steps` (M,) is the time before each of the events before the crop, M <= N.
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
