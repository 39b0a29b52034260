"""Pairing agrees, event for event, with a queue per key."""

from collections import deque

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from music_transformer.midi.pairing import pair


def slow_pair(events: list[tuple[int, bool]]) -> tuple[dict[int, int], int, int]:
    """Row of each on -> row of its end (-1: none), the stray offs and the missing ones."""
    ends: dict[int, int] = {}
    n_stray = n_missing = 0
    for key in {key for key, _ in events}:
        queue: deque[int] = deque()
        since_silence: list[int] = []
        for row, (other, is_on) in enumerate(events):
            if other != key:
                continue
            if not is_on and not queue:
                n_stray += 1
                continue
            since_silence.append(row)
            if is_on:
                queue.append(row)
                ends[row] = -1
            else:
                ends[queue.popleft()] = row
                since_silence = since_silence if queue else []
        n_missing += len(queue)
        for row, following in zip(since_silence, [*since_silence[1:], -1], strict=False):
            if events[row][1]:
                ends[row] = following
    return ends, n_stray, n_missing


def check(events: list[tuple[int, bool]]) -> None:
    key = np.array([key for key, _ in events], np.int64)
    is_on = np.array([is_on for _, is_on in events], bool)
    pairs = pair(key, is_on)
    fast = dict(zip(pairs.onsets.tolist(), pairs.ends.tolist(), strict=True))
    assert (fast, len(pairs.strays), pairs.n_unreleased) == slow_pair(events)


@given(st.lists(st.tuples(st.sampled_from([0, 1, 5]), st.booleans()), max_size=40))
def test_few_keys_with_many_collisions(events: list[tuple[int, bool]]) -> None:
    check(events)


@given(st.lists(st.tuples(st.integers(0, 2**40), st.booleans()), max_size=20))
def test_keys_of_any_size(events: list[tuple[int, bool]]) -> None:
    check(events)


def test_no_events_make_no_notes() -> None:
    check([])


def test_an_off_before_the_on_does_not_end_it() -> None:
    check([(7, True), (7, False), (7, True)])
    check([(3, False), (7, False), (7, True), (9, False)])
