"""Attention to both sides, and to keys on a clock, against loops over every pair."""

import math

import pytest
import torch
from torch import Tensor

from music_transformer.errors import ShapeError
from music_transformer.ops.bidirectional import (
    bidirectional_attention,
    bidirectional_skew,
    time_relative_attention,
)


def by_loops(
    query: Tensor, key: Tensor, value: Tensor, table: Tensor, keep: Tensor | None
) -> Tensor:
    """The definition: the vector of each pair's distance, looked up pair by pair."""
    batch, heads, length, d_head = query.shape
    middle = table.shape[1] // 2
    out = []
    for b in range(batch):
        for h in range(heads):
            for i in range(length):
                logits = []
                for j in range(length):
                    vector = key[b, h, j]
                    if abs(i - j) <= middle:
                        vector = vector + table[h % len(table), i - j + middle]
                    seen = keep is None or bool(keep[b, j])
                    logit = query[b, h, i] @ vector / math.sqrt(d_head)
                    logits.append(logit if seen else torch.tensor(-math.inf, dtype=logit.dtype))
                out.append(torch.stack(logits).softmax(0) @ value[b, h])
    return torch.stack(out).view(batch, heads, length, d_head)


def drawn(*shape: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64, generator=generator).requires_grad_()


@pytest.mark.parametrize(
    ("length", "known", "tables"),
    [(5, 5, 3), (5, 2, 3), (5, 7, 1), (1, 1, 3), (1, 3, 3), (7, 1, 1)],
)
@pytest.mark.parametrize("padded", [False, True])
def test_bidirectional_attention_equals_the_loops_with_its_gradients(
    length: int, known: int, tables: int, padded: bool
) -> None:
    query, key, value = (drawn(2, 3, length, 7, seed=seed) for seed in range(3))
    table = drawn(tables, 2 * known - 1, 7, seed=3)
    keep = None
    if padded:
        keep = torch.ones(2, length, dtype=torch.bool)
        keep[1, length // 2 + 1 :] = False
    fast = bidirectional_attention(query, key, value, table, keep=keep)
    slow = by_loops(query, key, value, table, keep)
    # float64: sums in another order, rounding only
    torch.testing.assert_close(fast, slow, atol=1e-12, rtol=0)
    weight = drawn(*fast.shape, seed=4).detach()
    inputs = (query, key, value, table)
    found = torch.autograd.grad((fast * weight).sum(), inputs)
    expected = torch.autograd.grad((slow * weight).sum(), inputs)
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=0)


def test_the_skew_by_hand_has_the_past_on_the_left_and_the_future_on_the_right() -> None:
    # Columns are distances 2, 1, 0, -1, -2 of a query less its key; rows are queries 0, 1, 2.
    rel_logits = torch.tensor([[1, 2, 3, 4, 5], [6, 7, 8, 9, 10], [11, 12, 13, 14, 15]])
    by_key = [[3, 4, 5], [7, 8, 9], [11, 12, 13]]
    assert bidirectional_skew(rel_logits[None, None])[0, 0].tolist() == by_key


def test_a_skew_of_other_columns_is_refused() -> None:
    with pytest.raises(ShapeError, match=r"expected \(B, H, L, 9\)"):
        bidirectional_skew(torch.zeros(1, 1, 5, 5))


def test_no_tensor_of_length_by_length_by_width_is_made() -> None:
    length, d_head, known = 64, 32, 64
    sizes = []

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            out = func(*args, **(kwargs or {}))
            sizes.extend(x.numel() for x in [out] if isinstance(x, Tensor))
            return out

    with Watch():
        x = torch.randn(1, 1, length, d_head)
        bidirectional_attention(x, x, x, torch.randn(1, 2 * known - 1, d_head))
    assert max(sizes) <= 2 * length * length


@pytest.mark.parametrize("known", [1, 3, 20])
def test_time_relative_attention_equals_the_loops_with_its_gradients(known: int) -> None:
    query = drawn(2, 3, 5, 7, seed=0)
    key, value = drawn(2, 3, 11, 7, seed=1), drawn(2, 3, 11, 7, seed=2)
    table, bias = drawn(3, 2 * known - 1, 7, seed=3), drawn(3, 2 * known - 1, seed=4)
    step = torch.tensor([[0, 0, 3, 7, 15], [2, 2, 2, 9, 10]])
    keep = torch.ones(2, 11, dtype=torch.bool)
    keep[1, 8:] = False
    fast = time_relative_attention(query, key, value, step=step, tables=(table, bias), keep=keep)
    rows = []
    for b in range(2):
        for h in range(3):
            for i in range(5):
                logits = []
                for j in range(11):
                    away = max(-(known - 1), min(known - 1, j - int(step[b, i])))
                    vector = key[b, h, j] + table[h, away + known - 1]
                    logit = query[b, h, i] @ vector / math.sqrt(7) + bias[h, away + known - 1]
                    logits.append(logit if keep[b, j] else torch.full_like(logit, -math.inf))
                rows.append(torch.stack(logits).softmax(0) @ value[b, h])
    slow = torch.stack(rows).view(2, 3, 5, 7)
    torch.testing.assert_close(fast, slow, atol=1e-12, rtol=0)
    weight, inputs = drawn(*fast.shape, seed=5).detach(), (query, key, value, table, bias)
    found = torch.autograd.grad((fast * weight).sum(), inputs)
    expected = torch.autograd.grad((slow * weight).sum(), inputs)
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=0)


def test_a_sequence_that_keeps_nothing_gets_numbers() -> None:
    x = torch.randn(1, 2, 3, 4)
    keep = torch.zeros(1, 3, dtype=torch.bool)
    assert bidirectional_attention(x, x, x, None, keep=keep).isfinite().all()
