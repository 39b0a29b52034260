"""The loop: samples of one primer, drawn side by side, event by event.

Each sample has its settings, its grammar and its generator; what they share is the primer, the
length and the window, one row each.
"""

import math
import time
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass

import numpy as np
import torch

from music_transformer.checkpoint import Session
from music_transformer.generation.counterpoint import discourage_parallels
from music_transformer.generation.degeneration import broken_rules
from music_transformer.generation.filters import (
    Filters,
    choose_filters,
    draw,
    sample_generator,
)
from music_transformer.generation.held import age_held_notes
from music_transformer.generation.report import GenerationReport
from music_transformer.generation.sampler import Window, context_of
from music_transformer.generation.settings import Settings
from music_transformer.model.decoder import evaluating
from music_transformer.notes import NoteSequence
from music_transformer.representations.base import Grammar, Limits

#: The number of a sample and its next id.
NumberedIds = Generator[tuple[int, int], None, None]


@dataclass(frozen=True)
class Draw:
    """What makes a sample: with these, the same model and the same primer, the same music.

    Attributes:
        settings: how it is drawn.
        number: of the sample, from 0.
        attempt: from 0; more where an attempt was not good enough.
    """

    settings: Settings
    number: int = 0
    attempt: int = 0


@dataclass(frozen=True)
class Generation:
    """One sample.

    Attributes:
        notes: the primer and its continuation.
        continuation: the notes that begin after the primer, whose end is 0 here.
        ids: all events, those of the primer first.
        primer_ids: what the model was given.
        report: numbers and warnings.
    """

    notes: NoteSequence
    continuation: NoteSequence
    ids: list[int]
    primer_ids: list[int]
    report: GenerationReport


class _Sample:
    """One sample on its way: what was drawn so far, and what may come next."""

    def __init__(
        self,
        grammar: Grammar,
        made_by: Draw,
        filters: Filters,
    ) -> None:
        self.grammar = grammar
        self.made_by = made_by
        self.filters = filters
        self.generator = sample_generator(made_by.settings.seed, made_by.number, made_by.attempt)
        self.drawn: list[int] = []
        self.closing: list[int] = []
        self.forced = 0
        self.reread = 0

    @property
    def wants_more(self) -> bool:
        if self.grammar.wanted is None:
            return not self.grammar.finished
        return len(self.drawn) < self.grammar.wanted

    def mask(self) -> torch.Tensor:
        """(V,) bool, True = may come next; a copy."""
        wanted = self.grammar.wanted
        remaining = None if wanted is None else wanted - len(self.drawn)
        allowed = torch.from_numpy(self.grammar.mask(remaining).copy())  # (V,)
        self.forced += int(allowed.sum()) == 1
        return allowed

    def take(self, drawn: int) -> int:
        """Follow a drawn id; the id that counts, which may be a shorter TIME_SHIFT."""
        event_id = self.grammar.clip(drawn)
        self.grammar.advance(event_id)
        self.drawn.append(event_id)
        return event_id


class Run:
    """Samples of one primer, drawn side by side.

    The primer, the length and the context are those of the first draw's settings; how the events
    are drawn may differ from one to the next.
    """

    def __init__(
        self,
        session: Session,
        primer: NoteSequence | Sequence[int] | None,
        draws: Sequence[Draw],
    ) -> None:
        self.settings = settings = draws[0].settings
        self._session = session
        self._context = context_of(session.config, settings.context)
        self._primer = session.tokenizer.read_primer(
            primer,
            last_seconds=settings.primer_seconds,
            keep_silence=settings.keep_silence,
        )
        self._samples = [self._sample(one) for one in draws]
        self._elapsed_seconds = 0.0

    @property
    def done(self) -> float:
        """How much of the length asked for is there, on average over the samples."""
        by_events = self.settings.events is not None
        total = 0.0
        for sample in self._samples:
            so_far = len(sample.drawn) if by_events else sample.grammar.seconds
            total += min(so_far, self.settings.asked)
        return total / len(self._samples)

    def ids(self) -> NumberedIds:
        """Number of the sample and id, for every new id; what `stream` and `generate` live on."""
        started = time.perf_counter()
        for number, sample in enumerate(self._samples):
            if not sample.wants_more:
                yield from ((number, event_id) for event_id in self._close(sample))
        rows = [number for number, sample in enumerate(self._samples) if sample.wants_more]
        if rows:
            with evaluating(self._session.model), closing(self._draw(rows)) as drawn:
                yield from drawn
        self._elapsed_seconds = time.perf_counter() - started

    def _draw(self, rows: list[int]) -> NumberedIds:
        """Draw until every sample in ``rows`` has its length.

        A sample that has it keeps its row, fed with PAD, until the window is read again.
        """
        tokenizer = self._session.tokenizer
        window = Window(
            self._session.model,
            len(rows),
            context=self._context,
            first_place=self._primer.first_place,
        )
        read = torch.tensor([[tokenizer.start, *self._primer.ids]]).expand(len(rows), -1)  # (B, L)
        while True:
            logits = window.read(read)  # (B, V)
            active = [row for row, number in enumerate(rows) if self._samples[number].wants_more]
            samples = [self._samples[rows[row]] for row in active]
            allowed = torch.stack([sample.mask() for sample in samples])  # (A, V)
            logits = logits[active].masked_fill(~allowed, -math.inf)  # (A, V)
            logits = self._without_parallels(logits, samples)  # (A, V)
            logits = self._with_ageing_notes(logits, samples)  # (A, V)
            filtered = self._filtered(logits, samples)  # (A, V)
            drawn = draw(filtered, [sample.generator for sample in samples])
            read = torch.full((len(rows), 1), tokenizer.pad)  # (B, 1)
            for row, sample, event_id in zip(active, samples, drawn, strict=True):
                read[row] = taken = sample.take(event_id)
                sample.reread = window.reread
                yield rows[row], taken
                if not sample.wants_more:
                    yield from ((rows[row], closed) for closed in self._close(sample))
            active = [row for row in active if self._samples[rows[row]].wants_more]
            if not active:
                return
            if window.is_full and len(active) < len(rows):
                window.keep(active)
                read, rows = read[active], [rows[row] for row in active]

    def generations(self) -> list[Generation]:
        """The results, once `ids` is exhausted."""
        return [self._generation(number) for number in range(len(self._samples))]

    def _filtered(self, logits: torch.Tensor, samples: list[_Sample]) -> torch.Tensor:
        """Logits (A, V) of as many samples, each through its own filters."""
        filters = [sample.filters for sample in samples]
        filtered = torch.empty_like(logits)
        for one in dict.fromkeys(filters):
            rows = [row for row, other in enumerate(filters) if other == one]
            filtered[rows] = one(logits[rows])
        return filtered

    def _without_parallels(self, logits: torch.Tensor, samples: list[_Sample]) -> torch.Tensor:
        """Logits (A, V) of as many samples, with parallels of a chorale made unlikely."""
        chords = [one.grammar.chords for one in samples]
        before = [chord[0] for chord in chords if chord is not None]
        if not before:
            return logits
        return discourage_parallels(
            logits,
            np.array(before),  # (A, 4)
            np.array([chord[1] for chord in chords if chord is not None]),  # (A, v)
            [one.made_by.settings.parallels for one in samples],
        )

    def _with_ageing_notes(self, logits: torch.Tensor, samples: list[_Sample]) -> torch.Tensor:
        """Logits (A, V) of as many samples, with the ends of long notes made likelier."""
        ages = [age for one in samples if (age := one.grammar.ages) is not None]
        if not ages:
            return logits
        holds = [one.made_by.settings.hold_seconds for one in samples]
        return age_held_notes(logits, np.stack(ages), holds)

    def _sample(self, made_by: Draw) -> _Sample:
        settings = made_by.settings
        filters = choose_filters(settings.sampling, self._session.sampling)
        length = self.settings  # one for all, that of the first
        limits = Limits(length.length_seconds, length.events, settings.max_note_seconds)
        return _Sample(self._session.tokenizer.grammar(self._primer, limits), made_by, filters)

    def _close(self, sample: _Sample) -> list[int]:
        sample.closing = sample.grammar.closing()
        return sample.closing

    def _generation(self, number: int) -> Generation:
        sample, primer = self._samples[number], self._primer
        new = [*sample.drawn, *sample.closing]
        ids = [*primer.ids, *new]
        tokenizer, beat = self._session.tokenizer, primer.seconds_per_beat
        notes = tokenizer.decode(ids, seconds_per_beat=beat)
        continuation = tokenizer.continuation(primer, new)
        asked = self.settings.events
        events = len(sample.drawn) if asked is None else asked
        total_events = sum(len(each.drawn) for each in self._samples)
        broken, closed = broken_rules(continuation), sample.grammar.long_notes_closed
        report = GenerationReport(
            sample=sample.made_by.number,
            seed=sample.made_by.settings.seed,
            attempt=sample.made_by.attempt,
            events=events,
            closing_events=len(new) - events,
            seconds=sample.grammar.seconds,
            notes=len(continuation),
            primer_events=len(primer.ids),
            primer_seconds=tokenizer.duration_seconds(primer.ids, seconds_per_beat=beat),
            forced_events=sample.forced,
            long_notes_closed=closed,
            notes_cut=sample.grammar.notes_cut,
            windows_reread=sample.reread,
            elapsed_seconds=self._elapsed_seconds,
            events_per_second=total_events / max(self._elapsed_seconds, 1e-9),
            warnings=(*broken.values(), *_long_notes(closed, sample.made_by.settings)),
            broken_rules=tuple(broken),
        )
        return Generation(notes, continuation, ids, list(primer.ids), report)


def _long_notes(closed: int, settings: Settings) -> list[str]:
    """The warning that notes had to be closed, if any had."""
    if not closed:
        return []
    notes = "note" if closed == 1 else "notes"
    return [f"{closed} {notes} had to be closed after {settings.max_note_seconds:g} s"]
