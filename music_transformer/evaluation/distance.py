"""How far pieces are from data: each number beside the data's, and what only a comparison tells.

- Pitch classes: total variation between the shares of two pieces, in the transposition that brings
  them nearest, so that C major is not far from D major for its key. Averaged over the pairs of two
  sets, and beside it over the pairs within the data: samples are like the data where the two are
  alike.
- Parallels of several pieces: counted over all their pair-motions, so that a short piece with one
  slip does not weigh as much as a long one.

Source: Yang and Lerch 2020, "On the evaluation of generative models in music" (distances within and
between sets), here of total variation and as a mean.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from music_transformer.evaluation.statistics import average

Numbers = Mapping[str, "float | list[float]"]
FloatArray = npt.NDArray[np.float64]

_N_CLASSES = 12
_PARALLELS = ("parallel_fifths", "parallel_octaves")


def beside(pieces: Sequence[Numbers], data: Sequence[Numbers]) -> dict[str, Any]:
    """Number of the pieces, mean and sd, and the same of the data under ``data``.

    To the means come ``pitch_class_distance``, to the data, and for chorales the parallels are
    those of `pooled_parallels`.

    Args:
        pieces: what `describe` or `describe_chorale` gives, one for each piece.
        data: the same of the data.

    Raises:
        ValueError: there is nothing to compare.
    """
    sides: list[dict[str, Any]] = []
    for one in (pieces, data):
        side: dict[str, Any] = {"pieces": len(one), **average(one)}
        side["mean"]["pitch_class_distance"] = mean_pitch_class_distance(one, data)
        if "pair_motions" in one[0]:
            side["mean"] |= pooled_parallels(one)
        sides.append(side)
    return {**sides[0], "data": sides[1]}


def pitch_class_distance(first: npt.ArrayLike, second: npt.ArrayLike) -> float:
    """Half the summed differences of two pitch-class shares (12,), at the nearest transposition.

    Range [0, 1]: 0 for the same shares in any key, 1 for no class in common in every key.
    """
    return float(_distances(np.asarray(first, np.float64), np.asarray(second, np.float64)[None])[0])


def mean_pitch_class_distance(pieces: Sequence[Numbers], data: Sequence[Numbers]) -> float:
    """Mean of `pitch_class_distance` over all pairs of a piece and one of the data. Range [0, 1].

    Where both are the same sequence, over the pairs of different pieces (0 for a single piece).
    """
    shares = np.array([one["pitch_class_share"] for one in data], np.float64)  # (N, 12)
    if pieces is data:
        total = sum(_distances(share, shares).sum() for share in shares)
        return float(total / max(len(shares) * (len(shares) - 1), 1))
    given = np.array([one["pitch_class_share"] for one in pieces], np.float64)  # (M, 12)
    return float(np.mean([_distances(share, shares).mean() for share in given]))


def pooled_parallels(pieces: Sequence[Numbers]) -> dict[str, float]:
    """`parallels` over the pair-motions of all pieces together."""
    motions = np.array([one["pair_motions"] for one in pieces], np.float64)
    shares = {name: np.array([one[name] for one in pieces], np.float64) for name in _PARALLELS}
    total = max(float(motions.sum()), 1.0)
    return {name: float((share * motions).sum()) / total for name, share in shares.items()}


def _distances(share: FloatArray, shares: FloatArray) -> FloatArray:
    """(N,) distances from shares (12,) to each row of (N, 12)."""
    turned = np.stack([np.roll(share, k) for k in range(_N_CLASSES)])  # (12, 12)
    apart = np.abs(turned[:, None] - shares).sum(axis=-1) / 2  # (12, N)
    nearest: FloatArray = apart.min(axis=0)
    return nearest
