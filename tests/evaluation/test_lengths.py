"""NLL by length of the window and by place in it, against the plain evaluation."""

from pathlib import Path

import numpy as np
import pytest
import torch

from music_transformer.datasets import PreparedData
from music_transformer.datasets.prepared import write_prepared
from music_transformer.errors import ConfigError, ShapeError
from music_transformer.evaluation import compare
from music_transformer.evaluation.compare import nll_by_length
from music_transformer.evaluation.nll import evaluate_nll
from music_transformer.model import ModelConfig, MusicTransformer
from music_transformer.representations import ChoraleTokenizer


def chorales(folder: Path) -> PreparedData:
    random = np.random.default_rng(3)
    pieces = [(str(t), random.integers(40, 81, 4 * t)) for t in (5, 11, 23)]
    return write_prepared(
        folder / "chorales",
        tokenizer=ChoraleTokenizer(),
        corpus="toy",
        splits={"train": pieces, "validation": pieces},
    )


def model(**settings: object) -> MusicTransformer:
    torch.manual_seed(5)
    base: dict[str, object] = {"vocab_size": 132, "n_layers": 1, "d_model": 12, "n_heads": 3}
    return MusicTransformer(ModelConfig(**{**base, "d_ff": 20, "context": 14, **settings}))  # type: ignore[arg-type]


def test_each_length_is_an_evaluation_of_its_own_and_counts_the_same_events(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compare, "FIRST_PLACES", 4)
    data, untrained = chorales(tmp_path), model()
    results = nll_by_length(untrained, data, "validation", [6, 14, 31])
    for result in results:
        report = evaluate_nll(untrained, data, "validation", context=result.length)
        assert result.nll == pytest.approx(report.nll, abs=1e-6)
        assert result.standard_error == pytest.approx(report.standard_error, abs=1e-6)
        assert result.events == 4 * (5 + 11 + 23)
        assert sum(place.events for place in result.by_place) == result.events
        total = sum(place.nll * place.events for place in result.by_place)
        assert total / result.events == pytest.approx(result.nll)
    spans = [(place.first, place.last) for place in results[2].by_place]
    assert spans == [(0, 3), (4, 7), (8, 15), (16, 30)]


def test_lengths_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    data = chorales(tmp_path)
    with pytest.raises(ConfigError, match="context=0"):
        nll_by_length(model(), data, "validation", [0])
    with pytest.raises(ShapeError, match="past the 14 learned positions"):
        nll_by_length(model(input_position="learned"), data, "validation", [14, 31])
