"""Int8 linear layers: near the float32 model, cached or not, and the original untouched."""

import torch

from music_transformer.model import ModelConfig, MusicTransformer
from music_transformer.model.quantised import quantise_linears


@torch.no_grad()
def test_quantised_logits_stay_near_and_the_original_is_left_alone() -> None:
    torch.manual_seed(0)
    config = ModelConfig(vocab_size=13, n_layers=2, d_model=32, n_heads=4, d_ff=64, context=17)
    model = MusicTransformer(config).eval()
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
