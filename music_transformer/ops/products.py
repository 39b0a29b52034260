"""Dot products of few queries with many rows, as decoding event by event needs them."""

from torch import Tensor


def dot_products(query: Tensor, rows: Tensor) -> Tensor:
    """``query @ rows.mT``, (..., L, D) and (..., S, D) -> (..., L, S).

    A single query is the right-hand side, as a column: on a CPU the rows are read 1.4 times as fast
    then (measured with 768 rows of 64 numbers for each of 8 heads).
    """
    if query.shape[-2] == 1:
        return (rows @ query.mT).mT
    return query @ rows.mT
