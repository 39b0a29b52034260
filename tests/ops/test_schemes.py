"""Each positional scheme is its formula, taken one pair of positions at a time, in float64."""

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from music_transformer.ops.attention import (
    biased_attention,
    clipped_rows,
    plain_attention,
    shaw_attention,
)
from music_transformer.ops.positions import (
    alibi_bias,
    alibi_slopes,
    bias_by_distance,
    rotary_table,
    rotate,
    t5_bias,
    t5_buckets,
    untied_bias,
)

TOLERANCE = 1e-10  # float64 sums of a few hundred terms of size about 1, in another order

Logit = Callable[[int, int, int, int], Tensor]  # b, h, position of the query, of the key


def by_loops(
    value: Tensor,
    queries: int,
    logit: Logit,
    *,
    value_of: Logit | None = None,
    block: int | None = None,
) -> Tensor:
    """softmax(logits) V with the logits and values of each pair asked for one by one."""
    batch, heads, keys, d_head = value.shape
    out = []
    for b in range(batch):
        for h in range(heads):
            for i in range(keys - queries, keys):
                seen = range(i + 1)
                if block is not None:
                    seen = [j for j in seen if j // block >= i // block - 1]
                logits = torch.stack([logit(b, h, i, j) for j in seen])
                values = [
                    value[b, h, j] if value_of is None else value_of(b, h, i, j) for j in seen
                ]
                out.append(logits.softmax(0) @ torch.stack(values))
    return torch.stack(out).view(batch, heads, queries, d_head)


def random(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(shape, dtype=torch.float64, generator=generator).requires_grad_()


def assert_same(actual: Tensor, expected: Tensor, inputs: list[Tensor]) -> None:
    """Equal outputs and equal gradients of a random weighting of them."""
    torch.testing.assert_close(actual, expected, atol=TOLERANCE, rtol=0)
    weight = torch.randn(actual.shape, dtype=torch.float64)
    grads = [torch.autograd.grad((out * weight).sum(), inputs) for out in (actual, expected)]
    for mine, theirs in zip(*grads, strict=True):
        torch.testing.assert_close(mine, theirs, atol=TOLERANCE, rtol=0)


BLOCKS = pytest.mark.parametrize("block", [None, 3])
QUERIES = pytest.mark.parametrize("queries", [1, 5, 11])
SIZES = {"batch": 2, "heads": 3, "keys": 11, "d_head": 5}


def attention_inputs(queries: int, d_head: int = 5) -> list[Tensor]:
    return [random(2, 3, queries, d_head), random(2, 3, 11, d_head), random(2, 3, 11, d_head)]


@given(
    queries=st.sampled_from([1, 2, 7]),
    before=st.sampled_from([0, 1, 4]),
    clip=st.sampled_from([1, 2, 5, 23]),
    shared=st.booleans(),
    block=st.sampled_from([None, 1, 3]),
)
def test_shaw_adds_the_vector_of_the_clipped_distance_to_keys_and_to_values(
    queries: int, before: int, clip: int, shared: bool, block: int | None
) -> None:
    keys, heads, d_head = queries + before, 3, 5
    query, key, value = (random(2, heads, n, d_head, seed=n) for n in (queries, keys, keys))
    on_keys, on_values = (random(1 if shared else heads, clip + 1, d_head, seed=s) for s in (1, 2))

    def row(i: int, j: int) -> int:
        return min(i - j, clip)

    def logit(b: int, h: int, i: int, j: int) -> Tensor:
        vector = key[b, h, j] + on_keys[0 if shared else h, row(i, j)]
        return query[b, h, i - before] @ vector / math.sqrt(d_head)

    def value_of(b: int, h: int, i: int, j: int) -> Tensor:
        return value[b, h, j] + on_values[0 if shared else h, row(i, j)]

    out = shaw_attention(query, key, value, on_keys, on_values, clip_distance=clip, block=block)
    expected = by_loops(value, queries, logit, value_of=value_of, block=block)
    assert_same(out, expected, [query, key, value, on_keys, on_values])


def test_shaws_rows_are_clipped_at_both_ends() -> None:
    assert clipped_rows(1, 5, clip_distance=2)[0].tolist() == [2, 2, 2, 1, 0]
    assert clipped_rows(5, 5, clip_distance=2)[0].tolist() == [0, 0, 0, 0, 0]
    assert clipped_rows(5, 5, clip_distance=2)[4].tolist() == [2, 2, 2, 1, 0]


@QUERIES
@BLOCKS
def test_t5_adds_a_number_for_the_bucket_of_the_distance(queries: int, block: int | None) -> None:
    query, key, value = attention_inputs(queries)
    table = random(4, 3)  # two exact buckets, two to distance 7

    def logit(b: int, h: int, i: int, j: int) -> Tensor:
        bucket = i - j if i - j < 2 else 2 if i - j < math.sqrt(2 * 7) else 3
        return query[b, h, i - (11 - queries)] @ key[b, h, j] / math.sqrt(5) + table[bucket, h]

    bias = t5_bias(table, queries, 11, max_distance=7)
    out = biased_attention(query, key, value, bias, block=block)
    assert_same(out, by_loops(value, queries, logit, block=block), [query, key, value, table])


@QUERIES
@BLOCKS
def test_alibi_takes_slope_times_distance_away(queries: int, block: int | None) -> None:
    query, key, value = attention_inputs(queries)
    slopes = [1 / 16, 1 / 256, 1 / 4]  # three heads: those of two, then every other of four

    def logit(b: int, h: int, i: int, j: int) -> Tensor:
        product = query[b, h, i - (11 - queries)] @ key[b, h, j] / math.sqrt(5)
        return product - slopes[h] * (i - j)

    bias = alibi_bias(alibi_slopes(3), queries, 11)
    out = biased_attention(query, key, value, bias, block=block)
    assert_same(out, by_loops(value, queries, logit, block=block), [query, key, value])


@QUERIES
@BLOCKS
def test_rope_multiplies_the_query_turned_by_the_distance_with_the_plain_key(
    queries: int, block: int | None
) -> None:
    query, key, value = attention_inputs(queries, d_head=6)

    def turned(x: Tensor, angle_steps: int) -> Tensor:
        parts = []
        for c in range(0, 6, 2):
            angle = angle_steps * 100.0 ** (-c / 6)
            turn = [[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]]
            parts.append(torch.tensor(turn, dtype=torch.float64) @ x[c : c + 2])
        return torch.cat(parts)

    def logit(b: int, h: int, i: int, j: int) -> Tensor:
        return turned(query[b, h, i - (11 - queries)], i - j) @ key[b, h, j] / math.sqrt(6)

    table = rotary_table(11, 6, base=100.0)
    out = plain_attention(
        rotate(query, table[:, 11 - queries :]), rotate(key, table), value, block=block
    )
    assert_same(out, by_loops(value, queries, logit, block=block), [query, key, value])


@QUERIES
@BLOCKS
def test_untied_adds_the_product_of_positions_and_shares_the_scale(
    queries: int, block: int | None
) -> None:
    query, key, value = attention_inputs(queries)
    position, query_weight, key_weight = random(11, 7), random(3, 5, 7), random(3, 5, 7, seed=1)

    def logit(b: int, h: int, i: int, j: int) -> Tensor:
        content = query[b, h, i - (11 - queries)] @ key[b, h, j]
        places = (query_weight[h] @ position[i]) @ (key_weight[h] @ position[j])
        return (content + places) / math.sqrt(2 * 5)

    bias = untied_bias(position, query_weight, key_weight, queries)
    out = biased_attention(query / 2**0.5, key, value, bias, block=block)
    inputs = [query, key, value, position, query_weight, key_weight]
    assert_same(out, by_loops(value, queries, logit, block=block), inputs)


@pytest.mark.parametrize("queries", [1, 2, 5])
def test_a_bias_by_distance_is_constant_along_diagonals(queries: int) -> None:
    by_distance = random(3, 5)
    bias = bias_by_distance(by_distance, queries)
    for i in range(queries):
        for j in range(5):
            distance = 5 - queries + i - j
            expected = by_distance[:, distance] if distance >= 0 else torch.zeros(3)
            assert torch.equal(bias[:, i, j], expected.to(bias))


def test_alibi_slopes_are_the_powers_of_the_paper() -> None:
    assert alibi_slopes(8).tolist() == [2.0**-h for h in range(1, 9)]
    assert alibi_slopes(6).tolist() == [2**-2, 2**-4, 2**-6, 2**-8, 2**-1, 2**-3]
    assert alibi_slopes(1).tolist() == [2**-8]


def test_t5_buckets_grow_with_the_distance() -> None:
    edges = [0, 15, 16, 18, 19, 20, 21, 98, 99, 112, 113, 100_000, -3]
    expected = [0, 15, 16, 16, 17, 17, 18, 29, 30, 30, 31, 31, 0]
    assert t5_buckets(torch.tensor(edges)).tolist() == expected


def test_the_causal_mask_alone_makes_the_order_of_keys_something() -> None:
    query, key, value = attention_inputs(11)
    order = torch.randperm(11, generator=torch.Generator().manual_seed(0))
    plain = plain_attention(query, key, value)[:, :, order]
    shuffled = plain_attention(query[:, :, order], key[:, :, order], value[:, :, order])
    assert not torch.allclose(plain, shuffled, atol=TOLERANCE)
