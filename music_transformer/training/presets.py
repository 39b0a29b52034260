"""Named recipes: a model and how to train it, with what is known of the result.

A preset says what differs from the defaults of the configs, or from another preset. The command
takes `vocab_size` from the prepared data, so that ``--pedal events`` needs no other preset.
"""

from dataclasses import dataclass, replace
from typing import Any

from music_transformer.errors import ConfigError
from music_transformer.model.config import ModelConfig
from music_transformer.model.rnn import RNNConfig
from music_transformer.model.seq2seq import AccompanimentConfig
from music_transformer.training.config import TrainingConfig


@dataclass(frozen=True)
class Preset:
    """The config of a model, its training, and the kind of tokenizer that they are made for."""

    model: Any
    training: TrainingConfig
    tokenizer: str = "performance"

    def but(self, **changes: Any) -> "Preset":
        """The preset with another model."""
        return replace(self, model=replace(self.model, **changes))

    def trained(self, **changes: Any) -> "Preset":
        """The preset with another training."""
        return replace(self, training=replace(self.training, **changes))


_CHORALES = Preset(
    ModelConfig(vocab_size=132, n_layers=5, n_heads=8),
    TrainingConfig(steps=9000, batch_size=2, weight_decay=0.05, evaluate_windows=256),
    tokenizer="chorale",
)
_LABELS = {"input_position": "sinusoidal_concat", "voice_labels": 4}

#: Ten minutes of one core; NLL about 0.47 on whole validation chorales.
JSB_SMALL = _CHORALES.but(
    n_layers=3, d_model=128, n_heads=4, d_ff=512, context=256, step_labels=16, **_LABELS
).trained(
    steps=4000,
    learning_rate=2e-3,
    weight_decay=0.01,
    augment=False,
    evaluate_every=250,
    evaluate_windows=128,
)
#: The recipe of the released chorale model: an hour and a quarter of one core, no over-fitting yet.
BACH = _CHORALES.but(dropout=0.2, step_labels=16, **_LABELS).trained(learning_rate=1.5e-3)

#: The paper's Table 2: models, dropout and early stopping are the paper's; steps, rates, batches
#: and windows are ours, for one core, the same for all rows. None has step labels.
JSB_TRANSFORMER = _CHORALES.but(
    d_attention=256, input_position="sinusoidal", attention_position="none"
)
JSB_CONCAT = JSB_TRANSFORMER.but(input_position="sinusoidal_concat")
JSB_LABELS = JSB_TRANSFORMER.but(**_LABELS)
JSB_RELATIVE = _CHORALES.but(d_model=512, d_attention=512, d_ff=512, max_distance=256)
JSB_RELATIVE_LABELS = JSB_RELATIVE.but(**_LABELS)
JSB_RELATIONAL = JSB_RELATIVE_LABELS.but(relative_pitch=True, relative_time=True)

#: Three million parameters and windows of 512: under 3.0 nats after half an hour of one core.
PIANO_SMALL = Preset(
    ModelConfig(max_distance=512),
    TrainingConfig(steps=8000, learning_rate=2e-3, optimizer="muon", evaluate_every=250),
)
#: The recipe of the released piano model, in two stages: crops of 512 on a plateau, stopped when
#: the time is up; then ``--init`` with window=2048, schedule=cosine anneals (docs/training.md).
PIANO = Preset(
    ModelConfig(n_layers=6, dropout=0.0, context=2048, max_distance=512, performance_state=True),
    TrainingConfig(
        steps=40_000,
        window=512,
        batch_size=8,
        learning_rate=3e-3,
        schedule="wsd",
        warmup=200,
        cooldown=0.1,
        optimizer="muon",
        plain=0.25,
        evaluate_every=200,
        evaluate_windows=48,
    ),
)
#: In-filling: `PIANO` that is told what comes after the gap (docs/fill.md); begun with ``--init
#: piano --set anchors=true``. A tenth of the windows are told nothing.
PIANO_FILL = PIANO.but(anchors=True).trained(
    steps=2500, window=1024, batch_size=4, plain=0.0, gaps=0.9
)

#: The LSTM that two cores can train beside `PIANO_SMALL`: as many parameters, the same windows.
LSTM_SMALL = Preset(
    RNNConfig(d_model=256, d_hidden=384, context=512),
    replace(PIANO_SMALL.training, optimizer="adamw"),  # Muon has next to nothing to move here
)
LSTM_ATTENTION_SMALL = LSTM_SMALL.but(attention="causal")

#: The paper's Table 3: the models are its rows, and windows are of 2048. Steps, rates and batches
#: are ours, for a GPU, the same for all Transformer rows; `steps` may be moved on resuming.
PIANO_TRANSFORMER = Preset(
    ModelConfig(
        n_layers=6,
        d_attention=512,
        n_heads=8,
        d_ff=2048,
        context=2048,
        input_position="sinusoidal",
        attention_position="none",
    ),
    TrainingConfig(
        steps=50_000,
        batch_size=8,
        learning_rate=2e-3,
        schedule="wsd",
        warmup=500,
        optimizer="muon",
        evaluate_every=1000,
    ),
)
PIANO_LOCAL = PIANO_TRANSFORMER.but(block=512)
#: Relative rows know distances and need no sinusoids, so they may be read past their windows.
PIANO_RELATIVE = PIANO_TRANSFORMER.but(
    input_position="none", attention_position="relative", max_distance=1024
)
#: The same in slices of a big GPU that is lent for ten minutes at a time; --resume begins the next.
PIANO_LARGE = PIANO_RELATIVE.trained(max_minutes=8.0, checkpoint_minutes=2.0)
PIANO_RELATIVE_LOCAL = PIANO_RELATIVE.but(block=512)
LSTM = Preset(
    RNNConfig(), replace(PIANO_TRANSFORMER.training, optimizer="adamw", learning_rate=1e-3)
)
LSTM_ATTENTION = LSTM.but(attention="causal")

#: A melody and what is played to it, for two cores and an hour; the decoder is that of `PIANO`, so
#: that ``--init piano`` gives it a start. An hour sees a part of one epoch: no dropout.
ACCOMPANIMENT = Preset(
    AccompanimentConfig(dropout=0.0, context=512, performance_state=True, anchors=True),
    TrainingConfig(
        steps=1500,
        batch_size=8,
        learning_rate=2e-3,
        warmup=50,
        optimizer="muon",
        evaluate_every=100,
        evaluate_windows=48,
    ),
    tokenizer="accompaniment",
)
#: The same without distances: sinusoids, and no time in the attention to the melody.
ACCOMPANIMENT_BASELINE = ACCOMPANIMENT.but(
    input_position="sinusoidal", attention_position="none", cross_position="none", anchors=False
)

#: All of them: `JSB_SMALL` is jsb-small.
PRESETS = {
    name.lower().replace("_", "-"): preset
    for name, preset in globals().items()
    if isinstance(preset, Preset) and not name.startswith("_")
}


def find_preset(name: str) -> Preset:
    """The preset of this name; `ConfigError` where there is none."""
    if name not in PRESETS:
        raise ConfigError(f"preset {name!r} is unknown; choose from {', '.join(PRESETS)}.")
    return PRESETS[name]
