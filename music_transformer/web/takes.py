"""Takes, each a continuation or accompaniment of one primer, and the thread that composes them.

A take lives in two threads. The composing thread fills it event by event; the server's thread reads
what is there and may call `stop` at any time. What the page needs to know is handed to `tell`, as
dictionaries ready for JSON.

A note is told as [start, end, pitch, velocity, track], in seconds of the take. A note that still
sounds is told again with a later end; start, pitch and track say which one it is.

That thread takes them in the order they came, continuations that were asked for together side by
side, and answers questions (the attention of one note) between two events. Nothing else ever
touches a model: two at a time would both be slower, and its weights are in memory once.
"""

import logging
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any

from music_transformer.checkpoint.session import Session
from music_transformer.errors import MusicTransformerError
from music_transformer.evaluation.memorisation import find_index
from music_transformer.generation.accompaniment import DEFAULT_CANDIDATES, accompany
from music_transformer.generation.continuation import Continuation
from music_transformer.generation.degeneration import degeneracies
from music_transformer.generation.filling import fill, kept_beside
from music_transformer.generation.loop import SampleSpec
from music_transformer.midi.bars import bar_lines
from music_transformer.notes import NoteSequence
from music_transformer.representations.base import Primer
from music_transformer.sampling import Settings
from music_transformer.web.models import CONTINUE, Model, Shelf

#: How often the page hears of new notes.
TELL_SECONDS = 0.1
#: The first events are told one by one: who plays live waits for the first note.
FIRST_EVENTS = 8
#: How long takes that are composed together may keep the thread that all share.
BUDGET_SECONDS = 900.0

QUEUED, LOADING, COMPOSING = "queued", "loading", "composing"
DONE, STOPPED, FAILED = "done", "stopped", "failed"
RUNNING = {QUEUED, LOADING, COMPOSING}

Row = tuple[float, float, int, int, int]
Question = Callable[[Session], Any]

_log = logging.getLogger(__name__)


def rows_of(notes: NoteSequence) -> list[Row]:
    """The notes as the page is told of them; what the pedal holds is part of a note."""
    heard = notes.sustained() if len(notes.pedals) else notes  # it would cut voices in unison
    columns = (heard.start.round(4), heard.end.round(4), heard.pitch, heard.velocity, heard.track)
    return list(zip(*(column.tolist() for column in columns), strict=True))


@dataclass(eq=False)
class Take:
    """One continuation, or one accompaniment, which is there only when it is whole.

    Attributes:
        model: what composes it.
        primer: what it continues; None starts from nothing.
        settings: length, temperature, seed and the like.
        title: the stem of its files.
        tell: takes a message for the page; called in both threads.
        task: what is done with the primer: `models.CONTINUE`, `ACCOMPANY` or `FILL`.
        gap: what is filled, in seconds of the primer.
        beside: the same object in continuations that differ in their seeds only.
        ids: the events so far, those of the primer first; only of a continuation.
        notes: what they decode to, once the take is done or stopped.
        bars: seconds at which bars begin, as far as the metre is known.
        rank: how many rules of `degeneration` it breaks, and how far from the primer it is
            (`seam_distance`): the least is the best. Once it is done, if it can be told.
    """

    model: Model
    primer: NoteSequence | None
    settings: Settings
    title: str
    tell: Callable[[dict[str, Any]], None]
    task: str = CONTINUE
    gap: tuple[float, float] | None = None
    beside: object = field(default_factory=object)
    id: str = field(default_factory=lambda: secrets.token_urlsafe(12))
    state: str = QUEUED
    error: str = ""
    ids: list[int] = field(default_factory=list)
    notes: NoteSequence | None = None
    primer_seconds: float = 0.0
    seconds: float = 0.0
    elapsed_seconds: float = 0.0
    warnings: list[str] = field(default_factory=list)
    bars: list[float] = field(default_factory=list)
    rank: tuple[int, float] | None = None
    read: Primer = field(default_factory=lambda: Primer([]))
    _continuation: Continuation | None = None
    _stop: threading.Event = field(default_factory=threading.Event)
    _told: dict[tuple[float, int, int], Row] = field(default_factory=dict)

    def stop(self) -> None:
        """Ask for the end; what is composed by then stays."""
        self._stop.set()

    @property
    def is_stopped(self) -> bool:
        """Whether `stop` was called."""
        return self._stop.is_set()

    def status(self) -> dict[str, Any]:
        """Where the take stands, without its notes."""
        return {
            "type": "take",
            "id": self.id,
            "state": self.state,
            "error": self.error,
            "primer_seconds": self.primer_seconds,
            "seconds": self.seconds,
            "events": len(self.ids) - len(self.read.ids),
            "elapsed_seconds": round(self.elapsed_seconds, 2),
            "warnings": self.warnings,
            "bars": self.bars,
            "rank": self.rank,
        }

    def snapshot(self) -> Iterator[dict[str, Any]]:
        """Everything told so far, for a page that comes back."""
        yield self.status()
        if self._told:
            yield {"type": "notes", "id": self.id, "notes": list(self._told.values())}

    def move_to(self, state: str, error: str = "") -> None:
        """Change the state and tell it."""
        self.state, self.error = state, error
        self.tell(self.status())

    def begin(self, continuation: Continuation) -> None:
        """Read the primer, and tell it."""
        self._continuation, self.read = continuation, continuation.primer
        self.ids = list(self.read.ids)
        self.primer_seconds = continuation.primer_seconds
        opening = self.decoded()
        self.bars = bar_lines(opening).round(4).tolist()
        self.tell_notes(opening)
        self.move_to(COMPOSING)

    def follow(self, event_id: int, elapsed_seconds: float, every_seconds: float) -> None:
        """Take in a new event; tell it if it is one of the first, or time to."""
        self.ids.append(event_id)
        first = len(self.ids) - len(self.read.ids) <= FIRST_EVENTS
        if first or elapsed_seconds - self.elapsed_seconds >= every_seconds:
            self.elapsed_seconds = elapsed_seconds
            self.tell_notes(self.decoded())

    def end(self, session: Session, state: str, warnings: Sequence[str] | None = None) -> None:
        """Be done with what is composed by now; where nobody did, judge it."""
        whole = session.tokenizer.crop_step
        del self.ids[len(self.ids) // whole * whole :]  # a row without all its voices
        notes = self.decoded()
        if warnings is None and notes.end_time > self.primer_seconds:
            warnings = degeneracies(notes.sliced(self.primer_seconds, notes.end_time))
        self.keep(notes, [*self.warnings, *(warnings or ())], state)

    def keep(self, notes: NoteSequence, warnings: Sequence[str] = (), state: str = DONE) -> None:
        """Be done, with these notes."""
        self.notes, self.warnings = notes, list(warnings)
        self.bars = bar_lines(notes).round(4).tolist()
        self.tell_notes(notes)
        self.move_to(state)

    def compose_whole(self, session: Session, between: Callable[[], None]) -> None:
        """Fill or accompany the primer; `compose` says more."""
        assert self.primer is not None
        self.primer_seconds = self.gap[0] if self.gap else 0.0
        length, told = self.primer.end_time - self.primer_seconds, 0.0
        started = time.perf_counter()

        def progress(done: float, total: float) -> None:
            nonlocal told
            between()
            if self.is_stopped:
                raise CancelledError
            if time.perf_counter() - started > BUDGET_SECONDS:
                raise MusicTransformerError(f"not done after {BUDGET_SECONDS:g} s; take a part.")
            if time.perf_counter() - told >= TELL_SECONDS:
                told = time.perf_counter()
                self.seconds = length * done / max(total, 1e-9)
                self.tell({"type": "notes", "id": self.id, "seconds": self.seconds, "notes": []})

        self.tell_notes(kept_beside(self.primer, *self.gap) if self.gap else self.primer)
        self.move_to(COMPOSING)
        settings = replace(self.settings, seconds=None)  # as long as what is given
        how: dict[str, Any] = {"settings": settings, "on_progress": progress}
        try:
            if self.gap:
                [filled] = fill(session, self.primer, start=self.gap[0], end=self.gap[1], **how)
                notes, report = filled.notes, filled.report
            else:  # a chorale's candidates are drawn side by side, a piano's one after another
                count = 1 if session.tokenizer.has_melody else DEFAULT_CANDIDATES
                likeliest = accompany(session, self.primer, candidates=count, **how)[0]
                notes, report = likeliest.notes, likeliest.report
        except CancelledError:
            self.move_to(STOPPED)
            return
        self._told.clear()
        self.keep(notes, report.warnings)

    def decoded(self) -> NoteSequence:
        """The primer's own notes, and those of the events so far."""
        if self._continuation is None:
            return NoteSequence(pitch=[], velocity=[], start=[], end=[])
        return self._continuation.result(self.ids[len(self.read.ids) :])[0]

    def tell_notes(self, notes: NoteSequence) -> None:
        """Tell the notes that are new or have grown since the last time."""
        rows = [row for row in rows_of(notes) if self._told.get(_key(row)) != row]
        self._told.update({_key(row): row for row in rows})
        self.seconds = max(notes.end_time - self.primer_seconds, 0.0)
        self.tell({"type": "notes", "id": self.id, "seconds": self.seconds, "notes": rows})


def _key(row: Row) -> tuple[float, int, int]:
    return row[0], row[2], row[4]


def compose(takes: Sequence[Take], session: Session, between: Callable[[], None]) -> None:
    """Do what the takes of one `beside` ask for, or until all are stopped.

    Args:
        between: called after every event; what else the model is wanted for.

    Raises:
        MusicTransformerError: the primer or the settings do not suit the model.
    """
    if takes[0].task != CONTINUE:
        for take in takes:
            take.compose_whole(session, between)
        return
    specs = [SampleSpec(take.settings) for take in takes]
    continuation = Continuation(session, takes[0].primer, specs)
    for take in takes:
        take.begin(continuation)
    started, used_up = time.perf_counter(), False
    with closing(continuation.ids()) as new:
        for number, event_id in new:
            elapsed = time.perf_counter() - started
            if takes[number].state == COMPOSING:
                takes[number].follow(event_id, elapsed, TELL_SECONDS * len(takes))
            for place, take in enumerate(takes):
                if take.is_stopped and take.state == COMPOSING:
                    continuation.samples[place].ended = True
                    take.end(session, STOPPED)
            used_up = elapsed > BUDGET_SECONDS
            if used_up or all(take.state == STOPPED for take in takes):
                break
            between()
    index = find_index(session.path)
    for number, take in enumerate(takes):
        if take.state != COMPOSING:
            continue
        take.elapsed_seconds = time.perf_counter() - started
        if used_up:
            take.warnings = [f"ended after {BUDGET_SECONDS:g} s of composing"]
            take.end(session, DONE)
            continue
        made = continuation.generation(number)
        if made.report.seam_distance is not None:
            take.rank = len(made.report.broken_rules), made.report.seam_distance
        run = None if index is None else index.longest_run(made.continuation)
        take.end(session, DONE, [*made.report.warnings, *([str(run)] if run and run.notes else [])])


class Composer:
    """A queue of takes and the thread that works on it."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf
        self._takes: deque[Take] = deque()
        self._questions: deque[tuple[Model, Question, Future[Any]]] = deque()
        self._running: list[Take] = []
        self._closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._work, name="composer", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self, timeout_seconds: float = 5.0) -> None:
        """Stop the running takes, forget the others, and wait for the thread."""
        with self._changed:
            self._closed = True
            self._takes.clear()
            while self._questions:
                self._questions.popleft()[2].cancel()
            for take in self._running:
                take.stop()
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join(timeout_seconds)

    def add(self, takes: Sequence[Take]) -> None:
        """Put takes at the end of the queue."""
        with self._changed:
            self._takes.extend(takes)
            self._changed.notify_all()
        self._tell_places()

    def stop(self, take: Take) -> None:
        """Stop a take, wherever it is; what it has composed stays."""
        take.stop()
        with self._changed:
            waiting = take in self._takes
            if waiting:
                self._takes.remove(take)
        if waiting:
            take.move_to(STOPPED)
            self._tell_places()

    def ask(self, model: Model, question: Question) -> "Future[Any]":
        """The answer to ``question``, which is called with the model, in the thread."""
        answer: Future[Any] = Future()
        with self._changed:
            if self._closed:
                answer.cancel()
            else:
                self._questions.append((model, question, answer))
                self._changed.notify_all()
        return answer

    @property
    def waiting(self) -> int:
        """How many takes are in the queue."""
        return len(self._takes)

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._takes or self._questions)
                if self._closed:
                    return
                while self._takes and not self._questions:
                    if self._running and self._takes[0].beside is not self._running[0].beside:
                        break
                    self._running.append(self._takes.popleft())
            self._answer()
            if self._running:
                self._tell_places()
                self._compose(self._running)
                self._running = []

    def _compose(self, takes: list[Take]) -> None:
        try:
            for take in takes:
                take.move_to(STOPPED if take.is_stopped else LOADING)
            going = [take for take in takes if take.state == LOADING]
            if going:
                compose(going, self._shelf.session(going[0].model), self._answer)
        except MusicTransformerError as error:
            self._fail(takes, str(error))
        except Exception:
            # The thread must outlive a bug, or every later take would wait for ever.
            _log.exception("a take failed")
            self._fail(takes, "this is a bug; the terminal of the server shows where.")
        finally:
            assert not any(take.state in RUNNING for take in takes)

    def _fail(self, takes: list[Take], error: str) -> None:
        for take in takes:
            if take.state in RUNNING:
                take.move_to(FAILED, error)

    def _answer(self) -> None:
        """Answer all waiting questions."""
        while self._questions:
            model, question, answer = self._questions.popleft()
            if not answer.set_running_or_notify_cancel():
                continue
            try:
                answer.set_result(question(self._shelf.session(model)))
            except Exception as error:  # it belongs to the one who asked
                answer.set_exception(error)

    def _tell_places(self) -> None:
        """Tell every waiting take how many are before it."""
        with self._changed:
            for place, take in enumerate(self._takes, start=len(self._running)):
                take.tell({**take.status(), "state": QUEUED, "ahead": place})
