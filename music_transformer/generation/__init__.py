"""From a model and a primer, or a melody, to new music."""

from music_transformer.generation.accompaniment import Accompaniment, accompany
from music_transformer.generation.continuation import generate, generate_batch, stream, stream_notes
from music_transformer.generation.degeneration import broken_rules, degeneracies
from music_transformer.generation.filling import fill
from music_transformer.generation.report import Generation, Report
from music_transformer.sampling import Settings

__all__ = [
    "Accompaniment",
    "Generation",
    "Report",
    "Settings",
    "accompany",
    "broken_rules",
    "degeneracies",
    "fill",
    "generate",
    "generate_batch",
    "stream",
    "stream_notes",
]
