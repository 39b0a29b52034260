"""Takes, each a continuation or accompaniment of one primer, and the thread that composes them.

A take lives in two threads. The composing thread calls `compose`, which fills it event by event;
the server's thread reads what is there and may call `stop` at any time. What the page needs to
know is handed to `tell`, as dictionaries ready for JSON.

A note is told as [start, end, pitch, velocity, track], in seconds of the take. A note that still
sounds is told again with a later end; start, pitch and track say which one it is.

That thread takes them in the order they came, and answers questions in between: a question is short
(the attention of one note), a take is long, so a waiting question is answered between two events of
the running take. Nothing else ever touches a model: two takes at a time would both be slower, and a
model's weights are in memory once.
"""

import logging
import math
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
from music_transformer.generation.accompaniment import DEFAULT_CANDIDATES, Accompaniment, accompany
from music_transformer.generation.continuation import Continuation
from music_transformer.generation.degeneration import degeneracies
from music_transformer.generation.filling import fill, kept_beside
from music_transformer.generation.loop import SampleSpec
from music_transformer.generation.report import Generation
from music_transformer.midi.bars import bar_lines
from music_transformer.notes import NoteSequence
from music_transformer.representations.base import Primer
from music_transformer.sampling import Settings
from music_transformer.web.models import CONTINUE, Model, Shelf

#: How often the page hears of new notes.
TELL_SECONDS = 0.1
#: The first events are told one by one: who plays live waits for the first note.
FIRST_EVENTS = 8
#: How long one take may keep the thread that all takes share.
BUDGET_SECONDS = 900.0

QUEUED, LOADING, COMPOSING = "queued", "loading", "composing"
DONE, STOPPED, FAILED = "done", "stopped", "failed"
RUNNING = {QUEUED, LOADING, COMPOSING}

Row = tuple[float, float, int, int, int]


def rows_of(notes: NoteSequence) -> list[Row]:
    """The notes as the page is told of them; what the pedal holds is part of a note."""
    heard = notes.sustained() if len(notes.pedals) else notes  # it would cut voices in unison
    columns = (heard.start.round(4), heard.end.round(4), heard.pitch, heard.velocity, heard.track)
    return list(zip(*(column.tolist() for column in columns), strict=True))


@dataclass
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
        ids: the events so far, those of the primer first; only of a continuation.
        bars: seconds at which bars begin, as far as the metre is known.
        distance: from the primer, see `seam_distance`; once it is done, if it can be told.
        notes: what they decode to, once the take is done or stopped.
    """

    model: Model
    primer: NoteSequence | None
    settings: Settings
    title: str
    tell: Callable[[dict[str, Any]], None]
    task: str = CONTINUE
    gap: tuple[float, float] | None = None
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
    distance: float | None = None
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
            "distance": self.distance,
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

    def compose(self, session: Session, between: Callable[[], None]) -> None:
        """Do with the primer what is asked for, or until `stop`.

        Args:
            session: the loaded model.
            between: called after every event; what else the model is wanted for.

        Raises:
            MusicTransformerError: the primer or the settings do not suit the model.
        """
        if self.task != CONTINUE:
            self._compose_whole(session, between)
            return
        continuation = Continuation(session, self.primer, [SampleSpec(self.settings)])
        self.read = continuation.primer
        self.ids = list(self.read.ids)
        self._continuation = continuation
        self.primer_seconds = continuation.primer_seconds
        opening = self.decoded()
        self.bars = bar_lines(opening).round(4).tolist()
        self._tell_notes(opening)
        self.move_to(COMPOSING)
        used_up: list[str] = []
        started = told = time.perf_counter()
        with closing(continuation.ids()) as new:
            for _, event_id in new:
                self.ids.append(event_id)
                if self.is_stopped:
                    break
                now = time.perf_counter()
                if now - started > BUDGET_SECONDS:
                    used_up = [f"ended after {BUDGET_SECONDS:g} s of composing"]
                    break
                first = len(self.ids) - len(self.read.ids) <= FIRST_EVENTS
                if first or now - told >= TELL_SECONDS:
                    told, self.elapsed_seconds = now, now - started
                    self._tell_notes(self.decoded())
                between()
        self.elapsed_seconds = time.perf_counter() - started
        self._finish(session)
        if used_up:
            self.warnings = used_up + self.warnings
        elif not self.is_stopped:
            [made] = continuation.generations()
            self.distance = made.report.seam_distance
            index = find_index(session.path)
            run = None if index is None else index.longest_run(made.continuation)
            self.warnings = [*made.report.warnings, *([str(run)] if run and run.notes else [])]
        self.move_to(STOPPED if self.is_stopped else DONE)

    def keep(self, notes: NoteSequence, warnings: Sequence[str] = ()) -> None:
        """Be done, with these notes."""
        self.notes, self.warnings = notes, list(warnings)
        self.bars = bar_lines(notes).round(4).tolist()
        self._tell_notes(notes)
        self.move_to(DONE)

    def _compose_whole(self, session: Session, between: Callable[[], None]) -> None:
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

        self._tell_notes(kept_beside(self.primer, *self.gap) if self.gap else self.primer)
        self.move_to(COMPOSING)
        how: dict[str, Any] = {"settings": replace(self.settings, seconds=None)}
        how["on_progress"] = progress
        try:
            made: Accompaniment | Generation
            if self.gap:
                [made] = fill(session, self.primer, start=self.gap[0], end=self.gap[1], **how)
            else:  # a chorale's candidates are drawn side by side, a piano's one after another
                count = 1 if session.tokenizer.has_melody else DEFAULT_CANDIDATES
                made = accompany(session, self.primer, candidates=count, **how)[0]
        except CancelledError:
            self.move_to(STOPPED)
            return
        self._told.clear()
        self.keep(made.notes, made.report.warnings)

    def decoded(self) -> NoteSequence:
        """The primer's own notes, and those of the events so far."""
        if self._continuation is None:
            return NoteSequence(pitch=[], velocity=[], start=[], end=[])
        return self._continuation.result(self.ids[len(self.read.ids) :])[0]

    def _finish(self, session: Session) -> None:
        whole = session.tokenizer.crop_step
        del self.ids[len(self.ids) // whole * whole :]  # a row without all its voices
        self.notes = self.decoded()
        self.bars = bar_lines(self.notes).round(4).tolist()
        self._tell_notes(self.notes)
        start, end = self.primer_seconds, self.notes.end_time
        if end > start:
            self.warnings = degeneracies(self.notes.sliced(start, end))

    def _tell_notes(self, notes: NoteSequence) -> None:
        """Tell the notes that are new or have grown since the last time."""
        rows = [row for row in rows_of(notes) if self._told.get(_key(row)) != row]
        self._told.update({_key(row): row for row in rows})
        self.seconds = max(notes.end_time - self.primer_seconds, 0.0)
        self.tell({"type": "notes", "id": self.id, "seconds": self.seconds, "notes": rows})


def check_length(seconds: float, longest: float) -> None:
    """Refuse a length that no one would wait for.

    Raises:
        MusicTransformerError: it is outside 1 to ``longest``.
    """
    if not (math.isfinite(seconds) and 1 <= seconds <= longest):
        raise MusicTransformerError(f"length {seconds:g} s; choose 1 to {longest:g}.")


def _key(row: Row) -> tuple[float, int, int]:
    return row[0], row[2], row[4]


_log = logging.getLogger(__name__)

Question = Callable[[Session], Any]


class Composer:
    """A queue of takes and the thread that works on it."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf
        self._takes: deque[Take] = deque()
        self._questions: deque[tuple[Model, Question, Future[Any]]] = deque()
        self._running: Take | None = None
        self._closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._work, name="composer", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self, timeout_seconds: float = 5.0) -> None:
        """Stop the running take, forget the others, and wait for the thread."""
        with self._changed:
            self._closed = True
            self._takes.clear()
            while self._questions:
                self._questions.popleft()[2].cancel()
            if self._running is not None:
                self._running.stop()
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join(timeout_seconds)

    def add(self, take: Take) -> None:
        """Put a take at the end of the queue."""
        with self._changed:
            self._takes.append(take)
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
                self._running = self._takes.popleft() if not self._questions else None
            self._answer()
            if self._running is not None:
                self._tell_places()
                self._compose(self._running)
                self._running = None

    def _compose(self, take: Take) -> None:
        try:
            if take.is_stopped:
                take.move_to(STOPPED)
                return
            take.move_to(LOADING)
            session = self._shelf.session(take.model)
            take.compose(session, self._answer)
        except MusicTransformerError as error:
            take.move_to(FAILED, str(error))
        except Exception:
            # The thread must outlive a bug, or every later take would wait for ever.
            _log.exception("a take failed")
            take.move_to(FAILED, "this is a bug; the terminal of the server shows where.")
        finally:
            assert take.state not in RUNNING

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
            busy = 1 if self._running is not None else 0
            for place, take in enumerate(self._takes):
                take.tell({**take.status(), "state": QUEUED, "ahead": busy + place})
