"""Prepared data and a preset -> a run folder with a trained model."""

from music_transformer.training.assemble import train
from music_transformer.training.config import TrainingConfig
from music_transformer.training.loop import Trainer
from music_transformer.training.presets import PRESETS, Preset
from music_transformer.training.run_dir import RunFolder, TrainingResult

__all__ = ["PRESETS", "Preset", "RunFolder", "Trainer", "TrainingConfig", "TrainingResult", "train"]
