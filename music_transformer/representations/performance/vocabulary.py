"""The events of the performance vocabulary.

| ids | event | meaning |
| --- | --- | --- |
| 0-127 | NOTE_ON p | pitch p starts, at the current velocity |
| 128-255 | NOTE_OFF p | pitch p ends |
| 256-355 | TIME_SHIFT k | k = 1..100 steps of 10 ms |
| 356-387 | SET_VELOCITY b | b = 0..31: velocities 4 b to 4 b + 3; decodes to 4 b + 2, never 0 |
| 388, 389, 390 | PAD, START, END | put round pieces and windows, never by `encode` |
| 391, 392 | PEDAL_ON, PEDAL_OFF | only with ``pedal="events"`` |

128 + 128 + 100 + 32 = 388 events carry music, as in Huang et al. 2018, "Music Transformer", section
3 and appendix A.2. Seconds become steps by rounding the absolute time, so nothing drifts
(`notes.to_steps`).
"""

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from music_transformer.errors import TokenError
from music_transformer.representations.ids import IdArray, Ints

_Id = TypeVar("_Id", bound=np.integer[Any])

N_PITCHES = 128
MAX_SHIFT = 100
N_VELOCITIES = 32
VELOCITIES_PER_BIN = 4

NOTE_ON = 0
NOTE_OFF = NOTE_ON + N_PITCHES
TIME_SHIFT = NOTE_OFF + N_PITCHES  # the id of k = 1
VELOCITY = TIME_SHIFT + MAX_SHIFT
N_EVENTS = VELOCITY + N_VELOCITIES
PAD = N_EVENTS
START = N_EVENTS + 1
END = N_EVENTS + 2
N_IDS = N_EVENTS + 3
PEDAL_ON = N_IDS
PEDAL_OFF = N_IDS + 1
N_IDS_WITH_PEDAL = N_IDS + 2

DEFAULT_VELOCITY_BIN = 16  # before any SET_VELOCITY a note sounds at 4 * 16 + 2 = 66

SYMBOLS = (
    *(f"NOTE_ON {pitch}" for pitch in range(N_PITCHES)),
    *(f"NOTE_OFF {pitch}" for pitch in range(N_PITCHES)),
    *(f"TIME_SHIFT {steps}" for steps in range(1, MAX_SHIFT + 1)),
    *(f"SET_VELOCITY {velocity}" for velocity in range(N_VELOCITIES)),
    *("PAD", "START", "END", "PEDAL_ON", "PEDAL_OFF"),
)


def rest(steps: int) -> list[int]:
    """The ids of a silence: as many TIME_SHIFT 100 as fit, then what is left."""
    if steps < 0:
        raise TokenError(f"a rest of {steps} steps: time never runs back.")
    hundreds, left = divmod(steps, MAX_SHIFT)
    longest = TIME_SHIFT + MAX_SHIFT - 1
    return [longest] * hundreds + ([TIME_SHIFT + left - 1] if left else [])


def shift_steps(ids: IdArray) -> Ints:
    """The steps by which each id moves the time: (N,)."""
    is_shift = (ids >= TIME_SHIFT) & (ids < VELOCITY)
    return np.where(is_shift, ids.astype(np.int64) - (TIME_SHIFT - 1), 0)


def time_of(ids: Sequence[int]) -> int:
    """The steps that pass in a few ids."""
    return sum(i - TIME_SHIFT + 1 for i in ids if TIME_SHIFT <= i < VELOCITY)


def split_at(ids: list[int], cut: int) -> tuple[list[int], list[int]]:
    """The ids before step `cut`, lasting until then, and the rest."""
    step = 0
    for index, event_id in enumerate(ids):
        shift = time_of([event_id])
        if shift and step + shift >= cut:
            return [*ids[:index], *rest(cut - step)], [*rest(step + shift - cut), *ids[index + 1 :]]
        step += shift
    return ids, []


def velocity_in_force(ids: NDArray[_Id]) -> NDArray[_Id]:
    """The last SET_VELOCITY among the ids: one id or none."""
    return ids[(ids >= VELOCITY) & (ids < N_EVENTS)][-1:]


def without_leading_silence(ids: NDArray[_Id]) -> NDArray[_Id]:
    """The ids without the time before the first NOTE_ON, if there is one: from (N,) to (M,).

    Of the pedal's movements before it the last counts: a pedal already down stays down.
    """
    note_on = np.flatnonzero(ids < NOTE_OFF)
    if not len(note_on):
        return ids
    head, tail = ids[: note_on[0]], ids[note_on[0] :]
    pedals = np.flatnonzero(head >= PEDAL_ON)
    keep = (head < TIME_SHIFT) | (head >= VELOCITY)
    keep[pedals] = False
    keep[pedals[-1:]] = head[pedals[-1:]] == PEDAL_ON
    return np.concatenate([head[keep], tail])
