"""The learning rate as a pure function of the step."""

import math

from music_transformer.training.config import TrainingConfig


def warmup_steps(config: TrainingConfig) -> int:
    """Steps of warm-up: ``warmup`` itself, or that fraction of all steps where it is below 1."""
    if config.warmup < 1.0:
        return round(config.warmup * config.steps)
    return min(round(config.warmup), config.steps)


def cooldown_start(config: TrainingConfig) -> int:
    """The first step at which ``wsd`` is below its plateau."""
    return config.steps - round(config.cooldown * config.steps)


def learning_rate(config: TrainingConfig, step: int) -> float:
    """The rate of the update number ``step``, counted from 0.

    Linear from near 0 over the warm-up; then ``cosine`` falls to ``final_fraction`` of the peak at
    the last step, ``wsd`` stays and falls there linearly over the last ``cooldown`` of the steps.
    """
    warmup = warmup_steps(config)
    if step < warmup:
        return config.learning_rate * (step + 1) / warmup
    start = warmup if config.schedule == "cosine" else max(warmup, cooldown_start(config))
    if step < start:
        return config.learning_rate
    progress = min((step - start + 1) / max(config.steps - start, 1), 1.0)
    shape = (
        0.5 * (1.0 + math.cos(math.pi * progress)) if config.schedule == "cosine" else 1 - progress
    )
    floor = config.final_fraction
    return config.learning_rate * (floor + (1.0 - floor) * shape)
