"""NLL of one model read in windows of several lengths: does it hold beyond those it was trained on?

Each length is a whole evaluation by the protocol of `nll.py`, so all lengths count the same events.
What differs is how much of the past an event is predicted from: the mean falls with the length as
long as the model can use the longer past, and rises where its positions break. The place in the
window tells which: losses of the events at places 64-127 of windows of 512, for one.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import torch

from music_transformer.evaluation.nll import (
    EventLosses,
    EventModel,
    event_losses,
    mean_and_error,
    piece_nlls,
)

if TYPE_CHECKING:
    from music_transformer.datasets import PreparedData

FIRST_PLACES = 64  # the first bin of places; each further one is as wide as all before it


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

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON values."""
        return asdict(self)


def nll_by_length(
    model: EventModel,
    data: "PreparedData",
    split: str,
    lengths: Sequence[int],
    *,
    device: str | torch.device | None = None,
    batch_size: int = 8,
    max_windows: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[LengthNll]:
    """NLL of ``model`` on a split, by length of the window and by place in it.

    Args:
        lengths: of the windows, in events; may exceed the model's context where its positions
            allow it.
        batch_size: windows of the shortest length at a time; of longer ones, fewer.

    The others, and the errors, as for `evaluate_nll`; a learned table of positions that is too
    short is a ShapeError.
    """
    shortest = min(lengths, default=1)
    results = []
    for length in lengths:
        losses = event_losses(
            model,
            data,
            split,
            device=device,
            context=length,
            batch_size=max(1, batch_size * shortest // max(length, 1)),
            max_windows=max_windows,
            progress=progress,
        )
        results.append(_summary(length, losses))
    return results


def _summary(length: int, losses: EventLosses) -> LengthNll:
    _, error = mean_and_error(piece_nlls(losses))
    return LengthNll(
        length=length,
        nll=float(losses.loss.mean()),
        standard_error=error,
        events=len(losses.loss),
        by_place=_by_place(length, losses),
    )


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
