"""Fill a gap: what stands before and after it is kept note by note, what is between is composed.

A performance model that learned it (`piano-fill`) is given the notes after the gap, see
`representations/performance/primer.py`, then goes on from the music before it to the gap's end.
All notes stay that begin outside the gap, unquantised; the composed ones come on a track of their
own and give way to kept ones of their pitch.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from music_transformer.checkpoint import Session
from music_transformer.errors import ConfigError, MidiError
from music_transformer.evaluation.seam import part, seam_distance
from music_transformer.generation.cells import fill_chorale
from music_transformer.generation.contest import Contest
from music_transformer.generation.continuation import Continuation
from music_transformer.generation.loop import SampleSpec
from music_transformer.generation.report import Generation, Progress
from music_transformer.notes import STEPS_PER_SECOND, NoteSequence, Pedals, to_steps
from music_transformer.representations.accompaniment.skyline import giving_way, later
from music_transformer.representations.performance.primer import LATER_SECONDS, window_for
from music_transformer.sampling import check_count, settings_of

LONGEST_SECONDS = 60.0
_SAME_SECONDS = 1e-6


def fill(
    session: Session,
    notes: NoteSequence,
    *,
    start: float,
    end: float,
    voices: Sequence[str] = (),
    samples: int = 1,
    on_progress: Progress | None = None,
    **settings: Any,
) -> list[Generation]:
    """The notes with what begins between two seconds composed anew; `samples` of them.

    Of each generation ``notes`` is the whole, ``continuation`` what was composed, its second 0
    being `start`.

    Args:
        session: a model that fills gaps, such as `piano-fill`, or one of chorales (see `cells`).
        start, end: seconds.
        voices: of a chorale, those to be composed; default all.
        on_progress, settings: as in `generate`; the length is that of the gap.

    Raises:
        ConfigError: a model that fills no gaps, a gap that is none, or a setting that is wrong.
        MidiError: nothing is left beside the gap.
    """
    length = (int(to_steps(end)) - int(to_steps(start))) / STEPS_PER_SECOND
    if not 0 <= start < end or not 0 < length <= LONGEST_SECONDS:
        raise ConfigError(
            f"a gap from {start:g} s to {end:g} s: choose one of at most {LONGEST_SECONDS:g} s."
        )
    check_count("samples", samples)
    how = settings_of(settings)
    if how.seconds is not None or how.events is not None:
        raise ConfigError("seconds, events: what is composed is as long as the gap; leave it out.")
    if session.tokenizer.voices:
        draws = [replace(how, seed=how.seed + number) for number in range(samples)]
        return [
            fill_chorale(session, notes, (start, end), one, voices, on_progress) for one in draws
        ]
    if not getattr(session.config, "anchors", False) or session.tokenizer.has_melody:
        raise ConfigError(
            f"{session.path}: this checkpoint fills no gaps; take one that learned it, such as "
            "piano-fill."
        )
    if voices:
        raise ConfigError("voices: this music has none; leave it out.")
    how = replace(how, seconds=length, keep_silence=True, end="cut")
    usual = how.or_else(how.mood).or_else(session.sampling).resolved()
    count = 1 if usual.temperature == 0 else usual.candidates or 1
    gap = _Filling(session, notes, start, end, [SampleSpec(how)])
    return Contest(gap, count, progress=on_progress).winners(samples)


class _Filling(Continuation):
    """Samples for one gap."""

    def __init__(
        self,
        session: Session,
        notes: NoteSequence,
        start: float,
        end: float,
        specs: Sequence[SampleSpec],
    ) -> None:
        self._kept, self._start, self._end = kept_beside(notes, start, end), start, end
        self._sounding = sounding = self._kept.sustained()
        if not len(sounding):
            raise MidiError("nothing is left beside the gap: there is nothing to go by.")
        self._window, earlier = window_for(session.tokenizer, sounding, start, end)
        super().__init__(session, earlier, specs)
        self._later = part(sounding.selected(sounding.start >= end), end, end + LATER_SECONDS)

    def _first_ids(self) -> list[int]:
        return self._window

    def result(self, new: Sequence[int]) -> tuple[NoteSequence, NoteSequence]:
        """Of some new ids: the whole, and what is new alone."""
        played = later(self._session.tokenizer.continuation(self.primer, new), self._start)
        played = played.replaced(end=np.clip(played.end, played.start, self._end))
        near = (self._sounding.start < self._end) & (self._sounding.end > self._start)
        composed, _ = giving_way(played, self._sounding.selected(near))
        alone = later(composed, -self._start).replaced(
            end_time=self._end - self._start, track_names=("fill",)
        )
        whole = self._kept.followed_by(alone, at=self._start)
        return whole.replaced(end_time=self._kept.end_time), alone

    def remoteness(self, continuation: NoteSequence, begin: float = 0.0) -> float:
        """The mean over both seams."""
        after = self._later if len(self._later) else None
        before = super().remoteness(continuation, begin) if self.primer.ids else None
        ends = None if after is None else seam_distance(continuation, after)
        return float(np.mean([far for far in (before, ends) if far is not None]))


def kept_beside(notes: NoteSequence, start: float, end: float) -> NoteSequence:
    """The notes that begin outside a gap; a pedal pressed inside it goes, or begins at its end."""
    pedals, gap = notes.pedals, (start - _SAME_SECONDS, end - _SAME_SECONDS)
    inside = (pedals.start >= gap[0]) & (pedals.start < gap[1])
    stays = ~inside | (pedals.end > end)
    pressed = np.where(inside, end, pedals.start)
    return notes.selected((notes.start < gap[0]) | (notes.start >= gap[1])).replaced(
        pedals=Pedals(pedals.channel[stays], pressed[stays], pedals.end[stays])
    )
