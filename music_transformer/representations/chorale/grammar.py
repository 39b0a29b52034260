"""What may come next in a chorale: every voice of every sixteenth is a pitch or silence."""

import math
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
        self._mask = np.arange(vocab_size) < N_EVENTS  # the same at any time
        self._ids: list[int] = []
        self._sixteenth = primer.seconds_per_beat / SIXTEENTHS_PER_BEAT  # seconds
        self.read(primer.ids)
        self._first = len(self._ids)
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
        begun = len(self._ids) // N_VOICES * N_VOICES
        return (self._ids[begun - N_VOICES : begun], self._ids[begun:]) if begun else None

    def mask(self, remaining: int | None = None) -> Mask:
        return self._mask

    def clip(self, event_id: int) -> int:
        return event_id  # a chorale's length is a number of events

    def advance(self, event_id: int) -> None:
        if event_id < N_EVENTS:
            self._ids.append(event_id)

    def closing(self) -> list[int]:
        return []  # notes end with their sixteenth
