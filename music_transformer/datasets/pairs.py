"""Melodies and what accompanies them: random segments to learn from, fixed ones to measure with.

A segment is some seconds of a piece. Its source is the melody of that time on the grid of 100 ms; a
melody note that sounds when it begins is held from there. Its events are those of the accompaniment
notes that begin within it, counted from its beginning: a note held over its end is closed there.
START comes first, END last: a model learns to end with the melody. Of a segment with more events
than a window holds the first are taken, without END. Both sides are stretched and moved by the same
semitones before they are encoded.

Source: Huang et al. 2018, "Music Transformer", section 4.2; the lengths are this project's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from music_transformer.datasets.prepared import PreparedData
from music_transformer.datasets.windows import Batch, TrainingWindows, Window, collate
from music_transformer.errors import ConfigError
from music_transformer.notes import STEPS_PER_SECOND as EVENT_STEPS
from music_transformer.notes import NoteSequence, to_steps
from music_transformer.representations.accompaniment.skyline import STEPS_PER_SECOND as MELODY_STEPS
from music_transformer.representations.accompaniment.tokenizer import AccompanimentTokenizer

Ids = npt.NDArray[np.integer[Any]]

SHORTEST_SECONDS, LONGEST_SECONDS = 5, 30  # of a training segment
EVALUATION_SECONDS = 20  # the most of an evaluation segment; more than half of it in long pieces

_RATIO = EVENT_STEPS // MELODY_STEPS  # steps of 10 ms in one of 100 ms
_TOKENIZER = AccompanimentTokenizer()


class TrainingPairs(TrainingWindows):
    """Random segments of the training split, augmented, as batches of a fixed width.

    A piece is drawn in proportion to its events, a length of 5 to 30 seconds evenly, and where it
    begins evenly. A piece shorter than that is taken whole.
    """

    def _open(self, data: PreparedData) -> None:
        super()._open(data)
        self._melodies = [np.asarray(melody) for melody in data.melodies("train")]

    def _allowed_transpositions(self, data: PreparedData) -> list[list[int]]:
        """Those that both sides allow."""
        return [
            self.tokenizer.transpositions(np.concatenate(sides), data.meta)
            for sides in zip(self._pieces, self._melodies, strict=True)
        ]

    def batch(self, step: int) -> Batch:
        first = self.rank * self.batch_size
        pairs = [self._draw(step, first + row) for row in range(self.batch_size)]
        return collate(pairs, pad=_TOKENIZER.pad, width=self.length)

    def _draw(self, step: int, row: int) -> Window:
        random = np.random.default_rng((self.seed, step, row))
        index = int(np.searchsorted(self._ends, random.integers(self._ends[-1]), side="right"))
        factor, semitones = 1.0, 0
        if self._transpositions is not None:
            factor = float(random.choice(self.tokenizer.stretches))
            semitones = int(random.choice(self._transpositions[index]))
        accompaniment = _TOKENIZER.decode(self._pieces[index])
        melody = _TOKENIZER.decode(self._melodies[index])
        longest = _duration(accompaniment, melody)
        between = (SHORTEST_SECONDS * MELODY_STEPS, LONGEST_SECONDS * MELODY_STEPS)
        steps = int(random.integers(*between, endpoint=True))
        span = min(round(steps * _RATIO / factor), longest)
        begin = int(random.integers(longest - span + 1))
        source, events = cut_segment(
            accompaniment, melody, begin, begin + span, factor=factor, semitones=semitones
        )
        return _pair(source, events, self.length, index, learn_end=True)


def training_windows(data: PreparedData, **settings: Any) -> TrainingWindows:
    """What a model of the data learns from; the arguments are those of `TrainingWindows`."""
    return (TrainingPairs if data.tokenizer.has_melody else TrainingWindows)(data, **settings)


def evaluation_pairs(data: PreparedData, split: str, length: int) -> list[Window]:
    """The fixed pairs of a split: each piece in equal segments of at most 20 seconds.

    Every event of a segment up to `length`, the most input ids of a pair, is a target in exactly
    one; START and END are none. Segments without an accompaniment are left out.
    """
    if length < 1:
        raise ConfigError(f"length={length}: a window holds at least one.")
    pairs = []
    sides = zip(data.pieces(split), data.melodies(split), strict=True)
    for index, piece in enumerate(sides):
        accompaniment, melody = (_TOKENIZER.decode(ids) for ids in piece)
        duration = -(-_duration(accompaniment, melody) // _RATIO)  # steps of 100 ms
        segments = -(-duration // (EVALUATION_SECONDS * MELODY_STEPS))
        edges = np.arange(segments + 1) * duration // segments * _RATIO
        for begin, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
            source, events = cut_segment(accompaniment, melody, begin, end)
            if len(events):
                pairs.append(_pair(source, events, length, index, learn_end=False))
    return pairs


def shuffled_pairs(pairs: Sequence[Window], seed: int) -> list[Window]:
    """The pairs with the melody of another piece, as long as its own: one cycle through all pieces.

    A segment gets the part of the other melody that follows what the segment before it got; one
    that is over begins again. Raises ConfigError for fewer than two pieces.
    """
    melodies: dict[int, list[Tensor]] = {}
    for pair in pairs:
        assert pair.source is not None
        melodies.setdefault(pair.piece, []).append(pair.source)
    if len(melodies) < 2:
        raise ConfigError(
            f"pairs of {len(melodies)} piece: melodies are exchanged among two pieces or more."
        )
    cycle = np.random.default_rng(seed).permutation(sorted(melodies)).tolist()
    giver = dict(zip(cycle, [*cycle[1:], cycle[0]], strict=True))
    other = {piece: torch.cat(melodies[giver[piece]]) for piece in melodies}
    taken = dict.fromkeys(melodies, 0)
    exchanged = []
    for pair in pairs:
        assert pair.source is not None
        melody, begin, length = other[pair.piece], taken[pair.piece], len(pair.source)
        places = torch.arange(begin, begin + length) % len(melody)
        taken[pair.piece] += length
        exchanged.append(replace(pair, source=melody[places]))
    return exchanged


def cut_segment(
    accompaniment: NoteSequence,
    melody: NoteSequence,
    begin: int,
    end: int,
    *,
    factor: float = 1.0,
    semitones: int = 0,
) -> tuple[Ids, Ids]:
    """Source (S,) and events (N,) of a piece from `begin` to `end`, in steps of 10 ms.

    It is played `factor` times as long, S steps of 100 ms, `semitones` higher; the caller keeps
    pitches inside 0..127.
    """
    source = _TOKENIZER.melody.encode_segment(melody, begin, end, factor, semitones)
    notes, first, last = accompaniment, begin / EVENT_STEPS, end / EVENT_STEPS
    rows = np.flatnonzero((notes.start >= first) & (notes.start < last))
    start = (notes.start[rows] - first) * factor
    inside = to_steps(start) < len(source) * _RATIO  # the last may be rounded out of the segment
    rows, start = rows[inside], start[inside]
    finish = np.minimum((notes.end[rows] - first) * factor, len(source) / MELODY_STEPS)
    segment = NoteSequence(
        pitch=notes.pitch[rows] + semitones,
        velocity=notes.velocity[rows],
        start=start,
        end=np.maximum(start, finish),
    )
    return source, _TOKENIZER.encode_array(segment)


def _pair(source: Ids, events: Ids, length: int, piece: int, *, learn_end: bool) -> Window:
    """A pair of at most `length` inputs; the end of its events is a target or no part of it."""
    tail = [_TOKENIZER.end] if learn_end else []
    stream = np.concatenate([[_TOKENIZER.start], events, tail]).astype(np.int64)[: length + 1]
    return Window(
        source=torch.from_numpy(source.astype(np.int64)),
        ids=torch.from_numpy(stream[:-1]),
        targets=torch.from_numpy(stream[1:]),
        place=torch.arange(len(stream) - 1),
        piece=piece,
    )


def _duration(accompaniment: NoteSequence, melody: NoteSequence) -> int:
    """How long a piece lasts, in steps of 10 ms."""
    return int(to_steps(max(accompaniment.end_time, melody.end_time)))
