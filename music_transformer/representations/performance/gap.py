"""In-filling: the ids by which a model is told what comes after the gap that it composes for.

    later part, END, earlier part, gap

All of it is on the clock of the earlier part: the later part opens with a rest as long as the
earlier part and the gap. Nothing marks where the gap begins, for both are music on the way to what
is known. Of the later part only notes that begin in it are there: which notes sound at the end of
the gap is the model's to say.
"""

from __future__ import annotations

import numpy as np

from music_transformer.notes import STEPS_PER_SECOND, NoteSequence, to_steps
from music_transformer.representations.base import Representation
from music_transformer.representations.ids import IdArray
from music_transformer.representations.performance.vocabulary import (
    END,
    START,
    rest,
    shift_steps,
    split_at,
    time_of,
    velocity_in_force,
)

EARLIER_EVENTS, LATER_EVENTS, LATER_SECONDS = 512, 384, 20.0  # the most that a model is shown
LEAST, MOST = 1 / 8, 1 / 2  # of the events of a training window are the later part


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
