"""Dot products are those of the plain product, for one query and for more, broadcast or not."""

import pytest
import torch

from music_transformer.ops.products import dot_products


@pytest.mark.parametrize("queries", [1, 2, 5])
@pytest.mark.parametrize("rows", [(2, 3, 7, 4), (3, 7, 4), (1, 7, 4)], ids=str)
def test_they_are_the_plain_product(queries: int, rows: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    query = torch.randn(2, 3, queries, 4, dtype=torch.float64)
    keys = torch.randn(rows, dtype=torch.float64)
    out = dot_products(query, keys)
    assert out.shape == (2, 3, queries, 7)
    torch.testing.assert_close(out, query @ keys.mT)
