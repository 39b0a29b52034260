"""Sequences of ids, and the check that they are ids of a vocabulary."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from music_transformer.errors import TokenError

IdArray = NDArray[np.integer[Any]]
Ids = Sequence[int] | IdArray
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


def check_ids(ids: Ids, vocab_size: int) -> Ints:
    """The ids as an array (N,) of int64, each of them in 0..vocab_size-1.

    Raises TokenError, with the first position where something else stands.
    """
    try:
        array = np.asarray(ids)
    except (ValueError, OverflowError):  # ragged lists, integers past 64 bits
        array = np.fromiter(iter(ids), dtype=object)
    if array.ndim != 1:
        raise TokenError(f"ids have shape {array.shape}, expected one dimension: pass one piece.")
    if array.size == 0:
        return np.zeros(0, dtype=np.int64)
    if array.dtype.kind not in "iu":
        for position, value in enumerate(ids):
            if not isinstance(value, int | np.integer):
                raise TokenError(
                    f"{value!r:.40} at position {position} is not an id: ids are integers."
                )
        array = np.array([int(i) for i in ids], dtype=object)
    outside = (array < 0) | (array >= vocab_size)
    if outside.any():
        position = int(np.argmax(outside))
        raise TokenError(
            f"id {array[position]} at position {position} is outside the vocabulary "
            f"0..{vocab_size - 1}: was it encoded with another tokenizer?"
        )
    return array.astype(np.int64)


def shift_ids(ids: IdArray, below: int, semitones: int) -> Ints:
    """The ids with `semitones` added to those under `below`; signed, as an id may be 0."""
    signed = ids.astype(np.int64)
    return np.where(signed < below, signed + semitones, signed)
