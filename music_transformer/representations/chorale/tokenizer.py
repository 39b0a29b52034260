"""Four voices on a grid of sixteenths: grid or notes to ids and back.

| ids | event |
| --- | --- |
| 0-127 | the pitch that sounds in this voice during this sixteenth |
| 128 | silence |
| 129, 130, 131 | PAD, START, END |

The grid (T, 4) is read row by row: soprano, alto, tenor, bass of one sixteenth, then of the next,
so the id at index p belongs to voice p % 4 and sixteenth p // 4. Lost are the difference of a held
pitch and a repeated one, everything between the sixteenths, velocities and timbre.

Source: Huang et al. 2018, "Music Transformer", section 3 and appendix A.1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from music_transformer.errors import MidiError, TokenError
from music_transformer.notes import NoteSequence, Tempos
from music_transformer.representations.base import (
    DEFAULT_SECONDS_PER_BEAT,
    Limits,
    NoteIndex,
    Primer,
    Representation,
    check_closing_rest,
    no_note_in,
    note_index,
    register,
)
from music_transformer.representations.baselines import chorale_baselines
from music_transformer.representations.chorale.grammar import ChoraleGrammar
from music_transformer.representations.chorale.grid import (
    END,
    N_IDS,
    N_VOICES,
    PAD,
    SILENCE,
    SIXTEENTHS_PER_BEAT,
    START,
    VOICE_NAMES,
    grid_by_pitch,
    grid_by_voice,
    held_notes,
    sixteenths,
    sixteenths_at,
    voices_of,
)
from music_transformer.representations.ids import IdArray, Ids, Ints, Mask, check_ids, shift_ids

VELOCITY = 80
MIDI_SECONDS_PER_BEAT = 0.5  # what a MIDI file means that names no tempo
SHORTEST_BEAT_SECONDS = 0.05  # 1200 a minute; a damaged tempo would ask for millions of sixteenths


@dataclass(frozen=True)
class ChoraleTokenizer(Representation):
    """Soprano, alto, tenor and bass, sixteenth by sixteenth."""

    kind: ClassVar[str] = "chorale"
    vocab_size: ClassVar[int] = N_IDS
    pad: ClassVar[int] = PAD
    start: ClassVar[int] = START
    end: ClassVar[int] = END
    crop_step: ClassVar[int] = N_VOICES
    voices: ClassVar[tuple[str, ...]] = VOICE_NAMES
    keeps_silence: ClassVar[bool] = True  # without it the sixteenths would not know their beat
    accompanied: ClassVar[tuple[str, ...]] = VOICE_NAMES

    def encode_grid(self, grid: ArrayLike) -> list[int]:
        """The ids of a grid (T, 4) of pitches, where -1 is silence; TokenError at anything else."""
        cells = np.asarray(grid)
        if cells.size == 0:
            return []
        if cells.ndim != 2 or cells.shape[1] != N_VOICES:
            raise TokenError(f"grid has shape {cells.shape}, expected (T, {N_VOICES}).")
        bad = (cells != np.floor(cells)) | (cells < -1) | (cells >= SILENCE)
        if bad.any():
            row, voice = np.argwhere(bad)[0].tolist()
            raise TokenError(
                f"grid holds {cells[row, voice]} at sixteenth {row}, {VOICE_NAMES[voice]}: "
                "expected a pitch 0..127, or -1 for silence."
            )
        ids: list[int] = np.where(cells < 0, SILENCE, cells).astype(np.int64).reshape(-1).tolist()
        return ids

    def decode_grid(self, ids: Ids) -> Ints:
        """The grid (T, 4) of pitches, -1 for silence; a last row is completed with silence."""
        array = check_ids(ids, N_IDS)
        array = array[array <= SILENCE]
        missing = -len(array) % N_VOICES
        array = np.append(array, np.full(missing, SILENCE))
        return np.where(array == SILENCE, -1, array).reshape(-1, N_VOICES)  # (T, 4)

    def encode_array(self, notes: NoteSequence, *, keep_silence: bool = True) -> NDArray[np.uint16]:
        """The ids of the notes (4 T,), quantised to sixteenths of their own tempo map.

        Four tracks, or else four channels, each with one note at a time, are the voices in that
        order. Otherwise voices follow pitch in every sixteenth: the highest is the soprano, the
        lowest the bass, the second from either end the inner ones, where there are so many. Raises
        TokenError without notes, and past `MAX_SIXTEENTHS`.
        """
        if not len(notes):
            raise TokenError("there is no note to encode: a chorale needs at least one.")
        begin, finish = sixteenths(notes)
        voice = voices_of(notes)
        grid = (
            grid_by_pitch(notes, begin, finish)
            if voice is None
            else grid_by_voice(notes.pitch, voice, begin, finish)
        )
        if not keep_silence:
            grid = grid[int(begin.min()) :]
        return np.array(self.encode_grid(grid), dtype=np.uint16)

    def decode(
        self, ids: Ids, *, seconds_per_beat: float = DEFAULT_SECONDS_PER_BEAT
    ) -> NoteSequence:
        """The notes of any sequence of known ids: equal neighbours are one, voice v is track v.

        The beat is rounded to microseconds, which is what MIDI can say; TokenError if it is none.
        """
        if not 0 < seconds_per_beat < 60:
            raise TokenError(f"seconds_per_beat={seconds_per_beat} is no beat; try 0.75.")
        seconds_per_beat = round(seconds_per_beat * 1e6) / 1e6
        grid = self.decode_grid(ids)
        runs = [held_notes(grid[:, voice]) for voice in range(N_VOICES)]
        voice = np.repeat(np.arange(N_VOICES), [len(pitch) for pitch, _, _ in runs])
        pitch, begin, finish = (np.concatenate(column) for column in zip(*runs, strict=True))
        return NoteSequence(
            pitch=pitch,
            velocity=np.full(len(pitch), VELOCITY),
            start=begin * seconds_per_beat / SIXTEENTHS_PER_BEAT,
            end=finish * seconds_per_beat / SIXTEENTHS_PER_BEAT,
            channel=voice,
            track=voice,
            end_time=len(grid) * seconds_per_beat / SIXTEENTHS_PER_BEAT,
            tempos=Tempos(seconds=[0.0], seconds_per_quarter=[seconds_per_beat]),
            track_names=VOICE_NAMES,
        )

    def symbols(self, ids: Ids) -> list[str]:
        names = {SILENCE: "SILENCE", PAD: "PAD", START: "START", END: "END"}
        return [names.get(i, f"PITCH {i}") for i in check_ids(ids, N_IDS).tolist()]

    def duration_seconds(
        self, ids: Ids, *, seconds_per_beat: float = DEFAULT_SECONDS_PER_BEAT
    ) -> float:
        return len(self.decode_grid(ids)) * seconds_per_beat / SIXTEENTHS_PER_BEAT

    def seconds_per_beat(self, notes: NoteSequence) -> float:
        """The beat of the notes: the tempo in force the longest; 0.5 s where they have none."""
        times, tempos = notes.tempos.seconds, notes.tempos.seconds_per_quarter
        if not len(times) or times[0] > 0:
            times, tempos = np.append(0.0, times), np.append(MIDI_SECONDS_PER_BEAT, tempos)
        until = np.append(times[1:], max(notes.end_time, float(times[-1])))
        in_force = np.clip(until, None, notes.end_time) - np.clip(times, None, notes.end_time)
        different, which = np.unique(tempos, return_inverse=True)
        return float(different[np.argmax(np.bincount(which, weights=in_force))])

    def note_of_event(self, ids: Ids) -> NoteIndex:
        """The note of each id: every sixteenth of a held note is part of it; silence is of none."""
        onsets: list[tuple[int, int, int, int]] = []
        owner = [-1] * len(ids)
        cell = 0
        sounding = [(SILENCE, -1)] * N_VOICES  # pitch and number by voice
        for index, pitch in enumerate(check_ids(ids, N_IDS).tolist()):
            if pitch > SILENCE:
                continue
            step, voice = divmod(cell, N_VOICES)
            cell += 1
            if pitch == SILENCE:
                sounding[voice] = (SILENCE, -1)
            elif sounding[voice][0] != pitch:
                sounding[voice] = (pitch, len(onsets))
                onsets.append((step, pitch, voice, index))
            owner[index] = sounding[voice][1]
        return note_index(owner, onsets)

    def transpositions(self, events: IdArray, meta: Mapping[str, Any]) -> list[int]:
        """Those that keep every voice inside what it sings in the training split; 0 always."""
        down, up = -127, 127
        voices = events.reshape(-1, N_VOICES).T
        for voice, (low, high) in zip(voices, meta["voice_ranges"], strict=True):
            pitches = voice[voice < SILENCE]
            if len(pitches):
                down = max(down, low - int(pitches.min()))
                up = min(up, high - int(pitches.max()))
        if down > up or (down, up) == (-127, 127):  # outside already, or silent
            return [0]
        return sorted({0, *range(down, up + 1)})

    def transposed(self, ids: IdArray, semitones: int) -> IdArray:
        return shift_ids(ids, SILENCE, semitones)

    def describe_training(self, pieces: Sequence[IdArray]) -> dict[str, Any]:
        """Lowest and highest pitch of each voice; a voice that is silent has 0 and 127."""
        ranges = []
        for voice in np.concatenate(pieces).reshape(-1, N_VOICES).T:
            pitches = voice[voice < SILENCE]
            ranges.append([int(pitches.min()), int(pitches.max())] if len(pitches) else [0, 127])
        return {"voice_ranges": ranges}

    def evaluation_stride(self, context: int) -> int:
        return max(context // 2, 1)  # every cell is predicted from at least half a context

    def loss_groups(self, place: Ints) -> dict[str, Mask]:
        voice, sixteenth = place % N_VOICES, place // N_VOICES % SIXTEENTHS_PER_BEAT
        return {
            **{name: voice == number for number, name in enumerate(VOICE_NAMES)},
            "on_beat": sixteenth == 0,
            "half_beats": sixteenth == 2,
            "odd_sixteenths": sixteenth % 2 == 1,
            "off_beat": sixteenth > 0,
        }

    def baselines(self, train: Sequence[IdArray], pieces: Sequence[IdArray]) -> dict[str, float]:
        return chorale_baselines(train, pieces)

    def grammar(self, primer: Primer, limits: Limits) -> ChoraleGrammar:
        return ChoraleGrammar(N_IDS, primer, limits)

    def _split_at(self, ids: list[int], seconds: float) -> tuple[list[int], list[int]]:
        cut = N_VOICES * round(seconds / DEFAULT_SECONDS_PER_BEAT * SIXTEENTHS_PER_BEAT)
        return ids[:cut], ids[cut:]

    def to_config(self) -> dict[str, Any]:
        return {"kind": self.kind}

    def _read_primer(
        self, primer: NoteSequence | Sequence[int], last_seconds: float | None, keep_silence: bool
    ) -> Primer:
        """The ids of a primer, whole sixteenths of it where it is cut; a cut moves no bar line."""
        tempos = Tempos([0.0], [DEFAULT_SECONDS_PER_BEAT])
        if isinstance(primer, NoteSequence):
            tempos = primer.tempos
            _check_beat(self.seconds_per_beat(primer))
            ids = self.encode(primer)
            check_closing_rest(primer.end_time - float(primer.end.max()))
            whole = int(sixteenths_at(primer, primer.end_time))
            ids += [SILENCE] * (whole * N_VOICES - len(ids))
        else:
            ids = self.events_of(primer)
        end = float(tempos.at_quarters(math.ceil(len(ids) / N_VOICES) / SIXTEENTHS_PER_BEAT))
        seconds_per_beat = tempos.quarter_at(end)
        _check_beat(seconds_per_beat)
        dropped = 0 if keep_silence else _leading_silence(ids)
        ids = ids[dropped:]
        in_the_beat = dropped % (N_VOICES * SIXTEENTHS_PER_BEAT)  # an upbeat stays one
        first, begin = 0, 0.0
        if last_seconds is not None:
            sixteenths = max(1, round(last_seconds / seconds_per_beat * SIXTEENTHS_PER_BEAT))
            first = N_VOICES * max(0, math.ceil(len(ids) / N_VOICES) - sixteenths)
            if first:
                quarter = (dropped + first) / N_VOICES / SIXTEENTHS_PER_BEAT
                begin = float(tempos.at_quarters(quarter))
            if first and not keep_silence:
                first += _leading_silence(ids[first:])
            if first and all(i == SILENCE for i in ids[first:]):
                raise no_note_in(last_seconds)
        if not isinstance(primer, NoteSequence):
            steps = math.ceil(len(ids[first:]) / N_VOICES)
            begin = end - steps * seconds_per_beat / SIXTEENTHS_PER_BEAT
        return Primer(ids[first:], in_the_beat + first, seconds_per_beat, begin, end)


def _check_beat(seconds: float) -> None:
    if seconds < SHORTEST_BEAT_SECONDS:
        raise MidiError(
            f"the primer's beat lasts {seconds:g} s, expected {SHORTEST_BEAT_SECONDS:g} or more: "
            "its tempo is damaged."
        )


def _leading_silence(ids: list[int]) -> int:
    """How many ids are in the whole sixteenths of silence at the front; none if all is silence."""
    sounding = (index for index, event_id in enumerate(ids) if event_id != SILENCE)
    return next(sounding, 0) // N_VOICES * N_VOICES


register(ChoraleTokenizer)
