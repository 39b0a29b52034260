"""What may come next: a mask over the ids, so that whatever is sampled is valid and canonical.

Valid: no stray NOTE_OFF, no NOTE_ON of a sounding pitch, no note that never ends. Canonical: what
the tokenizer itself would write for the same notes, but for a rest after the last event, which the
length asked for may need. Time is in steps of 10 ms since the start of the ids.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from music_transformer.notes import STEPS_PER_SECOND, to_steps
from music_transformer.representations.base import LONGEST_NOTE_SECONDS, Grammar
from music_transformer.representations.close import is_close
from music_transformer.representations.ids import Ints, Mask
from music_transformer.representations.performance.vocabulary import (
    DEFAULT_VELOCITY_BIN,
    END,
    MAX_SHIFT,
    N_EVENTS,
    N_IDS,
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

# While music comes to an end: a pause of so many steps is its last, the shorter the later it is;
# and from that share of the time on any is. First of chords on which it may end, then of others.
_LAST_PAUSE = {True: (50, 0.45), False: (200, 0.6)}


class PerformanceGrammar(Grammar):
    """The grammar of one performance; `read` takes any ids of the vocabulary, canonical or not.

    Args:
        vocab_size: V; ids from N_EVENTS up are never allowed, except the pedal's.
        may_wait: whether time may pass before the first note.
    """

    def __init__(
        self,
        vocab_size: int,
        *,
        may_wait: bool = False,
        longest_note_steps: int = LONGEST_NOTE_STEPS,
    ) -> None:
        self.step = 0  # now
        self.end_step: int | None = None  # TIME_SHIFTs are clipped to land on it
        self.ending_step: int | None = None  # from when on it comes to an end; None: it is cut
        self._onset_step, self._chord = 0, [0]  # of the last note, and all that sounded then
        self.pedal_is_down = False
        self._mask = np.zeros(vocab_size, dtype=bool)
        self._has_pedal = vocab_size > N_IDS
        self._may_wait = may_wait
        self._longest = longest_note_steps
        self._onset: dict[int, int] = {}  # sounding pitch -> step; the oldest comes first
        self._silent = np.ones(N_PITCHES, dtype=bool)  # the same, for the mask
        self._bin: int | None = None  # None until a velocity was set
        self._velocity_is_new = False  # a SET_VELOCITY waits for its NOTE_ON
        self._rank = _STEP_BEGINS  # of the last event in this step
        self._rest_is_over = False  # the last event was a TIME_SHIFT of less than 100 steps
        self._first_step = 0  # after the primer

    @property
    def finished(self) -> bool:
        over = self.end_step is not None and self.step >= self.end_step
        return over or (self.rings and not self._onset)

    def end_after(self, seconds: float, ending_seconds: float) -> None:
        """Let it last so many seconds from now on, and take some more to come to an end."""
        asked = self.step + int(to_steps(seconds))
        self.end_step = asked + int(to_steps(ending_seconds))
        self.ending_step = asked if self.end_step > asked else None

    @property
    def ending(self) -> float | None:
        if self.ending_step is None or self.end_step is None or self.step < self.ending_step:
            return None
        return (self.step - self.ending_step) / (self.end_step - self.ending_step)

    @property
    def seconds(self) -> float:
        return (self.step - self._first_step) / STEPS_PER_SECOND

    @property
    def sounding(self) -> list[int]:
        """The pitches that sound now, ascending."""
        return sorted(self._onset)

    @property
    def ages(self) -> Ints:
        ages = np.full(N_PITCHES, -1)
        for pitch, onset in self._onset.items():
            ages[pitch] = self.step - onset
        return ages

    @property
    def velocity_bin(self) -> int:
        """The velocity in force, 0..31."""
        return DEFAULT_VELOCITY_BIN if self._bin is None else self._bin

    def read(self, ids: Iterable[int]) -> None:
        super().read(ids)
        self.long_notes_closed = 0  # notes that lasted too long there count for nothing
        self._first_step = self.step

    def mask(self, remaining: int | None = None) -> Mask:
        mask = self._mask
        mask[:] = False
        if self.rings:
            return self._ring()
        first_on = max(self._rank - _RANK_NOTE_ON + 1, 0)
        note_on = mask[NOTE_ON + first_on : NOTE_ON + N_PITCHES]
        note_on[:] = self._silent[first_on:]
        if self._velocity_is_new and note_on.any():
            return mask
        first_off = max(self._rank - _RANK_NOTE_OFF + 1, 0)
        latest_onset = self.step - self._longest
        if overdue := [pitch for pitch, onset in self._onset.items() if onset <= latest_onset]:
            note_on[:] = False
            if (due := min((p for p in overdue if p >= first_off), default=None)) is not None:
                self._allow_offs(first_off, due + 1)
                self._allow_pedal()
            else:  # only after a primer: its step is past the offs, so they come in the next one
                mask[TIME_SHIFT:VELOCITY] = True
            return mask
        self._allow_offs(first_off, N_PITCHES)
        if remaining != 1 and note_on.any():  # the last event is no SET_VELOCITY
            mask[VELOCITY:N_EVENTS] = True
        if self._bin is None:
            note_on[:] = False  # the first note sets its velocity
        else:
            mask[VELOCITY + self._bin] = False
        if not self._rest_is_over and (self._may_wait or self._bin is not None):
            mask[TIME_SHIFT:VELOCITY] = True
        self._allow_pedal()
        if self.ending is not None and not self._onset:
            mask[END] = is_close(self._chord)
        if remaining == 1 and not mask.any():  # one event alone cannot begin a piece but as a rest
            mask[TIME_SHIFT:VELOCITY] = True
        return mask

    def _ring(self) -> Mask:
        """The mask once no note begins any more."""
        self._allow_offs(max(self._rank - _RANK_NOTE_OFF + 1, 0), N_PITCHES)
        self._allow_pedal()
        if not (self._rest_is_over and self._mask.any()):
            self._mask[TIME_SHIFT:VELOCITY] = True
        return self._mask

    def _comes_to_rest(self, shift_steps: int) -> bool:
        """Whether a pause is the last one."""
        if self.ending is None:
            return False
        steps, share = _LAST_PAUSE[is_close(self.sounding or self._chord)]
        pause = self.step + shift_steps - self._onset_step
        return pause >= steps * (1 - self.ending / share)

    def _allow_offs(self, first: int, stop: int) -> None:
        self._mask[NOTE_OFF + first : NOTE_OFF + stop] = ~self._silent[first:stop]

    def _allow_pedal(self) -> None:
        if self._has_pedal and self.pedal_is_down:
            self._mask[PEDAL_OFF] = self._rank < _RANK_PEDAL_OFF
        elif self._has_pedal:
            self._mask[PEDAL_ON] = self._rank < _RANK_PEDAL_ON

    def clip(self, event_id: int) -> int:
        if not TIME_SHIFT <= event_id < VELOCITY:
            return event_id
        if self._comes_to_rest(event_id - TIME_SHIFT + 1):
            event_id = VELOCITY - 1  # the last chord rings
        latest = self.step + MAX_SHIFT
        if self._onset:
            oldest = next(iter(self._onset.values()))
            latest = min(latest, max(oldest + self._longest, self.step + 1))
        if self.end_step is not None:
            latest = min(latest, self.end_step)
        return min(event_id, TIME_SHIFT - 1 + latest - self.step)

    def advance(self, event_id: int) -> None:
        if event_id < NOTE_OFF:
            pitch = event_id - NOTE_ON
            self._bin = self.velocity_bin
            self._onset.pop(pitch, None)  # so that a new onset is the youngest
            self._onset[pitch] = self.step
            self._silent[pitch] = False
            self._onset_step, self._chord = self.step, list(self._onset)
            self._move_to(_RANK_NOTE_ON + pitch)
        elif event_id < TIME_SHIFT:
            pitch = event_id - NOTE_OFF
            onset = self._onset.pop(pitch, None)
            self.long_notes_closed += onset is not None and self.step - onset >= self._longest
            self._silent[pitch] = True
            self._move_to(_RANK_NOTE_OFF + pitch)
        elif event_id < VELOCITY:
            shift_steps = event_id - TIME_SHIFT + 1
            self.rings = self.rings or self._comes_to_rest(shift_steps)
            self.step += shift_steps
            self._rank = _STEP_BEGINS
            self._rest_is_over = shift_steps < MAX_SHIFT
            self._velocity_is_new = False
        elif event_id < N_EVENTS:
            self._bin = event_id - VELOCITY
            self._velocity_is_new = True
            self._rest_is_over = False
        elif event_id >= PEDAL_ON:
            self.pedal_is_down = event_id == PEDAL_ON
            self._move_to(_RANK_PEDAL_ON if self.pedal_is_down else _RANK_PEDAL_OFF)

    def _move_to(self, rank: int) -> None:
        # The highest, not the last: a primer that is not canonical may go back.
        self._rank = max(self._rank, rank)
        self._rest_is_over = False
        self._velocity_is_new = False

    def closing(self) -> list[int]:
        sounding = self.sounding
        ids = [PEDAL_OFF] if self.pedal_is_down else []
        ids += [NOTE_OFF + pitch for pitch in sounding]
        if not ids:
            return []
        first = _RANK_PEDAL_OFF if self.pedal_is_down else _RANK_NOTE_OFF + sounding[0]
        if self._rank >= first:  # a note that began in this very step needs a length
            ids.insert(0, TIME_SHIFT)
        closed_before = self.long_notes_closed
        for event_id in ids:
            self.advance(event_id)
        self.long_notes_closed = closed_before  # these are cut, whatever they lasted
        self.notes_cut += len(sounding)
        return ids
