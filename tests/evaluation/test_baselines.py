"""Baselines: golden values by hand, slow references with dictionaries, and the kept file."""

import json
import math
import os
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from music_transformer.datasets import PreparedData
from music_transformer.datasets.prepared import write_prepared
from music_transformer.errors import DatasetError
from music_transformer.evaluation import baselines as baselines_module
from music_transformer.evaluation.baselines import count_baselines
from music_transformer.representations import ChoraleTokenizer, PerformanceTokenizer
from music_transformer.representations.baselines import chorale_baselines, performance_baselines

START, END = 130, 131


def chorale(*rows: tuple[int, int, int, int]) -> np.ndarray:
    return np.array([START, *[cell for row in rows for cell in row], END], dtype=np.uint16)


def random_chorales(seed: int, count: int, symbols: int) -> list[np.ndarray]:
    random = np.random.default_rng(seed)
    return [
        np.concatenate([[START], random.integers(60, 60 + symbols, 4 * t), [END]])
        for t in random.integers(1, 13, count)
    ]


def slow_chorale_baseline(train: list[np.ndarray], pieces: list[np.ndarray], level: int) -> float:
    """Additive smoothing with dictionaries; level 0 unigram, 1 previous pitch, 2 and position."""

    def cells(of: list[np.ndarray]) -> list[tuple[tuple[int, ...], int]]:
        found: list[tuple[tuple[int, ...], int]] = []
        for piece in of:
            events = piece[1:-1].tolist()
            for i, symbol in enumerate(events):
                previous = events[i - 4] if i >= 4 else -1
                context = (previous, i % 4, i // 4 % 4)
                found.append((((), context[:2], context)[level], symbol))
        return found

    counts, totals = Counter(cells(train)), Counter(context for context, _ in cells(train))
    known = {symbol for _, symbol in cells(train)}
    total = 0.0
    for context, symbol in cells(pieces):
        weight = counts[context, symbol] + 0.05 if symbol in known else 0.05 / (129 - len(known))
        total -= math.log(weight / (totals[context] + 0.05 * (len(known) + 1)))
    return total / len(cells(pieces))


def slow_performance_baseline(
    train: list[np.ndarray], pieces: list[np.ndarray], vocab_size: int, order: int
) -> float:
    """Witten-Bell with dictionaries, over contexts of 0..order events."""
    counts: Counter[tuple[int, ...]] = Counter()
    totals: Counter[tuple[int, ...]] = Counter()
    successors: dict[tuple[int, ...], set[int]] = {}

    def grams(piece: np.ndarray) -> list[tuple[tuple[int, int], int]]:
        ids = [int(piece[0]), *piece[:-1].tolist()]
        return [((ids[i], ids[i + 1]), ids[i + 2]) for i in range(len(ids) - 2)]

    for piece in train:
        for context, event in grams(piece):
            for n in range(3):
                short = context[2 - n :]
                counts[(*short, event)] += 1
                totals[short] += 1
                successors.setdefault(short, set()).add(event)

    def probability(context: tuple[int, ...], event: int) -> float:
        if not context:
            return (counts[(event,)] + 1) / (totals[()] + vocab_size)
        shorter = probability(context[1:], event)
        if totals[context] == 0:
            return shorter
        distinct = len(successors[context])
        return (counts[(*context, event)] + distinct * shorter) / (totals[context] + distinct)

    losses = [
        -math.log(probability(context[2 - order :], event))
        for piece in pieces
        for context, event in grams(piece)
    ]
    return float(np.mean(losses))


def test_the_chorale_unigram_is_what_a_hand_counts() -> None:
    # Counts 60: 2, 62: 1, 64: 1 of 4, plus 0.05 for each of them and for all others together.
    train = [chorale((60, 60, 62, 64))]
    found = chorale_baselines(train, [chorale((60, 62, 64, 64))])["unigram"]
    expected = -(math.log(2.05 / 4.2) + 3 * math.log(1.05 / 4.2)) / 4
    assert found == pytest.approx(expected, abs=1e-12)


def test_an_unseen_chorale_symbol_shares_the_weight_of_all_unseen() -> None:
    train = [chorale((60, 60, 60, 60))]
    found = chorale_baselines(train, [chorale((61, 61, 61, 61))])["unigram"]
    assert found == pytest.approx(-math.log(0.05 / 128 / 4.1), abs=1e-12)


@pytest.mark.parametrize("level", [0, 1, 2])
def test_chorale_baselines_equal_the_slow_reference(level: int) -> None:
    train, pieces = random_chorales(1, 7, symbols=5), random_chorales(2, 5, symbols=7)
    found = list(chorale_baselines(train, pieces).values())[level]
    assert found == pytest.approx(slow_chorale_baseline(train, pieces, level), abs=1e-12)


def test_a_chorale_that_is_no_whole_number_of_sixteenths_is_refused() -> None:
    with pytest.raises(DatasetError, match="a chorale of 3 cells"):
        chorale_baselines([np.array([START, 60, 60, 60, END])], [])


def test_the_performance_baselines_are_what_a_hand_counts() -> None:
    # Vocabulary 5: events 0, 1; PAD 2, START 3, END 4. Train: 0 1 0; measured: 0 1.
    train, pieces = [np.array([3, 0, 1, 0, 4])], [np.array([3, 0, 1, 4])]
    found = performance_baselines(train, pieces, 5)
    p0, p1 = (2 + 1) / (3 + 5), (1 + 1) / (3 + 5)
    assert found["unigram"] == pytest.approx(-(math.log(p0) + math.log(p1)) / 2)
    # After START: 0 once. After 0: 1 once. Each context has one distinct successor.
    p0, p1 = (1 + p0) / 2, (1 + p1) / 2
    assert found["previous event"] == pytest.approx(-(math.log(p0) + math.log(p1)) / 2)
    p0, p1 = (1 + p0) / 2, (1 + p1) / 2
    assert found["two previous events"] == pytest.approx(-(math.log(p0) + math.log(p1)) / 2)


@pytest.mark.parametrize("order", [0, 1, 2])
def test_performance_baselines_equal_the_slow_reference(order: int) -> None:
    random = np.random.default_rng(13)

    def pieces(count: int, events: int) -> list[np.ndarray]:
        return [
            np.concatenate([[18], random.integers(0, events, n), [19]]).astype(np.uint16)
            for n in random.integers(0, 29, count)
        ]

    train, measured = pieces(7, 11), pieces(5, 17)
    found = list(performance_baselines(train, measured, 20).values())[order]
    assert found == pytest.approx(slow_performance_baseline(train, measured, 20, order), abs=1e-12)


def test_the_largest_vocabulary_keeps_its_keys_apart() -> None:
    # 392 of 393 ids: the key needs 26 bits, uint16 arithmetic would lose them.
    piece = np.array([389, 392, 391, 392, 391, 390], dtype=np.uint16)
    found = performance_baselines([piece], [piece], 393)
    assert found["two previous events"] == pytest.approx(
        slow_performance_baseline([piece], [piece], 393, 2), abs=1e-12
    )


def test_longer_contexts_probabilities_sum_to_one() -> None:
    train = [np.array([18, 3, 5, 3, 5, 7, 3, 19], dtype=np.uint16)]
    total = 0.0
    for event in range(20):  # one measured event after 3, 5 is the difference of two sums
        with_event = performance_baselines(train, [np.array([18, 3, 5, event, 19])], 20)
        without = performance_baselines(train, [np.array([18, 3, 5, 19])], 20)
        nll = 3 * with_event["two previous events"] - 2 * without["two previous events"]
        total += math.exp(-nll)
    assert total == pytest.approx(1, abs=1e-9)


def prepared(folder: Path) -> PreparedData:
    random = np.random.default_rng(17)
    return write_prepared(
        folder / "toy",
        tokenizer=PerformanceTokenizer(),
        corpus="toy",
        splits={
            "train": [("a", random.integers(0, 388, 101))],
            "validation": [("b", random.integers(0, 388, 53)), ("c", random.integers(0, 388, 7))],
        },
    )


def test_baselines_are_kept_beside_the_data_and_counted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = prepared(tmp_path)
    first = count_baselines(data)
    assert list(first) == ["unigram", "previous event", "two previous events"]
    monkeypatch.setattr(PerformanceTokenizer, "baselines", lambda *_: pytest.fail("counted"))
    assert count_baselines(PreparedData.open(data.path)) == first
    assert sorted(path.name for path in data.path.iterdir()) == [
        "baselines.json",
        "meta.json",
        "train.bin",
        "validation.bin",
    ]


def test_baselines_of_other_data_are_counted_again(tmp_path: Path) -> None:
    data = prepared(tmp_path)
    first = count_baselines(data)
    path = data.path / "baselines.json"
    kept = json.loads(path.read_text())
    kept["checksum"] = "other"
    kept["baselines"][0]["values"] = {"unigram": 0.0}
    path.write_text(json.dumps(kept))
    assert count_baselines(data) == first
    assert json.loads(path.read_text())["checksum"] == data.checksum


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"format": 1', "null"])
def test_a_damaged_file_of_baselines_is_counted_again(tmp_path: Path, content: str) -> None:
    data = prepared(tmp_path)
    first = count_baselines(data)
    (data.path / "baselines.json").write_text(content)
    assert count_baselines(data) == first


@pytest.mark.skipif(os.name == "nt", reason="folders are made read-only by mode")
def test_a_folder_that_cannot_be_written_is_fine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = prepared(tmp_path)

    def refuse(path: Path) -> None:
        raise PermissionError(13, "no", str(path))

    monkeypatch.setattr(baselines_module, "atomic_path", refuse)  # root may write anywhere
    assert len(count_baselines(data)) == 3
    assert not (data.path / "baselines.json").exists()


def test_two_splits_are_kept_side_by_side(tmp_path: Path) -> None:
    data = prepared(tmp_path)
    count_baselines(data, "validation")
    count_baselines(data, "train")
    kept = json.loads((data.path / "baselines.json").read_text())
    assert [entry["split"] for entry in kept["baselines"]] == ["train", "validation"]


def test_data_without_a_training_split_has_no_baselines(tmp_path: Path) -> None:
    data = write_prepared(
        tmp_path / "toy",
        tokenizer=PerformanceTokenizer(),
        corpus="toy",
        splits={"validation": [("a", [60, 70])]},
    )
    with pytest.raises(DatasetError, match="no split 'train'"):
        count_baselines(data)


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("split", "unigram", "previous", "position"),
    [("valid", 3.391, 0.935, 0.706), ("test", 3.403, 0.984, 0.739)],
)
def test_the_baselines_of_jsb_chorales(
    corpora: Path, split: str, unigram: float, previous: float, position: float
) -> None:
    path = corpora / "jsb" / "Jsb16thSeparated.json"
    if not path.is_file():
        pytest.skip(f"no {path.name} among the corpora")
    tokenizer = ChoraleTokenizer()

    def pieces(name: str) -> list[np.ndarray]:
        grids = json.loads(path.read_text())[name]
        return [np.array([START, *tokenizer.encode_grid(grid), END]) for grid in grids]

    found = chorale_baselines(pieces("train"), pieces(split))
    assert list(found.values()) == pytest.approx([unigram, previous, position], abs=5e-4)
