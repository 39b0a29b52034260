"""How a checkpoint says to draw from it: used where the call says nothing, and nowhere else."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from music_transformer.checkpoint import Session
from music_transformer.errors import ConfigError
from music_transformer.generation import accompany, generate, generate_batch, stream
from music_transformer.notes import NoteSequence
from music_transformer.sampling import Sampling

MakeSession = Callable[..., Session]
Draw = Callable[..., list[int]]

MELODY = NoteSequence(pitch=[64, 67], velocity=[80] * 2, start=[0.0, 0.5], end=[0.5, 1.0])
OWN = Sampling(temperature=1.7, top_k=9, top_p=1.0, min_p=0.01)
ALL_SAID = {"temperature": 1.7, "top_k": 9, "top_p": 1.0, "min_p": 0.01}

WAYS: dict[str, Draw] = {
    "generate": lambda session, **how: generate(session, events=24, **how).ids,
    "generate_batch": lambda session, **how: (
        generate_batch(session, samples=1, events=24, **how)[0].ids
    ),
    "stream": lambda session, **how: list(stream(session, events=24, **how)),
    "accompany": lambda session, **how: accompany(session, MELODY, candidates=1, **how)[0].ids,
}


@pytest.fixture(scope="module")
def silent(make_session: MakeSession) -> Session:
    """A session whose checkpoint says nothing of sampling."""
    return make_session("chorale")


@pytest.fixture(scope="module")
def telling(silent: Session) -> Session:
    """The same model, with a word on sampling."""
    return replace(silent, sampling=OWN)


@pytest.mark.parametrize("way", WAYS)
def test_the_checkpoint_decides_where_the_call_says_nothing(
    way: str, silent: Session, telling: Session
) -> None:
    draw = WAYS[way]
    assert draw(telling) == draw(silent, **ALL_SAID) != draw(silent)


@pytest.mark.parametrize("way", WAYS)
def test_what_the_call_says_wins(way: str, silent: Session, telling: Session) -> None:
    draw = WAYS[way]
    said: dict[str, Any] = {"temperature": 0.8, "top_k": 132, "top_p": 0.9, "min_p": 0}
    assert draw(telling, **said) == draw(silent, **said) != draw(telling)
    some = {"temperature": 0.8, "top_p": 0.9}
    assert draw(telling, **some) == draw(silent, **{**ALL_SAID, **some})


@pytest.mark.parametrize("way", WAYS)
def test_without_a_word_of_either_it_is_temperature_1_and_top_p_95(
    way: str, silent: Session
) -> None:
    assert WAYS[way](silent) == WAYS[way](silent, temperature=1, top_p=0.95)


def test_at_the_temperature_0_of_a_checkpoint_nothing_is_drawn_again(silent: Session) -> None:
    cold = replace(silent, sampling=Sampling(temperature=0))
    first, second = generate_batch(cold, samples=2, events=24, resample=2)
    assert first.ids == second.ids
    assert [one.report.discarded for one in (first, second)] == [(), ()]


def test_a_call_out_of_range_is_refused_whatever_the_checkpoint_says(telling: Session) -> None:
    with pytest.raises(ConfigError, match="top_p=0"):
        generate(telling, events=4, top_p=0)
