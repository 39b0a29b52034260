"""What is said of how to draw: what is left open is filled in, and nonsense is one line."""

from typing import Any

import pytest

from music_transformer.errors import ConfigError
from music_transformer.sampling import Sampling


def test_what_is_left_open_comes_from_the_other_and_what_is_said_stays() -> None:
    said = Sampling(temperature=0.0, min_p=0.0)  # zeros are said, too
    other = Sampling(temperature=1.05, top_k=20, min_p=0.1)
    assert said.or_else(other) == Sampling(0.0, 20, None, 0.0)
    assert said.or_else(other).resolved() == Sampling(
        0.0, 20, 0.95, 0.0, 0.005, 1.0, None, 20.0, 1.0, 4, 2
    )
    assert Sampling().or_else(Sampling()) == Sampling()


def test_it_goes_to_json_and_back_as_it_is() -> None:
    said = Sampling(temperature=1.05, top_p=1.0)
    assert said.to_dict() == {"temperature": 1.05, "top_p": 1.0}
    assert Sampling.from_dict(said.to_dict()) == said
    assert Sampling.from_dict({}) == Sampling()


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        (
            {"typical_p": 0.9},
            "'typical_p' is unknown; known are temperature, top_k, top_p, min_p, parallels, ",
        ),
        ({"temperature": "hot"}, "temperature='hot'; give a number, or leave it out."),
        ({"temperature": None}, "temperature=None; give a number"),
        ({"temperature": float("nan")}, "temperature=nan; choose 0"),
        ({"temperature": -1}, "temperature=-1; choose 0"),
        ({"top_k": 2.0}, "top_k=2.0; give a whole number"),
        ({"top_k": True}, "top_k=True; give a whole number"),
        ({"top_k": 0}, "top_k=0; choose 1 or more"),
        ({"top_p": 0}, "top_p=0; choose one above 0"),
        ({"min_p": 1.5}, "min_p=1.5; choose one from 0"),
    ],
)
def test_what_makes_no_sense_is_one_line(values: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Sampling.from_dict(values)
    assert str(caught.value).startswith(complaint)
    assert "\n" not in str(caught.value)
