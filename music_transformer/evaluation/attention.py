"""What a model attends to as it writes a note, by note; the query is the position that writes it.

The weight of an event goes to the note it is part of (`note_of_event`), of START and time to none.
"""

from dataclasses import dataclass

import numpy as np
import torch

from music_transformer.checkpoint.session import Session
from music_transformer.errors import ConfigError, MidiError
from music_transformer.model.config import ModelConfig
from music_transformer.model.introspection import attention_weights
from music_transformer.model.registry import kind_of
from music_transformer.notes import NoteSequence, Pedals
from music_transformer.representations.base import NoteIndex
from music_transformer.representations.ids import Floats


@dataclass(frozen=True)
class NoteAttention:
    """The attention of one layer on the way to one note; `by_note` and `elsewhere` make 1."""

    notes: NoteSequence  # all of the piece, as the tokenizer gives them back
    query: int  # the row of the note that was written
    layer: int  # 0 is the first
    by_note: Floats  # (H, M) weight on each note; 0 for later ones and those out of the context
    elsewhere: Floats  # (H,) weight on START and on time between the notes
    by_event: Floats  # (H, L, L) the whole map of the window, the query in its last row
    first_event: int  # the index in the piece of the window's first id; START is 0


def note_attention(
    session: Session,
    notes: NoteSequence,
    *,
    query: int = -1,
    at_seconds: float | None = None,
    layer: int = -1,
) -> NoteAttention:
    """What the note in row `query` of the result's `notes` attends to; rows may count from the end.

    With `at_seconds` it is the last note that begins then or before, the highest of a chord.

    Raises:
        MidiError: there are no notes.
        ConfigError: the model has no attention heads, or no such layer, or the piece no such note.
    """
    require_heads(session)
    if not len(notes):
        raise MidiError("no notes: there is nothing to attend to.")
    tokenizer = session.tokenizer
    ids = tokenizer.encode(notes, keep_silence=False)
    decoded = tokenizer.decode(ids, seconds_per_beat=tokenizer.seconds_per_beat(notes))
    silence = max(0.0, float(notes.start.min() - decoded.start.min()))
    decoded = decoded.replaced(
        start=decoded.start + silence,
        end=decoded.end + silence,
        pedals=Pedals(),
        end_time=decoded.end_time + silence,
    )
    parts = tokenizer.note_of_event(ids)
    if at_seconds is not None:
        query = int(np.searchsorted(decoded.start, at_seconds + 1e-6, side="right")) - 1
        if query < 0 or not at_seconds <= notes.end_time:
            raise ConfigError(
                f"{at_seconds:g} s: no note begins there or before, or the music is over, which "
                f"ends at {notes.end_time:.2f} s."
            )
    count, layers = len(decoded), session.config.n_layers
    if not -count <= query < count:
        raise ConfigError(f"note {query}: there are notes 0 to {count - 1}.")
    if not -layers <= layer < layers:
        raise ConfigError(f"layer {layer}: the model has layers 0 to {layers - 1}.")
    read = [tokenizer.start, *ids[: parts.onset[query]]]  # position i holds event i - 1
    first = max(0, len(read) - session.config.context)
    weights = attention_weights(
        session.model,
        torch.tensor(read[first:], device=session.device),
        place=torch.arange(first, len(read), device=session.device),
        layers=[layer],
    )[0]  # (H, L, L)
    by_event: Floats = weights.double().cpu().numpy()
    by_note, elsewhere = weights_by_note(by_event[:, -1], parts, first)
    return NoteAttention(
        decoded, query % count, layer % layers, by_note, elsewhere, by_event, first_event=first
    )


def require_heads(session: Session) -> None:
    """Raise ConfigError where the model is not a decoder, with attention heads to look at."""
    if not isinstance(session.config, ModelConfig):
        raise ConfigError(
            f"{session.path}: the attention of a model of kind {kind_of(session.config)} cannot be "
            "drawn, only that of the heads of a decoder; take another checkpoint, such as piano."
        )


def weights_by_note(weights: Floats, parts: NoteIndex, first: int) -> tuple[Floats, Floats]:
    """Weights (..., L), position 0 being event `first` - 1: (..., M) by note, (...) on none."""
    owner = np.append(-1, parts.note)[first : first + weights.shape[-1]]  # (L,)
    by_note = np.zeros((*weights.shape[:-1], len(parts.onset) + 1))  # the last column is nobody's
    for position, note in enumerate(owner.tolist()):
        by_note[..., note] += weights[..., position]
    return by_note[..., :-1], by_note[..., -1]
