"""Every implementation of relative attention is the reference, in outputs and all gradients."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from music_transformer.errors import ConfigError
from music_transformer.ops import blockwise
from music_transformer.ops.reference import causal_mask, relative_logits_by_gather
from music_transformer.ops.relative import choose_implementation, relative_attention

# float64 sums of at most a few hundred terms of size about 1 differ by rounding only.
TOLERANCE = 1e-10


def loops(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    tables: Tensor,
    block: int | None = None,
    first: int = 0,
) -> Tensor:
    """The definition, one pair of positions at a time."""
    batch, heads, queries, _ = query.shape
    keys, d_head = value.shape[2:]
    out = []
    for b in range(batch):
        for h in range(heads):
            for i in range(queries):
                table = tables[(first + i) % len(tables), h if tables.shape[1] > 1 else 0]
                position = keys - queries + i
                logits, values = [], []
                for j in range(position + 1):
                    if block is not None and j // block < position // block - 1:
                        continue
                    logit = query[b, h, i] @ key[b, h, j]
                    if position - j < table.shape[0]:
                        logit = logit + query[b, h, i, :d_head] @ table[position - j]
                    logits.append(logit / math.sqrt(d_head))
                    values.append(value[b, h, j])
                out.append(torch.stack(logits).softmax(0) @ torch.stack(values))
    return torch.stack(out).view(batch, heads, queries, d_head)


def tensors(
    seed: int,
    batch: int,
    heads: int,
    queries: int,
    keys: int,
    d_head: int,
    tables: int,
    rows: int,
    turns: int = 1,
    wider: int = 0,
) -> list[Tensor]:
    """Query and key (D + P columns), value, and V tables."""
    generator = torch.Generator().manual_seed(seed)
    shapes = [
        (batch, heads, queries, d_head + wider),
        (batch, heads, keys, d_head + wider),
        (batch, heads, keys, d_head),
        (turns, tables, rows, d_head),
    ]
    return [
        torch.randn(shape, dtype=torch.float64, generator=generator).requires_grad_()
        for shape in shapes
    ]


@pytest.mark.parametrize("block", [None, 3])
@pytest.mark.parametrize(("turns", "wider"), [(1, 0), (4, 2)])
@pytest.mark.parametrize("implementation", ["reference", "skew", "blockwise"])
def test_every_implementation_is_the_definition_by_loops(
    block: int | None, turns: int, wider: int, implementation: str
) -> None:
    inputs = tensors(0, 2, 3, 5, 11, 7, 3, 4, turns, wider)
    expected = loops(*inputs, block=block, first=turns - 1)
    out = relative_attention(*inputs, first=turns - 1, block=block, implementation=implementation)
    torch.testing.assert_close(out, expected, atol=TOLERANCE, rtol=0)
    if turns == 1:  # the paper's one table may be given as such
        paper = relative_attention(*inputs[:3], inputs[3][0], block=block)
        torch.testing.assert_close(paper, expected, atol=TOLERANCE, rtol=0)


@settings(max_examples=90, deadline=None)
@given(
    data=st.data(),
    batch=st.sampled_from([1, 2, 5]),
    heads=st.sampled_from([1, 3, 4]),
    queries=st.sampled_from([1, 2, 5, 11, 29]),
    before=st.sampled_from([0, 1, 7, 13]),
    d_head=st.sampled_from([1, 3, 7]),
    rows=st.sampled_from([1, 2, 13, 61]),
    turns=st.sampled_from([1, 1, 3, 4]),
    wider=st.sampled_from([0, 0, 5]),
    block=st.sampled_from([None, 1, 3, 17, 101]),
    implementation=st.sampled_from(["skew", "blockwise", "auto"]),
)
def test_every_implementation_equals_the_reference_in_outputs_and_gradients(
    data: st.DataObject,
    batch: int,
    heads: int,
    queries: int,
    before: int,
    d_head: int,
    rows: int,
    turns: int,
    wider: int,
    block: int | None,
    implementation: str,
) -> None:
    tables = data.draw(st.sampled_from([1, heads]))
    keys, first = queries + before, data.draw(st.integers(0, turns - 1))
    inputs = tensors(1, batch, heads, queries, keys, d_head, tables, rows, turns, wider)
    weight = torch.randn(batch, heads, queries, d_head, dtype=torch.float64)
    with pytest.MonkeyPatch.context() as patch:  # small blocks and groups, so that there are many
        patch.setattr(blockwise, "ROWS", data.draw(st.sampled_from([2, 5, 128])))
        patch.setattr(blockwise, "BUFFER_NUMBERS", data.draw(st.sampled_from([1, 100, 1 << 20])))
        results = []
        for name in ("reference", implementation):
            out = relative_attention(*inputs, first=first, block=block, implementation=name)
            results.append([out, *torch.autograd.grad((out * weight).sum(), inputs)])
    for actual, expected in zip(results[1], results[0], strict=True):
        torch.testing.assert_close(actual, expected, atol=TOLERANCE, rtol=0)


def test_blocks_are_the_reference_at_a_length_of_several_blocks() -> None:
    inputs = tensors(5, 2, 2, 271, 283, 3, 2, 269, turns=4, wider=4)
    weight = torch.randn(2, 2, 271, 3, dtype=torch.float64)
    results = []
    for name in ("reference", "skew", "blockwise"):
        out = relative_attention(*inputs, first=3, implementation=name)
        results.append([out, *torch.autograd.grad((out * weight).sum(), inputs)])
    for result in results[1:]:
        for actual, expected in zip(result, results[0], strict=True):
            torch.testing.assert_close(actual, expected, atol=TOLERANCE, rtol=0)


def test_the_blockwise_gradient_is_the_derivative(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blockwise, "ROWS", 3)
    for block, tables, turns in ((None, 2, 1), (None, 1, 4), (3, 2, 2)):
        inputs = tensors(2, 1, 2, 7, 11, 3, tables, 5, turns, turns - 1)
        assert torch.autograd.gradcheck(
            lambda *x, block=block: blockwise.blockwise_attention(*x, first=0, block=block), inputs
        )


@pytest.mark.parametrize("implementation", ["reference", "skew", "blockwise"])
@pytest.mark.parametrize("block", [None, 4])
def test_no_gradient_reaches_a_query_from_a_later_key(
    implementation: str, block: int | None
) -> None:
    query, key, value, table = tensors(3, 2, 3, 11, 11, 5, 3, 11)
    for k in (0, 4, 10):
        out = relative_attention(
            query, key, value, table, block=block, implementation=implementation
        )
        grad_key, grad_value = torch.autograd.grad(out[:, :, k].sum(), (key, value))
        assert (grad_key[:, :, k + 1 :] == 0).all()
        assert (grad_value[:, :, k + 1 :] == 0).all()
        assert (grad_value[:, :, k] != 0).all()


def test_a_local_query_sees_its_own_block_and_the_whole_one_before() -> None:
    mask = causal_mask(7, 7, block=3)
    seen = [row.nonzero().flatten().tolist() for row in mask]
    assert seen == [
        [0],
        [0, 1],
        [0, 1, 2],
        [0, 1, 2, 3],
        [0, 1, 2, 3, 4],
        [0, 1, 2, 3, 4, 5],
        [3, 4, 5, 6],
    ]


def test_beyond_the_last_distance_the_table_adds_nothing() -> None:
    query, _, _, table = tensors(4, 1, 2, 5, 5, 3, 2, 2)
    logits = relative_logits_by_gather(query, table, 5)
    assert (logits[:, :, 4, :3] == 0).all()
    assert (logits[:, :, 4, 3:] != 0).all()


def test_dropout_on_weights_is_refused_by_blockwise_and_turns_auto_to_skew() -> None:
    inputs = tensors(5, 1, 1, 3, 3, 2, 1, 3)
    with pytest.raises(ConfigError, match=r"attention dropout 0\.1"):
        relative_attention(*inputs, dropout=0.1, implementation="blockwise")
    assert choose_implementation(2048, 2048) == "blockwise"
    assert choose_implementation(2048, 2048, dropout=0.1) == "skew"
    assert choose_implementation(1, 2048) == "skew"


def test_auto_goes_by_device_length_and_whether_gradients_are_needed() -> None:
    assert choose_implementation(128, 128) == "skew"
    assert choose_implementation(256, 256) == "blockwise"
    assert choose_implementation(2, 2048) == "skew"
    assert choose_implementation(1500, 1500, device="cuda", gradients=False) == "skew"
    assert choose_implementation(1500, 1500, device="cuda", gradients=True) == "blockwise"


def test_an_unknown_implementation_is_refused_with_the_choices() -> None:
    with pytest.raises(ConfigError, match="auto, reference, skew, blockwise"):
        relative_attention(*tensors(6, 1, 1, 3, 3, 2, 1, 3), implementation="fast")


@pytest.mark.parametrize(("turns", "wider"), [(2, 0), (1, 2)])
def test_the_fused_kernel_refuses_further_terms(turns: int, wider: int) -> None:
    inputs = tensors(6, 1, 1, 3, 3, 2, 1, 3, turns, wider)
    with pytest.raises(ConfigError, match="several tables, or wider queries, with fused"):
        relative_attention(*inputs, implementation="fused")


def test_half_precision_on_a_cpu_is_computed_in_float32() -> None:
    inputs = [x.detach().float() for x in tensors(7, 2, 3, 13, 13, 5, 3, 13)]
    half = [x.bfloat16() for x in inputs]
    out = relative_attention(*half)
    expected = relative_attention(*[x.float() for x in half])
    assert out.dtype == torch.bfloat16
    torch.testing.assert_close(out, expected.bfloat16(), atol=0, rtol=0)
