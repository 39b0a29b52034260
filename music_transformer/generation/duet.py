"""Play to a melody that is kept: piano events from an encoder-decoder.

The model reads the whole melody of its window before it writes, so it knows what is still to come.
It writes from the first note of the melody to the end of the last; what sounds then is let go, at
the latest a second later. Its notes never strike a key that the melody holds, and give way where
the melody strikes one that they hold: the melody comes out note by note as it went in.

A window is what the model was trained on: a segment that begins with START, at the second where its
melody begins, and in which every note that ends has begun. When it is full, in events or in the
seconds of the melody it can be shown, the older half is left behind: the newer half becomes a
segment of its own, the notes that sound at its beginning struck there, and the melody is encoded
anew from that moment on. So a melody may be of any length.

Candidates are drawn one after the other and ranked by the mean negative log-likelihood of their
events under the model itself, before any filter, in nats per event.
"""

import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from music_transformer.checkpoint import Session
from music_transformer.datasets.pairs import cut_segment
from music_transformer.generation.degeneration import broken_rules
from music_transformer.generation.filters import Filters, draw, sample_generator
from music_transformer.generation.sampler import context_of, step
from music_transformer.model.decoder import evaluating
from music_transformer.notes import STEPS_PER_SECOND, NoteSequence, to_steps
from music_transformer.representations.accompaniment.merge import (
    giving_way,
    later,
    read_tune,
    together,
)
from music_transformer.representations.accompaniment.skyline import STEPS_PER_SECOND as MELODY_STEPS
from music_transformer.representations.performance.grammar import PerformanceGrammar
from music_transformer.representations.performance.segment import later_part, time_of
from music_transformer.representations.performance.vocabulary import END, NOTE_ON, START, rest

LONGEST_TAIL = STEPS_PER_SECOND  # steps that the piano may ring after the melody
AHEAD = 4 * STEPS_PER_SECOND  # steps of the melody that the model sees ahead, while it goes on

_RATIO = STEPS_PER_SECOND // MELODY_STEPS  # steps of 10 ms in one of the melody

#: Called with how much is done and how much there is.
Progress = Callable[[float, float], None]


@dataclass(frozen=True)
class DuetReport:
    """The account of one candidate.

    Attributes:
        rank: 1 is the likeliest.
        candidate: its number, from 0; with `seed` it makes the candidate again.
        nll: mean over its events, nats per event.
        events: that were drawn.
        notes: of the accompaniment.
        melody_notes: that were kept.
        seconds: from the first note of the melody to the end of the last sound.
        windows_reread: how often the older half of the window was left behind.
        long_notes_closed: notes ended because they had lasted as long as a note may.
        shortened: notes that gave way to the melody.
        elapsed_seconds, events_per_second: of this candidate.
        warnings: what a listener should know.
    """

    rank: int
    candidate: int
    seed: int
    nll: float
    events: int
    notes: int
    melody_notes: int
    seconds: float
    windows_reread: int
    long_notes_closed: int
    shortened: int
    elapsed_seconds: float
    events_per_second: float
    warnings: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The fields, ready for JSON."""
        return {**dataclasses.asdict(self), "warnings": list(self.warnings)}


@dataclass(frozen=True)
class Duet:
    """One candidate: the melody on track 0, what is played to it on track 1.

    Attributes:
        notes: both.
        ids: the events of the accompaniment, from the melody's first note on.
        report: numbers and warnings.
    """

    notes: NoteSequence
    ids: list[int]
    report: DuetReport


def play_to(
    session: Session,
    melody: NoteSequence,
    *,
    candidates: int,
    filters: Filters,
    seed: int = 0,
    context: int | None = None,
    keep_silence: bool = False,
    progress: Progress | None = None,
) -> list[Duet]:
    """Candidates of an accompaniment, the likeliest first.

    Args:
        session: a model of melodies and accompaniments.
        melody: one voice; of more the highest notes are taken, see `representations.accompaniment`.
        candidates: how many to draw; candidate i has generator (seed, i).
        filters: what to leave out of each draw.
        seed: the same seed, the same music.
        context: how many ids the model reads at once; its own context by default.
        keep_silence: begin at second 0 instead of with the melody's first note.
        progress: called after every event with the seconds done and those there are.

    Raises:
        ConfigError: a context outside its range.
        MidiError: a melody without notes.
    """
    window_ids = context_of(session.config, context)
    kept, warnings = read_tune(melody)
    players = []
    with evaluating(session.model):
        for number in range(candidates):
            player = _Player(
                session,
                kept,
                filters=filters,
                generator=sample_generator(seed, number),
                context=window_ids,
                begin=0 if keep_silence else int(to_steps(kept.start[0])),
            )
            for seconds in player.play():
                if progress is not None:
                    each = player.seconds_in_all
                    progress(number * each + min(seconds, each), candidates * each)
            players.append(player)
    ranked = sorted(range(candidates), key=lambda number: (players[number].nll, number))
    return [
        players[number].duet(rank, number, seed, warnings)
        for rank, number in enumerate(ranked, start=1)
    ]


class _Player:
    """One candidate on its way; times are in steps of 10 ms since the beginning of the music."""

    def __init__(
        self,
        session: Session,
        melody: NoteSequence,
        *,
        filters: Filters,
        generator: torch.Generator,
        context: int,
        begin: int,
    ) -> None:
        self._session, self._melody = session, melody
        self._filters, self._generator = filters, generator
        self._context, self._begin = context, begin
        self._melody_end = int(to_steps(melody.end.max()))
        self._start_steps, self._end_steps = to_steps(melody.start), to_steps(melody.end)
        self._grammar = PerformanceGrammar(session.tokenizer.vocab_size, may_wait=True)
        self._grammar.end_step = self._melody_end + LONGEST_TAIL - begin
        self._source_steps = int(session.config.source_context) * _RATIO
        self._cache = session.model.new_cache(1, capacity=context)
        self._window: list[int] = []
        self._window_begin = 0  # since `begin`
        self._reread = 0
        self.ids: list[int] = []
        self._nll = 0.0
        self._elapsed = 0.0

    @property
    def seconds_in_all(self) -> float:
        """From the beginning to the end of the melody."""
        return max(self._melody_end - self._begin, 1) / STEPS_PER_SECOND

    @property
    def nll(self) -> float:
        """Mean over the events, nats per event."""
        return self._nll / max(len(self.ids), 1)

    def play(self) -> Iterator[float]:
        """Draw event after event to the end; yields the seconds done."""
        started = time.perf_counter()
        logits = self._read_window([START], 0)
        while not self._grammar.finished:
            allowed = self._allowed()  # (V,)
            row = logits.masked_fill(~allowed, -torch.inf)  # (1, V)
            [drawn] = draw(self._filters(row), [self._generator])
            if drawn == END:
                break
            event_id = self._grammar.clip(drawn)
            self._nll -= float(logits.log_softmax(dim=-1)[0, event_id])
            self._grammar.advance(event_id)
            self.ids.append(event_id)
            if self._grammar.finished:
                break
            logits = self._read(event_id)
            self._elapsed = time.perf_counter() - started
            yield self._grammar.step / STEPS_PER_SECOND
        self._elapsed = time.perf_counter() - started

    def duet(self, rank: int, number: int, seed: int, warnings: Sequence[str]) -> Duet:
        """The result, once it was played to the end."""
        ids = [*self.ids, *self._closing()]
        played = self._session.tokenizer.decode(ids)
        piano, shortened = giving_way(later(played, self._begin / STEPS_PER_SECOND), self._melody)
        report = DuetReport(
            rank=rank,
            candidate=number,
            seed=seed,
            nll=self.nll,
            events=len(self.ids),
            notes=len(piano),
            melody_notes=len(self._melody),
            seconds=max(self._grammar.step, self._melody_end - self._begin) / STEPS_PER_SECOND,
            windows_reread=self._reread,
            long_notes_closed=self._grammar.long_notes_closed,
            shortened=shortened,
            elapsed_seconds=self._elapsed,
            events_per_second=len(self.ids) / max(self._elapsed, 1e-9),
            warnings=(
                *warnings,
                *(
                    line.replace("the continuation", "the accompaniment")
                    for line in broken_rules(played).values()
                ),
            ),
        )
        return Duet(together(self._melody, piano), ids, report)

    def _closing(self) -> list[int]:
        """The ids that hold what sounds to the end of the melody and let it go."""
        left = self._melody_end - self._begin - self._grammar.step
        held = rest(left) if left > 0 and self._grammar.sounding else []
        for event_id in held:
            self._grammar.advance(event_id)
        return held + self._grammar.closing()

    def _allowed(self) -> torch.Tensor:
        """(V,) bool, True = may come next: valid, and no key that the melody holds."""
        allowed = torch.from_numpy(self._grammar.mask().copy())  # (V,)
        now = self._grammar.step + self._begin
        holds = (self._start_steps <= now) & (now < self._end_steps)
        held = torch.from_numpy(self._melody.pitch[holds])
        free = allowed.clone()
        free[NOTE_ON + held] = False
        if bool(free.any()):  # else it gives way afterwards
            allowed = free
        if now >= self._melody_end - _RATIO:
            allowed[END] = True
        return allowed

    def _read(self, event_id: int) -> torch.Tensor:
        """Read what was drawn; the logits (1, V) of what follows it, float64."""
        self._window.append(event_id)
        shown = self._window_begin + self._source_steps  # the melody it knows ends here
        now, melody_steps = self._grammar.step, self._melody_end - self._begin
        ahead = min(AHEAD, self._source_steps // 4)
        if len(self._window) > self._context or (shown < melody_steps and now > shown - ahead):
            return self._move_on()
        ids, place = torch.tensor([[event_id]]), torch.tensor([len(self._window) - 1])
        device = self._session.device
        logits = step(self._session.model, self._cache, ids.to(device), place.to(device))
        return logits.cpu().double()

    def _move_on(self) -> torch.Tensor:
        """Leave the older half of the window behind and read the newer as a segment."""
        events = len(self._window) - max(1, self._context // 2)
        steps = self._grammar.step - self._source_steps // 2
        window, begin = later_part(self._window[1:], events, steps - self._window_begin)
        if len(window) >= self._context:  # no time passes, or much sounds: cut where it may be
            kept = max(1, self._context // 2 - 1)
            begin += time_of(window[:-kept])
            window = [START, *window[-kept:]]
        self._reread += 1
        return self._read_window(window, self._window_begin + begin)

    def _read_window(self, window: list[int], begin: int) -> torch.Tensor:
        """Read a segment from START on; the logits (1, V) of what follows it, float64."""
        self._window, self._window_begin = window, begin
        first = self._begin + begin
        last = max(first + 1, min(first + self._source_steps, self._melody_end))
        source, _ = cut_segment(_SILENCE, self._melody, first, last)
        self._cache.clear()
        device = self._session.device
        with torch.inference_mode():
            melody = torch.from_numpy(source.astype(np.int64))[None].to(device)  # (1, S)
            self._session.model.encode(melody, self._cache)
            ids = torch.tensor([window]).to(device)  # (1, L)
            logits: torch.Tensor = self._session.model(ids, cache=self._cache)  # (1, L, V)
        return logits[:, -1].cpu().double()


_SILENCE = NoteSequence(pitch=[], velocity=[], start=[], end=[])
