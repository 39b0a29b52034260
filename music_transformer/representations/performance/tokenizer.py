"""Piano with expressive timing: notes to events and back.

Encoding loses, in this order: key-up times hidden by the pedal (``pedal="sustain"``), channels and
tracks, time finer than 10 ms, velocity finer than 4, and a second onset of a pitch within one step.
Decoding loses nothing: ``encode(decode(ids)) == ids`` for every *canonical* stream, which is what
`encode` returns:

- within a step PEDAL_OFF, PEDAL_ON, then NOTE_OFF ascending, then NOTE_ON ascending;
- SET_VELOCITY right before a NOTE_ON whose bin differs from the last one's, and before the first;
- a rest is as many TIME_SHIFT 100 as fit, then what is left; none after the last event.

`tests/representations/reference.py` says the same in loops.

Source: Huang et al. 2018, "Music Transformer", appendix A.2; the policies where the paper is silent
(two onsets in a step, notes shorter than a step, orphans) are this project's own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from music_transformer.errors import ConfigError, TokenError
from music_transformer.notes import STEPS_PER_SECOND, NoteSequence, Pedals, to_steps
from music_transformer.representations.base import (
    DEFAULT_SECONDS_PER_BEAT,
    Limits,
    NoteIndex,
    Primer,
    Representation,
    note_index,
    register,
)
from music_transformer.representations.baselines import performance_baselines
from music_transformer.representations.ids import IdArray, Ids, Ints, check_ids, shift_ids
from music_transformer.representations.performance.augment import (
    PIANO,
    STRETCHES,
    TRANSPOSITIONS,
    plain_crop,
    stretched_crop,
)
from music_transformer.representations.performance.grammar import PerformanceGrammar
from music_transformer.representations.performance.primer import gapped, read_primer
from music_transformer.representations.performance.vocabulary import (
    DEFAULT_VELOCITY_BIN,
    END,
    MAX_SHIFT,
    N_EVENTS,
    N_IDS,
    N_IDS_WITH_PEDAL,
    NOTE_OFF,
    NOTE_ON,
    PAD,
    PEDAL_OFF,
    PEDAL_ON,
    START,
    SYMBOLS,
    TIME_SHIFT,
    VELOCITIES_PER_BIN,
    VELOCITY,
    shift_steps,
    split_at,
    without_leading_silence,
)

PEDAL_MODES = ("sustain", "events")
MAX_SECONDS = 1_000_000  # eleven days: more would be gigabytes of TIME_SHIFT

# An event waiting for its place is one int64 that sorts as the canonical order wants:
# step, then kind, then pitch; the velocity bin rides along in the lowest bits.
_BIN_BITS, _PITCH_BITS, _KIND_BITS = 5, 7, 2
_KIND_SHIFT = _BIN_BITS + _PITCH_BITS
_STEP_SHIFT = _KIND_SHIFT + _KIND_BITS
_KIND_IDS = np.array([PEDAL_OFF, PEDAL_ON, NOTE_OFF, NOTE_ON])
_KIND_PEDAL_OFF, _KIND_PEDAL_ON, _KIND_NOTE_OFF, _KIND_NOTE_ON = range(4)


@dataclass(frozen=True)
class PerformanceTokenizer(Representation):
    """The 388 events of the paper, plus PAD, START and END.

    Args:
        pedal: "sustain" lengthens the notes that the pedal holds; "events" keeps the pedal as
            PEDAL_ON and PEDAL_OFF, in a vocabulary of 393 ids, and the notes' own key-up times.
    """

    pedal: str = "sustain"

    kind: ClassVar[str] = "performance"
    pad: ClassVar[int] = PAD
    start: ClassVar[int] = START
    end: ClassVar[int] = END
    crop_step: ClassVar[int] = 1
    stretches: ClassVar[tuple[float, ...]] = STRETCHES
    opens_plain: ClassVar[bool] = True
    has_seam: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.pedal not in PEDAL_MODES:
            raise ConfigError(f"pedal={self.pedal!r} is unknown; try one of {PEDAL_MODES}.")

    @property
    def vocab_size(self) -> int:
        return N_IDS_WITH_PEDAL if self.pedal == "events" else N_IDS

    def to_config(self) -> dict[str, Any]:
        return {"kind": self.kind, "pedal": self.pedal}

    def encode_array(self, notes: NoteSequence, *, keep_silence: bool = True) -> NDArray[np.uint16]:
        """The canonical ids of the notes (N,); TokenError where a time is past `MAX_SECONDS`."""
        if self.pedal == "sustain":
            notes = notes.sustained()
        keys = _note_keys(notes)
        if self.pedal == "events":
            keys = np.concatenate([_pedal_keys(notes.pedals), keys])
        keys.sort()
        ids = _lay_out(keys)
        return ids if keep_silence else without_leading_silence(ids)

    def decode(
        self, ids: Ids, *, seconds_per_beat: float = DEFAULT_SECONDS_PER_BEAT
    ) -> NoteSequence:
        """The notes of any sequence of known ids.

        An orphan NOTE_OFF is ignored; a NOTE_ON of a sounding pitch ends the first; what still
        sounds ends at the last time; two notes of one pitch that start in one step are one.
        """
        array = check_ids(ids, self.vocab_size)
        array = array[(array < N_EVENTS) | (array >= N_IDS)]
        step = np.cumsum(shift_steps(array))  # (N,) the time after each event
        last_step = int(step[-1]) if len(step) else 0
        velocity = _current_velocity(array)
        is_note = array < TIME_SHIFT
        pitch, start, end, velocity = _pair(
            array[is_note], step[is_note], velocity[is_note], last_step
        )
        latest = max(last_step, int(end.max(initial=0)))
        return NoteSequence(
            pitch=pitch,
            velocity=velocity,
            start=start / STEPS_PER_SECOND,
            end=end / STEPS_PER_SECOND,
            pedals=_pedals_of(array, step, last_step),
            end_time=latest / STEPS_PER_SECOND,
        )

    def symbols(self, ids: Ids) -> list[str]:
        return [SYMBOLS[i] for i in check_ids(ids, self.vocab_size).tolist()]

    def duration_seconds(
        self, ids: Ids, *, seconds_per_beat: float = DEFAULT_SECONDS_PER_BEAT
    ) -> float:
        return float(shift_steps(check_ids(ids, self.vocab_size)).sum()) / STEPS_PER_SECOND

    def note_of_event(self, ids: Ids) -> NoteIndex:
        """The note of each id: NOTE_ON, the SET_VELOCITY right before it, and its NOTE_OFF."""
        onsets: list[tuple[int, int, int, int]] = []
        owner = [-1] * len(ids)
        numbers: dict[tuple[int, int], int] = {}  # two onsets of a pitch in one step are one note
        sounding: dict[int, int] = {}
        step, before = 0, PAD
        for index, event_id in enumerate(check_ids(ids, self.vocab_size).tolist()):
            if event_id < NOTE_OFF:
                pitch = event_id - NOTE_ON
                number = numbers.setdefault((step, pitch), len(onsets))
                if number == len(onsets):
                    onsets.append((step, pitch, 0, index))
                owner[index] = sounding[pitch] = number
                if VELOCITY <= before < N_EVENTS:
                    owner[index - 1] = number
            elif event_id < TIME_SHIFT:
                owner[index] = sounding.pop(event_id - NOTE_OFF, -1)
            elif event_id < VELOCITY:
                step += event_id - TIME_SHIFT + 1
            before = event_id
        return note_index(owner, onsets)

    def crop(self, piece: IdArray, place: int, length: int, factor: float) -> IdArray:
        if factor == 1:
            return piece[place : place + length]
        head = piece[: int(place == 0)]
        room, first = length - len(head), max(0, place - 1)
        crop, at_end = stretched_crop(self, piece[1:-1], first=first, length=room, factor=factor)
        return np.concatenate([head, crop, piece[len(piece) - at_end :]])[:length]

    def plain_crop(
        self, piece: IdArray, place: int, length: int, factor: float, random: np.random.Generator
    ) -> tuple[IdArray, int]:
        crop, known, at_end = plain_crop(
            self, piece[1:-1], first=max(0, place - 1), length=length - 1, factor=factor, rng=random
        )
        return np.concatenate([piece[:1], crop, piece[len(piece) - at_end :]])[:length], known

    def gapped_crop(
        self, piece: IdArray, place: int, length: int, factor: float, random: np.random.Generator
    ) -> tuple[IdArray, int]:
        return gapped(self, self.crop(piece, place, length, factor), length, random)

    def transpositions(self, events: IdArray, meta: Mapping[str, Any]) -> list[int]:
        """Up to three semitones inside the 88 keys, or all 128 where a piece leaves them."""
        pitches = events[events < NOTE_OFF]
        if not len(pitches):
            return [0]
        lowest, highest = int(pitches.min()), int(pitches.max())
        low, high = PIANO if PIANO[0] <= lowest and highest <= PIANO[1] else (0, 127)
        return [s for s in TRANSPOSITIONS if low <= lowest + s and highest + s <= high]

    def transposed(self, ids: IdArray, semitones: int) -> IdArray:
        return shift_ids(ids, TIME_SHIFT, semitones)

    def evaluation_stride(self, context: int) -> int:
        return context  # windows side by side

    def baselines(self, train: Sequence[IdArray], pieces: Sequence[IdArray]) -> dict[str, float]:
        return performance_baselines(train, pieces, self.vocab_size)

    _read_primer = read_primer

    def _split_at(self, ids: list[int], seconds: float) -> tuple[list[int], list[int]]:
        return split_at(ids, int(to_steps(seconds)))

    def grammar(self, primer: Primer, limits: Limits) -> PerformanceGrammar:
        longest = int(to_steps(limits.note_seconds))
        grammar = PerformanceGrammar(
            self.vocab_size, may_wait=bool(primer.ids), longest_note_steps=longest
        )
        grammar.read(primer.ids)
        grammar.wanted = limits.events
        if limits.seconds is not None and math.isfinite(limits.seconds):
            grammar.end_after(limits.seconds, limits.ending_seconds)
        return grammar

    def continuation(self, primer: Primer, new: Sequence[int]) -> NoteSequence:
        """The notes of new ids alone, with the velocity and the pedal that the primer leaves."""
        grammar = self.grammar(primer, Limits())
        pedal = [PEDAL_ON] if grammar.pedal_is_down else []
        return self.decode([VELOCITY + grammar.velocity_bin, *pedal, *new])


def one_note_per_onset(
    pitch: Ints, start: Ints, end: Ints, velocity: Ints
) -> tuple[Ints, Ints, Ints, Ints]:
    """The notes as one keyboard can play them, (M,) from (N,), ordered by pitch, then start.

    A note lasts one step at least; two onsets of a pitch in one step are one note, the louder and
    the longer of both; a later onset cuts the note that sounds. Times are in steps, below 2**32.
    """
    end = np.maximum(end, start + 1)
    onset = (pitch << 32) | start
    order = np.argsort(onset)
    onset, end, velocity = onset[order], end[order], velocity[order]
    is_first = np.ones(len(onset), dtype=bool)
    is_first[1:] = onset[1:] != onset[:-1]
    if not is_first.all():
        firsts = np.flatnonzero(is_first)
        onset = onset[firsts]
        end = np.maximum.reduceat(end, firsts)
        velocity = np.maximum.reduceat(velocity, firsts)
    # The onset of another pitch lies 2**32 steps ahead, so it cuts nothing.
    end[:-1] = np.minimum(end[:-1] + (onset[:-1] & ~0xFFFFFFFF), onset[1:]) & 0xFFFFFFFF
    return onset >> 32, onset & 0xFFFFFFFF, end, velocity


def _note_keys(notes: NoteSequence) -> Ints:
    """The sortable NOTE_OFF and NOTE_ON of the notes: (2 N,)."""
    _check_length(notes.end)
    pitch, start, end, velocity = one_note_per_onset(
        notes.pitch, to_steps(notes.start), to_steps(notes.end), notes.velocity
    )
    pitch = pitch << _BIN_BITS
    off = (end << _STEP_SHIFT) | (_KIND_NOTE_OFF << _KIND_SHIFT) | pitch
    on = (start << _STEP_SHIFT) | (_KIND_NOTE_ON << _KIND_SHIFT) | pitch
    return np.concatenate([off, on | velocity // VELOCITIES_PER_BIN])


def _pedal_keys(pedals: Pedals) -> Ints:
    """The sortable PEDAL_OFF and PEDAL_ON: down while any channel is, for a step or more."""
    _check_length(pedals.end)
    order = np.argsort(pedals.start, kind="stable")
    press, lift = pedals.start[order], np.maximum.accumulate(pedals.end[order])
    opens = np.ones(len(press), dtype=bool)
    opens[1:] = press[1:] >= lift[:-1]  # a lift and a press at one time are both heard
    press = press[opens]
    lift = lift[np.append(opens[1:], True)] if len(lift) else lift
    down, up = to_steps(press), to_steps(lift)
    down, up = down[down < up], up[down < up]
    off = (up << _STEP_SHIFT) | (_KIND_PEDAL_OFF << _KIND_SHIFT)
    on = (down << _STEP_SHIFT) | (_KIND_PEDAL_ON << _KIND_SHIFT)
    return np.concatenate([off, on])


def _check_length(end: NDArray[np.float64]) -> None:
    latest = float(end.max(initial=0.0))
    if latest > MAX_SECONDS:
        raise TokenError(
            f"the last note or pedal ends at {latest:.0f} s, expected at most {MAX_SECONDS}: "
            "cut the silence, or check the tempo."
        )


def _lay_out(keys: Ints) -> NDArray[np.uint16]:
    """The ids of sorted events, with the time shifts and velocities they need before them."""
    step = keys >> _STEP_SHIFT
    kind = (keys >> _KIND_SHIFT) & 3
    ids = _KIND_IDS[kind] + ((keys >> _BIN_BITS) & 127)
    hundreds, left = np.divmod(np.diff(step, prepend=0), MAX_SHIFT)

    on = np.flatnonzero(kind == _KIND_NOTE_ON)
    bins = keys[on] & 31
    changes = np.ones(len(on), dtype=bool)
    changes[1:] = bins[1:] != bins[:-1]
    has_velocity = np.zeros(len(keys), dtype=bool)
    has_velocity[on] = changes

    place = np.cumsum(hundreds + (left > 0) + has_velocity + 1) - 1  # (N,) where each event goes
    length = int(place[-1]) + 1 if len(place) else 0
    out = np.full(length, TIME_SHIFT + MAX_SHIFT - 1, dtype=np.uint16)  # what stays is a hundred
    out[place] = ids
    out[place[on[changes]] - 1] = VELOCITY + bins[changes]
    shifted = np.flatnonzero(left)
    out[(place - has_velocity)[shifted] - 1] = TIME_SHIFT - 1 + left[shifted]
    return out


def _current_velocity(ids: Ints) -> Ints:
    """The velocity in force at each id: (N,)."""
    is_velocity = (ids >= VELOCITY) & (ids < N_EVENTS)
    latest = np.maximum.accumulate(np.where(is_velocity, np.arange(len(ids)), -1))
    bins = np.where(latest >= 0, ids[latest] - VELOCITY, DEFAULT_VELOCITY_BIN) if len(ids) else ids
    return bins * VELOCITIES_PER_BIN + VELOCITIES_PER_BIN // 2


def _pair(ids: Ints, step: Ints, velocity: Ints, last_step: int) -> tuple[Ints, Ints, Ints, Ints]:
    """Pitch, start, end (steps) and velocity of the notes in a stream of NOTE_ON and NOTE_OFF.

    The next event of its pitch ends a note, whether on or off.
    """
    pitch = ids & 127
    order = np.argsort(pitch.astype(np.uint8), kind="stable")
    ids, pitch, step, velocity = ids[order], pitch[order], step[order], velocity[order]
    end = np.full(len(ids), last_step, dtype=np.int64)
    end[:-1] = np.where(pitch[1:] == pitch[:-1], step[1:], last_step)
    on = ids < NOTE_OFF
    return one_note_per_onset(pitch[on], step[on], end[on], velocity[on])


def _pedals_of(ids: Ints, step: Ints, last_step: int) -> Pedals:
    """The spans between PEDAL_ON and PEDAL_OFF; one still down ends at the last time."""
    moves = np.flatnonzero(ids >= PEDAL_ON)
    is_on = ids[moves] == PEDAL_ON
    moves = moves[np.diff(is_on.astype(np.int8), prepend=0) != 0]  # on while down changes nothing
    times = step[moves]
    if len(times) % 2:
        times = np.append(times, last_step)
    down, up = times[0::2], times[1::2]
    down, up = down[down < up] / STEPS_PER_SECOND, up[down < up] / STEPS_PER_SECOND
    return Pedals(np.zeros(len(down), np.int64), down, up)


register(PerformanceTokenizer)
