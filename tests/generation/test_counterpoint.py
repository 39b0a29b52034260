"""The rule against parallels names exactly what the statistics count, and scales it as it says."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from describe_music import parallels
from hypothesis import given
from hypothesis import strategies as st

from music_transformer.checkpoint import Session
from music_transformer.errors import ConfigError
from music_transformer.generation import accompany, generate, generate_batch
from music_transformer.generation.processors import discourage_parallels, makes_parallel
from music_transformer.notes import NoteSequence
from music_transformer.representations import ChoraleTokenizer
from music_transformer.representations.chorale.grid import SILENCE

MakeSession = Callable[..., Session]

ids = st.one_of(st.integers(48, 72), st.just(SILENCE))
rows = st.lists(ids, min_size=4, max_size=4)


@pytest.fixture(scope="module")
def bach(make_session: MakeSession) -> Session:
    return make_session("chorale", double=True, context=256)


def counted(before: list[int], after: list[int]) -> int:
    """Parallels of two sixteenths by the statistics; silent voices make none."""
    grid = np.where(np.array([before, after]) == SILENCE, -1, np.array([before, after]))
    found = parallels(grid)
    shares = found["parallel_fifths"] + found["parallel_octaves"]
    return round(shares * found["pair_motions"])


def parallels_in(generated: list[list[int]]) -> int:
    """Parallels of some samples, by the statistics."""
    total = 0.0
    for one in generated:
        found = parallels(ChoraleTokenizer().decode_grid(one))
        total += (found["parallel_fifths"] + found["parallel_octaves"]) * found["pair_motions"]
    return round(total)


@given(before=rows, after=rows)
def test_a_pitch_is_named_where_the_statistics_count_one_more_parallel(
    before: list[int], after: list[int]
) -> None:
    for voice in range(4):
        named = makes_parallel(np.array([before]), np.array([after[:voice]], dtype=np.int64))[0]
        without = counted(before, after[:voice] + [SILENCE] * (4 - voice))
        for pitch in range(40, 80):
            row = [*after[:voice], pitch, *[SILENCE] * (3 - voice)]
            assert named[pitch] == (counted(before, row) > without), (voice, pitch)


def test_the_bass_may_not_follow_the_soprano_from_c_to_d() -> None:
    before = np.array([[72, 64, 55, 48]])  # C5 E4 G3 C3
    named = makes_parallel(before, np.array([[74, 65, 55]]))  # soprano to D5, alto to F4
    # The bass, two octaves under the soprano, may not go up to a D; the tenor is held.
    assert np.flatnonzero(named[0]).tolist() == [50, 62, 74, 86, 98, 110, 122]
    assert not makes_parallel(before, np.array([[72, 64, 55]])).any()  # nobody moved
    assert not makes_parallel(before, np.array([[]], dtype=np.int64)).any()  # nobody to move with


def test_the_probability_is_multiplied_and_the_rest_shared() -> None:
    before, drawn = np.array([[72, 65, 60, 48]]), np.array([[74, 65, 60]])
    logits = torch.randn(1, 132, dtype=torch.float64)
    named = torch.from_numpy(makes_parallel(before, drawn))[0].nonzero()[:, 0]
    old = logits.softmax(-1)[0]
    new = discourage_parallels(logits, before, drawn, [0.1]).softmax(-1)[0]
    others = torch.ones(132, dtype=torch.bool)
    others[named] = False
    total = 0.1 * old[named].sum() + old[others].sum()
    torch.testing.assert_close(new[named], 0.1 * old[named] / total)
    torch.testing.assert_close(new[others], old[others] / total)
    assert discourage_parallels(logits, before, drawn, [1.0]) is logits
    forbidden = discourage_parallels(logits, before, drawn, [0.0]).softmax(-1)[0]
    assert float(forbidden[named].sum()) == 0.0


def test_generate_makes_none_when_they_are_forbidden(bach: Session) -> None:
    primer = [72, 67, 64, 48] * 2
    common = {"primer": primer, "samples": 3, "events": 400, "top_p": 1.0, "seed": 1}
    free = [one.ids for one in generate_batch(bach, **common, parallels=1.0)]
    strict = [one.ids for one in generate_batch(bach, **common, parallels=0.0)]
    assert parallels_in(free) > 0
    assert parallels_in(strict) == 0
    alone = generate(bach, primer, events=400, top_p=1.0, seed=1, parallels=0.0)
    assert alone.ids == strict[0]


def test_accompany_makes_none_when_they_are_forbidden_and_ranks_by_the_model(bach: Session) -> None:
    pitch = np.array([60, 62, 64, 67, 65, 62, 72, 71, 69] * 5)
    start = np.arange(len(pitch)) * 0.15
    melody = NoteSequence(pitch=pitch, velocity=[80] * len(pitch), start=start, end=start + 0.15)
    common = {"candidates": 4, "top_p": 1.0, "seed": 0}
    free = accompany(bach, melody, **common, parallels=1.0)
    strict = accompany(bach, melody, **common, parallels=0.0)
    assert parallels_in([one.ids for one in free]) > 0
    assert parallels_in([one.ids for one in strict]) == 0
    # The likelihood is the model's own, with no rule in it: that of a full pass over the same ids.
    best = strict[0]
    shift = best.report.transposition
    read = [i if i == SILENCE else i + shift for i in best.ids]
    model_ids = torch.tensor([bach.tokenizer.start, *read])
    with torch.no_grad():
        log_p = bach.model(model_ids[None, :-1]).log_softmax(-1)[0]
    nll = -log_p.gather(-1, model_ids[1:, None])[:, 0].reshape(-1, 4)[:, 1:].mean()
    assert best.nll == pytest.approx(float(nll), abs=1e-9)


@pytest.mark.parametrize("factor", [-0.1, 1.5, float("nan")])
def test_a_factor_that_makes_no_sense_is_refused(bach: Session, factor: float) -> None:
    melody = NoteSequence(pitch=[60], velocity=[80], start=[0.0], end=[0.5])
    with pytest.raises(ConfigError, match=r"parallels=.*choose one from 0"):
        generate(bach, events=4, parallels=factor)
    with pytest.raises(ConfigError, match=r"parallels=.*choose one from 0"):
        accompany(bach, melody, parallels=factor)
