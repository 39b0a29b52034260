"""NLL: against one forward pass per event, and what must not move it."""

import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from music_transformer.datasets import PreparedData
from music_transformer.datasets.prepared import write_prepared
from music_transformer.errors import ConfigError, DatasetError
from music_transformer.evaluation.nll import (
    EventLosses,
    EventModel,
    evaluate_nll,
    event_losses,
    protocol_windows,
)
from music_transformer.model import ModelConfig, MusicTransformer
from music_transformer.representations import ChoraleTokenizer, PerformanceTokenizer

CONTEXT = 14


class PrefixModel(nn.Module):
    """A causal model whose logits depend on every id of the window and on the place."""

    def __init__(self, vocab_size: int, *, context: int = CONTEXT) -> None:
        super().__init__()
        self.config = SimpleNamespace(vocab_size=vocab_size, context=context)
        generator = torch.Generator().manual_seed(7)
        self.table = nn.Parameter(torch.randn(vocab_size, vocab_size, generator=generator))

    def forward(self, ids: Tensor, *, place: Tensor) -> Tensor:
        mixed = self.table[ids].cumsum(dim=1)  # (B, L, V)
        wave = torch.arange(mixed.shape[-1], device=ids.device) * place[..., None] * 0.37
        return 0.3 * mixed + torch.sin(wave)


class Uniform(nn.Module):
    """All ids alike."""

    def __init__(self, vocab_size: int, *, context: int = CONTEXT) -> None:
        super().__init__()
        self.config = SimpleNamespace(vocab_size=vocab_size, context=context)
        self.zero = nn.Parameter(torch.zeros(vocab_size))

    def forward(self, ids: Tensor, *, place: Tensor) -> Tensor:
        return self.zero.expand(*ids.shape, -1)


def chorale_data(folder: Path, sixteenths: tuple[int, ...] = (1, 5, 11, 23)) -> PreparedData:
    random = np.random.default_rng(3)
    pieces = [(str(t), random.integers(40, 81, 4 * t)) for t in sixteenths]
    return write_prepared(
        folder / "chorales",
        tokenizer=ChoraleTokenizer(),
        corpus="toy",
        splits={"train": pieces[:2], "validation": pieces},
    )


def performance_data(folder: Path, lengths: tuple[int, ...] = (1, 13, 14, 15, 43)) -> PreparedData:
    random = np.random.default_rng(5)
    pieces = [(str(n), random.integers(0, 388, n)) for n in lengths]
    return write_prepared(
        folder / "performances",
        tokenizer=PerformanceTokenizer(),
        corpus="toy",
        splits={"train": pieces[:2], "validation": pieces},
    )


def one_pass_per_event(
    model: nn.Module, data: PreparedData, stride: int, context: int = CONTEXT
) -> list[list[float]]:
    """Loss of each event of each piece: the first window that reaches it, read up to it alone."""
    losses = []
    for piece in data.pieces("validation"):
        ids = torch.from_numpy(piece.astype(np.int64))
        of_piece = []
        for event in range(len(ids) - 2):
            begin = 0
            while begin + context <= event:
                begin += stride
            window = ids[None, begin : event + 1]
            logits = model(window, place=torch.arange(begin, event + 1)[None])[0, -1]
            of_piece.append(-float(logits.detach().double().log_softmax(-1)[ids[event + 1]]))
        losses.append(of_piece)
    return losses


def test_a_performance_is_read_in_windows_that_do_not_overlap(tmp_path: Path) -> None:
    data = performance_data(tmp_path)
    model = PrefixModel(391)
    expected = one_pass_per_event(model, data, stride=CONTEXT)
    report = evaluate_nll(model, data, "validation", batch_size=3)
    flat = np.concatenate(expected)
    assert report.events == len(flat) == 1 + 13 + 14 + 15 + 43
    assert report.nll == pytest.approx(flat.mean(), abs=1e-5)
    assert report.pieces == 5
    assert report.by_voice is None
    assert report.on_beat is None
    assert report.protocol["stride"] == CONTEXT


def test_a_chorale_is_read_in_windows_half_a_context_apart(tmp_path: Path) -> None:
    data = chorale_data(tmp_path)
    model = PrefixModel(132)
    expected = one_pass_per_event(model, data, stride=CONTEXT // 2)
    report = evaluate_nll(model, data, "validation", batch_size=3)
    flat = np.concatenate(expected)
    assert report.events == len(flat) == 4 * (1 + 5 + 11 + 23)
    assert report.nll == pytest.approx(flat.mean(), abs=1e-5)
    assert report.protocol["stride"] == CONTEXT // 2


def test_the_parts_of_a_chorale_are_means_over_their_cells(tmp_path: Path) -> None:
    data = chorale_data(tmp_path)
    model = PrefixModel(132)
    expected = one_pass_per_event(model, data, stride=CONTEXT // 2)
    report = evaluate_nll(model, data, "validation")
    loss = np.concatenate(expected)
    place = np.concatenate([np.arange(len(piece)) for piece in expected])
    sixteenth = place // 4 % 4
    assert report.by_voice is not None
    assert list(report.by_voice) == ["soprano", "alto", "tenor", "bass"]
    for voice, value in enumerate(report.by_voice.values()):
        assert value == pytest.approx(loss[place % 4 == voice].mean(), abs=1e-5)
    assert report.on_beat == pytest.approx(loss[sixteenth == 0].mean(), abs=1e-5)
    assert report.half_beats == pytest.approx(loss[sixteenth == 2].mean(), abs=1e-5)
    assert report.odd_sixteenths == pytest.approx(loss[sixteenth % 2 == 1].mean(), abs=1e-5)
    assert report.off_beat == pytest.approx(loss[sixteenth > 0].mean(), abs=1e-5)


def test_the_standard_error_is_that_of_the_mean_over_pieces(tmp_path: Path) -> None:
    data = performance_data(tmp_path)
    model = PrefixModel(391)
    means = [np.mean(piece) for piece in one_pass_per_event(model, data, stride=CONTEXT)]
    report = evaluate_nll(model, data, "validation")
    assert report.mean_over_pieces == pytest.approx(np.mean(means), abs=1e-5)
    expected = np.std(means, ddof=1) / math.sqrt(len(means))
    assert report.standard_error == pytest.approx(expected, abs=1e-5)


def test_one_piece_has_no_standard_error(tmp_path: Path) -> None:
    report = evaluate_nll(Uniform(391), performance_data(tmp_path, (13,)), "validation")
    assert report.standard_error is None


def test_a_uniform_model_scores_the_logarithm_of_the_vocabulary(tmp_path: Path) -> None:
    report = evaluate_nll(Uniform(391), performance_data(tmp_path), "validation")
    assert report.nll == pytest.approx(math.log(391), abs=1e-6)


@pytest.mark.parametrize("kind", ["chorale", "performance"])
def test_the_batch_size_does_not_move_the_number(tmp_path: Path, kind: str) -> None:
    data = chorale_data(tmp_path) if kind == "chorale" else performance_data(tmp_path)
    torch.manual_seed(11)
    model = MusicTransformer(
        ModelConfig(
            vocab_size=data.tokenizer.vocab_size,
            n_layers=2,
            d_model=12,
            n_heads=3,
            d_ff=20,
            context=CONTEXT,
            voice_labels=4 if kind == "chorale" else 0,
        )
    )
    one = evaluate_nll(model, data, "validation", batch_size=1)
    for batch_size in (3, 8):
        many = evaluate_nll(model, data, "validation", batch_size=batch_size)
        assert many.nll == pytest.approx(one.nll, abs=1e-6)
        assert many.events == one.events
        assert many.mean_over_pieces == pytest.approx(one.mean_over_pieces, abs=1e-6)


def losses_of(model: EventModel, data: PreparedData, context: int = CONTEXT) -> EventLosses:
    """Of the events of the validation split, in windows of the protocol."""
    return event_losses(model, data.tokenizer, protocol_windows(data, "validation", context))


def test_each_event_is_counted_once(tmp_path: Path) -> None:
    for data in (chorale_data(tmp_path), performance_data(tmp_path)):
        losses = losses_of(Uniform(data.tokenizer.vocab_size), data, context=6)
        found = sorted(zip(losses.piece.tolist(), losses.place.tolist(), strict=True))
        pieces = data.pieces("validation")
        assert found == [(i, p) for i, piece in enumerate(pieces) for p in range(len(piece) - 2)]


def test_all_but_the_first_half_window_of_a_chorale_sees_half_a_window(tmp_path: Path) -> None:
    losses = losses_of(Uniform(132), chorale_data(tmp_path))
    late = losses.place >= CONTEXT // 2
    assert losses.column[late].min() == CONTEXT // 2


def test_another_context_changes_the_windows(tmp_path: Path) -> None:
    data = performance_data(tmp_path)
    model = PrefixModel(391)
    report = evaluate_nll(model, data, "validation", context=5)
    expected = np.concatenate(one_pass_per_event(model, data, stride=5, context=5)).mean()
    assert report.nll == pytest.approx(expected, abs=1e-5)
    assert report.protocol["context"] == 5


def test_a_quick_look_takes_so_many_windows_and_says_so(tmp_path: Path) -> None:
    data = performance_data(tmp_path)
    seen: list[tuple[int, int]] = []
    report = evaluate_nll(
        Uniform(391),
        data,
        "validation",
        max_windows=3,
        batch_size=2,
        progress=lambda done, total: seen.append((done, total)),
    )
    assert seen == [(2, 3), (3, 3)]
    assert report.protocol["windows"] == 3
    assert report.events < 86


def test_the_parts_by_quarter_of_the_window_cover_all_events(tmp_path: Path) -> None:
    data = performance_data(tmp_path, (28,))
    losses = losses_of(PrefixModel(391), data)
    report = evaluate_nll(PrefixModel(391), data, "validation")
    # 14 inputs: columns 0-3, 4-6, 7-10, 11-13
    edges = [0, 4, 7, 11, 14]
    for i, value in enumerate(report.by_quarter):
        inside = (losses.column >= edges[i]) & (losses.column < edges[i + 1])
        assert value == pytest.approx(losses.loss[inside].mean(), abs=1e-6)


def test_the_model_is_left_as_it_was(tmp_path: Path) -> None:
    data = performance_data(tmp_path)
    model = Uniform(391)
    model.train()
    evaluate_nll(model, data, "validation")
    assert model.training
    model.eval()
    evaluate_nll(model, data, "validation")
    assert not model.training


def test_a_model_of_another_vocabulary_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"132 ids, the data 391"):
        evaluate_nll(Uniform(132), performance_data(tmp_path), "validation")


@pytest.mark.parametrize("name", ["context", "batch_size", "max_windows"])
def test_sizes_below_one_are_refused(tmp_path: Path, name: str) -> None:
    data = performance_data(tmp_path)
    with pytest.raises(ConfigError, match=f"{name}=0"):
        evaluate_nll(Uniform(391), data, "validation", **{name: 0})  # type: ignore[arg-type]


def test_an_unknown_split_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="no split 'dev'"):
        evaluate_nll(Uniform(391), performance_data(tmp_path), "dev")
