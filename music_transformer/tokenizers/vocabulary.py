"""The events of the performance vocabulary, and what every tokenizer offers.

| ids | event | meaning |
| --- | --- | --- |
| 0-127 | NOTE_ON p | pitch p starts, at the current velocity |
| 128-255 | NOTE_OFF p | pitch p ends |
| 256-355 | TIME_SHIFT k | k = 1..100 steps of 10 ms |
| 356-387 | SET_VELOCITY b | b = 0..31: velocities 4 b to 4 b + 3; decodes to 4 b + 2, never 0 |
| 388, 389, 390 | PAD, START, END | put round pieces and windows, never by `encode` |
| 391, 392 | PEDAL_ON, PEDAL_OFF | only with ``pedal="events"`` |

128 + 128 + 100 + 32 = 388 events carry music. An *event* is the symbol, an *id* its integer.

Time is counted in steps of 10 ms. Seconds become steps by rounding the absolute time, never the
differences, so nothing drifts (`notes.to_steps`).

Differs from the paper: PAD, START and END are added; the pedal may be kept as events.

Source: Huang et al. 2018, "Music Transformer", section 3 and appendix A.2.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from music_transformer.errors import TokenError

if TYPE_CHECKING:
    from music_transformer.notes import NoteSequence

Ids = Sequence[int] | NDArray[np.integer[Any]]
Ints = NDArray[np.int64]
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


class Tokenizer(Protocol):
    """What data, training, evaluation and generation need to know of a tokenizer."""

    @property
    def kind(self) -> str:
        """ "performance", "chorale" or "accompaniment"."""

    @property
    def vocab_size(self) -> int:
        """The number of ids, PAD, START and END among them."""

    @property
    def pad(self) -> int:
        """The id of PAD."""

    @property
    def start(self) -> int:
        """The id of START."""

    @property
    def end(self) -> int:
        """The id of END."""

    def encode(self, notes: NoteSequence, *, keep_silence: bool = True) -> list[int]:
        """The canonical ids of the notes."""

    def encode_array(self, notes: NoteSequence, *, keep_silence: bool = True) -> NDArray[np.uint16]:
        """The canonical ids of the notes as an array (N,)."""

    def decode(self, ids: Ids) -> NoteSequence:
        """The notes of any sequence of known ids."""

    def symbols(self, ids: Ids) -> list[str]:
        """The name of each id's event."""

    def duration_seconds(self, ids: Ids) -> float:
        """How long the ids last."""

    def to_config(self) -> dict[str, Any]:
        """What `tokenizer_from_config` needs to make an equal tokenizer."""


def check_ids(ids: Ids, vocab_size: int) -> Ints:
    """The ids as an array (N,) of int64, each of them in 0..vocab_size-1.

    Raises:
        TokenError: not a flat sequence, or an element is no integer or outside the vocabulary; the
            message names the first such position and what stands there.
    """
    array = _as_array(ids)
    if array.ndim != 1:
        raise TokenError(f"ids have shape {array.shape}, expected one dimension: pass one piece.")
    if array.size == 0:
        return np.zeros(0, dtype=np.int64)
    if array.dtype.kind not in "iu":
        _refuse_other_than_integers(ids)
        array = np.array([int(i) for i in ids], dtype=object)
    outside = (array < 0) | (array >= vocab_size)
    if outside.any():
        position = int(np.argmax(outside))
        raise TokenError(
            f"id {array[position]} at position {position} is outside the vocabulary "
            f"0..{vocab_size - 1}: was it encoded with another tokenizer?"
        )
    return array.astype(np.int64)


def _as_array(ids: Ids) -> NDArray[Any]:
    if not isinstance(ids, np.ndarray):
        ids = ids if hasattr(ids, "__len__") else list(ids)
    try:
        return np.asarray(ids)
    except (ValueError, OverflowError):  # ragged lists, integers past 64 bits
        return np.fromiter(iter(ids), dtype=object)


def _refuse_other_than_integers(ids: Iterable[Any]) -> None:
    for position, value in enumerate(ids):
        if not isinstance(value, int | np.integer):
            raise TokenError(
                f"{value!r:.40} at position {position} is not an id: ids are integers."
            )


def symbol(event_id: int) -> str:
    """The name of an id's event and its argument, such as ``NOTE_ON 60`` or ``TIME_SHIFT 50``."""
    if event_id < NOTE_OFF:
        return f"NOTE_ON {event_id - NOTE_ON}"
    if event_id < TIME_SHIFT:
        return f"NOTE_OFF {event_id - NOTE_OFF}"
    if event_id < VELOCITY:
        return f"TIME_SHIFT {event_id - TIME_SHIFT + 1}"
    if event_id < N_EVENTS:
        return f"SET_VELOCITY {event_id - VELOCITY}"
    return ("PAD", "START", "END", "PEDAL_ON", "PEDAL_OFF")[event_id - PAD]


def rest(steps: int) -> list[int]:
    """The ids of a silence: as many TIME_SHIFT 100 as fit, then what is left."""
    if steps < 0:
        raise TokenError(f"a rest of {steps} steps: time never runs back.")
    hundreds, left = divmod(steps, MAX_SHIFT)
    longest = TIME_SHIFT + MAX_SHIFT - 1
    return [longest] * hundreds + ([TIME_SHIFT + left - 1] if left else [])


def drop_leading_silence(ids: Ids) -> list[int]:
    """The ids without the time before the first NOTE_ON.

    Of the pedal's movements before it the last counts: a pedal already down stays down. Ids without
    a NOTE_ON come back as they are.
    """
    result: list[int] = without_leading_silence(np.asarray(ids, dtype=np.int64)).tolist()
    return result


def without_leading_silence(ids: NDArray[_Id]) -> NDArray[_Id]:
    """`drop_leading_silence` from array (N,) to array (M,) of the same dtype."""
    note_on = np.flatnonzero(ids < NOTE_OFF)
    if not len(note_on):
        return ids
    head, tail = ids[: note_on[0]], ids[note_on[0] :]
    pedals = np.flatnonzero(head >= PEDAL_ON)
    keep = (head < TIME_SHIFT) | (head >= VELOCITY)
    keep[pedals] = False
    if len(pedals) and head[pedals[-1]] == PEDAL_ON:
        keep[pedals[-1]] = True
    return np.concatenate([head[keep], tail])
