"""Counting baselines of performances: events alone, given one event, given two.

Each is interpolated with the shorter context by Witten and Bell's rule (T distinct successors weigh
as T more counts), which has nothing to tune. The event alone is smoothed by one count for each id.

Source: Witten and Bell 1991, "The zero-frequency problem", method C.
"""

from collections.abc import Sequence

import numpy as np

from music_transformer.errors import DatasetError
from music_transformer.representations.ids import Floats, IdArray


def performance_baselines(
    train: Sequence[IdArray], pieces: Sequence[IdArray], vocab_size: int
) -> dict[str, float]:
    """`Representation.baselines` of performances.

    Costs one sort of a 4-byte key for each training event (22 million: seconds, about 150 MB).
    """
    seen, seen_counts = _count_triples(train, vocab_size)
    keys, weights = _count_triples(pieces, vocab_size)
    names = ("unigram", "previous event", "two previous events")
    return {
        name: float(-(weights * np.log(p)).sum() / weights.sum())
        for name, p in zip(names, _interpolated(seen, seen_counts, keys, vocab_size), strict=True)
    }


def _count_triples(pieces: Sequence[IdArray], vocab_size: int) -> tuple[IdArray, IdArray]:
    """Distinct keys (u V + v) V + w of events w after u, v, ascending, and their counts.

    Before the first event stand two STARTs.
    """
    assert vocab_size**3 < 2**32, vocab_size
    n_events = sum(max(len(piece) - 2, 0) for piece in pieces)
    if n_events == 0:
        raise DatasetError("no events to count baselines on: the split is empty.")
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
    seen: IdArray, seen_counts: IdArray, keys: IdArray, vocab_size: int
) -> tuple[Floats, Floats, Floats]:
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


def _witten_bell(counts: IdArray, totals: IdArray, successors: IdArray, shorter: Floats) -> Floats:
    """(c + T p) / (N + T): p of the shorter context where the longer was never seen."""
    mixed: Floats = (counts + successors * shorter) / np.maximum(totals + successors, 1)
    return np.where(totals > 0, mixed, shorter)
