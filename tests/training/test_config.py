"""Settings: what is refused, and how `key=value` reaches its field."""

from dataclasses import fields

import pytest

from music_transformer.errors import ConfigError
from music_transformer.model import ModelConfig
from music_transformer.training.config import TrainingConfig, apply_settings


def test_model_and_training_settings_share_no_name() -> None:
    model = {field.name for field in fields(ModelConfig)}
    assert not model & {field.name for field in fields(TrainingConfig)}


def test_settings_reach_the_model_and_the_training_by_their_plain_names() -> None:
    model, training = apply_settings(
        ModelConfig(),
        TrainingConfig(),
        ["steps=7", "n_layers=3", "learning_rate=2e-4", "betas=0.8,0.9", "augment=false"],
    )
    assert (model.n_layers, training.steps, training.learning_rate) == (3, 7, 2e-4)
    assert (training.betas, training.augment) == ((0.8, 0.9), False)


def test_a_setting_may_name_its_owner_and_may_be_none() -> None:
    model, training = apply_settings(
        ModelConfig(max_distance=5),
        TrainingConfig(),
        ["model.max_distance=none", "training.ema=0.9"],
    )
    assert model.max_distance is None
    assert training.ema == 0.9


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("stesp=3", "no such setting; did you mean steps?"),
        ("model.n_layer=3", "did you mean n_layers?"),
        ("training.n_layers=3", "no such setting"),
        ("vocab_size=3", "no such setting"),
        ("steps", "write key=value"),
        ("steps=many", "expected a whole number"),
        ("steps=1.5", "expected a whole number"),
        ("window=few", "expected a whole number or none"),
        ("augment=maybe", "expected true or false"),
        ("optimizer=sgd", "expected one of adamw, muon"),
        ("betas=0.9", "expected"),
        ("steps=0", "steps=0 is not a whole number of at least 1"),
        ("learning_rate=nan", "learning_rate=nan is not above 0"),
        ("ema=1", "ema=1.0 is not above 0 below 1"),
        ("cooldown=1.5", "cooldown=1.5 is not from 0 up to 1"),
        ("betas=0.9,1", "betas="),
        ("seed=-1", "seed=-1"),
    ],
)
def test_a_wrong_setting_is_refused_with_its_mend(setting: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        apply_settings(ModelConfig(), TrainingConfig(), [setting])
    assert message in str(caught.value)


def test_a_config_survives_its_dictionary() -> None:
    config = TrainingConfig(betas=(0.5, 0.6), ema=0.99, schedule="wsd", window=31)
    assert TrainingConfig.from_dict(config.to_dict()) == config


def test_a_dictionary_with_an_unknown_key_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"training\.step is unknown; did you mean steps"):
        TrainingConfig.from_dict({"step": 3})
