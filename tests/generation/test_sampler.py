"""Cached reading gives the logits of a full pass over the same window, however it came about."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from music_transformer.checkpoint import Session
from music_transformer.errors import ConfigError
from music_transformer.generation.sampler import Window, context_of, prefill, step
from music_transformer.model import MusicTransformer
from music_transformer.model.registry import evaluating

MakeSession = Callable[..., Session]

# float64 sums in another order; the models here are two layers deep.
TOLERANCE = {"atol": 1e-9, "rtol": 0}

SCHEMES = [
    pytest.param({"attention_position": "relative"}, id="relative"),
    pytest.param({"attention_position": "relative", "max_distance": 7}, id="past max_distance"),
    pytest.param({"attention_position": "relative", "shared_table": True}, id="shared table"),
    pytest.param({"attention_position": "none"}, id="no position"),
    pytest.param({"attention_position": "none", "input_position": "sinusoidal"}, id="sinusoidal"),
    pytest.param({"input_position": "sinusoidal_concat"}, id="sinusoidal_concat"),
    pytest.param({"input_position": "learned", "max_len": 64}, id="learned"),
]


def random_ids(session: Session, batch: int, length: int) -> Tensor:
    generator = torch.Generator().manual_seed(length)
    return torch.randint(0, session.tokenizer.vocab_size, (batch, length), generator=generator)


def full_pass(model: MusicTransformer, ids: Tensor, first_place: int) -> Tensor:
    place = torch.arange(first_place, first_place + ids.shape[1])
    with torch.inference_mode():
        return model(ids, place=place)[:, -1]


def window_start(length: int, context: int) -> int:
    """Where the window of the first ``length`` ids begins, dropping half whenever it is full."""
    start = 0
    for end in range(1, length + 1):
        if end - start > context:
            start += context // 2
    return start


@pytest.mark.parametrize("kind", ["performance", "chorale"])
@pytest.mark.parametrize("context", [23, 31, 47])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_reading_id_by_id_equals_the_full_pass_over_the_window(
    make_session: MakeSession, kind: str, context: int, scheme: dict[str, object]
) -> None:
    session = make_session(kind, double=True, **scheme)  # trained, so to speak, on windows of 31
    ids = random_ids(session, 2, 131)
    window = Window(session.model, 2, context=context)
    for end in range(1, ids.shape[1] + 1):
        logits = window.read(ids[:, end - 1 : end])
        start = window_start(end, context)
        assert window.first_place == start
        assert torch.equal(window.ids, ids[:, start:end])
        expected = full_pass(session.model, ids[:, start:end], start)
        torch.testing.assert_close(logits, expected, **TOLERANCE)
    assert window.reread > 3


@pytest.mark.parametrize("length", [1, 2, 30, 31, 32, 33, 61, 155, 156])
@pytest.mark.parametrize("kind", ["performance", "chorale"])
def test_a_primer_of_any_length_leads_to_the_window_of_reading_id_by_id(
    make_session: MakeSession, kind: str, length: int
) -> None:
    session = make_session(kind, double=True)
    ids = random_ids(session, 2, length + 40)
    at_once = Window(session.model, 2, context=31)
    at_once.read(ids[:, :length])
    one_by_one = Window(session.model, 2, context=31)
    for place in range(length):
        one_by_one.read(ids[:, place : place + 1])
    for place in range(length, length + 40):
        new = ids[:, place : place + 1]
        torch.testing.assert_close(at_once.read(new), one_by_one.read(new), **TOLERANCE)
        assert at_once.first_place == one_by_one.first_place


@pytest.mark.parametrize("context", [2, 3])
def test_the_smallest_windows_work(make_session: MakeSession, context: int) -> None:
    session = make_session(double=True)
    ids = random_ids(session, 1, 17)
    window = Window(session.model, 1, context=context)
    for place in range(17):
        logits = window.read(ids[:, place : place + 1])
        expected = full_pass(session.model, window.ids, window.first_place)
        torch.testing.assert_close(logits, expected, **TOLERANCE)


def test_step_after_prefill_equals_one_prefill(make_session: MakeSession) -> None:
    session = make_session(double=True)
    ids, place = random_ids(session, 3, 13), torch.arange(13)
    cache = session.model.new_cache(3)
    prefill(session.model, cache, ids[:, :12], place[:12])
    logits = step(session.model, cache, ids[:, 12:], place[12:])
    torch.testing.assert_close(logits, prefill(session.model, cache, ids, place), **TOLERANCE)


def test_rows_can_be_dropped_from_a_full_window(make_session: MakeSession) -> None:
    session = make_session(double=True)
    ids = random_ids(session, 3, 60)
    window = Window(session.model, 3, context=31)
    window.read(ids[:, :31])
    assert window.is_full
    window.keep([0, 2])
    for place in range(31, 60):
        logits = window.read(ids[[0, 2], place : place + 1])
        expected = full_pass(session.model, window.ids, window.first_place)
        torch.testing.assert_close(logits, expected, **TOLERANCE)
    assert torch.equal(window.ids, ids[[0, 2], window.first_place :])


def test_the_context_may_be_longer_where_the_scheme_allows(make_session: MakeSession) -> None:
    relative = make_session(max_distance=7).config
    assert context_of(relative, None) == 31
    assert context_of(relative, 62) == 62
    learned = make_session(input_position="learned", max_len=40).config
    assert context_of(learned, 40) == 40
    with pytest.raises(ConfigError, match=r"context=41 is more than the 40 positions.*try 40"):
        context_of(learned, 41)
    with pytest.raises(ConfigError, match="context=1; choose 2 or more"):
        context_of(relative, 1)


def test_a_context_that_no_memory_holds_is_refused(make_session: MakeSession) -> None:
    with pytest.raises(ConfigError, match="context=1000000000000000 with 2 samples"):
        Window(make_session().model, 2, context=10**15)


def test_dropout_rests_while_sampling(make_session: MakeSession) -> None:
    model = make_session(dropout=0.5).model
    model.train()
    with evaluating(model):
        assert not model.training
    assert model.training
