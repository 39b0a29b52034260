"""Continue a primer: `generate`, `generate_batch` and `stream`.

The length is asked for in seconds past the primer's end, which are met exactly, or in events. END
is masked until then, which is to say always. What still sounds at the end is closed there, and a
chorale's last sixteenth gets all its voices.

Times of the result lie on the grid of the events (10 ms, or sixteenths), the primer's too: `notes`
is what `decode` makes of the primer's ids and the new ones, so a note may sound across the join.

The same call on the same machine gives the same ids. Beside other samples a sample may, rarely,
differ from itself drawn alone, see `loop`.
"""

import math
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import torch

from music_transformer.checkpoint import Session
from music_transformer.errors import ConfigError
from music_transformer.generation.degeneration import broken_rules
from music_transformer.generation.loop import NumberedIds, Sample, SampleSpec, draw_all
from music_transformer.generation.report import Report
from music_transformer.generation.sampler import Window, context_of
from music_transformer.model.transformer import evaluating
from music_transformer.notes import NoteSequence
from music_transformer.representations import Limits
from music_transformer.sampling import settings_of

#: Called with how much is done and how much is asked for, in seconds or in events.
Progress = Callable[[float, float], None]


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
    report: Report


def generate(
    session: Session,
    primer: NoteSequence | Sequence[int] | None = None,
    *,
    resample: int = 0,
    progress: Progress | None = None,
    **settings: Any,
) -> Generation:
    """A continuation of the primer, or a piece from nothing.

    Args:
        session: what `load_checkpoint` gives.
        primer: notes, ids of the session's tokenizer, or None.
        resample: how often a continuation that degenerates (`degeneration`) is drawn again, with
            another generator; the best is kept, and the report names the others.
        progress: called after every event with how much is done and how much is asked for.
        settings: the fields of `sampling.Settings` (seconds, temperature, top_p, seed and so on),
            or ``settings=`` with one of them.

    Raises:
        ConfigError: a setting outside its range.
        MidiError: a primer without notes.
        TokenError: ids outside the vocabulary.
    """
    [generation] = generate_batch(
        session, primer, samples=1, resample=resample, progress=progress, **settings
    )
    return generation


def generate_batch(
    session: Session,
    primer: NoteSequence | Sequence[int] | None = None,
    *,
    samples: int,
    resample: int = 0,
    progress: Progress | None = None,
    **settings: Any,
) -> list[Generation]:
    """Several continuations of one primer, drawn side by side; sample i has generator (seed, i).

    Those that degenerate are drawn again side by side, attempt j of sample i with generator
    (seed, i, j), until none does or each was drawn ``resample`` times more.

    Args:
        samples: how many.
        settings: they, `resample`, `progress` and the errors are as in `generate`.
    """
    if samples < 1:
        raise ConfigError(f"samples={samples}; choose 1 or more.")
    if resample < 0:
        raise ConfigError(f"resample={resample}; choose 0 or more.")
    how = settings_of(settings)
    if math.isinf(how.asked):
        raise ConfigError("seconds=inf never ends; use stream, and close it.")
    specs = [SampleSpec(how, number) for number in range(samples)]
    best = _drawn(session, primer, specs, progress)
    cold = how.or_else(session.sampling).temperature == 0  # the next would be the same
    for attempt in range(1, 1 if cold else resample + 1):
        stuck = [number for number, one in enumerate(best) if one.report.degenerate]
        if not stuck:
            break
        specs = [SampleSpec(how, number, attempt) for number in stuck]
        for number, again in zip(stuck, _drawn(session, primer, specs, progress), strict=True):
            best[number] = _better(best[number], again)
    return best


def stream(
    session: Session,
    primer: NoteSequence | Sequence[int] | None = None,
    **settings: Any,
) -> Generator[int, None, None]:
    """The new ids as they are sampled, the same as `generate` gives when it draws once.

    Closing the iterator stops the work. Primer, settings and errors are those of `generate`; errors
    come from this call, not from the first id. ``seconds=math.inf`` goes on until it is closed.
    """
    return _ids_of(Continuation(session, primer, [SampleSpec(settings_of(settings))]))


def _ids_of(continuation: "Continuation") -> Generator[int, None, None]:
    with closing(continuation.ids()) as numbered:
        for _, event_id in numbered:
            yield event_id


def _drawn(
    session: Session,
    primer: NoteSequence | Sequence[int] | None,
    specs: Sequence[SampleSpec],
    progress: Progress | None,
) -> list[Generation]:
    continuation = Continuation(session, primer, specs)
    for _ in continuation.ids():
        if progress is not None:
            progress(continuation.done, continuation.settings.asked)
    return continuation.generations()


def _better(kept: Generation, again: Generation) -> Generation:
    """The one that breaks fewer rules, of equals the earlier, with the other in its report."""
    broken = [len(one.report.broken_rules) for one in (kept, again)]
    better, other = (again, kept) if broken[1] < broken[0] else (kept, again)
    discarded = {attempt: rules for one in (kept, again) for attempt, rules in one.report.discarded}
    discarded[other.report.attempt] = other.report.broken_rules
    report = replace(better.report, discarded=tuple(sorted(discarded.items())))
    return replace(better, report=report)


class Continuation:
    """Samples of one primer, drawn side by side.

    The primer, the length and the context are those of the first spec's settings; how the events
    are drawn may differ from one to the next.
    """

    def __init__(
        self,
        session: Session,
        primer: NoteSequence | Sequence[int] | None,
        specs: Sequence[SampleSpec],
    ) -> None:
        self.settings = settings = specs[0].settings
        self._session = session
        self._context = context_of(session.config, settings.context)
        self.primer = session.tokenizer.read_primer(
            primer,
            last_seconds=settings.primer_seconds,
            keep_silence=settings.keep_silence,
        )
        self._samples = [self._sample(spec.resolved(session)) for spec in specs]
        self._elapsed_seconds = 0.0
        self._reread = [0] * len(specs)

    @property
    def done(self) -> float:
        """How much of the length asked for is there, on average over the samples."""
        by_events = self.settings.events is not None
        total = 0.0
        for sample in self._samples:
            so_far = sample.events if by_events else sample.grammar.seconds
            total += min(so_far, self.settings.asked)
        return total / len(self._samples)

    def ids(self) -> NumberedIds:
        """Number of the sample and id, for every new id; what `stream` and `generate` live on."""
        started = time.perf_counter()
        tokenizer, samples = self._session.tokenizer, self._samples
        if samples[0].finished:  # nothing is asked for, of any
            for number, sample in enumerate(samples):
                yield from ((number, event_id) for event_id in sample.close())
            return
        window = Window(
            self._session.model,
            len(samples),
            context=self._context,
            first_place=self.primer.first_place,
        )
        first = torch.tensor([[tokenizer.start, *self.primer.ids]]).expand(len(samples), -1)
        with (
            evaluating(self._session.model),
            closing(draw_all(window, samples, first, tokenizer.pad)) as drawn,
        ):
            for number, event_id in drawn:
                self._reread[number] = window.reread
                yield number, event_id
        self._elapsed_seconds = time.perf_counter() - started

    def generations(self) -> list[Generation]:
        """The results, once `ids` is exhausted."""
        return [self._generation(number) for number in range(len(self._samples))]

    def decoded(self, ids: list[int]) -> NoteSequence:
        """The notes of some ids, in the beat of the primer."""
        return self._session.tokenizer.decode(ids, seconds_per_beat=self.primer.seconds_per_beat)

    def _sample(self, spec: SampleSpec) -> Sample:
        limits = Limits(
            seconds=self.settings.length_seconds,
            events=self.settings.events,
            note_seconds=spec.settings.max_note_seconds or math.inf,
        )
        grammar = self._session.tokenizer.grammar(self.primer, limits)
        return Sample(spec, grammar, primer=self.primer.ids)

    def _generation(self, number: int) -> Generation:
        sample, primer = self._samples[number], self.primer
        new = [*sample.drawn, *sample.closing]
        ids = [*primer.ids, *new]
        tokenizer = self._session.tokenizer
        continuation = tokenizer.continuation(primer, new)
        broken = broken_rules(continuation)
        account = sample.account()
        if self.settings.events is not None:  # what fills the last sixteenth closes it
            account["events"] = self.settings.events
            account["closing_events"] = len(new) - self.settings.events
        total_events = sum(one.events for one in self._samples)
        report = Report(
            **account,
            seconds=sample.grammar.seconds,
            notes=len(continuation),
            primer_events=len(primer.ids),
            primer_seconds=tokenizer.duration_seconds(
                primer.ids, seconds_per_beat=primer.seconds_per_beat
            ),
            windows_reread=self._reread[number],
            elapsed_seconds=self._elapsed_seconds,
            events_per_second=total_events / max(self._elapsed_seconds, 1e-9),
            warnings=(*broken.values(), *_long_notes(sample)),
            broken_rules=tuple(broken),
        )
        return Generation(self.decoded(ids), continuation, ids, list(primer.ids), report)


def _long_notes(sample: Sample) -> list[str]:
    """The warning that notes had to be closed, if any had."""
    closed = sample.grammar.long_notes_closed
    if not closed:
        return []
    notes = "note" if closed == 1 else "notes"
    return [f"{closed} {notes} had to be closed after {sample.settings.max_note_seconds:g} s"]
