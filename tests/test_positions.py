"""The teaching functions give the numbers of the textbook, and are what the models use."""

import itertools

import numpy as np
import pytest
import torch

import music_transformer
from music_transformer.errors import ShapeError
from music_transformer.ops import positions as ops
from music_transformer.positions import (
    relative_bias_attention,
    relative_head_W,
    shift_matrix,
    sinusoidal_pe,
    t5_bucket,
    wavelengths,
)


def similarity(k: int, d: int, base: float) -> float:
    p = sinusoidal_pe(k + 1, d, base)
    return float(p[0] @ p[k] / (d / 2))


def spans(buckets: np.ndarray) -> list[tuple[int, int]]:
    """First and last index of each run of equal buckets."""
    runs = itertools.groupby(range(len(buckets)), key=lambda i: int(buckets[i]))
    groups = [list(run) for _, run in runs]
    return [(run[0], run[-1]) for run in groups]


def test_positions_1_and_2_at_four_columns_are_the_textbook_values() -> None:
    expected = [[0.841, 0.540, 0.010, 1.000], [0.909, -0.416, 0.020, 1.000]]
    np.testing.assert_allclose(sinusoidal_pe(3, 4)[1:], expected, atol=5e-4)


def test_the_longest_wavelength_at_512_columns_is_60611() -> None:
    assert round(wavelengths(512)[-1]) == 60_611
    assert wavelengths(512)[0] == pytest.approx(2 * np.pi)


def test_neighbours_at_512_columns_are_3_714_apart_everywhere() -> None:
    steps = np.diff(sinusoidal_pe(2000, 512), axis=0)
    squares = (steps**2).sum(-1)
    np.testing.assert_allclose(squares, 13.796, atol=5e-4)
    np.testing.assert_allclose(np.sqrt(squares), 3.714, atol=5e-4)


def test_base_100_forgets_what_base_10000_still_tells_apart() -> None:
    assert similarity(64, 64, 10000.0) == pytest.approx(0.4346, abs=5e-5)
    assert similarity(1000, 64, 10000.0) == pytest.approx(0.2789, abs=5e-5)
    assert abs(similarity(64, 64, 100.0)) < 0.1
    assert abs(similarity(1000, 64, 100.0)) < 0.1


def test_similarity_depends_on_the_offset_alone_and_is_even_in_it() -> None:
    p = sinusoidal_pe(61, 34)
    products = p @ p.T
    np.testing.assert_allclose(products, products.T, atol=1e-12)
    for k in range(61):
        np.testing.assert_allclose(np.diag(products, k), products[0, k], atol=1e-10)


@pytest.mark.parametrize("k", [-5, 0, 1, 13])
def test_a_shift_matrix_moves_every_position_by_k(k: int) -> None:
    p = sinusoidal_pe(41, 14, 100.0)
    matrix = shift_matrix(k, 14, 100.0)
    t = np.arange(max(0, -k), min(41, 41 - k))
    np.testing.assert_allclose(matrix @ p[t].T, p[t + k].T, atol=1e-12)
    np.testing.assert_allclose(matrix @ matrix.T, np.eye(14), atol=1e-12)
    np.testing.assert_allclose(matrix @ shift_matrix(3, 14, 100.0), shift_matrix(k + 3, 14, 100.0))


@pytest.mark.parametrize("k", [0, 1, 7])
def test_a_relative_head_looks_k_back_from_every_row(k: int) -> None:
    d, c = 64, 8.0
    p = sinusoidal_pe(53, d)
    score = p @ relative_head_W(k, d, c) @ p.T
    rows = np.arange(k, 53)
    assert (score[rows].argmax(-1) == rows - k).all()
    np.testing.assert_allclose(score[rows, rows - k], c * d / 2)


def test_bidirectional_buckets_are_those_of_t5() -> None:
    past, later = t5_bucket(-np.arange(200)), t5_bucket(np.arange(200))
    exact = [(n, n) for n in range(8)]
    far = [(8, 11), (12, 15), (16, 22), (23, 31), (32, 45), (46, 63), (64, 90), (91, 199)]
    assert spans(past) == exact + far
    assert spans(later) == exact + far
    assert past.max() == 15
    assert later[1:].min() == 17  # bucket 16 would be offset "+0"
    assert later[0] == 0


def test_causal_buckets_are_those_of_t5() -> None:
    edges = [16, 19, 21, 24, 27, 31, 35, 40, 46, 52, 59, 67, 77, 87, 99, 113, 200]
    far = list(itertools.pairwise(edges))
    buckets = t5_bucket(-np.arange(200), bidirectional=False)
    assert spans(buckets) == [(n, n) for n in range(16)] + [(a, b - 1) for a, b in far]
    assert (t5_bucket([1, 50], bidirectional=False) == 0).all()


def test_biased_attention_is_its_formula_pair_by_pair() -> None:
    generator = np.random.default_rng(0)
    query, key, value = (generator.normal(size=s) for s in ((5, 3), (7, 3), (7, 2)))
    for table in (generator.normal(size=5), generator.normal(size=32)):
        out = relative_bias_attention(query, key, value, table)
        for i in range(5):
            rels = [j - i for j in range(7)]
            if len(table) == 5:
                bias = np.array([table[min(max(rel, -2), 2) + 2] for rel in rels])
            else:
                bias = np.array([table[int(t5_bucket(rel))] for rel in rels])
            weights = np.exp(key @ query[i] / np.sqrt(3) + bias)
            np.testing.assert_allclose(out[i], weights @ value / weights.sum())


def test_attention_without_positions_is_permutation_equivariant_and_biased_is_not() -> None:
    generator = np.random.default_rng(1)
    query, key, value = (generator.normal(size=(2, 11, 5)) for _ in range(3))
    order = generator.permutation(11)
    for table, equivariant in ((np.zeros(21), True), (generator.normal(size=(2, 21)), False)):
        out = relative_bias_attention(query, key, value, table)[:, order]
        shuffled = relative_bias_attention(query[:, order], key[:, order], value[:, order], table)
        assert np.allclose(out, shuffled) is equivariant


def test_the_models_use_the_same_formulas() -> None:
    np.testing.assert_allclose(ops.sinusoidal_table(17, 12), sinusoidal_pe(17, 12), atol=1e-7)
    distance = torch.arange(300)
    causal = t5_bucket(-np.arange(300), bidirectional=False)
    assert (ops.t5_buckets(distance).numpy() == causal).all()
    turned = ops.rotate(torch.ones(1, 1, 5, 6).double(), ops.rotary_table(5, 6))[0, 0]
    for t in range(5):  # a rotation the other way round: RoPE keeps (cosine, sine) in this order
        np.testing.assert_allclose(turned[t], shift_matrix(-t, 6) @ np.ones(6), atol=1e-12)


def test_shapes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ShapeError, match="d=5: sinusoids come in pairs"):
        sinusoidal_pe(3, 5)
    with pytest.raises(ShapeError, match=r"Q \(5, 3\), K \(7, 4\)"):
        relative_bias_attention(np.ones((5, 3)), np.ones((7, 4)), np.ones((7, 2)), np.zeros(9))


def test_the_package_offers_them_by_attribute() -> None:
    assert music_transformer.positions.sinusoidal_pe(3, 4).shape == (3, 4)
