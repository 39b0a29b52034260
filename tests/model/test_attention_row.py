"""One row of attention: the last of the whole map, whatever the scheme."""

from typing import Any

import pytest
import torch

from music_transformer.errors import ShapeError
from music_transformer.model.attention_maps import attention_weights
from music_transformer.model.attention_row import attention_row
from tests.model.test_attention_maps import SCHEMES, build, some_ids


@pytest.mark.parametrize("settings", SCHEMES, ids=str)
def test_it_is_the_last_row_of_the_map(settings: dict[str, Any]) -> None:
    model = build(**settings)
    ids, place = some_ids(), torch.arange(11) + 4
    row = attention_row(model, ids, place=place)
    expected = attention_weights(model, ids, place=place)[:, :, -1]
    torch.testing.assert_close(row, expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(row.sum(dim=-1), torch.ones_like(row[:, :, 0]))


def test_it_works_between_steps_of_inference_and_leaves_the_model_as_it_was() -> None:
    model = build().train()
    with torch.inference_mode():
        before = model(some_ids()[None])
    attention_row(model, some_ids(1))
    assert model.training
    assert all(parameter.grad is None for parameter in model.parameters())
    with torch.inference_mode():
        torch.testing.assert_close(model(some_ids()[None]), before, rtol=0, atol=0)


@pytest.mark.parametrize("shape", [(2, 5), (0,), (1, 0), (1, 1, 1)])
def test_anything_but_one_sequence_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ShapeError, match="expected one sequence"):
        attention_row(build(), torch.zeros(shape, dtype=torch.long))
