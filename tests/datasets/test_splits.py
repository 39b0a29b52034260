"""The split of a folder: every piece once, copies together, small folders too."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from music_transformer.datasets.prepare import parse_shares, split_pieces
from music_transformer.errors import ConfigError


def _digests(count: int) -> list[str]:
    return [hashlib.sha256(str(index).encode()).hexdigest() for index in range(count)]


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        (0, (0, 0, 0)),
        (1, (1, 0, 0)),
        (2, (1, 1, 0)),
        (4, (3, 1, 0)),
        (5, (3, 1, 1)),
        (10, (8, 1, 1)),
        (100, (80, 10, 10)),
        (1276, (1020, 128, 128)),
    ],
)
def test_shares_are_rounded_and_training_has_the_rest(
    pieces: int, expected: tuple[int, int, int]
) -> None:
    split = split_pieces(_digests(pieces))
    assert tuple(split.count(name) for name in ("train", "validation", "test")) == expected


def test_the_split_does_not_depend_on_the_order_of_the_files() -> None:
    digests = _digests(40)
    forward = dict(zip(digests, split_pieces(digests), strict=True))
    backward = dict(zip(digests[::-1], split_pieces(digests[::-1]), strict=True))
    assert forward == backward


@given(
    st.lists(st.integers(0, 12), max_size=60),
    st.tuples(st.integers(1, 9), st.integers(0, 9), st.integers(0, 9)),
)
def test_copies_stand_in_one_split_and_training_is_never_empty(
    contents: list[int], shares: tuple[int, int, int]
) -> None:
    digests = [_digests(13)[content] for content in contents]
    split = split_pieces(digests, shares)
    assert len(set(zip(digests, split, strict=True))) == len(set(digests))
    if contents:
        assert "train" in split
    if len(set(digests)) > 1 and shares[1]:
        assert "validation" in split


def test_shares_are_three_numbers_and_only_their_ratio_counts() -> None:
    assert parse_shares("80/10/10") == (80, 10, 10)
    digests = _digests(30)
    assert split_pieces(digests, (8, 1, 1)) == split_pieces(digests, (0.8, 0.1, 0.1))


@pytest.mark.parametrize(
    "text", ["", "80/20", "a/b/c", "0/50/50", "80/-10/30", "nan/1/1", "inf/1/1"]
)
def test_other_shares_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="split"):
        parse_shares(text)
