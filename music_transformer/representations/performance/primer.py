"""What a model reads of a performance: a primer, the newer part of what is written, or a gap.

Every note that ends in a piece has begun in it. So where older events are left behind, the notes
that sound at that moment are struck there, as loud as they were.

In-filling, the ids by which a model is told what comes after the gap that it composes for:

    later part, END, earlier part, gap

All of it is on the clock of the earlier part: the later part opens with a rest as long as the
earlier part and the gap. Of the later part only notes that begin in it are there: which notes sound
at the end of the gap is the model's to say.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

import numpy as np

from music_transformer.notes import STEPS_PER_SECOND, NoteSequence, to_steps
from music_transformer.representations.base import (
    Limits,
    Primer,
    Representation,
    check_closing_rest,
    no_note_in,
)
from music_transformer.representations.ids import IdArray
from music_transformer.representations.performance.vocabulary import (
    END,
    MAX_SHIFT,
    N_EVENTS,
    NOTE_OFF,
    PEDAL_OFF,
    START,
    TIME_SHIFT,
    VELOCITY,
    rest,
    shift_steps,
    split_at,
    time_of,
    velocity_in_force,
    without_leading_silence,
)

if TYPE_CHECKING:
    from music_transformer.representations.performance.grammar import PerformanceGrammar

EARLIER_EVENTS, LATER_EVENTS, LATER_SECONDS = 512, 384, 20.0  # the most that a model is shown
LEAST, MOST = 1 / 8, 1 / 2  # of the events of a training window are the later part


def read_primer(
    tokenizer: Representation,
    primer: NoteSequence | Sequence[int],
    last_seconds: float | None,
    keep_silence: bool,
) -> Primer:
    """The ids of a primer, its closing rest as TIME_SHIFTs."""
    if isinstance(primer, NoteSequence):
        ids = tokenizer.encode(primer)
        rest_steps = int(to_steps(primer.end_time)) - time_of(ids)
        check_closing_rest(rest_steps / STEPS_PER_SECOND)
        ids += rest(max(rest_steps, 0))
    else:
        ids = tokenizer.events_of(primer)
    seconds, begin = tokenizer.duration_seconds(ids), 0.0
    if last_seconds is not None:
        steps = round(last_seconds * STEPS_PER_SECOND)
        begin = max(seconds - steps / STEPS_PER_SECOND, 0.0)
        ids = last_part(tokenizer, ids, steps)
        if begin and all(i >= NOTE_OFF for i in ids):
            raise no_note_in(last_seconds)
    if not keep_silence:
        ids = without_leading_silence(np.array(ids, dtype=np.int64)).tolist()
    if isinstance(primer, NoteSequence):
        return Primer(ids, begin=begin, end=max(seconds, primer.end_time))
    return Primer(ids)


def last_part(tokenizer: Representation, ids: list[int], steps: int) -> list[int]:
    """The canonical ids of the last steps; notes that sound at the end stay open."""
    grammar = cast("PerformanceGrammar", tokenizer.grammar(Primer(ids), Limits()))
    cut = grammar.step - steps
    if cut <= 0:
        return ids
    # What is open ends a second later for the time of the cut, then its end is taken off again.
    ends = [PEDAL_OFF] if grammar.pedal_is_down else []
    ends += [NOTE_OFF + pitch for pitch in grammar.sounding]
    later = [TIME_SHIFT + MAX_SHIFT - 1, *ends] if ends else []
    longer = tokenizer.decode([*ids, *later])
    part = tokenizer.encode(longer.sliced(cut / STEPS_PER_SECOND, longer.end_time))
    part = part[: len(part) - len(ends)]
    while part and TIME_SHIFT <= part[-1] < VELOCITY:
        part.pop()
    return part + rest(steps - time_of(part))


def later_part(
    tokenizer: Representation, ids: list[int], events: int, steps: int
) -> tuple[list[int], int]:
    """The later part of some events, from START on, and the step where it begins.

    That is where time passes, after at least ``events`` ids and ``steps`` steps, or the last such
    place. The first note that begins in it sets its velocity.
    """
    first = begin = 0
    for index, event_id in enumerate(ids, start=1):
        if TIME_SHIFT <= event_id < VELOCITY:
            first, begin = index, begin + event_id - TIME_SHIFT + 1
            if index >= events and begin >= steps:
                break
    while first < len(ids) and NOTE_OFF <= ids[first] < TIME_SHIFT:  # these end as it begins
        first += 1
    struck = last_part(tokenizer, ids[:first], 0)
    part, in_force = [START, *struck], _last_velocity(struck)
    velocity = _last_velocity(ids[:first])
    for event_id in ids[first:]:
        if VELOCITY <= event_id < N_EVENTS:
            velocity = event_id
        if velocity != in_force and (event_id == velocity or event_id < NOTE_OFF):
            part.append(velocity)
            in_force = velocity
        if event_id != velocity:
            part.append(event_id)
    return part, begin


def _last_velocity(ids: list[int]) -> int:
    """The SET_VELOCITY in force after some ids, -1 for none."""
    return next((i for i in reversed(ids) if VELOCITY <= i < N_EVENTS), -1)


def with_later_part(
    tokenizer: Representation, later: NoteSequence, seconds: float, ids: IdArray, room: int
) -> tuple[IdArray, int]:
    """``later part, END, ids``, and how many of them come before the first of `ids`.

    `later` begins `seconds` after the first of `ids`, the earlier part (START before it where it
    begins the piece), and has `room` ids at most.
    """
    moved = later.replaced(
        start=later.start + seconds, end=later.end + seconds, end_time=later.end_time + seconds
    )
    told = tokenizer.encode_array(moved)[:room]
    return np.concatenate([told, [END], ids]).astype(np.int64), len(told) + 1


def window_for(
    tokenizer: Representation, notes: NoteSequence, start: float, end: float
) -> tuple[list[int], list[int]]:
    """What a model reads before it fills the gap from `start` to `end`, and the earlier part of it.

    `notes` is what is kept, sustained; those that sound at `start` stay open to the model.
    """
    step = int(to_steps(start))
    ids, _ = split_at(tokenizer.encode(notes.selected(notes.start < start)), step)
    if ids:
        ids += rest(step - time_of(ids))
    first = max(0, len(ids) - EARLIER_EVENTS)
    while 0 < first < len(ids) and not time_of(ids[first - 1 : first]):
        first += 1
    earlier = ids[first:]
    shown = np.array(earlier if first else [START, *ids], dtype=np.int64)
    later = notes.selected((notes.start >= end) & (notes.start < end + LATER_SECONDS))
    if not len(later):
        return shown.tolist(), earlier
    later = later.replaced(start=later.start - end, end=later.end - end, end_time=None)
    seconds = (time_of(earlier) + int(to_steps(end)) - step) / STEPS_PER_SECOND
    window, _ = with_later_part(tokenizer, later, seconds, shown, LATER_EVENTS)
    return window.tolist(), earlier


def gapped(
    tokenizer: Representation, crop: IdArray, length: int, random: np.random.Generator
) -> tuple[IdArray, int]:
    """A crop (N,) with its end told first, at most `length` ids; and how many of them are told.

    It is parted where time has passed; a crop that cannot be is given back as it is.
    """
    is_shift = shift_steps(crop) > 0
    cuts = np.flatnonzero(is_shift[:-1] & ~is_shift[1:]) + 1
    least = len(crop) * (1 - random.uniform(LEAST, MOST))
    cut = int(cuts[np.searchsorted(cuts, least) :][:1].sum())
    head = velocity_in_force(crop[:cut])
    later = tokenizer.decode(np.concatenate([head, crop[cut:]]).astype(np.int64))
    if not cut or not len(later):
        return crop, 0
    seconds = time_of(crop[:cut].tolist()) / STEPS_PER_SECOND
    return with_later_part(tokenizer, later, seconds, crop[:cut], length - cut - 1)
