"""What the model listened to when it wrote a note, told in notes.

The model attends to events; a musician sees notes. An event's weight is given to the note it is
part of: its NOTE_ON, the SET_VELOCITY before it, its NOTE_OFF; in a chorale each sixteenth of it.
What is left went to the time between the notes, and to START.

The query is the place that wrote the note: the weights with which the model, having read all before
it, chose this event. For a note of the primer: those with which it would have expected it.
"""

from dataclasses import dataclass
from typing import Any

import torch

from music_transformer.checkpoint import Session
from music_transformer.errors import ConfigError
from music_transformer.model.attention_row import attention_row
from music_transformer.notes import STEPS_PER_SECOND
from music_transformer.tokenizers import ChoraleTokenizer
from music_transformer.tokenizers.chorale import N_VOICES, SILENCE
from music_transformer.tokenizers.vocabulary import NOTE_OFF, NOTE_ON, TIME_SHIFT, VELOCITY
from music_transformer.web.takes import Take, sixteenth_seconds

#: The past that is looked at, the whole context of most models: as much as a moment's work.
MAX_EVENTS = 2048
#: Less than this is not drawn.
SMALLEST_WEIGHT = 0.004


@dataclass(frozen=True)
class Onset:
    """The first event of a note: its index among the ids, and which note it is."""

    index: int
    start: float
    pitch: int
    track: int


def onsets_of(take: Take, *, chorale: bool) -> tuple[list[Onset], list[int]]:
    """The notes of a take, and for each of its ids the number of the note it is part of, or -1."""
    ids = list(take.ids)  # the composing thread may still add to them
    return _of_chorale(ids, sixteenth_seconds(take.read)) if chorale else _of_performance(ids)


def attention_of_note(
    session: Session, take: Take, *, start: float, pitch: int, track: int
) -> dict[str, Any]:
    """The weights of one note, by layer and head, on the notes before it.

    Returns:
        ``layers`` and ``heads``, how many there are; ``from_seconds``, where the past that is
        looked at begins; ``notes``, rows [start, pitch, track]; ``weights``, rows [layer, head,
        row of notes, weight].

    Raises:
        ConfigError: the take has no such note.
    """
    onsets, owner = onsets_of(take, chorale=isinstance(session.tokenizer, ChoraleTokenizer))
    onset = next(
        (o for o in onsets if (o.pitch, o.track) == (pitch, track) and abs(o.start - start) < 2e-3),
        None,
    )
    if onset is None:
        raise ConfigError("the take has no such note.")
    context = min(session.config.context, MAX_EVENTS)
    read = [session.tokenizer.start, *take.ids[: onset.index]]
    first = max(0, len(read) - context)  # position i of `read` holds event i - 1
    places = torch.arange(first, len(read)) + take.read.first_place
    window = torch.tensor(read[first:])
    device = session.device
    weights = attention_row(session.model, window.to(device), place=places.to(device))
    sums: dict[tuple[int, int, int], float] = {}
    for layer, heads in enumerate(weights.tolist()):
        for head, row in enumerate(heads):
            for position, weight in enumerate(row, start=first):
                note = owner[position - 1] if position else -1
                if note >= 0:
                    key = (layer, head, note)
                    sums[key] = sums.get(key, 0.0) + weight
    kept = {key: weight for key, weight in sums.items() if weight >= SMALLEST_WEIGHT}
    shown = sorted({note for _, _, note in kept})
    row_of = {note: row for row, note in enumerate(shown)}
    oldest = next((o.start for o in onsets if o.index >= first), 0.0)
    return {
        "layers": session.config.n_layers,
        "heads": session.config.n_heads,
        "from_seconds": oldest if first else 0.0,
        "notes": [[onsets[note].start, onsets[note].pitch, onsets[note].track] for note in shown],
        "weights": [
            [layer, head, row_of[note], round(weight, 4)]
            for (layer, head, note), weight in sorted(kept.items())
        ],
    }


def _of_performance(ids: list[int]) -> tuple[list[Onset], list[int]]:
    onsets: list[Onset] = []
    owner = [-1] * len(ids)
    sounding: dict[int, int] = {}
    step = 0
    for index, event_id in enumerate(ids):
        if event_id < NOTE_OFF:
            pitch = event_id - NOTE_ON
            owner[index] = sounding[pitch] = len(onsets)
            if index and ids[index - 1] >= VELOCITY:
                owner[index - 1] = len(onsets)
            onsets.append(Onset(index, step / STEPS_PER_SECOND, pitch, 0))
        elif event_id < TIME_SHIFT:
            owner[index] = sounding.pop(event_id - NOTE_OFF, -1)
        elif event_id < VELOCITY:
            step += event_id - TIME_SHIFT + 1
    return onsets, owner


def _of_chorale(ids: list[int], sixteenth: float) -> tuple[list[Onset], list[int]]:
    onsets: list[Onset] = []
    owner = [-1] * len(ids)
    for index, pitch in enumerate(ids):
        if pitch >= SILENCE:
            continue
        before = index - N_VOICES
        if before >= 0 and ids[before] == pitch:
            owner[index] = owner[before]
        else:
            owner[index] = len(onsets)
            onsets.append(Onset(index, index // N_VOICES * sixteenth, pitch, index % N_VOICES))
    return onsets, owner
