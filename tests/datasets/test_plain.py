"""Plain openings: what is taken out, and that all else is as it was."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

from music_transformer.datasets import PreparedData
from music_transformer.datasets.windows import TrainingWindows
from music_transformer.errors import ConfigError
from music_transformer.notes import NoteSequence, Pedals, to_steps
from music_transformer.representations import PerformanceTokenizer
from music_transformer.representations.performance import augment as module
from music_transformer.representations.performance.augment import made_plain, plain_crop

PAD, START, END = 388, 389, 390


def played(chords: int = 60, seed: int = 3) -> NoteSequence:
    """Chords of one to four notes every quarter of a second or so, held over each other."""
    random = np.random.default_rng(seed)
    rows = [
        (pitch, int(random.integers(30, 100)), onset, onset + random.uniform(0.2, 2.0))
        for index in range(chords)
        for onset in [index * 0.25 + random.uniform(0, 0.08)]
        for pitch in random.choice(np.arange(40, 90), random.integers(1, 5), replace=False).tolist()
    ]
    pitch, velocity, start, end = zip(*rows, strict=True)
    return NoteSequence(pitch=pitch, velocity=velocity, start=start, end=end)


def always(monkeypatch: pytest.MonkeyPatch, voices: str, velocities: str) -> None:
    """Draw nothing: these, on a grid, without pedal."""
    monkeypatch.setattr(module, "VOICES", {voices: 1.0})
    monkeypatch.setattr(module, "VELOCITIES", {velocities: 1.0})
    monkeypatch.setattr(module, "GRID_SHARE", 1.0)
    monkeypatch.setattr(module, "DRY_SHARE", 1.0)


@pytest.mark.parametrize("seed", range(20))
def test_what_begins_later_is_as_it_was_and_the_opening_ends_in_time(seed: int) -> None:
    notes = played().replaced(pedals=Pedals([0, 0], [1.0, 5.5], [2.0, 7.0]), end_time=20.0)
    plain = made_plain(notes, 6.0, np.random.default_rng(seed))
    later = to_steps(plain.start) >= 600
    kept = notes.selected(to_steps(notes.start) >= 600)
    assert plain.selected(later).equals(kept.replaced(pedals=Pedals([0], [6.0], [7.0])))
    opening = plain.selected(~later)
    before = notes.selected(to_steps(notes.start) < 600)
    assert 0 < len(opening) <= len(before)
    assert set(opening.pitch) <= set(before.pitch)
    assert opening.end.max() <= 6.0
    assert (opening.end > opening.start).all()


def test_a_line_is_single_flat_and_on_a_grid(monkeypatch: pytest.MonkeyPatch) -> None:
    always(monkeypatch, "line", "flat")
    notes = played()
    plain = made_plain(notes, notes.end_time, np.random.default_rng(0))
    assert len(plain) > 20
    assert (plain.start[1:] >= plain.end[:-1]).all()
    assert len(set(plain.velocity)) == 1
    distances = np.diff(plain.start)
    assert np.allclose(distances / distances.min(), np.rint(distances / distances.min()))
    tops = {int(notes.pitch[abs(notes.start - t) < 0.03].max()) for t in notes.start}
    assert set(plain.pitch) <= tops


@pytest.mark.parametrize(
    ("voices", "most"), [("outer", 2), ("upper", 4), ("lower", 4), ("chords", 4)]
)
def test_a_subset_of_hands_or_chords_stays(
    monkeypatch: pytest.MonkeyPatch, voices: str, most: int
) -> None:
    always(monkeypatch, voices, "stepped")
    notes = played()
    plain = made_plain(notes, notes.end_time, np.random.default_rng(0))
    together = np.unique(np.round(plain.start, 6), return_counts=True)[1]
    assert together.max() <= most
    assert 1 < len(set(plain.velocity)) <= notes.end_time / 3 + 1
    middle = (notes.pitch.min() + notes.pitch.max()) / 2
    if voices in ("upper", "lower"):
        assert ((plain.pitch >= middle) == (voices == "upper")).all()
    if voices == "chords":
        assert together.min() > 1


def test_nothing_begins_in_time_nothing_changes() -> None:
    notes = NoteSequence(pitch=[60], velocity=[64], start=[3.0], end=[4.0])
    assert made_plain(notes, 2.0, np.random.default_rng(0)) is notes


@pytest.mark.parametrize("factor", [0.95, 1.0, 1.05])
def test_a_plain_crop_is_canonical_and_goes_on_as_the_piece_does(factor: float) -> None:
    tokenizer = PerformanceTokenizer()
    events = tokenizer.encode_array(played(400))
    for seed in range(10):
        ids, opening, at_end = plain_crop(
            tokenizer, events, first=997, length=601, factor=factor,
            rng=np.random.default_rng(seed),
        )  # fmt: skip
        assert len(ids) == 601
        assert not at_end
        assert 0 < opening <= 300
        assert ids.tolist() == tokenizer.encode(tokenizer.decode(ids))[:601] or ids[-1] < 388
        motif = tokenizer.encode(tokenizer.decode(ids[:opening]))
        assert motif == ids[:opening].tolist()  # it is whole: nothing in it sounds on
        if factor == 1.0:  # a while later all that sounded before the seam has ended
            tail = ids[-150:].tobytes()
            assert tail in events.tobytes()


def test_the_end_of_a_short_piece_is_reached() -> None:
    tokenizer = PerformanceTokenizer()
    events = tokenizer.encode_array(played(30))
    ids, opening, at_end = plain_crop(
        tokenizer, events, first=0, length=900, factor=1.0, rng=np.random.default_rng(1)
    )
    assert at_end
    assert opening < len(ids) < len(events)
    assert ids.tolist() == tokenizer.encode(tokenizer.decode(ids))


def test_plain_windows_begin_as_a_motif_does_and_only_what_follows_is_learned(
    prepare_ids: Callable[..., PreparedData],
) -> None:
    data = prepare_ids([PerformanceTokenizer().encode(played(200, seed)) for seed in (1, 2)])
    settings = {"length": 307, "batch_size": 5, "seed": 7}
    usual = TrainingWindows(data, **settings)  # type: ignore[arg-type]
    windows = TrainingWindows(data, **settings, plain=0.4)  # type: ignore[arg-type]
    plain = 0
    for step in range(12):
        batch, before = windows.batch(step), usual.batch(step)
        for ids, targets, place, other in zip(
            batch.ids, batch.targets, batch.place, before.place, strict=True
        ):
            known = int((targets == PAD).int().argmin()) if int(targets[0]) == PAD else 0
            learned = targets[known:-1]
            assert torch.equal(learned, ids[known + 1 :].where(learned != END, END))
            if known:
                plain += 1
                assert int(ids[0]) == START
                assert int(place[0]) == 0
            else:
                assert int(place[0]) == int(other[0])
    assert 12 < plain < 36


def test_only_performances_open_plain(prepare_ids: Callable[..., PreparedData]) -> None:
    data = prepare_ids([[70, 60, 55, 40] * 4], chorale=True)
    with pytest.raises(ConfigError, match=r"plain=0\.5: only performances"):
        TrainingWindows(data, length=11, batch_size=1, plain=0.5)
