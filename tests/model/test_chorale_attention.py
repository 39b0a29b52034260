"""Relative time and pitch: the definition by loops, and every implementation equal to it."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from music_transformer.model.chorale import (
    INTERVALS,
    NO_PITCH,
    Tables,
    Turns,
    chorale_attention,
    interval_rows,
    pitch_columns,
    pitches_of,
    tables_by_voice,
    time_rows,
)
from music_transformer.ops import blockwise
from music_transformer.ops.relative import relative_attention

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
    first = first_voice if isinstance(first_voice, tuple) else (first_voice,)
    return chorale_attention(
        query,
        key,
        value,
        Tables(
            rel_embedding,
            time_embedding if time else None,
            pitch_embedding if pitch else None,
            voices,
        ),
        Turns(first, pitch_columns(pitches_of(ids), query.shape[2]) if pitch else None),
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


def test_time_by_hand_is_the_distance_in_steps_of_four_voices() -> None:
    # Rows of E_t are their own numbers, E_r is zero: what is left is the time of each distance.
    rel, time = torch.zeros(1, 7, 1), torch.arange(3.0).view(1, 3, 1)
    assert time_rows(7, 4) == 3
    assert tables_by_voice(rel, time, voices=4)[:, 0, :, 0].tolist() == [
        [0, 1, 1, 1, 1, 2, 2],  # the soprano: the voice before it is a step back
        [0, 0, 1, 1, 1, 1, 2],
        [0, 0, 0, 1, 1, 1, 1],
        [0, 0, 0, 0, 1, 1, 1],  # the bass: three voices of its own step before it
    ]


def test_intervals_are_query_minus_key_clipped_at_three_octaves() -> None:
    query, key = torch.tensor([60, 62, 60, 127, 0]), torch.tensor([60, 60, 72, 0, 127])
    assert interval_rows(query, key).tolist() == [36, 38, 24, 72, 0]
    none = torch.full((5,), NO_PITCH)
    assert interval_rows(query, none).tolist() == [INTERVALS] * 5
    assert interval_rows(none, key).tolist() == [INTERVALS] * 5
    assert pitches_of(torch.tensor([0, 127, 128, 131])).tolist() == [0, 127, -1, -1]


def test_there_are_columns_for_the_pitches_that_occur_alone() -> None:
    pitches = torch.tensor([[60, 64, 60, NO_PITCH, 127], [0, 1, 2, 3, 4]])
    pairs = pitch_columns(pitches, 3)
    assert pairs.keys is not None
    assert pairs.rows.shape == (2, 1, 3, 8)  # five pitches, rounded up to a multiple of four
    assert pairs.keys.sum(-1).tolist() == [[1, 1, 1, 0, 1], [1] * 5]
    assert (pairs.rows[0, 0, 1] == INTERVALS).all()  # the silent query
    assert pairs.rows[0, 0, 0].tolist() == [36, 32, 0, *[INTERVALS] * 5]  # 60 against 60, 64, 127
    by_key = pitch_columns(pitches, 1)
    assert by_key.keys is None
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
