"""What the model listened to when it wrote a note, told in notes.

The model attends to events; a musician sees notes. An event's weight is given to the note it is
part of, see `note_of_event`. What is left went to the time between the notes, and to START.

The query is the place that wrote the note: the weights with which the model, having read all before
it, chose this event. For a note of the primer: those with which it would have expected it.
"""

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from music_transformer.checkpoint.session import Session
from music_transformer.errors import ConfigError
from music_transformer.evaluation.attention import require_heads, weights_by_note
from music_transformer.model.introspection import attention_weights
from music_transformer.notes import NoteSequence

if TYPE_CHECKING:
    from music_transformer.web.takes import Take

#: The past that is looked at, the whole context of most models: as much as a moment's work.
MAX_EVENTS = 2048
Note = tuple[float, int, int]  # start, pitch, track
#: Less than this is not drawn.
SMALLEST_WEIGHT = 0.004
#: Notes of one pitch and track are further apart than this.
SAME_SECONDS = 2e-3


def attention_of_note(
    session: Session, take: "Take", *, start: float, pitch: int, track: int
) -> dict[str, Any]:
    """The weights of one note, by layer and head, on the notes before it.

    Returns:
        ``layers`` and ``heads``, how many there are; ``from_seconds``, where the past that is
        looked at begins; ``notes``, rows [start, pitch, track]; ``weights``, rows [layer, head,
        row of notes, weight].

    Raises:
        ConfigError: the take has no such note, or the model no attention heads.
    """
    require_heads(session)
    told = _onsets(take.decoded())
    if not any(_far(note, start, pitch, track) < SAME_SECONDS for note in told):
        raise ConfigError("the take has no such note.")
    notes = _as_told(session, take, told)
    row = min(range(len(notes)), key=lambda row: _far(notes[row], start, pitch, track))
    parts = session.tokenizer.note_of_event(take.ids)  # its rows are those of `notes`
    read = [session.tokenizer.start, *take.ids[: parts.onset[row]]]
    first = max(0, len(read) - min(session.config.context, MAX_EVENTS))
    weights = attention_weights(
        session.model,
        torch.tensor(read[first:], device=session.device),
        place=torch.arange(first, len(read), device=session.device) + take.read.first_place,
        last_only=True,
    )[:, :, 0]  # (n_layers, H, L)
    by_note, _ = weights_by_note(weights.double().cpu().numpy(), parts, first)
    kept = np.argwhere(by_note >= SMALLEST_WEIGHT)  # (K, 3)
    shown, shown_row = np.unique(kept[:, 2], return_inverse=True)
    oldest = int(np.argmax(parts.onset >= first - 1))
    return {
        "layers": session.config.n_layers,
        "heads": session.config.n_heads,
        "from_seconds": notes[oldest][0] if first else 0.0,
        "notes": [list(notes[note]) for note in shown],
        "weights": [
            [layer, head, in_notes, round(float(by_note[layer, head, note]), 4)]
            for (layer, head, note), in_notes in zip(kept.tolist(), shown_row.tolist(), strict=True)
        ],
    }


def _as_told(session: Session, take: "Take", told: list[Note]) -> list[Note]:
    """The note that was told for each note of the ids: a primer's lie off the grid of its ids."""
    beat = take.read.seconds_per_beat
    notes = session.tokenizer.decode(take.ids, seconds_per_beat=beat)
    shift = take.primer_seconds - session.tokenizer.duration_seconds(
        take.read.ids, seconds_per_beat=beat
    )
    tracks = max(t for _, _, t in told) - int(notes.track.max())  # those of the primer
    return [
        min(told, key=lambda note: (_far(note, begin + shift, p), abs(note[2] - t - tracks)))
        for begin, p, t in _onsets(notes)
    ]


def _onsets(notes: NoteSequence) -> list[Note]:
    columns = (notes.start.round(4), notes.pitch, notes.track)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def _far(note: Note, start: float, pitch: int, track: int | None = None) -> float:
    """How many seconds lie between a note and another of this pitch and track, if it is one."""
    if note[1] != pitch or track not in (None, note[2]):
        return math.inf
    return abs(note[0] - start)
