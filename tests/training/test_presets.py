"""The presets are what their names promise."""

import pytest

from music_transformer.errors import ConfigError
from music_transformer.model import MusicTransformer
from music_transformer.tokenizers import ChoraleTokenizer, PerformanceTokenizer
from music_transformer.training.estimate import estimate_size
from music_transformer.training.presets import PRESETS, find_preset


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_fits_its_tokenizer_and_its_windows(name: str) -> None:
    preset = PRESETS[name]
    tokenizer = {"chorale": ChoraleTokenizer, "performance": PerformanceTokenizer}[preset.tokenizer]
    assert preset.model.vocab_size == tokenizer().vocab_size
    assert (preset.training.window or 0) <= preset.model.context
    assert (preset.model.voice_labels == 4) == (preset.tokenizer == "chorale")


def test_the_released_models_have_the_size_that_git_can_carry() -> None:
    for name, least in (("bach", 2_000_000), ("piano", 3_000_000)):
        parameters = sum(p.numel() for p in MusicTransformer(PRESETS[name].model).parameters())
        assert least <= parameters <= 6_000_000  # at most 15 MB in half precision


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
