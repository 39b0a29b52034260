"""Which of two models is better: their difference on the same pieces, with an interval.

Pieces differ far more from each other than models do on one piece, so two models are compared piece
by piece. The difference is that of their NLL in nats per event over all pieces; its interval holds
what would change with other pieces of the same kind, and with other seeds of training:

- **pieces**: a bootstrap. Pieces are drawn with replacement, the same ones for both models, and the
  difference is taken anew, each piece with its events.
- **seeds**: where a model was trained several times, its runs are averaged piece by piece, and to
  each bootstrap difference comes a deviate for the seeds: Student's t, scaled by the standard error
  over runs, with Welch's degrees of freedom. Drawing from three runs with replacement would make
  intervals too narrow by half. With one run of either model nothing is known of its seeds, and the
  interval is about these weights.

An order may be claimed where the interval leaves out 0 (`PairedDifference.order`).

Source: Efron and Tibshirani 1993, "An Introduction to the Bootstrap" (percentile intervals);
Koehn 2004, "Statistical significance tests for machine translation evaluation" (paired, over
items); Welch 1947 for the degrees of freedom.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from music_transformer.errors import ConfigError

FloatArray = npt.NDArray[np.float64]

RESAMPLES = 10_000


@dataclass(frozen=True)
class PairedDifference:
    """NLL of the first model minus that of the second, nats per event; below 0 the first is better.

    Attributes:
        mean: over all events, and over the runs of each model.
        low, high: ends of the interval.
        confidence: of the interval, two-sided.
        pieces: that both were measured on.
        better_on: pieces on which the first has the lower NLL, its runs averaged.
        runs: seeds of the first model and of the second.
    """

    mean: float
    low: float
    high: float
    confidence: float
    pieces: int
    better_on: int
    runs: tuple[int, int]

    @property
    def order(self) -> int:
        """-1 where the first is better, 1 where the second is, 0 where the interval holds 0."""
        return int(self.low > 0) - int(self.high < 0)

    def to_dict(self) -> dict[str, Any]:
        """The fields and the order as JSON values."""
        return {**asdict(self), "runs": list(self.runs), "order": self.order}


def paired_difference(
    first: npt.ArrayLike,
    second: npt.ArrayLike,
    events: Sequence[int] | npt.NDArray[np.int64] | None = None,
    *,
    confidence: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> PairedDifference:
    """The difference of two models on the same pieces, and its interval.

    Args:
        first, second: mean NLL of each piece, (N,), or (S, N) for S runs with other seeds; the
            number of runs may differ.
        events: (N,) in each piece; None gives every piece the same weight.
        confidence: of the interval.
        resamples: of the bootstrap.
        seed: of the bootstrap.

    Raises:
        ConfigError: the two are not of the same two pieces or more, or a number makes no sense.
    """
    a = np.atleast_2d(np.asarray(first, dtype=np.float64))  # (S, N)
    b = np.atleast_2d(np.asarray(second, dtype=np.float64))  # (S', N)
    n_pieces = a.shape[1]
    weight = np.ones(n_pieces) if events is None else np.asarray(events, dtype=np.float64)
    if a.ndim != 2 or b.shape[1:] != (n_pieces,) or weight.shape != (n_pieces,):
        raise ConfigError(
            f"paired_difference: NLL of {a.shape[1]} and {b.shape[1]} pieces, events of "
            f"{weight.size}: give both models on the same pieces."
        )
    if n_pieces < 2:
        raise ConfigError("paired_difference: one piece says nothing of others; give more.")
    if not 0 < confidence < 1 or resamples < 1:
        raise ConfigError(
            f"confidence={confidence}, resamples={resamples}: choose a confidence between 0 and 1 "
            "and at least one resample."
        )
    generator = np.random.default_rng(seed)
    by_piece = a.mean(axis=0) - b.mean(axis=0)  # (N,)
    drawn = generator.multinomial(n_pieces, np.full(n_pieces, 1 / n_pieces), size=resamples)
    weights = drawn * weight  # (R, N)
    differences = weights @ by_piece / weights.sum(axis=1)  # (R,)
    differences += _seed_noise(
        a @ weight / weight.sum(), b @ weight / weight.sum(), generator, resamples
    )
    tail = (1 - confidence) / 2
    low, high = np.quantile(differences, [tail, 1 - tail]).tolist()
    return PairedDifference(
        mean=float(by_piece @ weight / weight.sum()),
        low=low,
        high=high,
        confidence=confidence,
        pieces=n_pieces,
        better_on=int((by_piece < 0).sum()),
        runs=(len(a), len(b)),
    )


def _seed_noise(
    first: FloatArray, second: FloatArray, generator: np.random.Generator, count: int
) -> FloatArray:
    """(count,) deviates of the difference of two means over runs, from the NLL of each run."""
    parts = [
        (runs.var(ddof=1) / len(runs), len(runs) - 1) for runs in (first, second) if len(runs) > 1
    ]
    variance = sum(part for part, _ in parts)
    if not variance > 0:
        return np.zeros(count)
    freedom = variance**2 / sum(part**2 / degrees for part, degrees in parts)  # Welch
    noise: FloatArray = generator.standard_t(freedom, count) * variance**0.5
    return noise
