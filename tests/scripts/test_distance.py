"""Pieces beside data: distances and pooled shares, by hand."""

import numpy as np
import pytest
from describe_music import (
    beside,
    describe_chorale,
    mean_pitch_class_distance,
    pitch_class_distance,
    pooled_parallels,
)
from hypothesis import given
from hypothesis import strategies as st

C_MAJOR_CHORD = [1 / 3, 0, 0, 0, 1 / 3, 0, 0, 1 / 3, 0, 0, 0, 0]
C_ALONE = [1.0] + [0.0] * 11


def turned(shares: list[float], semitones: int) -> list[float]:
    return np.roll(shares, semitones).tolist()


def test_the_distance_is_that_of_the_nearest_key() -> None:
    assert pitch_class_distance(C_MAJOR_CHORD, turned(C_MAJOR_CHORD, 5)) == pytest.approx(0)
    assert pitch_class_distance(C_ALONE, C_MAJOR_CHORD) == pytest.approx(2 / 3)
    # The two whole-tone scales are a semitone apart.
    assert pitch_class_distance([1 / 6, 0] * 6, [0, 1 / 6] * 6) == pytest.approx(0)


@given(
    st.lists(st.integers(0, 9), min_size=12, max_size=12).filter(any),
    st.lists(st.integers(0, 9), min_size=12, max_size=12).filter(any),
    st.integers(0, 11),
)
def test_it_is_a_symmetric_share_and_blind_to_transposition(
    first: list[int], second: list[int], semitones: int
) -> None:
    a, b = (np.array(counts) / sum(counts) for counts in (first, second))
    found = pitch_class_distance(a, b)
    assert 0 <= found <= 1
    assert pitch_class_distance(b, a) == pytest.approx(found)
    assert pitch_class_distance(np.roll(a, semitones), b) == pytest.approx(found)


def test_within_a_set_a_piece_is_not_compared_with_itself() -> None:
    data = [{"pitch_class_share": C_ALONE}, {"pitch_class_share": C_MAJOR_CHORD}]
    assert mean_pitch_class_distance(data, data) == pytest.approx(2 / 3)
    assert mean_pitch_class_distance(data[:1], data) == pytest.approx(1 / 3)
    one = data[:1]
    assert mean_pitch_class_distance(one, one) == 0


def test_parallels_are_pooled_over_pair_motions() -> None:
    pieces = [
        {"pair_motions": 1.0, "parallel_fifths": 1.0, "parallel_octaves": 0.0},
        {"pair_motions": 99.0, "parallel_fifths": 0.0, "parallel_octaves": 2 / 99},
    ]
    assert pooled_parallels(pieces) == pytest.approx(
        {"parallel_fifths": 0.01, "parallel_octaves": 0.02}
    )


def test_chorales_stand_beside_the_data() -> None:
    moving = describe_chorale([[60, 65, 55, 48], [62, 65, 57, 50]])  # a fifth of three pair-motions
    held = describe_chorale([[60, 65, 55, 48]] * 8)
    found = beside([held, moving], [held])
    assert (found["pieces"], found["data"]["pieces"]) == (2, 1)
    assert found["mean"]["parallel_fifths"] == pytest.approx(1 / 3)
    assert found["data"]["mean"]["parallel_fifths"] == 0
    assert found["mean"]["soprano_highest"] == 61
    assert found["data"]["mean"]["pitch_class_distance"] == 0
    with pytest.raises(ValueError, match="no descriptions"):
        beside([], [held])
