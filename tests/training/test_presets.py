"""The presets are what their names promise."""

import pytest
import torch

from music_transformer.errors import ConfigError
from music_transformer.model import MusicTransformer
from music_transformer.model.registry import build_model
from music_transformer.representations import (
    AccompanimentTokenizer,
    ChoraleTokenizer,
    PerformanceTokenizer,
)
from music_transformer.training.estimate import estimate_size
from music_transformer.training.presets import PRESETS, find_preset


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_fits_its_tokenizer_and_its_windows(name: str) -> None:
    preset = PRESETS[name]
    tokenizer = {
        "accompaniment": AccompanimentTokenizer,
        "chorale": ChoraleTokenizer,
        "performance": PerformanceTokenizer,
    }[preset.tokenizer]
    assert preset.model.vocab_size == tokenizer().vocab_size
    assert (preset.training.window or 0) <= preset.model.context
    voices = 4 if preset.tokenizer == "chorale" else 0
    assert getattr(preset.model, "voice_labels", 0) in (0, voices)  # an LSTM has none


def test_the_released_models_have_the_size_that_git_can_carry() -> None:
    for name, least in (("bach", 2_000_000), ("piano", 3_000_000)):
        parameters = sum(p.numel() for p in MusicTransformer(PRESETS[name].model).parameters())
        assert least <= parameters <= 6_000_000  # at most 15 MB in half precision


@pytest.mark.parametrize(
    ("name", "millions"),
    [
        ("piano-transformer", 9.7),
        ("piano-local", 9.7),
        ("piano-relative", 12.8),
        ("piano-relative-local", 12.8),
        ("piano-large", 12.8),
        ("lstm", 23.7),
        ("lstm-attention", 26.8),
        ("piano-small", 3.9),
        ("lstm-small", 3.6),
        ("lstm-attention-small", 4.0),
    ],
)
def test_the_models_that_are_compared_have_their_sizes(name: str, millions: float) -> None:
    with torch.device("meta"):  # shapes without memory
        model = build_model(PRESETS[name].model)
    assert round(sum(p.numel() for p in model.parameters()) / 1e6, 1) == millions


def test_an_unknown_preset_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="preset 'paino' is unknown; choose from jsb-small"):
        find_preset("paino")


def test_the_estimate_grows_with_the_window_and_counts_every_parameter() -> None:
    preset = PRESETS["jsb-small"]
    model = MusicTransformer(preset.model)
    size = estimate_size(model, preset.training)
    assert size.parameters == sum(p.numel() for p in model.parameters())
    assert size.attention == "blockwise"
    assert size.memory_bytes > 16 * size.parameters  # weights, gradients and two moments


def test_the_rows_of_the_papers_chorale_table() -> None:
    rows = {
        "jsb-transformer": (256, 256, 1024, "sinusoidal", "none", 0),
        "jsb-concat": (256, 256, 1024, "sinusoidal_concat", "none", 0),
        "jsb-labels": (256, 256, 1024, "sinusoidal_concat", "none", 4),
        "jsb-relative": (512, 512, 512, "none", "relative", 0),
        "jsb-relative-labels": (512, 512, 512, "sinusoidal_concat", "relative", 4),
        "jsb-relational": (512, 512, 512, "sinusoidal_concat", "relative", 4),
    }
    trainings = {PRESETS[name].training for name in rows}
    assert len(trainings) == 1
    for name, expected in rows.items():
        model = PRESETS[name].model
        assert (model.n_layers, model.n_heads, model.step_labels) == (5, 8, 0)
        assert expected == (
            model.d_model,
            model.attention_width,
            model.d_ff,
            model.input_position,
            model.attention_position,
            model.voice_labels,
        )
        terms = (model.relative_pitch, model.relative_time)
        assert terms == (name == "jsb-relational",) * 2
        if model.attention_position == "relative":
            assert model.distances == 256
