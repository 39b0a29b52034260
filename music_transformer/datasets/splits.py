"""Which pieces are for training, validation and test; listed once, never drawn again.

Corpora bring their split. A folder of MIDI files gets one by this rule, which depends on the music
alone, not on names, order or dates:

1. pieces with equal ids are one group, so that a copy never stands in two splits;
2. groups are put in the order of the sha256 of their ids (a fixed shuffle);
3. with shares such as 80/10/10, validation has its share of the groups, rounded, and at least one
   where there are two; test its share, rounded; training has the rest, and always at least one. The
   first groups are training, then validation, then test.

The result is written to ``meta.json``, piece by piece.
"""

from collections.abc import Sequence

from music_transformer.errors import ConfigError

Shares = tuple[float, float, float]

DEFAULT_SHARES: Shares = (80, 10, 10)


def parse_shares(text: str) -> Shares:
    """The shares of training, validation and test from a text such as ``80/10/10``.

    Raises:
        ConfigError: not three numbers, or one is negative, or training has nothing.
    """
    try:
        train, validation, test = (float(part) for part in text.split("/"))
    except ValueError as error:
        raise ConfigError(f"split {text!r} is not three shares; try 80/10/10.") from error
    if not (0 < train < float("inf") and 0 <= validation < float("inf") and 0 <= test < 1e9):
        raise ConfigError(f"split {text!r}: training needs a share, none is negative.")
    return train, validation, test


def split_pieces(digests: Sequence[str], shares: Shares = DEFAULT_SHARES) -> list[str]:
    """The split of each piece, by the rule above.

    Args:
        digests: sha256 of each piece's ids, hexadecimal.
        shares: of training, validation and test; only their ratio counts.
    """
    groups = sorted(set(digests))
    n_train, n_validation, _ = _counts(len(groups), shares)
    split_of = {}
    for rank, digest in enumerate(groups):
        if rank < n_train:
            split_of[digest] = "train"
        elif rank < n_train + n_validation:
            split_of[digest] = "validation"
        else:
            split_of[digest] = "test"
    return [split_of[digest] for digest in digests]


def _counts(groups: int, shares: Shares) -> tuple[int, int, int]:
    """How many groups training, validation and test get."""
    _, validation, test = (int(groups * share / sum(shares) + 0.5) for share in shares)
    if shares[1] > 0:
        validation = max(validation, 1)
    validation = min(validation, max(groups - 1, 0))
    test = min(test, max(groups - 1 - validation, 0))
    return groups - validation - test, validation, test
