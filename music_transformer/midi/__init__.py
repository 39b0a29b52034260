"""MIDI files to notes and back."""

from music_transformer.midi.read import read_midi, read_midi_bytes
from music_transformer.midi.write import write_midi

__all__ = ["read_midi", "read_midi_bytes", "write_midi"]
