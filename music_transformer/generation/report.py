"""What happened while a continuation was sampled, in numbers and in warnings."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from music_transformer.notes import NoteSequence

LONG_SILENCE_SECONDS = 10.0
_LOOP_NOTES = 24  # so many notes must go round before it is called a loop
_LONGEST_LOOP = 8


@dataclass(frozen=True)
class GenerationReport:
    """The account of one sample.

    Attributes:
        sample: its number, from 0; with `seed` it makes the sample again.
        events: new ids that were drawn.
        closing_events: ids added after them so that no note hangs or no sixteenth is cut.
        seconds: length of the continuation.
        notes: notes that begin in the continuation.
        primer_events, primer_seconds: the same of what the model was given.
        forced_events: draws where the grammar left one id.
        long_notes_closed: notes ended because they had lasted 20 s.
        notes_cut: notes ended because the continuation was over.
        windows_reread: how often the oldest half of the context was dropped.
        elapsed_seconds, events_per_second: of the run, all its samples together.
        warnings: what a listener should know.
    """

    sample: int
    seed: int
    events: int
    closing_events: int
    seconds: float
    notes: int
    primer_events: int
    primer_seconds: float
    forced_events: int
    long_notes_closed: int
    notes_cut: int
    windows_reread: int
    elapsed_seconds: float
    events_per_second: float
    warnings: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The fields, ready for JSON."""
        return {**dataclasses.asdict(self), "warnings": list(self.warnings)}


def degeneracies(continuation: NoteSequence) -> list[str]:
    """What is wrong with music that a model got stuck in, one line each; usually none."""
    if not len(continuation):
        return ["the continuation has no notes"] if continuation.end_time > 0 else []
    found = []
    silence = _longest_silence(continuation)
    if silence > LONG_SILENCE_SECONDS:
        found.append(f"the continuation is silent for {silence:.1f} s")
    by_time = np.lexsort((continuation.pitch, continuation.start))
    loop = _loop(continuation.pitch[by_time].tolist())
    if loop == 1:
        found.append("the continuation repeats one note; a higher temperature may help")
    elif loop > 1:
        found.append(f"the continuation repeats the same {loop} notes; try a higher temperature")
    return found


def _longest_silence(notes: NoteSequence) -> float:
    """Seconds of the longest time without a note, the beginning and the end included."""
    order = np.argsort(notes.start, kind="stable")
    start = np.append(notes.start[order], notes.end_time)
    quiet_from = np.append(0.0, np.maximum.accumulate(notes.end[order]))
    return float((start - quiet_from).max())


def _loop(pitches: Sequence[int]) -> int:
    """The period, in notes, in which the last pitches go round; 0 if they do not."""
    last = pitches[-max(_LOOP_NOTES, 4 * _LONGEST_LOOP) :]
    if len(last) < _LOOP_NOTES:
        return 0
    for period in range(1, _LONGEST_LOOP + 1):
        if all(a == b for a, b in zip(last[period:], last, strict=False)):
            return period
    return 0
