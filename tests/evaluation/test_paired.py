"""Intervals hold what they promise: known effects are found, and nothing where there is nothing."""

import numpy as np
import pytest

from music_transformer.errors import ConfigError
from music_transformer.evaluation import compare
from music_transformer.evaluation.compare import paired_difference

PIECES = 40


def runs(
    generator: np.random.Generator, *, level: float, seeds: int, seed_sd: float, pieces: np.ndarray
) -> np.ndarray:
    """(seeds, N): pieces differ by much, seeds by `seed_sd`, and a piece under a seed by 0.01."""
    own = generator.normal(0, 0.01, (seeds, len(pieces)))
    return level + pieces + generator.normal(0, seed_sd, (seeds, 1)) + own


def test_the_difference_is_that_of_the_nll_over_all_events() -> None:
    events = [100, 300, 600]
    first, second = np.array([1.0, 2.0, 3.0]), np.array([1.5, 1.0, 3.5])
    found = paired_difference(first, second, events)
    total = np.average(first, weights=events) - np.average(second, weights=events)
    assert found.mean == pytest.approx(total)
    assert found.better_on == 2
    assert (found.pieces, found.runs) == (3, (1, 1))
    plain = paired_difference(first, second)
    assert plain.mean == pytest.approx((first - second).mean())
    swapped = paired_difference(second, first, events)
    assert swapped.mean == pytest.approx(-found.mean)


def test_a_small_effect_is_found_though_pieces_differ_by_far_more() -> None:
    generator = np.random.default_rng(0)
    pieces = generator.normal(0, 0.2, PIECES)
    better = runs(generator, level=0.40, seeds=3, seed_sd=0.002, pieces=pieces)
    worse = runs(generator, level=0.42, seeds=3, seed_sd=0.002, pieces=pieces)
    found = paired_difference(better, worse)
    assert found.low < -0.02 < found.high < 0
    assert found.order == -1
    assert paired_difference(worse, better).order == 1
    # Unpaired, the standard error of either over pieces would be 0.03.
    assert found.high - found.low < 0.02


def test_every_piece_alike_gives_an_interval_of_no_width() -> None:
    pieces = np.linspace(0, 1, PIECES)
    found = paired_difference(pieces, pieces + 0.25)
    assert (found.low, found.mean, found.high) == pytest.approx((-0.25, -0.25, -0.25))
    assert found.order == -1
    assert paired_difference(pieces, pieces).order == 0


def test_seeds_that_differ_widen_the_interval() -> None:
    generator = np.random.default_rng(1)
    pieces = generator.normal(0, 0.2, PIECES)
    better = runs(generator, level=0.40, seeds=3, seed_sd=0.05, pieces=pieces)
    worse = runs(generator, level=0.42, seeds=3, seed_sd=0.05, pieces=pieces)
    averaged = paired_difference(better.mean(axis=0), worse.mean(axis=0))
    assert averaged.order != 0  # as if these weights were all there is
    with_seeds = paired_difference(better, worse)
    assert with_seeds.mean == pytest.approx(averaged.mean)
    assert with_seeds.order == 0
    assert with_seeds.high - with_seeds.low > 5 * (averaged.high - averaged.low)


@pytest.mark.parametrize("seed_sd", [0.0, 0.003, 0.05])
def test_nine_of_ten_intervals_or_more_hold_the_truth(
    seed_sd: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compare, "RESAMPLES", 500)
    generator = np.random.default_rng(2)
    held = 0
    for trial in range(200):
        pieces = generator.normal(0, 0.2, PIECES)
        effect = generator.normal(-0.02, 0.03, PIECES)  # differs from piece to piece
        first = runs(generator, level=0.4, seeds=3, seed_sd=seed_sd, pieces=pieces + effect)
        second = runs(generator, level=0.4, seeds=3, seed_sd=seed_sd, pieces=pieces)
        found = paired_difference(first, second, seed=trial)
        held += found.low <= -0.02 <= found.high
    assert 180 <= held <= 200


def test_the_same_seed_gives_the_same_interval() -> None:
    generator = np.random.default_rng(3)
    first, second = generator.normal(size=(2, 3, PIECES))
    once, again = (paired_difference(first, second, seed=5) for _ in range(2))
    assert once == again
    assert once.to_dict()["runs"] == [3, 3]
    assert once.to_dict()["order"] == once.order


def test_what_cannot_be_compared_is_refused() -> None:
    with pytest.raises(ConfigError, match="NLL of 3 and 2 pieces"):
        paired_difference([1.0, 2.0, 3.0], [1.0, 2.0])
    with pytest.raises(ConfigError, match="events of 2"):
        paired_difference([1.0, 2.0, 3.0], [1.0, 2.0, 3.0], [4, 5])
    with pytest.raises(ConfigError, match="one piece"):
        paired_difference([1.0], [2.0])
