"""Music Transformer: read MIDI, train with relative attention, continue a motif.

The public names are imported when they are first used (PEP 562): torch takes seconds to import, and
reading, encoding and rendering MIDI need none of it.
"""

import importlib
import sys
from typing import TYPE_CHECKING, Any

from music_transformer._version import __version__ as __version__

if TYPE_CHECKING:
    from music_transformer import positions as positions
    from music_transformer.checkpoint import load_checkpoint as load_checkpoint
    from music_transformer.errors import MusicTransformerError as MusicTransformerError
    from music_transformer.generation import accompany as accompany
    from music_transformer.generation import fill as fill
    from music_transformer.generation import generate as generate
    from music_transformer.generation import stream as stream
    from music_transformer.generation import stream_notes as stream_notes
    from music_transformer.midi import read_midi as read_midi
    from music_transformer.midi import write_midi as write_midi
    from music_transformer.model import AccompanimentConfig as AccompanimentConfig
    from music_transformer.model import AccompanimentTransformer as AccompanimentTransformer
    from music_transformer.model import ModelConfig as ModelConfig
    from music_transformer.model import MusicTransformer as MusicTransformer
    from music_transformer.model import PerformanceRNN as PerformanceRNN
    from music_transformer.model import RNNConfig as RNNConfig
    from music_transformer.notes import NoteSequence as NoteSequence
    from music_transformer.representations import ChoraleTokenizer as ChoraleTokenizer
    from music_transformer.representations import PerformanceTokenizer as PerformanceTokenizer
    from music_transformer.training import train as train

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
__all__ = ["positions", *_ROOM_OF]


def __getattr__(name: str) -> Any:
    """Import a public name on first use and keep it."""
    if name == "positions":  # a module of its own
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
