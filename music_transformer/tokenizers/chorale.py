"""Four voices on a grid of sixteenths: grid or notes to ids and back.

| ids | event |
| --- | --- |
| 0-127 | the pitch that sounds in this voice during this sixteenth |
| 128 | silence |
| 129, 130, 131 | PAD, START, END |

The grid (T, 4) is read row by row: soprano, alto, tenor, bass of one sixteenth, then of the next,
so the id at index p belongs to voice p % 4 and sixteenth p // 4. Equal neighbours are one held
note: the grid cannot tell a held pitch from a repeated one, which is the loss of this
representation, with everything between the sixteenths, velocities and timbre.

Source: Huang et al. 2018, "Music Transformer", section 3 and appendix A.1.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from music_transformer.errors import TokenError
from music_transformer.notes import NoteSequence, Tempos
from music_transformer.tokenizers.vocabulary import Ids, Ints, check_ids

N_VOICES = 4
SIXTEENTHS_PER_BEAT = 4
SILENCE = 128
PAD, START, END = 129, 130, 131
N_IDS = 132
VELOCITY = 80
DEFAULT_SECONDS_PER_BEAT = 0.75  # 80 beats a minute, for music without a tempo of its own
MIDI_SECONDS_PER_BEAT = 0.5  # what a MIDI file means that names no tempo
MAX_SIXTEENTHS = 100_000  # five hours at 80 beats a minute

VOICE_NAMES = ("soprano", "alto", "tenor", "bass")


@dataclass(frozen=True)
class ChoraleTokenizer:
    """Soprano, alto, tenor and bass, sixteenth by sixteenth."""

    kind: ClassVar[str] = "chorale"
    vocab_size: ClassVar[int] = N_IDS
    pad: ClassVar[int] = PAD
    start: ClassVar[int] = START
    end: ClassVar[int] = END

    def encode_grid(self, grid: ArrayLike) -> list[int]:
        """The ids of a grid (T, 4) of pitches, where -1 is silence.

        Raises:
            TokenError: another shape, or a value that is no pitch, named with its place.
        """
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
        """The grid (T, 4) of pitches, -1 for silence; PAD, START and END are skipped.

        A last row that is not full is completed with silence.
        """
        array = check_ids(ids, N_IDS)
        array = array[array <= SILENCE]
        missing = -len(array) % N_VOICES
        array = np.append(array, np.full(missing, SILENCE))
        return np.where(array == SILENCE, -1, array).reshape(-1, N_VOICES)  # (T, 4)

    def encode(self, notes: NoteSequence, *, keep_silence: bool = True) -> list[int]:
        """The ids of the notes, quantised to sixteenths of their own tempo map.

        Four tracks, or else four channels, each with one note at a time, are the voices in that
        order. Otherwise voices follow pitch in every sixteenth: the highest is the soprano, the
        lowest the bass, inner voices stay silent where there are fewer than four; of more than four
        the second from either end are the inner ones.

        Args:
            notes: in seconds; 120 beats a minute where they have no tempo.
            keep_silence: keep the silent sixteenths before the first note.

        Raises:
            TokenError: no notes, or a length past `MAX_SIXTEENTHS`.
        """
        if not len(notes):
            raise TokenError("there is no note to encode: a chorale needs at least one.")
        begin, finish = sixteenths(notes)
        voice = _voices_of(notes)
        grid = (
            _grid_by_pitch(notes, begin, finish)
            if voice is None
            else _grid_by_voice(notes.pitch, voice, begin, finish)
        )
        if not keep_silence:
            grid = grid[int(begin.min()) :]
        return self.encode_grid(grid)

    def encode_array(self, notes: NoteSequence, *, keep_silence: bool = True) -> NDArray[np.uint16]:
        """The ids of the notes as an array (4 T,)."""
        return np.array(self.encode(notes, keep_silence=keep_silence), dtype=np.uint16)

    def decode(
        self, ids: Ids, *, seconds_per_beat: float = DEFAULT_SECONDS_PER_BEAT
    ) -> NoteSequence:
        """The notes of any sequence of known ids: equal neighbours are one, voice v is track v.

        Args:
            ids: PAD, START and END are skipped.
            seconds_per_beat: four sixteenths; rounded to microseconds, which is what MIDI can say.

        Raises:
            TokenError: an id outside the vocabulary, named with its position; a beat of no length.
        """
        if not 0 < seconds_per_beat < 60:
            raise TokenError(f"seconds_per_beat={seconds_per_beat} is no beat; try 0.75.")
        seconds_per_beat = round(seconds_per_beat * 1e6) / 1e6
        grid = self.decode_grid(ids)
        runs = [_runs(grid[:, voice]) for voice in range(N_VOICES)]
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
        )

    def symbols(self, ids: Ids) -> list[str]:
        """The name of each id's event, such as ``PITCH 60`` or ``SILENCE``."""
        names = {SILENCE: "SILENCE", PAD: "PAD", START: "START", END: "END"}
        return [names.get(i, f"PITCH {i}") for i in check_ids(ids, N_IDS).tolist()]

    def duration_seconds(
        self, ids: Ids, *, seconds_per_beat: float = DEFAULT_SECONDS_PER_BEAT
    ) -> float:
        """How long the rows of the grid last, the last one counted whole."""
        return len(self.decode_grid(ids)) * seconds_per_beat / SIXTEENTHS_PER_BEAT

    def seconds_per_beat(self, notes: NoteSequence) -> float:
        """The beat of the notes: the tempo in force the longest; 0.5 s where they have none."""
        times, tempos = _tempo_map(notes)
        until = np.append(times[1:], max(notes.end_time, float(times[-1])))
        in_force = np.clip(until, None, notes.end_time) - np.clip(times, None, notes.end_time)
        different, which = np.unique(tempos, return_inverse=True)
        return float(different[np.argmax(np.bincount(which, weights=in_force))])

    def to_config(self) -> dict[str, Any]:
        """What `tokenizer_from_config` needs to make an equal tokenizer."""
        return {"kind": self.kind}


def _tempo_map(notes: NoteSequence) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Times in seconds, the first of them 0, and the seconds per beat from each on."""
    times, tempos = notes.tempos.seconds, notes.tempos.seconds_per_quarter
    if len(times) and times[0] <= 0:
        return times, tempos
    return np.append(0.0, times), np.append(MIDI_SECONDS_PER_BEAT, tempos)


def to_sixteenths(quarters: ArrayLike) -> Ints:
    """Numbers of the sixteenths nearest to times in quarters; halves go up, as in `to_steps`."""
    nearest = np.floor(np.asarray(quarters, np.float64) * SIXTEENTHS_PER_BEAT + 0.5 + 1e-6)
    return nearest.astype(np.int64)


def sixteenths(notes: NoteSequence) -> tuple[Ints, Ints]:
    """The sixteenths at which each note begins and, at least one later, ends.

    Raises:
        TokenError: a length past `MAX_SIXTEENTHS`.
    """

    def quantise(seconds: NDArray[np.float64]) -> Ints:
        beats = notes.tempos.quarters(seconds)
        if not beats.max() * SIXTEENTHS_PER_BEAT <= MAX_SIXTEENTHS:
            raise TokenError(
                f"the notes last {beats.max():.0f} beats, more than "
                f"{MAX_SIXTEENTHS // SIXTEENTHS_PER_BEAT}: cut the silence, or check the tempo."
            )
        return to_sixteenths(beats)

    begin = quantise(notes.start)
    return begin, np.maximum(quantise(notes.end), begin + 1)


def _voices_of(notes: NoteSequence) -> Ints | None:
    """The voice of each note by track or else by channel; None if neither has four voices."""
    for part in (notes.track, notes.channel):
        parts, voice = np.unique(part, return_inverse=True)
        if len(parts) == N_VOICES and all(
            is_monophonic(notes.start[voice == v], notes.end[voice == v]) for v in range(N_VOICES)
        ):
            return voice.astype(np.int64)
    return None


def is_monophonic(start: NDArray[np.float64], end: NDArray[np.float64]) -> bool:
    """Whether each note has gone, or is about to, when the next begins: legato may overlap."""
    length = np.minimum(end - start, np.append(end[1:], np.inf) - start)[:-1]
    overlap = end[:-1] - start[1:]
    return bool(np.all((np.diff(start) > 0) & (overlap <= length / 4)))


def _grid_by_voice(pitch: Ints, voice: Ints, begin: Ints, finish: Ints) -> Ints:
    """The grid (T, 4) of notes whose voice is known; a later note cuts the one that sounds.

    Of several notes that round to one sixteenth the longest has it.
    """
    grid = np.full((int(finish.max()), N_VOICES), -1, dtype=np.int64)
    for v in range(N_VOICES):
        notes = np.flatnonzero(voice == v)
        notes = notes[np.lexsort((finish[notes], begin[notes]))]
        ends = np.minimum(finish[notes], np.append(begin[notes][1:], len(grid)))
        for note, end in zip(notes, ends, strict=True):
            grid[begin[note] : end, v] = pitch[note]
    return grid


def _grid_by_pitch(notes: NoteSequence, begin: Ints, finish: Ints) -> Ints:
    """The grid (T, 4) of notes whose voices are found by pitch, sixteenth by sixteenth.

    A pitch that two tracks play is two voices; within one track and channel it sounds once.
    """
    grid = np.full((int(finish.max()), N_VOICES), -1, dtype=np.int64)
    keys = list(zip(*(c.tolist() for c in (notes.pitch, notes.track, notes.channel)), strict=True))
    changes = [(at, 1, key) for at, key in zip(begin.tolist(), keys, strict=True)]
    changes += [(at, -1, key) for at, key in zip(finish.tolist(), keys, strict=True)]
    changes.sort()
    count: Counter[tuple[int, int, int]] = Counter()  # of the notes that sound, by key
    low_to_high: list[int] = []  # their pitches, one for each key
    now = 0
    for at, change, key in changes:
        if at > now:
            grid[now:at] = _outer_and_next(low_to_high)
            now = at
        before = count[key]
        count[key] += change
        if before == 0:
            insort(low_to_high, key[0])
        elif count[key] == 0:
            del low_to_high[bisect_left(low_to_high, key[0])]
    return grid


def _outer_and_next(low_to_high: list[int]) -> tuple[int, int, int, int]:
    """Soprano, alto, tenor, bass: outer pitches first, then their neighbours; -1 for silence."""
    pitches, n = low_to_high, len(low_to_high)
    return (
        pitches[-1] if n else -1,
        pitches[-2] if n > 2 else -1,
        pitches[1] if n > 3 else -1,
        pitches[0] if n > 1 else -1,
    )


def _runs(voice: Ints) -> tuple[Ints, Ints, Ints]:
    """Pitch, first sixteenth and sixteenth after the last, of each held note in one voice (T,)."""
    edges = np.flatnonzero(np.diff(voice)) + 1
    begin = np.append(np.zeros(min(len(voice), 1), dtype=np.int64), edges)
    finish = np.append(edges, np.full(min(len(voice), 1), len(voice), dtype=np.int64))
    sounds = voice[begin] >= 0
    return voice[begin][sounds], begin[sounds], finish[sounds]
