"""Int8 linear layers: near the float32 model, cached or not, and the original untouched."""

import pytest
import torch
from torch import nn

from music_transformer.errors import ConfigError
from music_transformer.model import ModelConfig, MusicTransformer
from music_transformer.model.quantised import quantise_linears

CONFIG = ModelConfig(vocab_size=13, n_layers=2, d_model=32, n_heads=4, d_ff=64, context=17)


@torch.no_grad()
def test_quantised_logits_stay_near_and_the_original_is_left_alone() -> None:
    torch.manual_seed(0)
    model = MusicTransformer(CONFIG).eval()
    ids = torch.randint(0, 13, (2, 11))
    before = model(ids)
    twin = quantise_linears(model)
    after = twin(ids)
    assert torch.equal(model(ids), before)
    assert not torch.equal(after, before)
    assert (after - before).abs().max() < 0.1 * before.abs().max()
    cache = twin.new_cache(2)
    steps = torch.cat([twin(ids[:, i : i + 1], cache=cache) for i in range(11)], dim=1)
    # The inputs of a layer are scaled together, so a step and a pass round differently.
    assert (steps - before).abs().max() < 0.1 * before.abs().max()
    assert not any(isinstance(part, nn.Linear) for part in twin.layers.modules())


@pytest.mark.parametrize("model", [nn.Linear(3, 3), MusicTransformer(CONFIG).to("meta")])
def test_other_models_and_devices_are_refused(model: MusicTransformer) -> None:
    with pytest.raises(ConfigError, match="decoder on the CPU"):
        quantise_linears(model)


def test_an_engine_without_the_products_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("music_transformer.model.quantised.ENGINES", ("abacus",))
    with pytest.raises(ConfigError, match="not one of abacus"):
        quantise_linears(MusicTransformer(CONFIG))
