"""Relative time and pitch: the definition by loops, and every implementation equal to it."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from music_transformer.errors import ConfigError
from music_transformer.ops import blockwise
from music_transformer.ops.attention import relative_attention
from music_transformer.ops.relational import (
    INTERVALS,
    NO_PITCH,
    Relational,
    interval_rows,
    pitch_pairs,
    pitches_of,
    tables_by_voice,
    time_rows,
)

# float64 sums of at most a few hundred terms of size about 1 differ by rounding only.
TOLERANCE = 1e-10


def tensors(
    seed: int,
    *,
    batch: int,
    heads: int,
    queries: int,
    keys: int,
    d_head: int,
    tables: int,
    rows: int,
    voices: int,
) -> list[Tensor]:
    """Query, key, value and the tables of distance, time and pitch."""
    generator = torch.Generator().manual_seed(seed)
    shapes = [
        (batch, heads, queries, d_head),
        (batch, heads, keys, d_head),
        (batch, heads, keys, d_head),
        (tables, rows, d_head),
        (tables, time_rows(rows, voices), d_head),
        (tables, INTERVALS, d_head),
    ]
    return [
        torch.randn(shape, dtype=torch.float64, generator=generator).requires_grad_()
        for shape in shapes
    ]


def some_ids(seed: int, batch: int, keys: int) -> Tensor:
    """Any id up to END, the pitches of chorales more often."""
    generator = torch.Generator().manual_seed(seed)
    near = torch.randint(36, 85, (batch, keys), generator=generator)
    any_id = torch.randint(0, 132, (batch, keys), generator=generator)
    return torch.where(torch.rand(batch, keys, generator=generator) < 0.7, near, any_id)


def loops(
    inputs: list[Tensor],
    ids: Tensor,
    *,
    first_voice: tuple[int, ...],
    voices: int,
    time: bool,
    pitch: bool,
    block: int | None = None,
) -> Tensor:
    """The definition, one pair of positions at a time."""
    query, key, value, rel_embedding, time_embedding, pitch_embedding = inputs
    batch, heads, queries, d_head = query.shape
    offset = key.shape[2] - queries
    out = []
    for b in range(batch):
        place = (first_voice[b] - offset) % voices  # of key 0; whole steps more change nothing
        for h in range(heads):
            t = h if rel_embedding.shape[0] > 1 else 0
            for i in range(offset, offset + queries):
                logits, values = [], []
                for j in range(i + 1):
                    if block is not None and j // block < i // block - 1:
                        continue
                    vector = key[b, h, j]
                    if i - j < rel_embedding.shape[1]:
                        vector = vector + rel_embedding[t, i - j]
                        if time:
                            steps = (place + i) // voices - (place + j) // voices
                            vector = vector + time_embedding[t, steps]
                    of_query, of_key = int(ids[b, i]), int(ids[b, j])
                    if pitch and of_query < 128 and of_key < 128:
                        interval = max(-36, min(36, of_query - of_key))
                        vector = vector + pitch_embedding[t, 36 + interval]
                    logits.append(query[b, h, i - offset] @ vector / math.sqrt(d_head))
                    values.append(value[b, h, j])
                out.append(torch.stack(logits).softmax(0) @ torch.stack(values))
    return torch.stack(out).view_as(query)


def attend(
    inputs: list[Tensor],
    ids: Tensor,
    *,
    first_voice: int | tuple[int, ...],
    voices: int,
    time: bool,
    pitch: bool,
    block: int | None = None,
    implementation: str,
) -> Tensor:
    query, key, value, rel_embedding, time_embedding, pitch_embedding = inputs
    pairs = pitch_pairs(pitches_of(ids), query.shape[2], dtype=query.dtype)
    relational = Relational(
        time_embedding if time else None,
        voices,
        first_voice,
        pitch_embedding if pitch else None,
        pairs if pitch else None,
    )
    return relative_attention(
        query,
        key,
        value,
        rel_embedding,
        relational=relational,
        block=block,
        implementation=implementation,
    )


@settings(max_examples=40, deadline=None)
@given(
    data=st.data(),
    batch=st.sampled_from([1, 2, 3]),
    heads=st.sampled_from([1, 3]),
    queries=st.sampled_from([1, 2, 5, 11]),
    before=st.sampled_from([0, 1, 2, 3, 7]),
    d_head=st.sampled_from([1, 5]),
    rows=st.sampled_from([1, 2, 6, 13, 31]),
    voices=st.sampled_from([1, 3, 4]),
    block=st.sampled_from([None, None, 3]),
    terms=st.sampled_from([(True, True), (True, False), (False, True)]),
    implementation=st.sampled_from(["reference", "skew", "blockwise", "auto"]),
    seed=st.integers(0, 99),
)
def test_every_implementation_is_the_definition_by_loops_in_outputs_and_gradients(
    data: st.DataObject,
    batch: int,
    heads: int,
    queries: int,
    before: int,
    d_head: int,
    rows: int,
    voices: int,
    block: int | None,
    terms: tuple[bool, bool],
    implementation: str,
    seed: int,
) -> None:
    inputs = tensors(
        seed,
        batch=batch,
        heads=heads,
        queries=queries,
        keys=queries + before,
        d_head=d_head,
        tables=data.draw(st.sampled_from([1, heads])),
        rows=rows,
        voices=voices,
    )
    ids = some_ids(seed, batch, queries + before)
    together = data.draw(st.booleans())
    voice = st.integers(0, voices - 1)
    first = (data.draw(voice),) * batch if together else tuple(data.draw(voice) for _ in ids)
    time, pitch = terms
    weight = torch.randn(inputs[0].shape, dtype=torch.float64)
    learned = [*inputs[:4], *([inputs[4]] if time else []), *([inputs[5]] if pitch else [])]
    expected = loops(
        inputs, ids, first_voice=first, voices=voices, time=time, pitch=pitch, block=block
    )
    with pytest.MonkeyPatch.context() as patch:  # small blocks and groups, so that there are many
        patch.setattr(blockwise, "ROWS", data.draw(st.sampled_from([2, 5, 128])))
        patch.setattr(blockwise, "BUFFER_NUMBERS", data.draw(st.sampled_from([1, 100, 1 << 20])))
        out = attend(
            inputs,
            ids,
            first_voice=first[0] if together else first,
            voices=voices,
            time=time,
            pitch=pitch,
            block=block,
            implementation=implementation,
        )
        actual = torch.autograd.grad((out * weight).sum(), learned, materialize_grads=True)
    torch.testing.assert_close(out, expected, atol=TOLERANCE, rtol=0)
    wanted = torch.autograd.grad((expected * weight).sum(), learned, materialize_grads=True)
    for one, other in zip(actual, wanted, strict=True):
        torch.testing.assert_close(one, other, atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("first_voice", [0, 3])
def test_blocks_of_rows_are_the_reference_at_a_length_of_several_blocks(first_voice: int) -> None:
    inputs = tensors(
        5, batch=2, heads=2, queries=271, keys=283, d_head=3, tables=2, rows=269, voices=4
    )
    ids = some_ids(5, 2, 283)
    weight = torch.randn(inputs[0].shape, dtype=torch.float64)
    results = []
    for name in ("reference", "skew", "blockwise"):
        out = attend(
            inputs,
            ids,
            first_voice=first_voice,
            voices=4,
            time=True,
            pitch=True,
            implementation=name,
        )
        results.append([out, *torch.autograd.grad((out * weight).sum(), inputs)])
    for result in results[1:]:
        for actual, expected in zip(result, results[0], strict=True):
            torch.testing.assert_close(actual, expected, atol=TOLERANCE, rtol=0)


def test_the_blockwise_gradient_is_the_derivative(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blockwise, "ROWS", 3)
    inputs = tensors(2, batch=1, heads=2, queries=5, keys=7, d_head=2, tables=2, rows=5, voices=4)
    ids = some_ids(2, 1, 7)

    def attention(*x: Tensor) -> Tensor:
        return attend(
            list(x),
            ids,
            first_voice=2,
            voices=4,
            time=True,
            pitch=True,
            implementation="blockwise",
        )

    assert torch.autograd.gradcheck(attention, inputs)


def test_time_by_hand_is_the_distance_in_steps_of_four_voices() -> None:
    # Rows of E_t are their own numbers, E_r is zero: what is left is the time of each distance.
    rel, time = torch.zeros(1, 7, 1), torch.arange(3.0).view(1, 3, 1)
    assert time_rows(7, 4) == 3
    tables = tables_by_voice(rel, time, 8, voices=4)[:, 0, :, 0]  # (V, 8), farthest first
    assert tables.flip(-1).tolist() == [
        [0, 1, 1, 1, 1, 2, 2, 0],  # the soprano: the voice before it is a step back
        [0, 0, 1, 1, 1, 1, 2, 0],
        [0, 0, 0, 1, 1, 1, 1, 0],
        [0, 0, 0, 0, 1, 1, 1, 0],  # the bass: three voices of its own step before it
    ]  # distance 7 is past the table of distances


def test_intervals_are_query_minus_key_clipped_at_three_octaves() -> None:
    query, key = torch.tensor([60, 62, 60, 127, 0]), torch.tensor([60, 60, 72, 0, 127])
    assert interval_rows(query, key).tolist() == [36, 38, 24, 72, 0]
    none = torch.full((5,), NO_PITCH)
    assert interval_rows(query, none).tolist() == [INTERVALS] * 5
    assert interval_rows(none, key).tolist() == [INTERVALS] * 5
    assert pitches_of(torch.tensor([0, 127, 128, 131])).tolist() == [0, 127, -1, -1]


def test_there_are_columns_for_the_pitches_that_occur_alone() -> None:
    pitches = torch.tensor([[60, 64, 60, NO_PITCH, 127], [0, 1, 2, 3, 4]])
    pairs = pitch_pairs(pitches, 3, dtype=torch.float64)
    assert pairs.key_columns is not None
    assert pairs.rows.shape == (2, 1, 3, 8)  # five pitches, rounded up to a multiple of four
    assert pairs.key_columns.sum(-1).tolist() == [[1, 1, 1, 0, 1], [1] * 5]
    assert (pairs.rows[0, 0, 1] == INTERVALS).all()  # the silent query
    assert pairs.rows[0, 0, 0].tolist() == [36, 32, 0, *[INTERVALS] * 5]  # 60 against 60, 64, 127
    by_key = pitch_pairs(pitches, 1, dtype=torch.float64)
    assert by_key.key_columns is None
    assert by_key.rows.tolist() == [[[[72, 72, 72, 73, 36]]], [[[40, 39, 38, 37, 36]]]]


def test_ids_without_any_pitch_have_no_pitch_term() -> None:
    inputs = tensors(3, batch=1, heads=1, queries=5, keys=5, d_head=3, tables=1, rows=5, voices=4)
    silence = torch.full((1, 5), 128)
    for name in ("reference", "skew", "blockwise"):
        out = attend(
            inputs, silence, first_voice=0, voices=4, time=False, pitch=True, implementation=name
        )
        plain = relative_attention(*inputs[:4], implementation="reference")
        torch.testing.assert_close(out, plain, atol=TOLERANCE, rtol=0)


def test_the_fused_kernel_refuses_further_terms() -> None:
    inputs = tensors(4, batch=1, heads=1, queries=5, keys=5, d_head=3, tables=1, rows=5, voices=4)
    with pytest.raises(ConfigError, match="relative time and pitch with fused attention"):
        attend(
            inputs,
            some_ids(4, 1, 5),
            first_voice=0,
            voices=4,
            time=True,
            pitch=False,
            implementation="fused",
        )
