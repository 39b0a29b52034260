"""Negative log-likelihood in nats per event: the one number a model is judged by.

The protocol changes the number by more than many a model does, so it is fixed:

- Real events only, weighted alike: START is the first input and never a target, END and padding
  never count. Neither batch size nor neighbours in a batch move the number.
- Performance: each piece in non-overlapping windows of the model's context; the rest is kept.
- Chorale ("per note"): whole chorales, windows of the context every half context. Each of the 4 x T
  cells counts once, in the first window that reaches it.
- Accompaniment: pairs of a melody and what is played to it, in segments of at most 20 s side by
  side; of each the events up to the model's context.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from music_transformer.datasets.pairs import evaluation_pairs
from music_transformer.datasets.windows import Window, collate, evaluation_windows
from music_transformer.errors import ConfigError, DatasetError
from music_transformer.model.registry import evaluating
from music_transformer.model.terms import without_mask
from music_transformer.representations.ids import Floats, Ints

if TYPE_CHECKING:
    from music_transformer.datasets.prepared import PreparedData
    from music_transformer.representations.base import Representation

Progress = Callable[[int, int], None]

_N_QUARTERS = 4


class EventModel(Protocol):
    """A model with a config; gives logits (B, L, V) for ids and places (B, L)."""

    @property
    def config(self) -> Any: ...

    def parameters(self) -> Iterator[Any]: ...

    def __call__(self, ids: Tensor, **given: Tensor) -> Tensor: ...


@dataclass(frozen=True)
class PieceNll:
    """Mean loss of the counted events of one piece, by its number in the split."""

    piece: int
    events: int
    nll: float


@dataclass(frozen=True, kw_only=True)
class NllReport:
    """NLL of a split in nats per event (chorale: per note), and its parts; None: no such events."""

    nll: float
    events: int
    pieces: int
    mean_over_pieces: float  # each with the same weight
    standard_error: float | None  # of that mean; None for one piece
    by_quarter: list[float | None]  # of the window: how much a longer context helps
    by_voice: dict[str, float] | None = None  # chorale: soprano, alto, tenor, bass
    on_beat: float | None = None  # chorale: first sixteenth of each beat
    half_beats: float | None = None  # chorale: third sixteenth
    odd_sixteenths: float | None = None  # chorale: second and fourth
    off_beat: float | None = None  # chorale: the last two together
    nll_without_mask: float | None = None  # performance state: of the logits before their mask
    protocol: dict[str, Any]  # split, kind, context and stride in events, windows (None: all)
    by_piece: list[PieceNll]  # to compare two models on the same pieces, see `compare`


@dataclass(frozen=True)
class EventLosses:
    """One row per counted event."""

    loss: Floats  # nats
    unmasked: Floats  # before the mask of the performance state; the same without one
    piece: Ints  # its number in the split
    place: Ints  # in the piece, from 0
    column: Ints  # position of its input in the window


def evaluate_nll(
    model: EventModel,
    data: "PreparedData",
    split: str,
    *,
    context: int | None = None,
    batch_size: int = 8,
    max_windows: int | None = None,
    progress: Progress | None = None,
) -> NllReport:
    """NLL of `model` on a split of `data`, by the protocol above.

    Args:
        context: window length in events; None takes that of the model.
        batch_size: windows at a time: speed and memory, never the number.
        max_windows: only so many, spread evenly over the split: not comparable with all.
        progress: called with (windows done, windows in all) after each batch.

    Raises:
        ConfigError: a size below 1, or the model does not have the vocabulary of the data.
        DatasetError: the split is absent or has no events.
    """
    context = int(model.config.context) if context is None else context
    tokenizer = data.tokenizer
    windows = protocol_windows(data, split, context, max_windows)
    losses = event_losses(model, tokenizer, windows, batch_size=batch_size, progress=progress)
    by_piece = piece_nlls(losses)
    mean, error = mean_and_error(by_piece)
    quarter = losses.column * _N_QUARTERS // context
    groups: dict[str, Any] = {
        name: _means(losses.loss, mask.astype(np.int64), 2)[1]
        for name, mask in tokenizer.loss_groups(losses.place).items()
    }
    voices = {name: groups.pop(name) for name in tokenizer.voices}
    masked = bool((losses.unmasked != losses.loss).any())
    return NllReport(
        nll=float(losses.loss.mean()),
        events=len(losses.loss),
        pieces=len(by_piece),
        mean_over_pieces=mean,
        standard_error=error,
        by_quarter=_means(losses.loss, quarter, _N_QUARTERS),
        by_voice={name: nll for name, nll in voices.items() if nll is not None} or None,
        **groups,
        nll_without_mask=float(losses.unmasked.mean()) if masked else None,
        protocol={
            "split": split,
            "kind": tokenizer.kind,
            "context": context,
            "stride": tokenizer.evaluation_stride(context),
            "windows": max_windows,
        },
        by_piece=by_piece,
    )


def event_losses(
    model: EventModel,
    tokenizer: "Representation",
    windows: Sequence[Window],
    *,
    batch_size: int = 8,
    progress: Progress | None = None,
) -> EventLosses:
    """The loss in nats of each event that the windows count, where the model is.

    Raises:
        ConfigError: `batch_size` is below 1, or the model does not have the vocabulary.
    """
    if batch_size < 1:
        raise ConfigError(f"batch_size={batch_size}: must be at least 1.")
    if model.config.vocab_size != tokenizer.vocab_size:
        raise ConfigError(
            f"the model has {model.config.vocab_size} ids, the data {tokenizer.vocab_size}: "
            "evaluate it on data prepared with its own tokenizer."
        )
    # Long ones first: little padding, and what does not fit in memory fails at once.
    windows = sorted(windows, key=lambda window: -len(window.ids))
    where = next(model.parameters()).device
    parts: list[EventLosses] = []
    # Not inference_mode: tables that a model keeps from here would be unusable in training.
    with evaluating(model), torch.no_grad():
        for first in range(0, len(windows), batch_size):
            batch = windows[first : first + batch_size]
            parts.append(_batch_losses(model, batch, tokenizer.pad, where))
            if progress is not None:
                progress(first + len(batch), len(windows))
    names = [one.name for one in fields(EventLosses)]
    return EventLosses(
        **{name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
    )


def protocol_windows(
    data: "PreparedData", split: str, context: int, limit: int | None = None
) -> list[Window]:
    """What a split is measured in by the protocol; with a limit so many of them, evenly spaced.

    Raises:
        ConfigError: a size below 1.
        DatasetError: the split is absent or has no events.
    """
    for name, size in (("context", context), ("max_windows", limit)):
        if size is not None and size < 1:
            raise ConfigError(f"{name}={size}: must be at least 1.")
    if data.tokenizer.has_melody:
        windows = evaluation_pairs(data, split, context)
    else:
        stride = data.tokenizer.evaluation_stride(context)
        windows = [*evaluation_windows(data, split, context, stride)]
    if not windows:
        raise DatasetError(f"split {split!r} has no events to measure.")
    if limit is None or limit >= len(windows):
        return windows
    chosen = (np.arange(limit) * len(windows) / limit).astype(int)
    return [windows[i] for i in chosen.tolist()]


def _batch_losses(
    model: EventModel, windows: Sequence[Window], pad: int, device: torch.device
) -> EventLosses:
    """Losses of some windows, run as one batch; padding on the right, which no event sees."""
    batch = collate(windows, pad=pad)
    counted = batch.targets != pad  # (B, L)
    on_device = batch.to(device)
    logits = model(on_device.ids, **on_device.given())  # (B, L, V)
    keep = counted.to(device)
    targets = on_device.targets[keep]  # (N,)
    kept = logits[keep].float()  # (N, V)
    loss = F.cross_entropy(kept, targets, reduction="none").double()  # (N,)
    unmasked = F.cross_entropy(without_mask(kept), targets, reduction="none").double()  # (N,)
    rows, columns = np.nonzero(counted.numpy())  # both (N,), in the order of the mask
    return EventLosses(
        loss=loss.cpu().numpy(),
        unmasked=unmasked.cpu().numpy(),
        piece=np.array([window.piece for window in windows], dtype=np.int64)[rows],
        place=batch.place.numpy()[rows, columns],
        column=columns.astype(np.int64),
    )


def piece_nlls(losses: EventLosses) -> list[PieceNll]:
    """The NLL of each piece with a counted event, in the order of the split."""
    counts = np.bincount(losses.piece).tolist()
    means = _means(losses.loss, losses.piece)
    return [
        PieceNll(piece, count, mean)
        for piece, (count, mean) in enumerate(zip(counts, means, strict=True))
        if mean is not None
    ]


def mean_and_error(by_piece: Sequence[PieceNll]) -> tuple[float, float | None]:
    """Mean NLL over pieces, each with the same weight, and its standard error (None for one)."""
    means = [one.nll for one in by_piece]
    error = float(np.std(means, ddof=1) / len(means) ** 0.5) if len(means) > 1 else None
    return float(np.mean(means)), error


def _means(loss: Floats, group: Ints, n_groups: int = 0) -> list[float | None]:
    """Mean loss of each group 0, 1, ...; None for a group without events."""
    totals = np.bincount(group, weights=loss, minlength=n_groups)
    counts = np.bincount(group, minlength=n_groups)
    pairs = zip(totals.tolist(), counts.tolist(), strict=True)
    return [total / count if count else None for total, count in pairs]
