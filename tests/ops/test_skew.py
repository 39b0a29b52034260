"""The paper's skew, checkable by hand."""

import pytest
import torch

from music_transformer.errors import ShapeError
from music_transformer.ops.skew import dot_products, skew


def test_the_skew_of_rows_123_456_789_has_lower_triangle_3_56_789() -> None:
    rel_logits = torch.arange(1.0, 10.0).view(1, 1, 3, 3)
    lower = skew(rel_logits)[0, 0].tril()
    assert lower.tolist() == [[3, 0, 0], [5, 6, 0], [7, 8, 9]]


def test_the_last_queries_of_a_longer_stretch_are_skewed_to_their_own_places() -> None:
    queries, keys = 3, 5
    rel_logits = torch.arange(float(queries * keys)).view(1, 1, queries, keys)
    skewed = skew(rel_logits)[0, 0]
    for i in range(queries):
        for j in range(keys - queries + i + 1):
            distance = keys - queries + i - j
            assert skewed[i, j] == rel_logits[0, 0, i, keys - 1 - distance]


def test_more_queries_than_keys_are_refused_with_the_shape() -> None:
    with pytest.raises(ShapeError, match=r"\(2, 3, 5, 4\)"):
        skew(torch.zeros(2, 3, 5, 4))


def test_the_gathered_embeddings_of_the_paper_take_8_59_gb_and_the_table_4_2_mb() -> None:
    length, depth, bytes_per_number = 2048, 512, 4
    assert round(length * length * depth * bytes_per_number / 1e9, 2) == 8.59
    assert round(length * depth * bytes_per_number / 1e6, 1) == 4.2


@pytest.mark.parametrize("queries", [1, 2, 5])
@pytest.mark.parametrize("rows", [(2, 3, 7, 4), (3, 7, 4), (1, 7, 4)], ids=str)
def test_dot_products_are_the_plain_product(queries: int, rows: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    query = torch.randn(2, 3, queries, 4, dtype=torch.float64)
    keys = torch.randn(rows, dtype=torch.float64)
    out = dot_products(query, keys)
    assert out.shape == (2, 3, queries, 7)
    torch.testing.assert_close(out, query @ keys.mT)
