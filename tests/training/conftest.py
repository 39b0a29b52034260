"""A small corpus and a small model, enough to see a run through in a second."""

from pathlib import Path

import numpy as np
import pytest
import torch

from music_transformer.datasets import PreparedData
from music_transformer.datasets.prepared import write_prepared
from music_transformer.model import ModelConfig, MusicTransformer
from music_transformer.representations import PerformanceTokenizer


def scale_piece(first: int, notes: int) -> list[int]:
    """Notes of a tenth of a second that climb and fall: velocity, on, shift, off, shift."""
    ids = [356 + 16]
    for index in range(notes):
        pitch = 48 + (first + index * 5) % 24
        ids += [pitch, 256 + 9, 128 + pitch, 256 + 4]
    return ids[:-1]


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> PreparedData:
    """Prepared pieces of several lengths, one of them shorter than a window."""
    random = np.random.default_rng(0)
    lengths = [3, 40, 60, 31]
    pieces = [(f"p{i}", scale_piece(int(random.integers(24)), n)) for i, n in enumerate(lengths)]
    return write_prepared(
        Path(tmp_path_factory.mktemp("prepared")) / "scales",
        tokenizer=PerformanceTokenizer(),
        corpus="scales",
        splits={"train": pieces, "validation": [("v", scale_piece(7, 20))]},
    )


@pytest.fixture
def config() -> ModelConfig:
    return ModelConfig(
        n_layers=1, d_model=12, n_heads=2, d_ff=20, context=29, max_distance=17, dropout=0.1
    )


@pytest.fixture
def model(config: ModelConfig) -> MusicTransformer:
    torch.manual_seed(0)
    return MusicTransformer(config)
