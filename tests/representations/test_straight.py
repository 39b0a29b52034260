"""A performance in strict time: the melody on a grid, the rest on its lines, all of it there."""

import numpy as np
import pytest

from music_transformer.notes import NoteSequence
from music_transformer.representations.accompaniment.straight import straightened


def played(seed: int) -> tuple[NoteSequence, NoteSequence]:
    """A free melody in quarters and halves over chords on the beat and a note between."""
    random = np.random.default_rng(seed)
    between = random.choice([0.5, 0.5, 1.0], 40) * random.normal(1, 0.06, 40)
    onsets = 1 + np.append(0, np.cumsum(between))[:-1]
    chords = np.concatenate([onsets + random.normal(0, 0.012, 40), onsets + between / 2])
    velocity = np.full(80, 50)
    rest = NoteSequence(
        pitch=np.arange(80) % 12 + 40, velocity=velocity, start=chords, end=chords + 0.4
    )
    tune = NoteSequence(
        pitch=np.arange(40) % 7 + 70, velocity=velocity[:40], start=onsets, end=onsets + between
    )
    return rest, tune


@pytest.mark.parametrize("seed", range(6))
def test_the_melody_is_on_a_grid_and_the_rest_with_it(seed: int) -> None:
    rest, tune = played(seed)
    before = np.abs(rest.start[:, None] - tune.start).min(1) < 0.05
    rest, tune = straightened(rest, tune, np.random.default_rng(seed))
    assert (len(rest), len(tune)) == (80, 40)
    gaps = np.diff(tune.start)
    line = gaps.min() / 12  # a quarter, a sixth, or a half of them
    assert np.abs(gaps / line - np.rint(gaps / line)).max() < 1e-6
    at_once = np.abs(rest.start[:, None] - tune.start).min(1) < 1e-6
    assert at_once.sum() >= 0.9 * before.sum()
    assert 0.7 < tune.end_time / played(seed)[1].end_time < 1.4
    assert (rest.end > rest.start).all()


def test_a_melody_of_two_notes_has_no_time_to_keep() -> None:
    rest, tune = played(0)
    short = tune.selected(np.arange(len(tune)) < 2)
    assert straightened(rest, short, np.random.default_rng(0))[1] is short
