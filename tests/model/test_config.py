"""Settings that make no sense are refused with a way out."""

import pytest

from music_transformer.errors import ConfigError
from music_transformer.model import ModelConfig
from music_transformer.model.chorale import time_rows


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"d_attention": 100, "n_heads": 8}, "d_attention=100 is not a multiple of n_heads=8; try"),
        ({"n_layers": 0}, "n_layers=0; choose a whole number from 1 up"),
        ({"dropout": 1.0}, "dropout=1.0; choose one in"),
        ({"input_position": "cosine"}, "input_position='cosine'; choose one of none, sinusoidal"),
        ({"attention_position": "far"}, "attention_position='far'"),
        ({"attention": "blockwise", "attention_dropout": 0.1}, "attention_dropout=0.1"),
        ({"input_position": "learned", "max_len": 7, "context": 11}, "max_len=7 learned"),
        (
            {"attention_position": "untied", "max_len": 7, "context": 11},
            "max_len=7 learned positions for context=11; try max_len=11",
        ),
        (
            {"attention_position": "untied", "input_position": "sinusoidal"},
            "untied with input_position=sinusoidal",
        ),
        (
            {"attention_position": "rope", "d_attention": 15, "n_heads": 3},
            "a head has 5; try d_attention=18",
        ),
        ({"attention_position": "t5", "t5_buckets": 7}, "t5_buckets=7 to t5_max_distance=128"),
        ({"attention_position": "t5", "t5_max_distance": 16}, "t5_max_distance=16; choose"),
        ({"attention_position": "alibi", "attention": "skew"}, "attention=skew with attention_pos"),
        ({"attention_position": "rope", "shared_table": True}, "shared_table with attention_pos"),
        ({"clip_distance": 0}, "clip_distance=0; choose a whole number from 1 up"),
        ({"step_labels": 16}, "step_labels=16 without voice_labels"),
        ({"held_labels": 16}, "held_labels=16 without voice_labels"),
        ({"held_labels": -1}, "held_labels=-1; choose"),
        ({"interval_output": True}, "interval_output without voice_labels"),
        ({"interval_output": "yes", "voice_labels": 4}, "interval_output='yes'; choose true or"),
        ({"relative_pitch": True}, "relative_pitch without voice_labels"),
        ({"relative_time": True}, "relative_time without voice_labels"),
        ({"relative_time": 1, "voice_labels": 4}, "relative_time=1; choose true or false"),
        (
            {"relative_pitch": True, "voice_labels": 4, "attention_position": "shaw"},
            "relative_pitch with attention_position=shaw",
        ),
        (
            {"relative_time": True, "voice_labels": 4, "attention": "fused"},
            "relative_time with attention=fused",
        ),
        ({"position_base": 1.0}, "position_base=1.0"),
    ],
)
def test_a_setting_without_sense_is_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ModelConfig(**settings)  # type: ignore[arg-type]


def test_a_config_survives_its_dictionary() -> None:
    config = ModelConfig(n_layers=3, max_distance=17, voice_labels=4)
    assert ModelConfig.from_dict(config.to_dict()) == config


def test_a_dictionary_from_before_a_setting_does_without() -> None:
    old = ModelConfig(voice_labels=4).to_dict()
    for name in ("relative_pitch", "relative_time", "held_labels", "interval_output"):
        del old[name]
    assert ModelConfig.from_dict(old) == ModelConfig(voice_labels=4)


def test_an_unknown_key_is_refused_with_its_neighbour() -> None:
    with pytest.raises(ConfigError, match="'n_layer'; did you mean n_layers"):
        ModelConfig.from_dict({"n_layer": 3})


def test_derived_sizes_follow_the_fields() -> None:
    config = ModelConfig(d_model=48, d_attention=24, n_heads=3, context=11)
    assert (config.d_head, config.distances, config.positions) == (8, 11, 11)
    assert time_rows(256, 4) == 65  # 255 positions span 64 steps
