"""Note-ons and note-offs to notes: who belongs to whom, for all keys of a file at once.

A key here is one pitch of one channel of one track. For each key notes are released in the order in
which they were struck (first in, first out).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from music_transformer.notes import BoolArray, IntArray


class Pairs(NamedTuple):
    """`pair`'s answer: rows of the N onsets and of their ends, and what did not fit."""

    onsets: IntArray  # (N,)
    ends: IntArray  # (N,), -1 where no off comes after the on
    n_stray: int  # offs of a key that does not sound: ignored
    n_unreleased: int  # ons whose own off never comes: they take the last off after them


def pair(key: IntArray, is_on: BoolArray) -> Pairs:
    """Match note-ons with note-offs, first in first out for each key.

    With the stray offs gone, the k-th on of a key belongs to the k-th off of that key, so ranks are
    all it takes.

    Args:
        key: (E,) note events in file order; equal for equal track, channel and pitch.
        is_on: (E,) True for an on, False for an off.
    """
    small = key.astype(np.int16) if key.max(initial=0) < 2**15 else key  # int16 sorts much faster
    order = np.argsort(small, kind="stable")
    key, is_on = key[order], is_on[order]
    opens = np.ones(len(key), bool)  # the first event of each key
    opens[1:] = key[1:] != key[:-1]
    group = np.cumsum(opens) - 1  # (E,) 0 for the lowest key that occurs, and so on
    is_stray = ~is_on & _finds_nothing(group, np.flatnonzero(opens), is_on)

    ons, offs = np.flatnonzero(is_on), np.flatnonzero(~is_on & ~is_stray)
    groups = np.arange(int(opens.sum()) + 1)
    first_on = np.searchsorted(group[ons], groups)
    first_off = np.searchsorted(group[offs], groups)
    own = group[ons]
    match = first_off[own] + np.arange(len(ons)) - first_on[own]
    unreleased = match >= first_off[own + 1]
    match = np.where(unreleased, first_off[own + 1] - 1, match)
    exists = match >= first_off[own]
    off = np.append(offs, -1)[np.where(exists, match, -1)]
    ends = np.where(off > ons, np.append(order, -1)[off], -1)
    return Pairs(order[ons], ends, int(is_stray.sum()), int(unreleased.sum()))


def _finds_nothing(group: IntArray, first: IntArray, is_on: BoolArray) -> BoolArray:
    """(E,) True where an event takes the number of notes that sound of its key below zero.

    Sum +1 and -1; wherever the sum reaches a new low, a note was missing. A slope makes every group
    begin lower than all that came before, so that one running minimum serves them all.

    Args:
        group: (E,) number of the key of each event, rising.
        first: (G,) row of the first event of each group.
        is_on: (E,) events, grouped, in file order within a group.
    """
    change = np.where(is_on, 1, -1)
    total = np.cumsum(change)
    floor = -group * (2 * len(group) + 2)  # (E,) what counts as no note in this group
    level = total - (total[first] - change[first])[group] + floor
    low = np.minimum.accumulate(np.minimum(level, floor))
    before = np.empty_like(low)
    before[1:] = low[:-1]
    before[first] = floor[first]
    below: BoolArray = low < before
    return below
