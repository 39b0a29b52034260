"""Small models with random weights: what they compose is noise, how it is drawn is not."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from music_transformer.checkpoint import Session
from music_transformer.model import ModelConfig, MusicTransformer
from music_transformer.representations import ChoraleTokenizer, PerformanceTokenizer
from music_transformer.sampling import Sampling

MakeSession = Callable[..., Session]


@pytest.fixture(scope="session")
def make_session() -> MakeSession:
    """Give the function that makes a session: ``kind`` is performance, pedal or chorale."""

    def make(kind: str = "performance", *, double: bool = False, **settings: Any) -> Session:
        tokenizer = {
            "performance": PerformanceTokenizer(),
            "pedal": PerformanceTokenizer("events"),
            "chorale": ChoraleTokenizer(),
        }[kind]
        labels = {"voice_labels": 4, "step_labels": 16} if kind == "chorale" else {}
        config = ModelConfig(
            **{
                "vocab_size": tokenizer.vocab_size,
                "n_layers": 2,
                "d_model": 12,
                "n_heads": 3,
                "d_ff": 17,
                "dropout": 0.0,
                "context": 31,
                **labels,
                **settings,
            }
        )
        with torch.random.fork_rng():
            torch.manual_seed(5)
            model = MusicTransformer(config).eval()
        if double:
            model = model.double()
        once = Sampling(closeness=0, candidates=1, resample=0)
        return Session(model, tokenizer, config, {}, Path("nowhere"), torch.device("cpu"), once)

    return make
