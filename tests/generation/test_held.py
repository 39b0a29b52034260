"""The longer a note has sounded, the likelier its end is made, from a given age on."""

import math

import numpy as np
import pytest
import torch

from music_transformer.errors import ConfigError
from music_transformer.generation.processors import age_held_notes
from music_transformer.representations.performance.grammar import PerformanceGrammar
from music_transformer.representations.performance.vocabulary import NOTE_OFF, TIME_SHIFT, VELOCITY
from music_transformer.sampling import Settings

V = 391


def ages(**steps: int) -> np.ndarray:
    """(1, 128), as ``p60=300``."""
    row = np.full((1, 128), -1)
    for name, step in steps.items():
        row[0, int(name[1:])] = step
    return row


def test_the_odds_of_an_end_grow_with_the_age() -> None:
    logits = torch.randn(1, V, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    aged = age_held_notes(logits, ages(p60=600, p64=200, p67=100, p72=0), [2.0])
    expected = logits.clone()
    expected[0, NOTE_OFF + 60] += math.log(3.0)
    torch.testing.assert_close(aged, expected)


def test_young_notes_and_inf_leave_the_logits_alone() -> None:
    logits = torch.zeros(1, V, dtype=torch.float64)
    assert age_held_notes(logits, ages(p60=200), [2.0]) is logits
    assert age_held_notes(logits, ages(p60=900), [math.inf]) is logits


def test_each_row_has_its_own_age() -> None:
    logits = torch.zeros(3, V, dtype=torch.float64)
    held = np.repeat(ages(p60=400), 3, axis=0)
    aged = age_held_notes(logits, held, [2.0, math.inf, 1.0])
    assert aged[:, NOTE_OFF + 60].tolist() == pytest.approx([math.log(2), 0, math.log(4)])
    assert (aged[:, :NOTE_OFF] == 0).all()
    assert (aged[:, TIME_SHIFT:] == 0).all()


def test_what_may_not_come_stays_impossible() -> None:
    logits = torch.full((1, V), -math.inf, dtype=torch.float64)
    aged = age_held_notes(logits, ages(p60=400), [2.0])
    assert aged[0, NOTE_OFF + 60] == -math.inf


def test_the_grammar_knows_the_ages() -> None:
    grammar = PerformanceGrammar(V)
    for event in (VELOCITY + 10, 60, TIME_SHIFT + 49, 64, TIME_SHIFT + 99, NOTE_OFF + 64):
        grammar.advance(event)
    assert grammar.ages[60] == 150
    assert grammar.ages[64] == grammar.ages[0] == -1


@pytest.mark.parametrize("hold", [0.0, -1.0, math.nan])
def test_an_age_that_is_none_is_refused(hold: float) -> None:
    with pytest.raises(ConfigError, match="hold_seconds="):
        Settings(hold_seconds=hold)
