"""MIDI files to notes and back."""

from music_transformer.midi.bars import bar_lines, part_of
from music_transformer.midi.read import SUFFIXES, read_midi, read_midi_bytes
from music_transformer.midi.write import check_writable, write_midi

__all__ = [
    "SUFFIXES",
    "bar_lines",
    "check_writable",
    "part_of",
    "read_midi",
    "read_midi_bytes",
    "write_midi",
]
