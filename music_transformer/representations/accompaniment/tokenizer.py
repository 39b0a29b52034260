"""A melody as the encoder reads it, and the events of what is played to it.

| ids | in a step of 100 ms |
| --- | --- |
| 0-127 | a note of this pitch starts |
| 128-255 | a note of the pitch ``id - 128`` is held |
| 256 | silence |
| 257 | PAD, put behind the shorter melodies of a batch |

With `fine` 258 is added to the id of an onset for every 10 ms that it lies into its step. Lost are,
in this order: velocities, what a later note covers, all but one of the notes that start in one
step, time finer than 100 ms. Times are first rounded to 10 ms, as those of events are, so both
sides agree on what comes first. A note is held in every further step of which it fills half.

Source: Huang et al. 2018, "Music Transformer", section 4.2 (melodies at 10 steps a second). The ids
are this project's own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from music_transformer.errors import ConfigError, TokenError
from music_transformer.notes import STEPS_PER_SECOND as PERFORMANCE_STEPS
from music_transformer.notes import NoteSequence, to_steps
from music_transformer.representations.accompaniment.skyline import (
    EVENT_STEPS,
    STEPS_PER_SECOND,
    step_of,
)
from music_transformer.representations.base import Primer, register
from music_transformer.representations.ids import Ids, check_ids
from music_transformer.representations.performance.tokenizer import PerformanceTokenizer
from music_transformer.representations.performance.vocabulary import N_PITCHES

HELD = N_PITCHES
SILENCE = 2 * N_PITCHES
PAD = SILENCE + 1
N_MELODY_IDS = PAD + 1
MAX_STEPS = 1_000_000  # a day and more
VELOCITY = 80  # of decoded notes: the grid has none


@dataclass(frozen=True)
class MelodyTokenizer:
    """One voice, in steps of 100 ms."""

    vocab_size: ClassVar[int] = N_MELODY_IDS
    pad: ClassVar[int] = PAD

    def encode(
        self, notes: NoteSequence, steps: int | None = None, *, fine: bool = False
    ) -> NDArray[np.uint16]:
        """The ids of a melody from second 0 on, `steps` of them or up to the latest end: (S,).

        Of several notes that start in one step the longest counts, of equally long ones the
        highest; a later note ends the one before; the pedal does not count. `decode` does not know
        `fine` ids. Raises TokenError for more than `MAX_STEPS`.
        """
        first = step_of(notes.start)
        after = np.maximum(first + 1, (to_steps(notes.end) + EVENT_STEPS // 2) // EVENT_STEPS)
        if steps is None:
            steps = int(after.max(initial=0))
        if not 0 <= steps <= MAX_STEPS:
            raise TokenError(f"a melody of {steps} steps: expected 0 to {MAX_STEPS:,}.")
        order = np.lexsort((-notes.pitch, notes.start - notes.end, first))
        leads = np.append(True, np.diff(first[order]) > 0)[: len(order)]
        rows = order[leads & (first[order] < steps)]
        begin, pitch = first[rows], notes.pitch[rows]
        latest = np.searchsorted(begin, np.arange(steps), side="right") - 1  # (S,) -1 for none
        is_held = np.arange(steps) < np.append(after[rows], 0)[latest]
        ids = np.where(is_held, np.append(pitch, 0)[latest] + HELD, SILENCE).astype(np.uint16)
        into = to_steps(notes.start[rows]) % EVENT_STEPS if fine else 0
        ids[begin] = pitch + N_MELODY_IDS * into
        return ids

    def encode_segment(
        self, notes: NoteSequence, begin: int, end: int, factor: float = 1.0, semitones: int = 0
    ) -> NDArray[np.uint16]:
        """The fine ids of a part of a melody; what began before and still sounds is held: (S,).

        It goes from `begin` to `end` in the whole piece, in steps of 10 ms, and is played `factor`
        times as long, `semitones` higher; the caller keeps pitches inside 0..127.
        """
        first, last = begin / PERFORMANCE_STEPS, end / PERFORMANCE_STEPS
        steps = max(1, round((end - begin) * factor / EVENT_STEPS))
        rows = np.flatnonzero(((notes.start >= first) | (notes.end > first)) & (notes.start < last))
        start = (notes.start[rows] - first) * factor
        before = math.ceil(max(0.0, -start.min(initial=0.0)) * STEPS_PER_SECOND)  # whole steps
        start = np.maximum(0.0, start + before / STEPS_PER_SECOND)
        segment = NoteSequence(
            pitch=notes.pitch[rows] + semitones,
            velocity=notes.velocity[rows],
            start=start,
            end=np.maximum(start, (notes.end[rows] - first) * factor + before / STEPS_PER_SECOND),
        )
        return self.encode(segment, before + steps, fine=True)[before:]

    def decode(self, ids: Ids) -> NoteSequence:
        """The notes of any sequence of ids in 0..257 (else TokenError): on steps, velocity 80.

        A held pitch that no note of this pitch comes before starts a note. PAD is skipped. Silence
        at the end counts as time.
        """
        array = check_ids(ids, N_MELODY_IDS)
        array = array[array != PAD]
        pitch = np.where(array < SILENCE, array % HELD, -1)
        before = np.append(-1, pitch[:-1])[: len(pitch)]
        begins = np.flatnonzero((pitch >= 0) & ((array < HELD) | (pitch != before)))
        edges = np.flatnonzero((array < HELD) | (pitch != before))
        ends = np.append(edges, len(array))[np.searchsorted(edges, begins, side="right")]
        return NoteSequence(
            pitch=pitch[begins],
            velocity=np.full(len(begins), VELOCITY),
            start=begins / STEPS_PER_SECOND,
            end=ends / STEPS_PER_SECOND,
            end_time=len(array) / STEPS_PER_SECOND,
        )


@dataclass(frozen=True)
class AccompanimentTokenizer(PerformanceTokenizer):
    """A melody on one side, the events of what accompanies it on the other.

    As a `Representation` it is that of the accompaniment: the 391 ids of a performance.
    """

    pedal: str = field(default="sustain", init=False)

    kind: ClassVar[str] = "accompaniment"
    melody: ClassVar[MelodyTokenizer] = MelodyTokenizer()
    has_melody: ClassVar[bool] = True
    opens_plain: ClassVar[bool] = False
    accompanied: ClassVar[tuple[str, ...]] = ("melody", "accompaniment")

    def to_config(self) -> dict[str, Any]:
        return {"kind": self.kind}

    def events_config(self) -> dict[str, Any]:
        """The performance's: a model of performances writes such events without a melody."""
        return PerformanceTokenizer().to_config()

    def read_primer(
        self,
        primer: NoteSequence | Sequence[int] | None,
        *,
        last_seconds: float | None = None,
        keep_silence: bool = False,
    ) -> Primer:
        """Raises ConfigError: these models play to a melody."""
        raise ConfigError(
            "this checkpoint continues nothing, it plays to a melody; use accompany, or take "
            "another checkpoint, such as piano."
        )


register(AccompanimentTokenizer)
