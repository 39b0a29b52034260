"""What a voice did last: counted as by hand, the same from a cache, and nothing where it is new."""

from typing import Any

import pytest
import torch
from torch import Tensor

from music_transformer.model import ModelConfig, MusicTransformer
from music_transformer.model.chorale import NOTHING_READ, held_steps, last_of_voice

BOTH: dict[str, Any] = {"held_labels": 3, "interval_output": True}


def build(**settings: Any) -> MusicTransformer:
    base: dict[str, Any] = {
        "vocab_size": 132,
        "n_layers": 2,
        "d_model": 12,
        "n_heads": 3,
        "d_ff": 19,
        "dropout": 0.0,
        "context": 41,
        "voice_labels": 4,
    }
    torch.manual_seed(0)
    model = MusicTransformer(ModelConfig(**{**base, **BOTH, **settings})).double()
    with torch.no_grad():  # as if trained: they are zero at first
        for name, parameter in model.named_parameters():
            if name.rpartition(".")[2] in ("held_embedding", "interval_vectors", "interval_bias"):
                parameter.normal_()
    return model


def chorale_ids(batch: int, length: int) -> Tensor:
    """Ids of which many are held, with a rest, an unknown id and START among them."""
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(60, 62, (batch, length), generator=generator)
    ids[:, 0], ids[:, 9], ids[:, 14] = 130, 128, 129
    return ids


@pytest.mark.parametrize("voices", [1, 3, 4])
@pytest.mark.parametrize("most", [1, 3, 16])
def test_held_steps_are_those_of_a_count_by_hand(voices: int, most: int) -> None:
    ids = chorale_ids(3, 41)
    held, last = held_steps(ids, voices, most), last_of_voice(ids, voices)
    for row in range(3):
        for position in range(41):
            own = [int(ids[row, i]) for i in range(position - voices + 1, -1, -voices)]
            assert last[row, position] == (own[0] if own else NOTHING_READ)
            count = 0
            while count < min(most, len(own)) and own[count] == own[0]:
                count += 1
            assert held[row, position] == count


@pytest.mark.parametrize("cuts", [[41], [1] * 41, [2, 1, 5, 1, 1, 31], [20, 21]])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"held_labels": 0},
        {"interval_output": False},
        {"relative_pitch": True, "relative_time": True, "held_labels": 16},
    ],
    ids=str,
)
@torch.no_grad()
def test_any_chunks_of_reading_give_the_logits_of_the_full_pass(
    settings: dict[str, Any], cuts: list[int]
) -> None:
    model = build(**settings).eval()
    ids, place = chorale_ids(2, 41), torch.arange(8, 49)
    full = model(ids, place=place)
    cache, parts, begin = model.new_cache(2), [], 0
    for length in cuts:
        end = begin + length
        parts.append(model(ids[:, begin:end], place=place[begin:end], cache=cache))
        begin = end
    # float64: the sums of the two ways differ in order, by rounding only
    torch.testing.assert_close(torch.cat(parts, 1), full, atol=1e-9, rtol=0)


def test_no_id_to_come_is_counted() -> None:
    model = build()
    ids = chorale_ids(1, 20)
    changed = ids.clone()
    changed[:, 13:] = 70
    torch.testing.assert_close(model(changed)[:, :13], model(ids)[:, :13], atol=0, rtol=0)


@torch.no_grad()
def test_the_output_by_interval_goes_with_the_voices_last_pitch() -> None:
    model = build(held_labels=0)
    plain = build(held_labels=0, interval_output=False)
    plain.load_state_dict(model.state_dict(), strict=False)
    assert model.interval_output is not None
    ids = chorale_ids(1, 20)
    added = model(ids) - plain(ids)  # (1, 20, 132)
    assert (added[..., 128:] == 0).all()
    assert (added[:, :4] == 0).all()  # nothing read yet but START
    assert (added[:, 9 + 3] == 0).all()  # the voice rests
    model.interval_output.interval_vectors.zero_()
    bias = model.interval_output.interval_bias  # from 36 semitones down to 36 up
    added = model(ids) - plain(ids)
    for position in (4, 5, 19):
        last = int(ids[0, position - 3])
        for pitch in (0, last - 36, last - 35, last, last + 7, last + 36, 127):
            row = min(max(pitch - last, -36), 36) + 36
            torch.testing.assert_close(added[0, position, pitch], bias[row], atol=1e-9, rtol=0)


def test_both_are_parameters_that_are_trained() -> None:
    model = build(n_layers=1)
    model(chorale_ids(2, 41)).square().sum().backward()
    assert model.input.held_embedding is not None
    assert model.interval_output is not None
    held = model.input.held_embedding.grad
    intervals = model.interval_output.interval_vectors.grad
    assert held is not None
    assert (held.abs().sum(-1) > 0).all()  # 0 to 3 steps
    assert intervals is not None
    assert (intervals.abs().sum(-1) > 0).all()
