"""Windows for in-filling: the later part is told on the clock of the earlier one."""

from pathlib import Path

import numpy as np
import pytest

from music_transformer.datasets import PreparedData
from music_transformer.datasets.prepared import write_prepared
from music_transformer.datasets.windows import TrainingWindows
from music_transformer.errors import ConfigError
from music_transformer.notes import NoteSequence
from music_transformer.representations import ChoraleTokenizer, PerformanceTokenizer
from music_transformer.representations.performance.primer import gapped
from music_transformer.representations.performance.vocabulary import END, START

TOKENIZER = PerformanceTokenizer()


def piece(count: int, seed: int = 0) -> NoteSequence:
    random = np.random.default_rng(seed)
    start = np.cumsum(random.integers(0, 40, count)) / 100
    end = start + random.integers(1, 300, count) / 100
    pitch, velocity = random.integers(30, 100, count), random.integers(1, 128, count)
    return NoteSequence(pitch=pitch, velocity=velocity, start=start, end=end)


@pytest.mark.parametrize("seed", range(8))
def test_both_parts_are_on_one_clock(seed: int) -> None:
    ids = TOKENIZER.encode_array(piece(200, seed))
    window, told = gapped(TOKENIZER, ids, len(ids), np.random.default_rng(seed))
    end = window.tolist().index(END)
    assert told == end + 1
    stretch, later = window[told:], TOKENIZER.decode(window[:end])
    assert stretch.tolist() == ids[: len(stretch)].tolist()
    assert len(ids) / 2 <= len(stretch) <= len(ids)
    cut = TOKENIZER.duration_seconds(stretch)
    whole = TOKENIZER.decode(ids)
    begun = whole.selected(whole.start >= cut - 1e-9)  # nothing that began before is told of
    assert 0 < len(later) <= len(begun)
    for name in ("pitch", "velocity", "start"):
        told_of, true = getattr(later, name)[:9], getattr(begun, name)[:9]
        assert np.allclose(told_of, true, atol=1e-9)


def test_training_windows_learn_the_gap_alone(tmp_path: Path) -> None:
    pieces = [("piece", TOKENIZER.encode_array(piece(400)))]
    splits = {"train": pieces, "validation": pieces}
    write_prepared(tmp_path / "data", tokenizer=TOKENIZER, corpus="none", splits=splits)
    data = PreparedData.open(tmp_path / "data")
    windows = TrainingWindows(data, length=128, batch_size=16, gaps=0.75)
    batch, gaps = windows.batch(3), 0
    for ids, targets in zip(batch.ids.tolist(), batch.targets.tolist(), strict=True):
        if END in ids:
            gaps += 1
            end = ids.index(END)
            learned = [n for n, target in enumerate(targets) if target != TOKENIZER.pad]
            assert learned == list(range(end + 1, learned[-1] + 1))
            assert all(targets[n] == ids[n + 1] for n in learned[:-1])
            assert START not in targets
    assert 8 <= gaps < 16
    with pytest.raises(ConfigError, match=r"plain=0.5 and gaps=0.6 are more than all"):
        TrainingWindows(data, length=8, batch_size=1, plain=0.5, gaps=0.6)


def test_chorales_have_no_gaps(tmp_path: Path) -> None:
    pieces = [("piece", [60, 55, 52, 48] * 16)]
    tokenizer = ChoraleTokenizer()
    write_prepared(tmp_path / "data", tokenizer=tokenizer, corpus="jsb", splits={"train": pieces})
    data = PreparedData.open(tmp_path / "data")
    with pytest.raises(ConfigError, match="gaps=1: only performances open plain or have gaps"):
        TrainingWindows(data, length=8, batch_size=1, gaps=1)
