"""From notes to the grid of a chorale: sixteenths, voices, and the ids of its cells."""

from bisect import insort
from collections import Counter

import numpy as np
from numpy.typing import ArrayLike

from music_transformer.errors import TokenError
from music_transformer.notes import NoteSequence
from music_transformer.representations.ids import Floats, Ints

N_VOICES = 4
VOICE_NAMES = ("soprano", "alto", "tenor", "bass")
SIXTEENTHS_PER_BEAT = 4
SILENCE = 128
N_EVENTS = SILENCE + 1  # the pitches and silence
PAD, START, END = 129, 130, 131
N_IDS = 132

MAX_SIXTEENTHS = 100_000  # five hours at 80 beats a minute


def to_sixteenths(quarters: ArrayLike) -> Ints:
    """Numbers of the sixteenths nearest to times in quarters; halves go up, as in `to_steps`."""
    nearest = np.floor(np.asarray(quarters, np.float64) * SIXTEENTHS_PER_BEAT + 0.5 + 1e-6)
    return nearest.astype(np.int64)


def sixteenths(notes: NoteSequence) -> tuple[Ints, Ints]:
    """The sixteenths at which each note begins and, at least one later, ends."""
    begin = sixteenths_at(notes, notes.start)
    return begin, np.maximum(sixteenths_at(notes, notes.end), begin + 1)


def sixteenths_at(notes: NoteSequence, seconds: Floats | float) -> Ints:
    """The nearest sixteenths to times in the music; TokenError past `MAX_SIXTEENTHS`."""
    beats = np.asarray(notes.tempos.quarters(seconds))
    if not beats.max() * SIXTEENTHS_PER_BEAT <= MAX_SIXTEENTHS:
        raise TokenError(
            f"the notes last {beats.max():.0f} beats, more than "
            f"{MAX_SIXTEENTHS // SIXTEENTHS_PER_BEAT}: cut the silence, or check the tempo."
        )
    return to_sixteenths(beats)


def voices_of(notes: NoteSequence) -> Ints | None:
    """The voice of each note by track or else by channel; None if neither has four voices."""
    for part in (notes.track, notes.channel):
        parts, voice = np.unique(part, return_inverse=True)
        if len(parts) == N_VOICES and all(
            is_monophonic(notes.start[voice == v], notes.end[voice == v]) for v in range(N_VOICES)
        ):
            return voice.astype(np.int64)
    return None


def is_monophonic(start: Floats, end: Floats) -> bool:
    """Whether each note has gone, or is about to, when the next begins: legato may overlap."""
    length = np.minimum(end - start, np.append(end[1:], np.inf) - start)[:-1]
    overlap = end[:-1] - start[1:]
    return bool(np.all((np.diff(start) > 0) & (overlap <= length / 4)))


def grid_by_voice(pitch: Ints, voice: Ints, begin: Ints, finish: Ints) -> Ints:
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


def grid_by_pitch(notes: NoteSequence, begin: Ints, finish: Ints) -> Ints:
    """The grid (T, 4) of notes whose voices are found by pitch, sixteenth by sixteenth.

    A pitch that two tracks play is two voices; within one track and channel it sounds once.
    """
    grid = np.full((int(finish.max()), N_VOICES), -1, dtype=np.int64)
    keys = list(zip(*(c.tolist() for c in (notes.pitch, notes.track, notes.channel)), strict=True))
    changes = [(at, 1, key) for at, key in zip(begin.tolist(), keys, strict=True)]
    changes += [(at, -1, key) for at, key in zip(finish.tolist(), keys, strict=True)]
    changes.sort()
    count: Counter[tuple[int, int, int]] = Counter()  # of the notes that sound, by key
    voices = [0] * SILENCE  # keys that sound, by pitch
    low_to_high: list[int] = []  # the pitches that sound
    now = 0
    for at, change, key in changes:
        if at > now:
            grid[now:at] = _outer_and_next(low_to_high, voices)
            now = at
        before = count[key]
        count[key] += change
        pitch = key[0]
        if before == 0:
            if not voices[pitch]:
                insort(low_to_high, pitch)
            voices[pitch] += 1
        elif count[key] == 0:
            voices[pitch] -= 1
            if not voices[pitch]:
                low_to_high.remove(pitch)
    return grid


def _outer_and_next(low_to_high: list[int], voices: list[int]) -> tuple[int, int, int, int]:
    """Soprano, alto, tenor, bass: outer pitches first, then their neighbours; -1 for silence."""
    few = low_to_high if len(low_to_high) <= 4 else low_to_high[:2] + low_to_high[-2:]
    pitches = [pitch for pitch in few for _ in range(min(voices[pitch], 4))]
    n = len(pitches)
    return (
        pitches[-1] if n else -1,
        pitches[-2] if n > 2 else -1,
        pitches[1] if n > 3 else -1,
        pitches[0] if n > 1 else -1,
    )


def held_notes(voice: Ints) -> tuple[Ints, Ints, Ints]:
    """Pitch, first sixteenth and sixteenth after the last, of each held note in one voice (T,)."""
    edges = np.flatnonzero(np.diff(voice)) + 1
    begin = np.append(np.zeros(min(len(voice), 1), dtype=np.int64), edges)
    finish = np.append(edges, np.full(min(len(voice), 1), len(voice), dtype=np.int64))
    sounds = voice[begin] >= 0
    return voice[begin][sounds], begin[sounds], finish[sounds]
