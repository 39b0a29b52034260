"""Pairing agrees, event for event, with a queue per key."""

from collections import defaultdict, deque

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from music_transformer.midi.pairing import pair


def slow_pair(events: list[tuple[int, bool]]) -> tuple[dict[int, int], int, int]:
    """Row of each on -> row of its end (-1: none), the stray offs and the unreleased ons."""
    queues: dict[int, deque[int]] = defaultdict(deque)
    ends: dict[int, int] = {}
    n_stray = 0
    for row, (key, is_on) in enumerate(events):
        if is_on:
            queues[key].append(row)
        elif queues[key]:
            ends[queues[key].popleft()] = row
        else:
            n_stray += 1
    left = [(key, row) for key, queue in queues.items() for row in queue]
    for key, row in left:
        later = [r for r, event in enumerate(events) if r > row and event == (key, False)]
        ends[row] = max(later, default=-1)
    return ends, n_stray, len(left)


def check(events: list[tuple[int, bool]]) -> None:
    key = np.array([key for key, _ in events], np.int64)
    is_on = np.array([is_on for _, is_on in events], bool)
    pairs = pair(key, is_on)
    fast = dict(zip(pairs.onsets.tolist(), pairs.ends.tolist(), strict=True))
    assert (fast, pairs.n_stray, pairs.n_unreleased) == slow_pair(events)


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
