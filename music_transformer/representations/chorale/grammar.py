"""What may come next in a chorale: every voice of every sixteenth is a pitch or silence."""

import math
from collections.abc import Iterable
from typing import ClassVar

import numpy as np

from music_transformer.representations.base import Grammar, Limits, Primer
from music_transformer.representations.chorale.grid import (
    N_EVENTS,
    N_VOICES,
    SIXTEENTHS_PER_BEAT,
)
from music_transformer.representations.ids import Mask


class ChoraleGrammar(Grammar):
    """The grammar of one chorale after its primer; its length is a number of events.

    Args:
        vocab_size: V; ids from N_EVENTS up are never allowed.
        primer: read already.
        limits: rounded up, so that the last sixteenth has all its voices.
    """

    finished: ClassVar[bool] = False

    def __init__(self, vocab_size: int, primer: Primer, limits: Limits) -> None:
        self._mask = np.zeros(vocab_size, dtype=bool)
        self._mask[:N_EVENTS] = True
        self._ids: list[int] = []
        self._sixteenth = primer.seconds_per_beat / SIXTEENTHS_PER_BEAT  # seconds
        self.read(primer.ids)
        self.wanted = limits.events
        if limits.seconds is not None and math.isfinite(limits.seconds):
            self.wanted = N_VOICES * math.ceil(limits.seconds / self._sixteenth - 1e-6)
        if self.wanted is not None:
            self.wanted += -(len(primer.ids) + self.wanted) % N_VOICES

    @property
    def seconds(self) -> float:
        """The time since the primer, in whole sixteenths."""
        return (len(self._ids) - self._first) // N_VOICES * self._sixteenth

    @property
    def chords(self) -> tuple[list[int], list[int]] | None:
        """The ids of the last whole sixteenth, and those of the next up to now."""
        begun = len(self._ids) // N_VOICES * N_VOICES
        return (self._ids[begun - N_VOICES : begun], self._ids[begun:]) if begun else None

    def read(self, ids: Iterable[int]) -> None:
        """Follow the ids of a primer."""
        for event_id in ids:
            self.advance(event_id)
        self._first = len(self._ids)

    def mask(self, remaining: int | None = None) -> Mask:
        """(V,) bool, True = may come next: the same at any time."""
        return self._mask

    def clip(self, event_id: int) -> int:
        """The id itself: a chorale's length is a number of events."""
        return event_id

    def advance(self, event_id: int) -> None:
        """Follow one id."""
        if event_id < N_EVENTS:
            self._ids.append(event_id)

    def closing(self) -> list[int]:
        """Nothing: notes end with their sixteenth."""
        return []
