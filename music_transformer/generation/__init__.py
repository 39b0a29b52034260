"""From a model and a primer, or a melody, to new music."""

from music_transformer.generation.accompaniment import (
    Accompaniment,
    AccompanimentReport,
    accompany,
)
from music_transformer.generation.continuation import generate, generate_batch, stream
from music_transformer.generation.degeneration import broken_rules, degeneracies
from music_transformer.generation.filters import Filters
from music_transformer.generation.report import GenerationReport
from music_transformer.generation.run import Generation
from music_transformer.generation.settings import Settings

__all__ = [
    "Accompaniment",
    "AccompanimentReport",
    "Filters",
    "Generation",
    "GenerationReport",
    "Settings",
    "accompany",
    "broken_rules",
    "degeneracies",
    "generate",
    "generate_batch",
    "stream",
]
