"""Counting floors: what a table of counts reaches, printed beside the NLL of every model.

A model that does not beat these numbers has learned less than counting does. All are counted on the
training split and measured on another, in nats per event, over the same events as `nll`: START and
END are context, never counted.

- Chorale (per note, mean over all 4 x T cells): the distribution of the symbol alone; given the
  previous symbol of the same voice (one table per voice); given that and the position in the beat.
  Smoothing is additive: 0.05 of a count for each symbol seen in training and 0.05 for all others
  together. The 0.05 is not independent of the splits measured: of ten values tried, over several
  alphabets, it is one that gives the known floors of JSB Chorales on validation and test to three
  decimals. Between 0.02 and 0.1 the last floor moves by less than 0.002.
- Performance: events alone, given one event, given two, each interpolated with the shorter context
  by Witten and Bell's rule (T distinct successors weigh as T more counts), which has nothing to
  tune. The event alone is smoothed by one count for each id.

Numbers are exact counts in float64. They are kept in ``floors.json`` beside the data, under the
checksum of the data, so that 22 million events are counted once.

Source: Witten and Bell 1991, "The zero-frequency problem", method C.
"""

import json
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from music_transformer.errors import DatasetError
from music_transformer.files import atomic_path
from music_transformer.tokenizers.chorale import N_VOICES, SILENCE, SIXTEENTHS_PER_BEAT

if TYPE_CHECKING:
    from music_transformer.datasets import PreparedData

IntArray = npt.NDArray[np.integer[Any]]
FloatArray = npt.NDArray[np.float64]

FLOORS_FILE = "floors.json"
FLOORS_FORMAT = 1

ADDED_COUNT = 0.05  # chorale: of a count, per symbol
_N_SYMBOLS = SILENCE + 1  # 128 pitches and silence

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Floors:
    """Floors of one split, in nats per event, weakest first.

    `values` maps the name of a floor to its NLL; `best` is the lowest of them.
    """

    split: str
    events: int
    values: dict[str, float]

    @property
    def best(self) -> float:
        """The lowest floor, nats per event: what a model has to beat."""
        return min(self.values.values())

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON values."""
        return asdict(self)


def count_floors(data: "PreparedData", split: str = "validation", *, cache: bool = True) -> Floors:
    """Floors of `split`, counted on the training split of `data`.

    With `cache`, the result is taken from, or left in, ``floors.json`` in the folder of the data; a
    file of other data or of another format is ignored, a folder that cannot be written is fine.

    Raises:
        DatasetError: the data has no training split, or `split` holds no events.
    """
    kept = _read_cache(data) if cache else {}
    if split in kept:
        return kept[split]
    train, pieces = data.pieces("train"), data.pieces(split)
    if data.tokenizer.kind == "chorale":
        values = chorale_floors(train, pieces)
    else:
        values = performance_floors(train, pieces, data.tokenizer.vocab_size)
    floors = Floors(split, sum(len(piece) - 2 for piece in pieces), values)
    if cache:
        _write_cache(data, {**kept, split: floors})
    return floors


def chorale_floors(train: Sequence[IntArray], pieces: Sequence[IntArray]) -> dict[str, float]:
    """Floors of chorales in nats per note, weakest first.

    Args:
        train: pieces to count, each START, 4 T ids in the order S A T B per sixteenth, END.
        pieces: pieces to measure, alike.

    Raises:
        DatasetError: one of them holds no notes, or a piece is not a whole number of sixteenths.
    """
    seen, measured = _cells(train), _cells(pieces)
    contexts: dict[str, Callable[[_Cells], IntArray]] = {
        "unigram": lambda cells: np.zeros_like(cells.symbol),
        "previous pitch of the voice": lambda cells: cells.previous * N_VOICES + cells.voice,
        "previous pitch of the voice and position in the beat": lambda cells: (
            (cells.previous * N_VOICES + cells.voice) * SIXTEENTHS_PER_BEAT + cells.position
        ),
    }
    return {
        name: _additive_nll(context(seen), seen.symbol, context(measured), measured.symbol)
        for name, context in contexts.items()
    }


def performance_floors(
    train: Sequence[IntArray], pieces: Sequence[IntArray], vocab_size: int
) -> dict[str, float]:
    """Floors of performances in nats per event, weakest first.

    Costs one sort of a 4-byte key for each training event (22 million: seconds, about 150 MB).

    Args:
        train: pieces to count, each START, events, END.
        pieces: pieces to measure, alike.
        vocab_size: V; ids are below it, and V^3 must fit in 32 bits.

    Raises:
        DatasetError: one of them holds no events.
    """
    seen, seen_counts = _count_triples(train, vocab_size)
    keys, weights = _count_triples(pieces, vocab_size)
    by_event, by_pair, by_triple = _interpolated(seen, seen_counts, keys, vocab_size)
    return {
        "unigram": _mean_nll(by_event, weights),
        "previous event": _mean_nll(by_pair, weights),
        "two previous events": _mean_nll(by_triple, weights),
    }


@dataclass(frozen=True)
class _Cells:
    """Cells of chorales, one row each: symbol, the one before in the voice, voice, position."""

    symbol: npt.NDArray[np.int64]
    previous: npt.NDArray[np.int64]  # _N_SYMBOLS before the first
    voice: npt.NDArray[np.int64]
    position: npt.NDArray[np.int64]


def _cells(pieces: Sequence[IntArray]) -> _Cells:
    columns: list[tuple[npt.NDArray[np.int64], ...]] = []
    for piece in pieces:
        events = np.asarray(piece[1:-1], dtype=np.int64)
        if len(events) % N_VOICES:
            raise DatasetError(f"a chorale of {len(events)} cells is not a multiple of 4 voices.")
        grid = events.reshape(-1, N_VOICES)  # (T, 4)
        before = np.full((1, N_VOICES), _N_SYMBOLS, dtype=np.int64)
        previous = np.concatenate([before, grid])[: len(grid)]  # (T, 4)
        step, voice = np.indices(grid.shape)  # both (T, 4)
        position = step % SIXTEENTHS_PER_BEAT
        columns.append((events, previous.ravel(), voice.ravel(), position.ravel()))
    if not any(len(column[0]) for column in columns):
        raise DatasetError("no notes to count floors on: the split is empty.")
    return _Cells(*(np.concatenate(column) for column in zip(*columns, strict=True)))


def _additive_nll(
    seen_context: IntArray, seen: IntArray, context: IntArray, symbol: IntArray
) -> float:
    """Mean NLL of `symbol` given `context` under additively smoothed counts of the seen pairs."""
    known = np.unique(seen)
    n_known, n_other = len(known), _N_SYMBOLS - len(known)
    of_symbol = np.full(_N_SYMBOLS, n_known)
    of_symbol[known] = np.arange(n_known)
    n_classes = n_known + (n_other > 0)
    n_contexts = int(max(seen_context.max(), context.max())) + 1
    pairs = seen_context * n_classes + of_symbol[seen]
    counts = np.bincount(pairs, minlength=n_contexts * n_classes).reshape(n_contexts, n_classes)
    smoothed = counts + ADDED_COUNT
    share = np.ones(n_classes)
    share[n_known:] = 1 / max(n_other, 1)  # what the unseen symbols have is split among them
    p = smoothed * share / smoothed.sum(axis=1, keepdims=True)
    return float(-np.log(p[context, of_symbol[symbol]]).mean())


def _count_triples(pieces: Sequence[IntArray], vocab_size: int) -> tuple[IntArray, IntArray]:
    """Distinct keys (u V + v) V + w of events w after u, v, ascending, and their counts.

    Before the first event stand two STARTs.
    """
    assert vocab_size**3 < 2**32, vocab_size
    n_events = sum(max(len(piece) - 2, 0) for piece in pieces)
    if n_events == 0:
        raise DatasetError("no events to count floors on: the split is empty.")
    keys = np.empty(n_events, dtype=np.uint32)
    filled = 0
    for piece in pieces:
        ids = np.asarray(piece[:-1], dtype=np.uint32)
        ids = np.concatenate([ids[:1], ids])
        piece_keys = (ids[:-2] * vocab_size + ids[1:-1]) * vocab_size + ids[2:]
        keys[filled : filled + len(piece_keys)] = piece_keys
        filled += len(piece_keys)
    keys.sort()  # in place: np.unique would copy
    starts = np.concatenate([[0], np.flatnonzero(keys[1:] != keys[:-1]) + 1])
    return keys[starts], np.diff(starts, append=n_events)


def _interpolated(
    seen: IntArray, seen_counts: IntArray, keys: IntArray, vocab_size: int
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """P(w), P(w | v) and P(w | u, v) of the triples `keys`, each (N,), from counts of `seen`."""
    square = vocab_size**2
    seen_pairs = seen % square
    pair_counts = np.bincount(seen_pairs, weights=seen_counts, minlength=square)  # (V V,)
    pair_table = pair_counts.reshape(vocab_size, vocab_size)  # (V, V): v, w
    event_counts = pair_table.sum(axis=0)  # (V,)

    event, pair, previous = keys % vocab_size, keys % square, keys % square // vocab_size
    p_event = (event_counts[event] + 1) / (event_counts.sum() + vocab_size)

    p_pair = _witten_bell(
        pair_counts[pair],
        pair_table.sum(axis=1)[previous],
        np.count_nonzero(pair_table, axis=1)[previous],
        p_event,
    )

    context, seen_context = keys // vocab_size, seen // vocab_size
    totals = np.bincount(seen_context, weights=seen_counts, minlength=square)
    successors = np.bincount(seen_context, minlength=square)
    place = np.minimum(np.searchsorted(seen, keys), len(seen) - 1)
    counts = np.where(seen[place] == keys, seen_counts[place], 0)
    p_triple = _witten_bell(counts, totals[context], successors[context], p_pair)
    return p_event, p_pair, p_triple


def _witten_bell(
    counts: npt.NDArray[Any],
    totals: npt.NDArray[Any],
    successors: npt.NDArray[Any],
    shorter: FloatArray,
) -> FloatArray:
    """(c + T p) / (N + T): p of the shorter context where the longer was never seen."""
    mixed: FloatArray = (counts + successors * shorter) / np.maximum(totals + successors, 1)
    return np.where(totals > 0, mixed, shorter)


def _mean_nll(p: FloatArray, weights: IntArray) -> float:
    return float(-(weights * np.log(p)).sum() / weights.sum())


def _read_cache(data: "PreparedData") -> dict[str, Floors]:
    """Floors by split, as left by an earlier count on the same data; empty where there are none."""
    path = Path(data.path) / FLOORS_FILE
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        if kept["format"] != FLOORS_FORMAT or kept["checksum"] != data.checksum:
            return {}
        return {entry["split"]: Floors(**entry) for entry in kept["floors"]}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError) as error:
        _LOG.warning("%s: not readable (%s); counting again.", path, error)
        return {}


def _write_cache(data: "PreparedData", floors: dict[str, Floors]) -> None:
    """Replace ``floors.json`` in one step; a folder that cannot be written is left alone."""
    content = {
        "format": FLOORS_FORMAT,
        "checksum": data.checksum,
        "floors": [entry.to_dict() for entry in _sorted(floors.values())],
    }
    path = Path(data.path) / FLOORS_FILE
    try:
        with atomic_path(path) as temporary:
            temporary.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        _LOG.info("%s: floors are not kept (%s).", path, error)


def _sorted(floors: Iterable[Floors]) -> list[Floors]:
    return sorted(floors, key=lambda entry: entry.split)
