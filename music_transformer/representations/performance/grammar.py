"""What may come next: a mask over the ids, so that whatever is sampled is valid and canonical.

Valid: no stray NOTE_OFF, no NOTE_ON of a sounding pitch, no note that never ends. Canonical: what
the tokenizer itself would write for the same notes, so that ``encode(decode(ids)) == ids`` and the
model only ever reads what it was trained on (a rest after the last event is the one exception: the
length asked for may need it). One grammar follows one sample; each of its methods costs
microseconds, little beside a step of any model. Time is in steps of 10 ms since the start of the
ids.
"""

import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from music_transformer.notes import STEPS_PER_SECOND, to_steps
from music_transformer.representations.base import LONGEST_NOTE_SECONDS, Grammar, Limits, Mask
from music_transformer.representations.performance.vocabulary import (
    DEFAULT_VELOCITY_BIN,
    MAX_SHIFT,
    N_EVENTS,
    N_PITCHES,
    NOTE_OFF,
    NOTE_ON,
    PEDAL_OFF,
    PEDAL_ON,
    TIME_SHIFT,
    VELOCITY,
)

LONGEST_NOTE_STEPS = int(LONGEST_NOTE_SECONDS * STEPS_PER_SECOND)

# The rank of an event within its step: PEDAL_OFF, PEDAL_ON, NOTE_OFF ascending, NOTE_ON ascending.
_STEP_BEGINS = -1
_RANK_PEDAL_OFF = 0
_RANK_PEDAL_ON = 1
_RANK_NOTE_OFF = 2
_RANK_NOTE_ON = _RANK_NOTE_OFF + N_PITCHES


class PerformanceGrammar(Grammar):
    """The grammar of one performance.

    A primer is followed with `read`, which takes any ids of the vocabulary, canonical or not.

    Attributes:
        step: the time now.
        end_step: when the piece must end, None for open; TIME_SHIFTs are clipped to land on it.

    Args:
        vocab_size: V; ids from N_EVENTS up are never allowed, except the pedal's.
        pedal_events: whether PEDAL_ON and PEDAL_OFF are in the vocabulary.
        may_wait: whether time may pass before the first note.
        longest_note_steps: how long a note may last.
    """

    def __init__(
        self,
        vocab_size: int,
        *,
        pedal_events: bool = False,
        may_wait: bool = False,
        longest_note_steps: int = LONGEST_NOTE_STEPS,
    ) -> None:
        self.step = 0
        self.end_step: int | None = None
        self._mask = np.zeros(vocab_size, dtype=bool)
        self._pedal_events = pedal_events
        self._may_wait = may_wait
        self._longest = longest_note_steps
        self._onset: dict[int, int] = {}  # sounding pitch -> step; the oldest comes first
        self._silent = np.ones(N_PITCHES, dtype=bool)  # the same, for the mask
        self._bin: int | None = None  # None until a velocity was set
        self._velocity_is_new = False  # a SET_VELOCITY waits for its NOTE_ON
        self._rank = _STEP_BEGINS  # of the last event in this step
        self._rest_is_over = False  # the last event was a TIME_SHIFT of less than 100 steps
        self._pedal_is_down = False
        self._first_step = 0  # after the primer

    @property
    def finished(self) -> bool:
        """Whether `end_step` is reached."""
        return self.end_step is not None and self.step >= self.end_step

    @property
    def seconds(self) -> float:
        """The time since the primer."""
        return (self.step - self._first_step) / STEPS_PER_SECOND

    @property
    def sounding(self) -> list[int]:
        """The pitches that sound now, ascending."""
        return sorted(self._onset)

    @property
    def ages(self) -> NDArray[np.int64]:
        """(128,) steps that each pitch has sounded, -1 where it does not."""
        ages = np.full(N_PITCHES, -1)
        for pitch, onset in self._onset.items():
            ages[pitch] = self.step - onset
        return ages

    @property
    def velocity_bin(self) -> int:
        """The velocity in force, 0..31."""
        return DEFAULT_VELOCITY_BIN if self._bin is None else self._bin

    @property
    def pedal_is_down(self) -> bool:
        """Whether a PEDAL_ON waits for its PEDAL_OFF."""
        return self._pedal_is_down

    def read(self, ids: Iterable[int]) -> None:
        """Follow the ids of a primer; notes that lasted too long there count for nothing."""
        for event_id in ids:
            self.advance(event_id)
        self.long_notes_closed = 0
        self._first_step = self.step

    def limit(self, limits: Limits) -> None:
        """Ask for a length, counted from now on."""
        self.wanted = limits.events
        if limits.seconds is not None and math.isfinite(limits.seconds):
            self.end_step = self.step + int(to_steps(limits.seconds))

    def mask(self, remaining: int | None = None) -> Mask:
        """(V,) bool, True = may come next; valid until the next call.

        Args:
            remaining: how many events are still wanted: the last is no SET_VELOCITY.
        """
        mask = self._mask
        mask[:] = False
        first_on = max(self._rank - _RANK_NOTE_ON + 1, 0)
        note_on = mask[NOTE_ON + first_on : NOTE_ON + N_PITCHES]
        note_on[:] = self._silent[first_on:]
        if self._velocity_is_new and note_on.any():
            return mask
        first_off = max(self._rank - _RANK_NOTE_OFF + 1, 0)
        overdue = self._overdue()
        if overdue:
            note_on[:] = False
            if (due := min((p for p in overdue if p >= first_off), default=None)) is not None:
                self._allow_offs(first_off, due + 1)
                self._allow_pedal()
            else:  # only after a primer: its step is past the offs, so they come in the next one
                mask[TIME_SHIFT:VELOCITY] = True
            return mask
        if self._onset:
            self._allow_offs(first_off, N_PITCHES)
        if remaining != 1 and note_on.any():
            mask[VELOCITY:N_EVENTS] = True
        if self._bin is None:
            note_on[:] = False  # the first note sets its velocity
        else:
            mask[VELOCITY + self._bin] = False
        if not self._rest_is_over and (self._may_wait or self._bin is not None):
            mask[TIME_SHIFT:VELOCITY] = True
        self._allow_pedal()
        if remaining == 1 and not mask.any():  # one event alone cannot begin a piece but as a rest
            mask[TIME_SHIFT:VELOCITY] = True
        return mask

    def clip(self, event_id: int) -> int:
        """The id itself; a TIME_SHIFT past the end, or past a note's longest, is shortened."""
        if not TIME_SHIFT <= event_id < VELOCITY:
            return event_id
        latest = self.step + MAX_SHIFT
        if self._onset:
            oldest = next(iter(self._onset.values()))
            latest = min(latest, max(oldest + self._longest, self.step + 1))
        if self.end_step is not None:
            latest = min(latest, self.end_step)
        return min(event_id, TIME_SHIFT - 1 + latest - self.step)

    def advance(self, event_id: int) -> None:
        """Follow one id; what has no effect in `decode` has none here."""
        if event_id < NOTE_OFF:
            self._note_on(event_id - NOTE_ON)
        elif event_id < TIME_SHIFT:
            self._note_off(event_id - NOTE_OFF)
        elif event_id < VELOCITY:
            shift_steps = event_id - TIME_SHIFT + 1
            self.step += shift_steps
            self._rank = _STEP_BEGINS
            self._rest_is_over = shift_steps < MAX_SHIFT
            self._velocity_is_new = False
        elif event_id < N_EVENTS:
            self._bin = event_id - VELOCITY
            self._velocity_is_new = True
            self._rest_is_over = False
        elif event_id == PEDAL_ON:
            self._pedal(down=True)
        elif event_id == PEDAL_OFF:
            self._pedal(down=False)

    def closing(self) -> list[int]:
        """The ids that end all notes and the pedal now, followed too.

        A note that began in this very step lasts one step more: it needs a length.
        """
        sounding = self.sounding
        self.notes_cut += len(sounding)
        ids = [PEDAL_OFF] if self._pedal_is_down else []
        ids += [NOTE_OFF + pitch for pitch in sounding]
        if not ids:
            return []
        first = _RANK_PEDAL_OFF if self._pedal_is_down else _RANK_NOTE_OFF + sounding[0]
        if self._rank >= first:
            ids.insert(0, TIME_SHIFT)
        closed_before = self.long_notes_closed
        for event_id in ids:
            self.advance(event_id)
        self.long_notes_closed = closed_before  # these are cut, whatever they lasted
        return ids

    def _overdue(self) -> list[int]:
        """The sounding pitches that have lasted as long as a note may."""
        latest_onset = self.step - self._longest
        if not self._onset or next(iter(self._onset.values())) > latest_onset:
            return []
        return [pitch for pitch, onset in self._onset.items() if onset <= latest_onset]

    def _allow_offs(self, first: int, stop: int) -> None:
        self._mask[NOTE_OFF + first : NOTE_OFF + stop] = ~self._silent[first:stop]

    def _allow_pedal(self) -> None:
        if not self._pedal_events:
            return
        if self._pedal_is_down:
            self._mask[PEDAL_OFF] = self._rank < _RANK_PEDAL_OFF
        else:
            self._mask[PEDAL_ON] = self._rank < _RANK_PEDAL_ON

    def _note_on(self, pitch: int) -> None:
        if self._bin is None:
            self._bin = DEFAULT_VELOCITY_BIN
        self._onset.pop(pitch, None)  # so that a new onset is the youngest
        self._onset[pitch] = self.step
        self._silent[pitch] = False
        self._moved_to(_RANK_NOTE_ON + pitch)

    def _note_off(self, pitch: int) -> None:
        onset = self._onset.pop(pitch, None)
        self._silent[pitch] = True
        self._moved_to(_RANK_NOTE_OFF + pitch)
        if onset is not None and self.step - onset >= self._longest:
            self.long_notes_closed += 1

    def _pedal(self, *, down: bool) -> None:
        self._pedal_is_down = down
        self._moved_to(_RANK_PEDAL_ON if down else _RANK_PEDAL_OFF)

    def _moved_to(self, rank: int) -> None:
        # The highest, not the last: a primer that is not canonical may go back.
        self._rank = max(self._rank, rank)
        self._rest_is_over = False
        self._velocity_is_new = False
