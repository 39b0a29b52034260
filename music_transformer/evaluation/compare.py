"""Two models on the same pieces, one with the wrong melodies, and one at several lengths.

Source: Efron and Tibshirani 1993, "An Introduction to the Bootstrap" (percentile intervals); Koehn
2004, "Statistical significance tests for machine translation evaluation" (paired, over items).
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from music_transformer.datasets.pairs import evaluation_pairs, shuffled_pairs
from music_transformer.errors import ConfigError
from music_transformer.evaluation.nll import (
    EventLosses,
    EventModel,
    NllReport,
    Progress,
    event_losses,
    mean_and_error,
    piece_nlls,
    protocol_windows,
)
from music_transformer.representations.ids import Floats, Ints

if TYPE_CHECKING:
    from music_transformer.datasets.prepared import PreparedData

RESAMPLES = 10_000
CONFIDENCE = 0.95
FIRST_PLACES = 64  # the first bin of places; each further one is as wide as all before it
SHUFFLED_SEED = 0  # of the exchange of melodies


@dataclass(frozen=True)
class PairedDifference:
    """NLL of the first model minus that of the second in nats per event; below 0 it is better."""

    mean: float  # over all events, and over the runs of each model
    low: float  # `low` to `high` is the two-sided interval
    high: float
    pieces: int  # that both were measured on
    better_on: int  # pieces on which the first has the lower NLL, its runs averaged
    runs: tuple[int, int]  # seeds of the first model and of the second
    confidence: float = CONFIDENCE

    @property
    def order(self) -> int:
        """-1 where the first is better, 1 where the second is, 0 where the interval holds 0."""
        return int(self.low > 0) - int(self.high < 0)

    def to_dict(self) -> dict[str, Any]:
        """The fields and the order as JSON values."""
        return {**asdict(self), "runs": list(self.runs), "order": self.order}


def paired_difference(
    first: ArrayLike,
    second: ArrayLike,
    events: Sequence[int] | Ints | None = None,
    *,
    seed: int = 0,
) -> PairedDifference:
    """The difference of two models on the same pieces, and its interval by a bootstrap over pieces.

    The interval holds what would change with other pieces and, where a model was trained several
    times, with other seeds: to each bootstrap difference comes a deviate of Student's t (drawing
    from three runs with replacement would make intervals too narrow by half).

    Args:
        first, second: mean NLL of each piece, (N,), or (S, N) for S runs with other seeds.
        events: (N,) in each piece; None gives every piece the same weight.

    Raises:
        ConfigError: the two are not of the same two pieces or more.
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
    generator = np.random.default_rng(seed)
    by_piece = a.mean(axis=0) - b.mean(axis=0)  # (N,)
    drawn = generator.multinomial(n_pieces, np.full(n_pieces, 1 / n_pieces), size=RESAMPLES)
    weights = drawn * weight  # (R, N)
    differences = weights @ by_piece / weights.sum(axis=1)  # (R,)
    runs = a @ weight / weight.sum(), b @ weight / weight.sum()  # (S,), (S',)
    differences += _seed_noise(*runs, generator)
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(differences, [tail, 1 - tail]).tolist()
    mean = float(by_piece @ weight / weight.sum())
    better_on = int((by_piece < 0).sum())
    return PairedDifference(mean, low, high, n_pieces, better_on, runs=(len(a), len(b)))


def _seed_noise(first: Floats, second: Floats, generator: np.random.Generator) -> Floats:
    """(R,) deviates of the difference of two means over runs, from the NLL of each run."""
    parts = [
        (runs.var(ddof=1) / len(runs), len(runs) - 1) for runs in (first, second) if len(runs) > 1
    ]
    variance = sum(part for part, _ in parts)
    if not variance > 0:
        return np.zeros(RESAMPLES)
    freedom = variance**2 / sum(part**2 / degrees for part, degrees in parts)  # Welch 1947
    noise: Floats = generator.standard_t(freedom, RESAMPLES) * variance**0.5
    return noise


@dataclass(frozen=True)
class ShuffledNll:
    """The NLL with the melodies of other pieces, and what the right ones are worth."""

    nll: float
    difference: PairedDifference  # minus the NLL with the right ones: above 0 they are used

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "nll_shuffled": self.nll,
            "difference": self.difference.mean,
            "interval": [self.difference.low, self.difference.high],
            "worse_on": self.difference.pieces - self.difference.better_on,
            "shuffled_seed": SHUFFLED_SEED,
        }


def shuffled_nll(
    model: EventModel,
    data: "PreparedData",
    report: NllReport,
    *,
    batch_size: int = 8,
    progress: Progress | None = None,
) -> ShuffledNll:
    """The NLL of an accompaniment model with the melodies exchanged among pieces.

    Args:
        report: of the same model and data with the right melodies; says split and context.

    Raises:
        ConfigError: the split has fewer than two pieces.
        DatasetError: the data have no melodies.
    """
    pairs = evaluation_pairs(data, report.protocol["split"], report.protocol["context"])
    losses = event_losses(
        model,
        data.tokenizer,
        shuffled_pairs(pairs, SHUFFLED_SEED),
        batch_size=batch_size,
        progress=progress,
    )
    difference = paired_difference(
        [piece.nll for piece in piece_nlls(losses)],
        [piece.nll for piece in report.by_piece],
        [piece.events for piece in report.by_piece],
    )
    return ShuffledNll(float(losses.loss.mean()), difference)


@dataclass(frozen=True)
class PlaceNll:
    """Mean loss of the events at places ``first`` to ``last`` of the window, counted from 0."""

    first: int
    last: int
    nll: float
    events: int


@dataclass(frozen=True)
class LengthNll:
    """NLL in windows of ``length``; ``standard_error`` is that of the mean over pieces."""

    length: int
    nll: float
    standard_error: float | None
    events: int
    by_place: list[PlaceNll]


def nll_by_length(
    model: EventModel,
    data: "PreparedData",
    split: str,
    lengths: Sequence[int],
    *,
    batch_size: int = 8,
    progress: Progress | None = None,
) -> list[LengthNll]:
    """NLL of ``model`` on a split, by length of the window in events and by place in it.

    Each length is an evaluation by the protocol of `nll`, so all count the same events: the mean
    falls as long as a model can use a longer past, and rises where its positions break.

    Args:
        batch_size: of the shortest length; longer windows are fewer at a time.

    Raises:
        ShapeError: a learned table of positions is too short; more errors as for `evaluate_nll`.
    """
    shortest = min(lengths, default=1)
    results = []
    for length in lengths:
        windows = protocol_windows(data, split, length)
        at_once = max(1, batch_size * shortest // length)
        losses = event_losses(model, data.tokenizer, windows, batch_size=at_once, progress=progress)
        nll, error = float(losses.loss.mean()), mean_and_error(piece_nlls(losses))[1]
        by_place = _by_place(length, losses)
        results.append(LengthNll(length, nll, error, len(losses.loss), by_place))
    return results


def _by_place(length: int, losses: EventLosses) -> list[PlaceNll]:
    """Bins 0-63, 64-127, 128-255, ... up to the length; those without events are left out."""
    bins = []
    first, end = 0, FIRST_PLACES
    while first < length:
        inside = (losses.column >= first) & (losses.column < end)
        if inside.any():
            mean = float(losses.loss[inside].mean())
            bins.append(PlaceNll(first, min(end, length) - 1, mean, int(inside.sum())))
        first, end = end, 2 * end
    return bins
