"""The newer part of what a model has written, as a segment like those it learned from.

A segment begins with START, and every note that ends in it has begun in it. So where older events
are left behind, the notes that sound at that moment are struck there, as loud as they were.
"""

from collections.abc import Sequence

from music_transformer.representations.performance.vocabulary import (
    DEFAULT_VELOCITY_BIN,
    N_EVENTS,
    NOTE_OFF,
    NOTE_ON,
    START,
    TIME_SHIFT,
    VELOCITY,
)


def later_part(ids: Sequence[int], events: int, steps: int) -> tuple[list[int], int]:
    """The later part of some events as a segment of its own, and the step where it begins.

    It begins where time passes, after at least ``events`` ids and ``steps`` steps, or as late as
    there is such a place. Notes that sound there are struck there; the first note that begins in
    it sets its velocity.

    Args:
        ids: events of a performance, without START.
        events: how many to leave behind at least.
        steps: how much time to leave behind at least.
    """
    sounding: dict[int, int] = {}  # pitch -> velocity bin
    velocity, now, cut = DEFAULT_VELOCITY_BIN, 0, (0, 0)
    held: dict[int, int] = {}
    loudness = velocity
    for index, event_id in enumerate(ids):
        if event_id < NOTE_OFF:
            sounding[event_id - NOTE_ON] = velocity
        elif event_id < TIME_SHIFT:
            sounding.pop(event_id - NOTE_OFF, None)
        elif event_id < VELOCITY:
            now += event_id - TIME_SHIFT + 1
            reached = cut[0] >= events and cut[1] >= steps and cut[0] > 0
            if not reached:
                cut, held, loudness = (index + 1, now), dict(sounding), velocity
        elif event_id < N_EVENTS:
            velocity = event_id - VELOCITY
    first, begin = cut
    while first < len(ids) and NOTE_OFF <= ids[first] < TIME_SHIFT:  # these end as it begins
        held.pop(ids[first] - NOTE_OFF, None)
        first += 1
    part = [START]
    in_force: int | None = None
    for pitch, loud in sorted(held.items()):
        if loud != in_force:
            part.append(VELOCITY + loud)
            in_force = loud
        part.append(NOTE_ON + pitch)
    for event_id in ids[first:]:
        if VELOCITY <= event_id < N_EVENTS:
            loudness = event_id - VELOCITY
            if loudness == in_force:
                continue
            in_force = loudness
        elif event_id < NOTE_OFF and loudness != in_force:
            part.append(VELOCITY + loudness)
            in_force = loudness
        part.append(event_id)
    return part, begin


def time_of(ids: Sequence[int]) -> int:
    """The steps that pass in some ids."""
    return sum(i - TIME_SHIFT + 1 for i in ids if TIME_SHIFT <= i < VELOCITY)
