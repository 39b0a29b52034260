"""Music Transformer: read MIDI, train with relative attention, continue a motif.

The names below are the public few; each is imported when it is first used (PEP 562), because torch
takes seconds to import and reading, encoding and rendering MIDI need none of it.
"""

import importlib
import sys
from typing import TYPE_CHECKING, Any

from music_transformer._version import __version__ as __version__

if TYPE_CHECKING:
    from music_transformer import positions
    from music_transformer.checkpoint import load_checkpoint
    from music_transformer.errors import MusicTransformerError
    from music_transformer.generation import accompany, fill, generate, stream, stream_notes
    from music_transformer.midi import read_midi, write_midi
    from music_transformer.model import (
        AccompanimentConfig,
        AccompanimentTransformer,
        ModelConfig,
        MusicTransformer,
        PerformanceRNN,
        RNNConfig,
    )
    from music_transformer.notes import NoteSequence
    from music_transformer.representations import ChoraleTokenizer, PerformanceTokenizer
    from music_transformer.training import train

__all__ = [
    "AccompanimentConfig",
    "AccompanimentTransformer",
    "ChoraleTokenizer",
    "ModelConfig",
    "MusicTransformer",
    "MusicTransformerError",
    "NoteSequence",
    "PerformanceRNN",
    "PerformanceTokenizer",
    "RNNConfig",
    "accompany",
    "fill",
    "generate",
    "load_checkpoint",
    "positions",
    "read_midi",
    "stream",
    "stream_notes",
    "train",
    "write_midi",
]

_ROOM_OF = {
    "AccompanimentConfig": "model",
    "AccompanimentTransformer": "model",
    "ChoraleTokenizer": "representations",
    "ModelConfig": "model",
    "MusicTransformer": "model",
    "MusicTransformerError": "errors",
    "NoteSequence": "notes",
    "PerformanceRNN": "model",
    "PerformanceTokenizer": "representations",
    "RNNConfig": "model",
    "accompany": "generation",
    "fill": "generation",
    "generate": "generation",
    "load_checkpoint": "checkpoint",
    "read_midi": "midi",
    "stream": "generation",
    "stream_notes": "generation",
    "train": "training",
    "write_midi": "midi",
}


def __getattr__(name: str) -> Any:
    """Import a public name on first use and keep it."""
    if name == "positions":  # a module of its own: teaching functions on numpy arrays
        return importlib.import_module(f"{__name__}.positions")
    if name not in _ROOM_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_ROOM_OF[name]}"), name)
    globals()[name] = value
    _give_notes_a_view()
    return value


def _give_notes_a_view() -> None:
    """Let a notebook show and play a NoteSequence: notes may not import render, floors above."""
    notes = sys.modules.get(f"{__name__}.notes")
    if notes is not None:
        notes.set_notebook_view(_notebook_view)


def _notebook_view(notes: "NoteSequence") -> str:
    """A piano roll and a player, made only when a notebook shows the notes."""
    from music_transformer.render.audio import audio_html
    from music_transformer.render.pianoroll import piano_roll_svg

    return piano_roll_svg(notes) + audio_html(notes)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
