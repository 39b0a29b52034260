"""Continue a primer: `generate`, `generate_batch`, `stream` and `stream_notes`.

END is masked until the length asked for: seconds past the primer's end, or events, which are met
exactly. Past the seconds the music comes to an end (`processors.come_to_an_end`), or is cut.

The notes of a primer come out as they went in, with tempo, metre, key, pedal and tracks; the
continuation lies behind them on tracks of its own. A primer of ids is decoded with what follows, so
a note may sound across the join. Voices that a chorale's motif lacks are composed under it first.

The same call on the same machine gives the same ids; see `loop` for samples drawn side by side.
"""

import math
import time
from collections.abc import Generator, Sequence
from contextlib import closing
from typing import Any, NamedTuple

import numpy as np
import torch

from music_transformer.checkpoint.session import Session
from music_transformer.errors import ConfigError
from music_transformer.evaluation.seam import seam_distance
from music_transformer.generation.cells import Voiced, in_four_voices
from music_transformer.generation.contest import Contest
from music_transformer.generation.degeneration import broken_rules
from music_transformer.generation.loop import NumberedIds, Sample, SampleSpec, draw_in_window
from music_transformer.generation.report import Generation, Progress, Report
from music_transformer.generation.sampler import context_of
from music_transformer.generation.steering import steering_of
from music_transformer.notes import NoteSequence
from music_transformer.representations.base import Limits
from music_transformer.representations.chorale.grid import N_VOICES
from music_transformer.sampling import Settings, check_count, settings_of

NOTES_SECONDS = 0.25


def generate(
    session: Session,
    primer: NoteSequence | Sequence[int] | None = None,
    *,
    on_progress: Progress | None = None,
    **settings: Any,
) -> Generation:
    """A continuation of the primer, or a piece from nothing.

    Args:
        session: what `load_checkpoint` gives.
        primer: notes, ids of the session's tokenizer, or None.
        on_progress: called after every event with how much is done and how much is asked for.
        settings: the fields of `sampling.Settings`, or ``settings=`` with one of them.

    Raises:
        ConfigError: a setting outside its range.
        MidiError: a primer without notes.
        TokenError: ids outside the vocabulary.
    """
    [generation] = generate_batch(session, primer, samples=1, on_progress=on_progress, **settings)
    return generation


def generate_batch(
    session: Session,
    primer: NoteSequence | Sequence[int] | None = None,
    *,
    samples: int,
    on_progress: Progress | None = None,
    **settings: Any,
) -> list[Generation]:
    """Several continuations of one primer; arguments and errors are those of `generate`.

    Each is the best of ``candidates``: the one that breaks the fewest rules of `degeneration`, then
    the one closest to the primer (`seam_distance`). Where all degenerate as many are drawn again,
    up to ``resample`` times. From 45 s on the music grows by sections: after 30 s, and then after
    every 15 s, all candidates go on from the best. Attempt j at sample i, counted over all rounds
    of all sections, has generator (seed, i, j).
    """
    check_count("samples", samples)
    how = settings_of(settings)
    if math.isinf(how.asked):
        raise ConfigError("seconds=inf never ends; use stream, and close it.")
    count, rounds = _rounds(session, primer is not None, how)
    run = Continuation(session, primer, [SampleSpec(how)])
    length = how.length_seconds if count > 1 else None
    return Contest(run, count, rounds, length or 0.0, on_progress).winners(samples)


def _rounds(session: Session, has_primer: bool, how: Settings) -> tuple[int, int]:
    """How many candidates to draw side by side, and how often at most."""
    said = how.or_else(session.sampling)
    if said.temperature == 0:  # the next would be the same
        return 1, 1
    usual = said.resolved()
    by_itself = has_primer and session.tokenizer.has_seam
    count = usual.candidates if by_itself else said.candidates
    return count or 1, 1 + (usual.resample or 0)


def stream(
    session: Session, primer: NoteSequence | Sequence[int] | None = None, **settings: Any
) -> Generator[int, None, None]:
    """The new ids as they are sampled, the same as `generate` gives when it draws once.

    Closing the iterator stops the work; ``seconds=math.inf`` goes on until then. Primer, settings
    and errors are those of `generate`; errors come from this call, not from the first id.
    """
    return _ids_of(Continuation(session, primer, [SampleSpec(settings_of(settings))]))


class Note(NamedTuple):
    """A note of a stream, in seconds after the primer's end."""

    start: float
    end: float
    pitch: int
    velocity: int


def stream_notes(
    session: Session, primer: NoteSequence | Sequence[int] | None = None, **settings: Any
) -> Generator[Note, None, None]:
    """The new notes in the order of their ends, at most `NOTES_SECONDS` of music after these.

    Together they are ``generate(...).continuation``; the rest is as in `stream`. The work grows
    with the length: the music so far is decoded each time.
    """
    return _notes_of(Continuation(session, primer, [SampleSpec(settings_of(settings))]))


def _notes_of(continuation: "Continuation") -> Generator[Note, None, None]:
    ids: list[int] = []
    until = 0.0
    with closing(continuation.ids()) as numbered:
        for _, event_id in numbered:
            ids.append(event_id)
            if continuation.seconds >= until + NOTES_SECONDS:
                yield from _ended(continuation, ids, until, continuation.seconds)
                until = continuation.seconds
    yield from _ended(continuation, ids, until, math.inf)


def _ended(continuation: "Continuation", ids: list[int], after: float, by: float) -> list[Note]:
    """The notes whose end lies from one second to another, the second not included."""
    notes = continuation.result(ids)[1]
    order = np.lexsort((notes.pitch, notes.end))
    order = order[(notes.end[order] >= after) & (notes.end[order] < by)]
    columns = (
        column[order].tolist() for column in (notes.start, notes.end, notes.pitch, notes.velocity)
    )
    return [Note(*row) for row in zip(*columns, strict=True)]


def _ids_of(continuation: "Continuation") -> Generator[int, None, None]:
    with closing(continuation.ids()) as numbered:
        for _, event_id in numbered:
            yield event_id


class Continuation:
    """Samples of one primer, drawn side by side; length and context are those of the first."""

    def __init__(
        self,
        session: Session,
        primer: NoteSequence | Sequence[int] | None,
        specs: Sequence[SampleSpec],
    ) -> None:
        self.settings = settings = specs[0].settings
        self._session = session
        self._context = context_of(session.config, settings.context)
        self._voiced: Voiced | None = None
        if session.tokenizer.voices and isinstance(primer, NoteSequence) and len(primer):
            self._voiced = in_four_voices(session, primer, settings)
        self.primer = session.tokenizer.read_primer(
            primer if self._voiced is None else self._voiced.notes,
            last_seconds=settings.primer_seconds,
            keep_silence=settings.keep_silence,
        )
        self._motif: NoteSequence | None = None
        if isinstance(primer, NoteSequence):
            begin = self.primer.begin
            self._motif = primer.sliced(begin, primer.end_time) if begin else primer
        self.samples = [self._sample(spec.resolved(session)) for spec in specs]
        self._elapsed_seconds, self._drawn = 0.0, 0

    @property
    def done(self) -> float:
        """How much of the length asked for is there, on average over the samples."""
        asked, by_events = self.settings.asked, self.settings.events is not None
        done = [one.events if by_events else one.grammar.seconds for one in self.samples]
        return sum(min(so_far, asked) for so_far in done) / len(done)

    def ids(self, until: float = math.inf) -> NumberedIds:
        """Number of the sample and id, for every new id up to a second of the music."""
        started = time.perf_counter()
        samples, place = self.samples, self.primer.first_place
        if samples[0].finished:  # nothing is asked for, of any
            for number, sample in enumerate(samples):
                yield from ((number, event_id) for event_id in sample.close())
            return
        for sample in samples:
            sample.pause = until
        first = torch.tensor([[*self._first_ids(), *sample.drawn] for sample in samples])
        new = draw_in_window(self._session, samples, first, context=self._context, place=place)
        with closing(new):
            for numbered in new:
                self._drawn += 1
                yield numbered
        self._elapsed_seconds += time.perf_counter() - started

    def _first_ids(self) -> list[int]:
        """What is read before the first draw."""
        return [self._session.tokenizer.start, *self.primer.ids]

    def generations(self) -> list[Generation]:
        """The results, once `ids` is exhausted."""
        return [self.generation(number) for number in range(len(self.samples))]

    @property
    def seconds(self) -> float:
        """How long the music of the first sample is, after the primer."""
        return self.samples[0].grammar.seconds

    @property
    def primer_seconds(self) -> float:
        """When the continuation begins in the result."""
        return self.primer.end - self.primer.begin

    def result(self, new: Sequence[int]) -> tuple[NoteSequence, NoteSequence]:
        """Of some new ids: the primer and what follows, and what follows alone."""
        tokenizer, primer, voiced = self._session.tokenizer, self.primer, self._voiced
        alone = tokenizer.continuation(primer, new)
        if voiced is not None and voiced.shift:
            alone = alone.replaced(pitch=np.clip(alone.pitch - voiced.shift, 0, 127))
        alone = alone.replaced(track_names=alone.track_names or ("continuation",))
        if self._motif is None:
            ids, beat = [*primer.ids, *new], primer.seconds_per_beat
            return tokenizer.decode(ids, seconds_per_beat=beat), alone
        notes = self._motif.followed_by(alone, at=self.primer_seconds)
        if voiced is not None and len(voiced.added):
            notes = _with_voices(notes, voiced.added.sliced(primer.begin, primer.end))
        return notes, alone.replaced(**notes.score(self.primer_seconds, notes.end_time))

    def remoteness(self, continuation: NoteSequence, begin: float = 0.0) -> float:
        """The `seam_distance` of the continuation, from a second on."""
        beat = self.primer.seconds_per_beat
        before = self._session.tokenizer.decode(self.primer.ids, seconds_per_beat=beat)
        return seam_distance(before, continuation, begin)

    def _sample(self, spec: SampleSpec) -> Sample:
        limits = Limits(
            seconds=self.settings.length_seconds,
            events=self.settings.events,
            ending_seconds=self.settings.ending_seconds,
            note_seconds=spec.settings.max_note_seconds or math.inf,
        )
        tokenizer = self._session.tokenizer
        grammar = tokenizer.grammar(self.primer, limits)
        sample = Sample(spec, grammar, primer=self.primer.ids, end=tokenizer.end)
        performance = tokenizer.has_seam
        sample.steering = steering_of(spec.settings, self.primer.ids, performance=performance)
        return sample

    def generation(self, number: int) -> Generation:
        """The result of one sample, once it is finished."""
        sample, primer = self.samples[number], self.primer
        new = [*sample.drawn, *sample.closing]
        ids = [*primer.ids, *new]
        notes, continuation = self.result(new)
        broken = broken_rules(continuation)
        remote = self.remoteness(continuation)
        unseen = () if self._voiced is None else self._voiced.warnings
        closed = []
        if count := sample.grammar.long_notes_closed:
            some = "1 note" if count == 1 else f"{count} notes"
            closed = [f"{some} had to be closed after {sample.settings.max_note_seconds:g} s"]
        account = sample.account()
        if self.settings.events is not None:  # what fills the last sixteenth closes it
            account["events"] = self.settings.events
            account["closing_events"] = len(new) - self.settings.events
        report = Report(
            **account,
            seconds=sample.grammar.seconds,
            notes=len(continuation),
            primer_events=len(primer.ids),
            primer_seconds=self.primer_seconds,
            elapsed_seconds=self._elapsed_seconds,
            events_per_second=self._drawn / max(self._elapsed_seconds, 1e-9),
            warnings=(*broken.values(), *closed, *unseen),
            broken_rules=tuple(broken),
            seam_distance=remote if math.isfinite(remote) else None,
        )
        return Generation(notes, continuation, ids, list(primer.ids), report)


def _with_voices(notes: NoteSequence, added: NoteSequence) -> NoteSequence:
    """The notes with others on their last tracks, which are the voices."""
    track = added.track + len(notes.track_names) - N_VOICES
    channels = dict(zip(notes.track.tolist(), notes.channel.tolist(), strict=True))
    channel = [channels.get(number, 0) for number in track.tolist()]
    return notes.with_notes(added.replaced(track=track, channel=channel))
