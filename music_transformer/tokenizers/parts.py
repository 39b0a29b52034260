"""Which note each id is part of: how weights on ids become weights on notes.

A note's parts are its NOTE_ON, the SET_VELOCITY right before it and its NOTE_OFF; in a chorale each
sixteenth of it. Time between the notes, pedals, silence, PAD, START and END are part of none.
"""

from typing import NamedTuple

import numpy as np

from music_transformer.tokenizers.chorale import N_VOICES, SILENCE, ChoraleTokenizer
from music_transformer.tokenizers.vocabulary import (
    N_EVENTS,
    NOTE_OFF,
    NOTE_ON,
    TIME_SHIFT,
    VELOCITY,
    Ids,
    Ints,
    Tokenizer,
    check_ids,
)


class Parts(NamedTuple):
    """Ids and the rows of ``tokenizer.decode(ids)``.

    Attributes:
        note: (N,) the row that each id is part of, -1 for none.
        onset: (M,) the index of the id with which each row begins: NOTE_ON, or first sixteenth.
    """

    note: Ints
    onset: Ints


def parts_of(tokenizer: Tokenizer, ids: Ids) -> Parts:
    """The note of each id, and the first id of each note.

    Raises:
        TokenError: an id outside the vocabulary.
    """
    known = check_ids(ids, tokenizer.vocab_size).tolist()
    chorale = isinstance(tokenizer, ChoraleTokenizer)
    owner, onsets = _of_chorale(known) if chorale else _of_performance(known)
    # Notes were numbered as they came; the rows of a NoteSequence are sorted.
    order = sorted(range(len(onsets)), key=lambda number: onsets[number][:3])
    row = np.empty(len(onsets) + 1, dtype=np.int64)
    row[order] = np.arange(len(onsets))
    row[-1] = -1
    first = np.array([onsets[number][3] for number in order], dtype=np.int64)
    return Parts(row[np.array(owner, dtype=np.int64)], first)


#: Time, pitch and voice of a note, and the index of its first id.
_Onset = tuple[int, int, int, int]


def _of_performance(ids: list[int]) -> tuple[list[int], list[_Onset]]:
    onsets: list[_Onset] = []
    owner = [-1] * len(ids)
    numbers: dict[tuple[int, int], int] = {}  # two onsets of a pitch in one step are one note
    sounding: dict[int, int] = {}
    step = 0
    for index, event_id in enumerate(ids):
        if event_id < NOTE_OFF:
            pitch = event_id - NOTE_ON
            number = numbers.setdefault((step, pitch), len(onsets))
            if number == len(onsets):
                onsets.append((step, pitch, 0, index))
            owner[index] = sounding[pitch] = number
            if index and VELOCITY <= ids[index - 1] < N_EVENTS:
                owner[index - 1] = number
        elif event_id < TIME_SHIFT:
            owner[index] = sounding.pop(event_id - NOTE_OFF, -1)
        elif event_id < VELOCITY:
            step += event_id - TIME_SHIFT + 1
    return owner, onsets


def _of_chorale(ids: list[int]) -> tuple[list[int], list[_Onset]]:
    onsets: list[_Onset] = []
    owner = [-1] * len(ids)
    cell = 0
    sounding: list[tuple[int, int]] = [(SILENCE, -1)] * N_VOICES  # pitch and number by voice
    for index, pitch in enumerate(ids):
        if pitch > SILENCE:
            continue
        step, voice = divmod(cell, N_VOICES)
        cell += 1
        if pitch < SILENCE and sounding[voice][0] != pitch:
            sounding[voice] = (pitch, len(onsets))
            onsets.append((step, pitch, voice, index))
        elif pitch == SILENCE:
            sounding[voice] = (SILENCE, -1)
        owner[index] = sounding[voice][1]
    return owner, onsets
