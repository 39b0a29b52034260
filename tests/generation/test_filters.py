"""Temperature, top_k, top_p, min_p and the draw, on rows small enough to check by hand."""

import math

import pytest
import torch
from torch import Tensor

from music_transformer.errors import CheckpointError, ConfigError
from music_transformer.generation.loop import Sample, SampleSpec, draw, sample_generator
from music_transformer.generation.processors import (
    apply_temperature,
    keep_min_p,
    keep_top_k,
    keep_top_p,
    process,
)
from music_transformer.representations import Limits, Primer
from music_transformer.representations.chorale.grammar import ChoraleGrammar
from music_transformer.sampling import Settings

# Two rows with the probabilities .5 .25 .15 .1 0 in different orders.
PROBABILITIES = torch.tensor([[0.5, 0.25, 0.15, 0.1, 0.0], [0.1, 0.0, 0.25, 0.5, 0.15]])
LOGITS = PROBABILITIES.double().log() + torch.tensor([[3.0], [-2.0]])


def kept(logits: Tensor) -> list[list[int]]:
    return [row.isfinite().nonzero()[:, 0].tolist() for row in logits]


def test_top_k_keeps_the_k_likeliest() -> None:
    assert kept(keep_top_k(LOGITS, 2)) == [[0, 1], [2, 3]]
    assert kept(keep_top_k(LOGITS, 99)) == [[0, 1, 2, 3], [0, 2, 3, 4]]


def test_top_k_keeps_exactly_k_of_equals() -> None:
    assert kept(keep_top_k(torch.zeros(1, 7), 3)) == [[0, 1, 2]]


def test_top_p_keeps_the_fewest_that_reach_p() -> None:
    assert kept(keep_top_p(LOGITS, 0.74)) == [[0, 1], [2, 3]]
    assert kept(keep_top_p(LOGITS, 0.76)) == [[0, 1, 2], [2, 3, 4]]
    assert kept(keep_top_p(LOGITS, 1e-9)) == [[0], [3]]


def test_min_p_keeps_what_is_at_least_that_fraction_of_the_likeliest() -> None:
    assert kept(keep_min_p(LOGITS, 0.49)) == [[0, 1], [2, 3]]
    assert kept(keep_min_p(LOGITS, 0.51)) == [[0], [3]]
    assert kept(keep_min_p(LOGITS, 1.0)) == [[0], [3]]


def test_filters_leave_the_kept_logits_alone() -> None:
    for filtered in (keep_top_k(LOGITS, 2), keep_top_p(LOGITS, 0.74), keep_min_p(LOGITS, 0.49)):
        stays = filtered.isfinite()
        assert torch.equal(filtered[stays], LOGITS[stays])


def test_temperature_divides_the_logits() -> None:
    expected = (LOGITS / 0.7).softmax(-1)
    assert torch.allclose(apply_temperature(LOGITS, 0.7).softmax(-1), expected)


def test_temperature_0_is_argmax_and_a_tiny_one_does_not_overflow() -> None:
    assert kept(apply_temperature(LOGITS, 0.0)) == [[0], [3]]
    assert kept(apply_temperature(torch.zeros(1, 5), 0.0)) == [[0]]
    tiny = apply_temperature(LOGITS, 1e-300).softmax(-1)
    assert tiny.tolist() == [[1, 0, 0, 0, 0], [0, 0, 0, 1, 0]]


def drawn_with(**settings: float) -> Sample:
    return Sample(SampleSpec(Settings(**settings)), ChoraleGrammar(132, Primer([]), Limits()))  # type: ignore[arg-type]


def test_processors_follow_one_another_each_row_with_its_own_settings() -> None:
    sample = drawn_with(temperature=2.0, top_k=3, top_p=0.99, min_p=0.6)
    assert kept(process(LOGITS, [sample, sample])) == [[0, 1], [2, 3]]
    assert kept(process(LOGITS, [drawn_with(), sample])) == [[0, 1, 2, 3], [2, 3]]
    assert torch.equal(process(LOGITS, [drawn_with()] * 2), LOGITS)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"temperature": -0.1}, "temperature=-0.1"),
        ({"temperature": math.nan}, "temperature=nan"),
        ({"top_k": 0}, "top_k=0"),
        ({"top_p": 0.0}, "top_p=0"),
        ({"top_p": 1.5}, "top_p=1.5"),
        ({"min_p": -0.5}, "min_p=-0.5"),
        ({"min_p": 1.1}, "min_p=1.1"),
    ],
)
def test_a_value_outside_its_range_is_refused(setting: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Settings(**setting)  # type: ignore[arg-type]


def test_draws_follow_the_probabilities_and_never_take_the_impossible() -> None:
    generators = [sample_generator(0, 0), sample_generator(0, 1)]
    counts = torch.zeros(2, 5)
    for _ in range(4000):
        for row, event_id in enumerate(draw(LOGITS, generators)):
            counts[row, event_id] += 1
    # Three standard deviations of a share of 4000 draws are at most .024.
    assert torch.allclose(counts / 4000, PROBABILITIES, atol=0.024)
    assert counts[0, 4] == counts[1, 1] == 0


def test_what_a_sample_draws_does_not_depend_on_its_neighbours() -> None:
    alone = sample_generator(7, 1)
    expected = [draw(LOGITS[:1], [alone])[0] for _ in range(50)]
    beside = [sample_generator(7, 0), sample_generator(7, 1), sample_generator(7, 2)]
    together = [draw(LOGITS[:1].expand(3, -1), beside)[1] for _ in range(50)]
    assert together == expected


def test_generators_of_different_pairs_are_unrelated() -> None:
    first = {
        (seed, sample): torch.rand(4, generator=sample_generator(seed, sample)).tolist()
        for seed in (-1, 0, 1, 2, 2**70)
        for sample in range(5)
    }
    assert len({tuple(numbers) for numbers in first.values()}) == len(first)
    assert first[(1, 2)] == torch.rand(4, generator=sample_generator(1, 2)).tolist()


@pytest.mark.parametrize("broken", [math.nan, math.inf])
def test_logits_that_are_no_numbers_are_refused(broken: float) -> None:
    logits = LOGITS.clone()
    logits[1, 2] = broken
    with pytest.raises(CheckpointError, match="not finite"):
        draw(logits, [sample_generator(0, 0), sample_generator(0, 1)])
