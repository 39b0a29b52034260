"""What may come next in a chorale: every voice of every sixteenth is a pitch or silence."""

import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from music_transformer.representations.base import Grammar, Limits, Primer
from music_transformer.representations.chorale.grid import (
    END,
    N_EVENTS,
    N_VOICES,
    SILENCE,
    SIXTEENTHS_PER_BEAT,
)
from music_transformer.representations.close import is_close
from music_transformer.representations.ids import Mask

FINAL_SIXTEENTHS = 8  # how long the last chord is held
_ANY_TRIAD, _ANY_TIME = 0.7, 0.85  # of the time for an end: then no cadence, no beat is needed


class ChoraleGrammar(Grammar):
    """The grammar of one chorale after its primer; its length is a number of events.

    Ids from N_EVENTS up are never allowed, but for END. Limits are rounded up, so that the last
    sixteenth has all its voices.
    """

    finished: ClassVar[bool] = False

    def __init__(self, vocab_size: int, primer: Primer, limits: Limits) -> None:
        self._mask = np.arange(vocab_size) < N_EVENTS  # the same at any time, but for END
        self._first_place = primer.first_place
        self._ids: list[int] = []
        self._sixteenth = primer.seconds_per_beat / SIXTEENTHS_PER_BEAT  # seconds
        self.read(primer.ids)
        self._first = len(self._ids)
        self.wanted = limits.events
        if limits.seconds is not None and math.isfinite(limits.seconds):
            self.wanted = N_VOICES * math.ceil(limits.seconds / self._sixteenth - 1e-6)
        if self.wanted is not None:
            self.wanted += -(len(primer.ids) + self.wanted) % N_VOICES
            self._asked = self.wanted
            self.wanted += N_VOICES * int(limits.ending_seconds / self._sixteenth + 1e-6)

    @property
    def seconds(self) -> float:
        return (len(self._ids) - self._first) // N_VOICES * self._sixteenth

    @property
    def chords(self) -> tuple[list[int], list[int]] | None:
        begun = len(self._ids) // N_VOICES * N_VOICES
        return (self._ids[begun - N_VOICES : begun], self._ids[begun:]) if begun else None

    @property
    def ending(self) -> float | None:
        new = len(self._ids) - self._first
        if self.wanted is None or new < self._asked or self._asked == self.wanted:
            return None
        return (new - self._asked) / (self.wanted - self._asked)

    def mask(self, remaining: int | None = None) -> Mask:
        if (share := self.ending) is not None:
            self._mask[END] = self._may_end(share)
        return self._mask

    def _may_end(self, share: float) -> bool:
        """Whether a triad has sounded since a beat; reached by a cadence, but for late ones.

        In a cadence the bass has moved by a fourth or a fifth, and the soprano by a tone at most.
        """
        last, held = self._ids[-N_VOICES:], self._held()
        place = (self._first_place + len(self._ids)) // N_VOICES - held
        if len(self._ids) % N_VOICES or (share < _ANY_TIME and place % SIXTEENTHS_PER_BEAT):
            return False
        if SILENCE in last or not is_close(last):
            return False
        before = self._ids[-N_VOICES * (held + 1) :][:N_VOICES]
        bass, soprano = abs(last[-1] - before[-1]), abs(last[0] - before[0])
        return share >= _ANY_TRIAD or (bass % 12 in (5, 7) and soprano <= 2)

    def _held(self) -> int:
        """The sixteenths for which the last chord has sounded."""
        held, last = 1, self._ids[-N_VOICES:]
        while self._ids[-N_VOICES * (held + 1) : -N_VOICES * held] == last:
            held += 1
        return held

    def clip(self, event_id: int) -> int:
        return event_id  # a chorale's length is a number of events

    def advance(self, event_id: int) -> None:
        if event_id < N_EVENTS:
            self._ids.append(event_id)

    def closing(self) -> list[int]:
        """The last chord, held on where there is time for an end; else notes end as they do."""
        if self.wanted is None or self.ending is None:
            return []
        left = (self.wanted + self._first - len(self._ids)) // N_VOICES
        more = max(min(FINAL_SIXTEENTHS - self._held(), left), 0)
        ids = self._ids[-N_VOICES:] * more
        self._ids += ids
        return ids


class GivenCells(ChoraleGrammar):
    """The grammar of four voices, some cells given and the others within the range of their voice.

    Args:
        cells: the ids from the next on, row by row; None is to be drawn.
        ranges: of the voices; None for all pitches.
        shift: by which the result is transposed down; no pitch leaves the keyboard of MIDI for it.
        before: ids of the rows before them.
    """

    def __init__(
        self,
        cells: Sequence[int | None],
        vocab_size: int,
        ranges: Sequence[tuple[int, int]] | None,
        *,
        shift: int = 0,
        before: Sequence[int] = (),
    ) -> None:
        super().__init__(vocab_size, Primer(list(before)), Limits(events=len(cells)))
        self._cells = cells
        # (4, V) True = the voice may have this id: a pitch of its range, or silence.
        self._masks = np.zeros((N_VOICES, vocab_size), dtype=bool)
        for voice, mask in enumerate(self._masks):
            low, high = (0, SILENCE - 1) if ranges is None else ranges[voice]
            mask[max(low, shift, 0) : min(high, SILENCE - 1 + min(shift, 0)) + 1] = True
            mask[SILENCE] = True

    @property
    def given(self) -> int | None:
        return self._cells[len(self._ids) - self._first]

    def mask(self, remaining: int | None = None) -> Mask:
        mask: Mask = self._masks[len(self._ids) % N_VOICES]
        return mask
