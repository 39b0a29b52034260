"""The one thread that uses the model: takes in the order they came, questions in between.

A question is short (the attention of one note), a take is long, so a waiting question is answered
between two events of the running take. Nothing else ever touches a model: two takes at a time would
both be slower, and a model's weights are in memory once.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from music_transformer.checkpoint import Session
from music_transformer.errors import MusicTransformerError
from music_transformer.web.models import Model, Shelf
from music_transformer.web.takes import FAILED, LOADING, QUEUED, RUNNING, STOPPED, Take

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
