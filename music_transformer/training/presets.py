"""Named recipes: a model and how to train it, with what is known of the result.

`vocab_size` is that of the tokenizer named; the command takes it from the prepared data, so that
``--pedal events`` needs no other preset.
"""

from dataclasses import dataclass
from typing import Any

from music_transformer.errors import ConfigError
from music_transformer.model.config import ModelConfig
from music_transformer.training.config import TrainingConfig

_PERFORMANCE_VOCABULARY = 391
_CHORALE_VOCABULARY = 132


@dataclass(frozen=True)
class Preset:
    """The config of a model, its training, and the kind of tokenizer that they are made for."""

    model: Any
    training: TrainingConfig
    tokenizer: str = "performance"


#: Ten minutes of one core; NLL about 0.47 on whole validation chorales.
JSB_SMALL = Preset(
    ModelConfig(
        vocab_size=_CHORALE_VOCABULARY,
        n_layers=3,
        d_model=128,
        n_heads=4,
        d_ff=512,
        dropout=0.1,
        context=256,
        input_position="sinusoidal_concat",
        voice_labels=4,
        step_labels=16,
    ),
    TrainingConfig(
        steps=4000,
        batch_size=2,
        learning_rate=2e-3,
        augment=False,
        evaluate_every=250,
        evaluate_windows=128,
    ),
    tokenizer="chorale",
)

#: The recipe of the released chorale model: an hour and a quarter of one core, no over-fitting yet.
BACH = Preset(
    ModelConfig(
        vocab_size=_CHORALE_VOCABULARY,
        n_layers=5,
        d_model=256,
        n_heads=8,
        d_ff=1024,
        dropout=0.2,
        context=512,
        input_position="sinusoidal_concat",
        voice_labels=4,
        step_labels=16,
    ),
    TrainingConfig(
        steps=9000,
        batch_size=2,
        learning_rate=1.5e-3,
        weight_decay=0.05,
        evaluate_every=500,
        evaluate_windows=256,
    ),
    tokenizer="chorale",
)

#: Three million parameters and windows of 512: under 3.0 nats after half an hour of one core.
PIANO_SMALL = Preset(
    ModelConfig(
        vocab_size=_PERFORMANCE_VOCABULARY,
        n_layers=4,
        d_model=256,
        n_heads=4,
        d_ff=1024,
        dropout=0.1,
        context=512,
        max_distance=512,
    ),
    TrainingConfig(
        steps=8000,
        batch_size=4,
        learning_rate=2e-3,
        optimizer="muon",
        evaluate_every=250,
        evaluate_windows=64,
    ),
)

#: The recipe of the released piano model, in two stages: crops of 512 on a plateau, stopped when
#: the time is up; then ``--init`` with window=1024, schedule=cosine anneals (docs/training.md).
PIANO = Preset(
    ModelConfig(
        vocab_size=_PERFORMANCE_VOCABULARY,
        n_layers=6,
        d_model=256,
        n_heads=4,
        d_ff=1024,
        dropout=0.0,
        context=1024,
        max_distance=512,
    ),
    TrainingConfig(
        steps=40_000,
        window=512,
        batch_size=8,
        learning_rate=3e-3,
        schedule="wsd",
        warmup=200,
        cooldown=0.1,
        optimizer="muon",
        evaluate_every=200,
        evaluate_windows=48,
    ),
)

PRESETS = {"jsb-small": JSB_SMALL, "bach": BACH, "piano-small": PIANO_SMALL, "piano": PIANO}


def find_preset(name: str) -> Preset:
    """The preset of this name.

    Raises:
        ConfigError: there is none.
    """
    if name not in PRESETS:
        raise ConfigError(f"preset {name!r} is unknown; choose from {', '.join(PRESETS)}.")
    return PRESETS[name]
