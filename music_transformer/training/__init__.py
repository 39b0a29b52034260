"""Prepared data and a preset -> a run folder with a trained model."""

from music_transformer.training.config import TrainingConfig
from music_transformer.training.loop import Trainer, TrainingResult
from music_transformer.training.presets import PRESETS, Preset
from music_transformer.training.run_dir import RunFolder

__all__ = ["PRESETS", "Preset", "RunFolder", "Trainer", "TrainingConfig", "TrainingResult"]
