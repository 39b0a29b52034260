"""What stands in training is found, in every key; what does not is not; the file is plain."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from music_transformer.errors import CheckpointError, DatasetError
from music_transformer.evaluation.memorisation import (
    INDEX_FILE,
    LEAST_HITS,
    MemorisationIndex,
    find_index,
    intervals,
)
from music_transformer.notes import NoteSequence

N = 12


def melody(notes: int, seed: int) -> NoteSequence:
    """A line of drawn pitches and rhythms."""
    rng = np.random.default_rng(seed)
    start = np.cumsum(rng.integers(5, 40, notes)) / 100
    return NoteSequence(
        pitch=rng.integers(40, 80, notes),
        velocity=rng.integers(30, 100, notes),
        start=start,
        end=start + 0.3,
    )


def joined(*parts: NoteSequence) -> NoteSequence:
    """One after another."""
    shift = np.cumsum([0.0, *[part.end_time + 1 for part in parts]])
    return NoteSequence(
        pitch=np.concatenate([part.pitch for part in parts]),
        velocity=np.concatenate([part.velocity for part in parts]),
        start=np.concatenate([part.start + s for part, s in zip(parts, shift, strict=False)]),
        end=np.concatenate([part.end + s for part, s in zip(parts, shift, strict=False)]),
    )


@pytest.fixture(scope="module")
def index() -> MemorisationIndex:
    return MemorisationIndex.build(
        [melody(400, seed) for seed in range(5)], n=N, size_bytes=5_000, data="abc"
    )


@pytest.mark.parametrize(
    "change",
    [
        lambda notes: notes,
        lambda notes: notes.transposed(7),
        lambda notes: notes.transposed(-5),
        lambda notes: notes.stretched(1.5),
    ],
)
def test_training_is_found_whole_in_any_key_and_tempo(
    index: MemorisationIndex, change: Callable[[NoteSequence], NoteSequence]
) -> None:
    assert index.longest_run(change(melody(400, 3))).notes == 400


def test_other_music_is_not_found(index: MemorisationIndex) -> None:
    for seed in range(100, 120):
        found = index.longest_run(melody(400, seed))
        assert (found.notes, found.shortest) == (0, N + LEAST_HITS)


def test_a_run_is_measured_and_placed(index: MemorisationIndex) -> None:
    known = melody(400, 2)
    part = NoteSequence(
        pitch=known.pitch[100:130],
        velocity=known.velocity[100:130],
        start=known.start[100:130] - known.start[100],
        end=known.end[100:130] - known.start[100],
    )
    before = melody(50, 200)
    found = index.longest_run(joined(before, part, melody(50, 201)))
    assert 30 <= found.notes <= 32  # a neighbour's interval may happen to fit
    assert found.start == pytest.approx(before.end_time + 1, abs=0.8)
    assert found.end - found.start == pytest.approx(float(part.start.max()), abs=0.8)


@pytest.mark.parametrize(
    "pitches",
    [[60, 62] * 30, list(range(40, 100)), [0, 2, 4, 5, 7, 9, 11, 12, 11, 9, 7, 5, 4, 2] * 4],
)
def test_trills_and_scales_are_common_property(pitches: list[int]) -> None:
    start = np.arange(len(pitches)) / 8
    notes = NoteSequence(
        pitch=np.array(pitches) + 20, velocity=[80] * len(pitches), start=start, end=start + 0.1
    )
    index = MemorisationIndex.build([notes, melody(400, 0)], n=N, size_bytes=5_000)
    assert index.known(np.diff(notes.pitch)).all()
    assert str(index.longest_run(notes)).startswith("no 15 notes in a row")
    tune = index.longest_run(melody(400, 0))
    assert str(tune).startswith("400 notes in a row, 0.")


def test_a_short_run_counts_as_none(index: MemorisationIndex) -> None:
    shortest = index.shortest_run
    known = melody(400, 1)

    def first(notes: int) -> NoteSequence:
        return NoteSequence(
            pitch=known.pitch[:notes],
            velocity=known.velocity[:notes],
            start=known.start[:notes],
            end=known.end[:notes],
        )

    assert index.longest_run(first(shortest)).notes == shortest
    assert index.longest_run(first(shortest - 1)).notes == 0
    assert index.longest_run(first(0)).notes == 0


def test_a_chord_is_read_from_the_bottom_up_however_it_is_spread() -> None:
    together = NoteSequence(
        pitch=[60, 64, 67, 72], velocity=[80] * 4, start=[0, 0, 0, 0.5], end=[0.4, 0.4, 0.4, 1.0]
    )
    spread = NoteSequence(
        pitch=[67, 60, 64, 72],
        velocity=[80] * 4,
        start=[0, 0.01, 0.03, 0.5],
        end=[0.4, 0.4, 0.4, 1.0],
    )
    apart = NoteSequence(
        pitch=[67, 60, 64, 72], velocity=[80] * 4, start=[0, 0.1, 0.2, 0.5], end=[1.0] * 4
    )
    assert intervals(together).tolist() == intervals(spread).tolist() == [4, 3, 5]
    assert intervals(apart).tolist() == [-7, 4, 8]


def test_false_alarms_are_as_rare_as_promised(index: MemorisationIndex) -> None:
    steps = np.random.default_rng(0).integers(-20, 20, 50_000)
    share = float(index.known(steps).mean())
    assert share == pytest.approx(index.false_alarm_rate, rel=0.3)
    assert 0 < index.false_alarm_rate < 0.001


def test_the_file_gives_the_same_index(index: MemorisationIndex, tmp_path: Path) -> None:
    assert find_index(tmp_path) is None
    index.save(tmp_path / INDEX_FILE)
    again = find_index(tmp_path)
    assert again is not None
    assert (again.n, again.hashes, again.grams, again.data) == (
        index.n,
        index.hashes,
        index.grams,
        "abc",
    )
    assert again.longest_run(melody(400, 0)).notes == 400
    assert (tmp_path / INDEX_FILE).stat().st_size < 5_300


def test_a_damaged_file_is_one_line(index: MemorisationIndex, tmp_path: Path) -> None:
    path = tmp_path / INDEX_FILE
    path.write_bytes(b"junk")
    with pytest.raises(CheckpointError, match="no memorisation index"):
        find_index(tmp_path)


def test_nothing_to_index_is_refused() -> None:
    with pytest.raises(DatasetError, match="nothing to index"):
        MemorisationIndex.build([melody(12, 0)], n=N)


def test_the_released_index_is_small_and_says_what_it_is_of() -> None:
    folder = Path(__file__).resolve().parents[2] / "checkpoints" / "piano"
    if (index := find_index(folder)) is None:
        pytest.skip("the checkpoint piano has no index here")
    assert (folder / INDEX_FILE).stat().st_size < 8 * 2**20
    assert index.false_alarm_rate < 0.01
    assert len(index.data) == 64
