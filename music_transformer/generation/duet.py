"""Play to a melody that is kept: piano events from an encoder-decoder.

The model reads the whole melody of its window before it writes, from the first note of the melody
to the end of the last; what sounds then is let go, at the latest a second later. Its notes never
strike a key that the melody holds, and give way where the melody strikes one that they hold.

A window is what the model was trained on: a segment that begins with START and its melody, in which
every note that ends has begun. When it is full, in events or in seconds of the melody, the newer
half becomes a segment of its own, the notes that sound at its beginning struck there. So a melody
may be of any length.
"""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from music_transformer.checkpoint.session import Session
from music_transformer.generation.degeneration import broken_rules
from music_transformer.generation.loop import Sample, SampleSpec, draw_all
from music_transformer.generation.report import Progress, Report
from music_transformer.generation.sampler import context_of, step
from music_transformer.model.registry import evaluating
from music_transformer.notes import STEPS_PER_SECOND, NoteSequence, to_steps
from music_transformer.representations.accompaniment.skyline import STEPS_PER_SECOND as MELODY_STEPS
from music_transformer.representations.accompaniment.skyline import (
    giving_way,
    later,
    read_tune,
    together,
)
from music_transformer.representations.close import closes
from music_transformer.representations.performance.grammar import PerformanceGrammar
from music_transformer.representations.performance.primer import later_part
from music_transformer.representations.performance.vocabulary import (
    END,
    MAX_SHIFT,
    NOTE_ON,
    PAD,
    START,
    rest,
    time_of,
)

LONGEST_TAIL = STEPS_PER_SECOND  # steps that the piano may ring after the melody
AHEAD = 4 * STEPS_PER_SECOND  # steps of the melody that the model sees ahead, while it goes on
_NEAR = 3  # steps before and after a line that are on it
_RATIO = STEPS_PER_SECOND // MELODY_STEPS  # steps of 10 ms in one of the melody


class _Tune:
    """A melody in steps of 10 ms since `begin`, which is when the piano begins."""

    def __init__(self, notes: NoteSequence, *, keep_silence: bool) -> None:
        self.notes = notes
        self.begin = 0 if keep_silence else int(to_steps(notes.start[0]))
        self.starts, self.ends = to_steps(notes.start), to_steps(notes.end)
        self.length = int(to_steps(notes.end.max())) - self.begin
        self.on_time = self._on_time()

    def _on_time(self) -> NDArray[np.bool_] | None:
        """Which steps are on a half beat or an onset; None where the melody keeps no strict time.

        Strict: nine onsets of ten lie within 25 ms of a sixteenth of the file's tempo map.
        """
        notes = self.notes
        sixteenths = notes.tempos.quarters(notes.start) * 4
        near = notes.tempos.at_quarters(np.rint(sixteenths) / 4)
        if not len(notes.tempos) or np.mean(np.abs(near - notes.start) <= 0.025) < 0.9:
            return None
        halves = np.arange(int(notes.tempos.quarters(notes.end_time + 1) * 2) + 1) / 2
        lines = np.append(to_steps(notes.tempos.at_quarters(halves)), self.starts) - self.begin
        around = (lines[:, None] + np.arange(-_NEAR, _NEAR + 1)).ravel()
        on_time = np.zeros(self.length + LONGEST_TAIL + MAX_SHIFT + 1, dtype=bool)
        on_time[around[(around >= 0) & (around < len(on_time))]] = True
        return on_time

    def held(self, step: int) -> Tensor:
        """The pitches it holds at a step."""
        now = step + self.begin
        return torch.from_numpy(self.notes.pitch[(self.starts <= now) & (now < self.ends)])


class _Duet(Sample):
    """A sample that keeps off the keys of the melody and may end with it."""

    grammar: PerformanceGrammar

    def __init__(self, spec: SampleSpec, session: Session, tune: _Tune) -> None:
        grammar = PerformanceGrammar(
            session.tokenizer.vocab_size,
            may_wait=True,
            longest_note_steps=int(to_steps(spec.settings.max_note_seconds or 0)),
        )
        grammar.end_step = tune.length + LONGEST_TAIL
        super().__init__(spec, grammar, end=END)
        self._tune = tune

    def on_time(self) -> Tensor | None:
        """Which TIME_SHIFTs end where the melody has its time."""
        steps, now = self._tune.on_time, self.grammar.step
        return None if steps is None else torch.from_numpy(steps[now + 1 : now + MAX_SHIFT + 1])

    def allowed(self) -> Tensor:
        """What is valid, but no key that the melody holds; END from the melody's end on."""
        allowed = super().allowed()
        free = allowed.clone()
        free[NOTE_ON + self._tune.held(self.grammar.step)] = False
        if bool(free.any()):  # else it gives way afterwards
            allowed = free
        if self.grammar.step >= self._tune.length - _RATIO:
            allowed[END] = True
        return allowed

    def close(self) -> list[int]:
        """The ids that hold what sounds to the end of the melody and let it go."""
        left = self._tune.length - self.grammar.step
        held = rest(left) if left > 0 and self.grammar.sounding else []
        for event_id in held:
            self.grammar.advance(event_id)
        self.closing = held + self.grammar.closing()
        return self.closing


class _Segments:
    """What the encoder-decoder sees: a segment of the melody, and what was played to it.

    Times are in steps of 10 ms since the piano began.
    """

    is_full = False

    def __init__(self, session: Session, tune: _Tune, context: int) -> None:
        self._session, self._tune, self._context = session, tune, context
        self._source_steps = int(session.config.source_context) * _RATIO
        self._cache = session.model.new_cache(1, capacity=context)
        self._window: list[int] = []
        self._begin = 0
        self._now = 0
        self.reread = 0

    def keep(self, rows: list[int]) -> None:
        """There is one row."""

    def read(self, ids: Tensor) -> Tensor:
        """Read START or what was drawn, (1, 1); the logits (1, V) of what follows, float64."""
        event_id = int(ids[0, 0])
        if not self._window:
            return self._read_segment([event_id], 0)
        self._now += time_of([event_id])
        self._window.append(event_id)
        shown = self._begin + self._source_steps  # the melody it knows ends here
        ahead = min(AHEAD, self._source_steps // 4)
        unseen = shown < self._tune.length and self._now > shown - ahead
        if len(self._window) > self._context or unseen:
            return self._move_on()
        place, device = torch.tensor([len(self._window) - 1]), self._session.device
        logits = step(self._session.model, self._cache, ids.to(device), place.to(device))
        return logits.cpu().double()

    def _move_on(self) -> Tensor:
        """Read the newer half of the window as a segment."""
        events = len(self._window) - max(1, self._context // 2)
        steps = self._now - self._source_steps // 2
        ids, tokenizer = self._window[1:], self._session.tokenizer
        window, begin = later_part(tokenizer, ids, events, steps - self._begin)
        if len(window) >= self._context:  # no time passes, or much sounds: cut where it may be
            kept = max(1, self._context // 2 - 1)
            begin += time_of(window[:-kept])
            window = [START, *window[-kept:]]
        self.reread += 1
        return self._read_segment(window, self._begin + begin)

    def _read_segment(self, window: list[int], begin: int) -> Tensor:
        """Read a segment from START on; the logits (1, V) of what follows it, float64."""
        self._window, self._begin = window, begin
        first, end = self._tune.begin + begin, self._tune.begin + self._tune.length
        last = max(first + 1, min(first + self._source_steps, end))
        tokenizer: Any = self._session.tokenizer  # an AccompanimentTokenizer, see `accompany`
        source = tokenizer.melody.encode_segment(self._tune.notes, first, last)
        self._cache.clear()
        device = self._session.device
        with torch.inference_mode():
            melody = torch.from_numpy(source.astype(np.int64))[None].to(device)  # (1, S)
            self._session.model.encode(melody, self._cache)
            ids = torch.tensor([window]).to(device)  # (1, L)
            logits: Tensor = self._session.model(ids, cache=self._cache)  # (1, L, V)
        return logits[:, -1].cpu().double()


def play_to(
    session: Session,
    melody: NoteSequence,
    specs: Sequence[SampleSpec],
    keep_key: bool,
    progress: Progress,
) -> list[tuple[NoteSequence, list[int], Report]]:
    """Notes, ids and report of each candidate, the best first; see `accompany`."""
    settings = specs[0].settings
    context = context_of(session.config, settings.context)
    kept, warnings = read_tune(melody)
    tune = _Tune(kept, keep_silence=settings.keep_silence)
    each = max(tune.length, 1)
    started = time.perf_counter()
    samples = []
    with evaluating(session.model):
        for number, spec in enumerate(specs):
            sample = _Duet(spec.resolved(session), session, tune)
            segments = _Segments(session, tune, context)
            for _ in draw_all(segments, [sample], torch.tensor([[START]]), PAD):
                done = number * each + min(sample.grammar.step, each)
                progress(done / STEPS_PER_SECOND, len(specs) * each / STEPS_PER_SECOND)
            samples.append(sample)
    elapsed = time.perf_counter() - started
    events = sum(sample.events for sample in samples)
    results = []
    for sample in samples:
        ids = [*sample.drawn, *sample.closing]
        played = session.tokenizer.decode(ids)
        piano, shortened = giving_way(later(played, tune.begin / STEPS_PER_SECOND), kept)
        broken = broken_rules(played, "the accompaniment")
        report = Report(
            **sample.account(),
            seconds=max(sample.grammar.step, tune.length) / STEPS_PER_SECOND,
            notes=len(piano),
            melody_notes=len(kept),
            shortened=shortened,
            elapsed_seconds=elapsed,
            events_per_second=events / max(elapsed, 1e-9),
            warnings=(*warnings, *broken.values()),
            broken_rules=tuple(broken),
        )
        results.append((together(kept, piano), ids, report))
    close = settings.end == "close"
    results.sort(key=lambda one: (close and not closes(one[0]), one[2].nll))
    return [
        (notes, ids, replace(report, rank=rank))
        for rank, (notes, ids, report) in enumerate(results, start=1)
    ]
