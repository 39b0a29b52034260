"""Parts of a performance as pieces of their own: a primer, and the newer part of what is written.

Every note that ends in a piece has begun in it. So where older events are left behind, the notes
that sound at that moment are struck there, as loud as they were.
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
from music_transformer.representations.performance.vocabulary import (
    MAX_SHIFT,
    N_EVENTS,
    NOTE_OFF,
    PEDAL_OFF,
    START,
    TIME_SHIFT,
    VELOCITY,
    rest,
    time_of,
    without_leading_silence,
)

if TYPE_CHECKING:
    from music_transformer.representations.performance.grammar import PerformanceGrammar


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
