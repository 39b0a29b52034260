"""Terms that are given to a model that was trained without them: at first it answers alike."""

from pathlib import Path

import pytest
import torch

from music_transformer.checkpoint import load_checkpoint, save_checkpoint
from music_transformer.datasets.prepared import write_prepared
from music_transformer.errors import CheckpointError
from music_transformer.model import ModelConfig, MusicTransformer
from music_transformer.representations import ChoraleTokenizer
from music_transformer.training.plan import new_plan


@pytest.fixture
def chorales(tmp_path: Path) -> Path:
    splits = {"train": [("c", [67, 62, 59, 45] * 8)]}
    folder = tmp_path / "chorales"
    write_prepared(folder, tokenizer=ChoraleTokenizer(), corpus="chorales", splits=splits)
    return folder


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    config = ModelConfig(
        vocab_size=132, n_layers=1, d_model=16, n_heads=2, d_ff=16, context=32, voice_labels=4
    )
    return save_checkpoint(
        tmp_path / "plain", MusicTransformer(config), ChoraleTokenizer(), training={}
    )


def test_new_tables_add_nothing_at_first_and_are_trained(chorales: Path, plain: Path) -> None:
    settings = ["relative_pitch=true", "relative_time=true", "held_labels=8"]
    settings.append("interval_output=true")
    grown = new_plan(str(chorales), "bach", settings, init=str(plain)).build().eval()
    ids = torch.randint(36, 84, (2, 32), generator=torch.Generator().manual_seed(1))
    before = load_checkpoint(plain, "cpu").model(ids)
    logits = grown(ids)
    torch.testing.assert_close(logits, before)
    logits.square().sum().backward()
    for name in (
        "layers.0.attention.time_embedding",
        "layers.0.attention.pitch_embedding",
        "input.held_embedding",
        "interval_output.interval_vectors",
    ):
        gradient = grown.get_parameter(name).grad
        assert gradient is not None
        assert gradient.abs().max() > 0


def test_any_other_weight_that_is_missing_is_an_error(chorales: Path, plain: Path) -> None:
    with pytest.raises(CheckpointError, match=r"layers\.1\."):
        new_plan(str(chorales), "bach", ["n_layers=2"], init=str(plain)).build()
