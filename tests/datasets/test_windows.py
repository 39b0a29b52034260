"""Windows: a pure function of (seed, step, rank), and every event measured exactly once."""

import multiprocessing
import os
import pickle
import signal
from collections.abc import Callable
from itertools import islice

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from music_transformer.datasets import PreparedData
from music_transformer.datasets.windows import (
    Batch,
    TrainingWindows,
    Window,
    collate,
    evaluation_windows,
    piece_windows,
)
from music_transformer.errors import ConfigError, DatasetError

PAD, START, END = 388, 389, 390
Prepare = Callable[..., PreparedData]


def _performance(notes: int, lowest: int = 60) -> list[int]:
    """A canonical piece: a note every 20 steps on five pitches."""
    ids = [370]
    for index in range(notes):
        pitch = lowest + index % 5
        ids += [pitch, 265, pitch + 128, 265]
    return ids[:-1]


def _chorale(sixteenths: int) -> list[int]:
    return [pitch for step in range(sixteenths) for pitch in (70 + step % 3, 60, 55, 40 + step % 7)]


def _rows(batch: Batch) -> list[tuple[list[int], list[int], list[int]]]:
    return list(zip(batch.ids.tolist(), batch.targets.tolist(), batch.place.tolist(), strict=True))


def _equal(one: Batch, two: Batch) -> bool:
    return all(
        torch.equal(getattr(one, name), getattr(two, name)) for name in ("ids", "targets", "place")
    )


def test_without_augmentation_a_row_is_a_crop_and_its_place_is_the_index_in_the_piece(
    prepare_ids: Prepare,
) -> None:
    data = prepare_ids([_performance(40), _performance(90, 30)])
    pieces = [piece.tolist() for piece in data.pieces("train")]
    windows = TrainingWindows(data, length=11, batch_size=5, augment=False)
    for step in range(20):
        batch = windows.batch(step)
        assert batch.ids.shape == batch.targets.shape == batch.place.shape == (5, 11)
        assert batch.ids.dtype == batch.targets.dtype == batch.place.dtype == torch.int64
        for ids, targets, place in _rows(batch):
            assert place == list(range(place[0], place[0] + 11))
            assert any(
                ids == piece[place[0] : place[0] + 11]
                and targets == piece[place[0] + 1 : place[0] + 12]
                for piece in pieces
            )


def test_a_batch_depends_on_seed_step_and_rank_alone(prepare_ids: Prepare) -> None:
    data = prepare_ids([_performance(300)])

    def windows(**changes: int) -> TrainingWindows:
        settings = {"length": 13, "batch_size": 3, "seed": 5, **changes}
        return TrainingWindows(data, **settings)  # type: ignore[arg-type]

    first = windows()
    batches = [first.batch(step) for step in range(4)]
    again = windows()
    assert all(_equal(again.batch(step), batches[step]) for step in (3, 0, 2, 1))
    assert not _equal(batches[0], batches[1])
    assert not _equal(windows(seed=6).batch(0), batches[0])
    assert not _equal(windows(rank=1, world_size=2).batch(0), batches[0])


def test_two_ranks_see_what_one_with_twice_the_batch_sees(prepare_ids: Prepare) -> None:
    data = prepare_ids([_performance(300)])
    one = TrainingWindows(data, length=7, batch_size=6)
    two = [TrainingWindows(data, length=7, batch_size=3, rank=r, world_size=2) for r in (0, 1)]
    for step in range(3):
        halves = [windows.batch(step) for windows in two]
        assert torch.equal(one.batch(step).ids, torch.cat([half.ids for half in halves]))
    assert one.events_per_step == two[0].events_per_step == 42


def test_a_short_piece_is_padded_and_its_end_is_learned(prepare_ids: Prepare) -> None:
    windows = TrainingWindows(prepare_ids([[370, 60]]), length=5, batch_size=2, augment=False)
    for ids, targets, place in _rows(windows.batch(0)):
        assert ids == [START, 370, 60, PAD, PAD]
        assert targets == [370, 60, END, PAD, PAD]
        assert place == [0, 1, 2, 3, 4]


def test_end_is_never_an_input_and_pad_follows_it_only(prepare_ids: Prepare) -> None:
    data = prepare_ids([_performance(4), _performance(9), [370, 60]])
    for augment in (False, True):
        windows = TrainingWindows(data, length=17, batch_size=7, augment=augment)
        for step in range(30):
            batch = windows.batch(step)
            assert not (batch.ids == END).any()
            assert not (batch.targets == START).any()
            assert (batch.targets != PAD).any(dim=1).all()
            for ids, targets, _ in _rows(batch):
                real = [target for target in targets if target != PAD]
                assert targets[len(real) :] == [PAD] * (len(targets) - len(real))
                assert ids[1 : len(real)] == real[:-1]


def test_starts_ends_and_the_middle_are_all_seen(prepare_ids: Prepare) -> None:
    data = prepare_ids([_performance(200)])
    windows = TrainingWindows(data, length=20, batch_size=50, augment=False)
    batches = [windows.batch(step) for step in range(20)]
    ids = torch.cat([batch.ids for batch in batches])
    targets = torch.cat([batch.targets for batch in batches])
    begin = (ids[:, 0] == START).double().mean().item()
    end = (targets == END).any(dim=1).double().mean().item()
    assert 0.09 < begin < 0.17  # one in eight, 1000 windows: standard error 0.01
    assert 0.005 < end < 0.06  # 7/8 of 20 in 801: 0.022, standard error 0.005


def test_augmented_rows_are_canonical_and_in_the_keys_and_tempos_allowed(
    prepare_ids: Prepare,
) -> None:
    data = prepare_ids([_performance(60, 22)])  # 22..26: at most one semitone down
    tokenizer = data.tokenizer
    windows = TrainingWindows(data, length=400, batch_size=8)
    lowest, lengths = set(), set()
    for step in range(30):
        for ids, targets, place in _rows(windows.batch(step)):
            if place[0] == 0:
                real = [event for event in targets if event < PAD]
                assert ids[0] == START
                assert END in targets
                assert tokenizer.encode(tokenizer.decode(real)) == real
                lowest.add(min(event for event in real if event < 128))
                lengths.add(tokenizer.duration_seconds(real))
    assert lowest == {21, 22, 23, 24, 25}
    notes = tokenizer.decode(_performance(60, 22))
    assert lengths == {
        tokenizer.duration_seconds(tokenizer.encode(notes.stretched(factor)))
        for factor in (0.95, 0.975, 1, 1.025, 1.05)
    }


def test_chorales_are_moved_inside_the_voice_ranges_and_keep_their_place(
    prepare_ids: Prepare,
) -> None:
    low = [62, 55, 50, 38] * 10
    high = [72, 62, 56, 45] * 10
    data = prepare_ids([low, high], chorale=True)
    assert data.meta["voice_ranges"] == [[62, 72], [55, 62], [50, 56], [38, 45]]
    windows = TrainingWindows(data, length=9, batch_size=8)
    sopranos = set()
    for step in range(60):
        for ids, targets, place in _rows(windows.batch(step)):
            for index, target in zip(place, targets, strict=True):
                if target < 128:
                    bottom, top = data.meta["voice_ranges"][index % 4]
                    assert bottom <= target <= top
                    if index % 4 == 0:
                        sopranos.add(target)
            assert ids[0] == 130 or place[0] > 0
    assert sopranos == set(range(62, 69)) | set(range(66, 73))  # up to 6 semitones either way


def test_chorale_labels_of_the_place_point_at_the_voice_of_the_target(prepare_ids: Prepare) -> None:
    data = prepare_ids([_chorale(30)], chorale=True)
    windows = TrainingWindows(data, length=16, batch_size=4, augment=False)
    for step in range(10):
        batch = windows.batch(step)
        soprano = (batch.place % 4 == 0) & (batch.targets < 128)
        assert (batch.targets[soprano] >= 70).all()


def test_crops_of_chorales_begin_with_a_sixteenth_and_reach_the_end(prepare_ids: Prepare) -> None:
    data = prepare_ids([_chorale(30)], chorale=True)
    for length in (1, 2, 15, 16, 17, 18, 119, 120, 121, 200):
        windows = TrainingWindows(data, length=length, batch_size=64, augment=False)
        batches = [windows.batch(step) for step in range(6)]
        first = torch.cat([batch.place[:, 0] for batch in batches])
        assert (first % 4 == 0).all()
        assert any((batch.targets == 131).any() for batch in batches)
        assert all((batch.targets != 129).any(dim=1).all() for batch in batches)  # none all padding


def test_prefetched_batches_are_the_same_batches(prepare_ids: Prepare) -> None:
    windows = TrainingWindows(prepare_ids([_performance(100)]), length=7, batch_size=2)
    batches = windows.prefetch(3)
    for step, batch in zip((3, 4, 5, 6), islice(batches, 4), strict=True):
        assert _equal(batch, windows.batch(step))
    batches.close()


def test_worker_processes_make_the_same_batches_and_go(prepare_ids: Prepare) -> None:
    data = prepare_ids([_performance(100)])
    windows = TrainingWindows(data, length=7, batch_size=2, seed=3, rank=1, world_size=2)
    batches = windows.prefetch(3, workers=2)
    for step, batch in zip(range(3, 7), islice(batches, 4), strict=True):
        assert _equal(batch, windows.batch(step))
    assert len(multiprocessing.active_children()) == 2
    batches.close()
    assert multiprocessing.active_children() == []


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_a_worker_leaves_ctrl_c_to_the_run(prepare_ids: Prepare) -> None:
    windows = TrainingWindows(prepare_ids([_performance(100)]), length=7, batch_size=2)
    batches = windows.prefetch(workers=1)
    next(batches)  # it is up by now
    [worker] = multiprocessing.active_children()
    assert worker.pid is not None
    os.kill(worker.pid, signal.SIGINT)
    os.kill(worker.pid, signal.SIGTERM)
    for step, batch in zip(range(1, 13), islice(batches, 12), strict=True):
        assert _equal(batch, windows.batch(step))
    batches.close()


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_a_worker_that_died_is_one_line(prepare_ids: Prepare) -> None:
    windows = TrainingWindows(prepare_ids([_performance(100)]), length=7, batch_size=2)
    batches = windows.prefetch(workers=1)
    next(batches)
    [worker] = multiprocessing.active_children()
    worker.kill()
    message = r"a process that makes windows of it died .* workers=0"
    with pytest.raises(DatasetError, match=message):
        list(islice(batches, 10))


def test_windows_and_batches_go_to_another_process_as_they_are(prepare_ids: Prepare) -> None:
    windows = TrainingWindows(prepare_ids([_performance(100)]), length=7, batch_size=2, seed=4)
    sent = pickle.dumps(windows)
    assert len(sent) < 1000  # where the ids are, not the ids
    batch = windows.batch(1)
    assert _equal(pickle.loads(sent).batch(1), batch)
    told = Batch(batch.ids, batch.targets, batch.place, batch.ids + 1)
    assert torch.equal(pickle.loads(pickle.dumps(told)).source, batch.ids + 1)


def test_an_epoch_is_every_event_and_every_end(prepare_ids: Prepare) -> None:
    data = prepare_ids([[370, 60], [370]])
    assert TrainingWindows(data, length=5, batch_size=1).events_per_epoch == 5


def test_settings_that_make_no_sense_are_refused(prepare_ids: Prepare) -> None:
    data = prepare_ids([[370, 60]])
    with pytest.raises(ConfigError, match="length=0"):
        TrainingWindows(data, length=0, batch_size=1)
    with pytest.raises(ConfigError, match="batch_size=0"):
        TrainingWindows(data, length=1, batch_size=0)
    with pytest.raises(ConfigError, match="rank=2 is not one of 2"):
        TrainingWindows(data, length=1, batch_size=1, rank=2, world_size=2)


@given(events=st.integers(0, 60), length=st.integers(1, 23), data=st.data())
def test_every_event_is_a_target_exactly_once_whatever_length_and_stride(
    events: int, length: int, data: st.DataObject
) -> None:
    stride = data.draw(st.integers(1, length))
    piece = np.array([START, *range(events), END], dtype=np.uint16)
    counted: list[int] = []
    for window in piece_windows(piece, length, stride, pad=PAD, index=3):
        assert window.piece == 3
        assert 1 <= len(window.ids) == len(window.targets) == len(window.place) <= length
        assert window.ids.tolist() == piece[window.place.numpy()].tolist()
        for place, target in zip(window.place.tolist(), window.targets.tolist(), strict=True):
            if target != PAD:
                assert target == piece[place + 1]
                assert place == 0 or place - int(window.place[0]) >= min(place, length - stride)
                counted.append(target)
    assert counted == list(range(events))


def test_windows_that_do_not_overlap_are_the_piece_cut_in_parts() -> None:
    piece = np.array([START, 1, 2, 3, 4, 5, END])
    windows = list(piece_windows(piece, 2, pad=PAD))
    assert [window.ids.tolist() for window in windows] == [[START, 1], [2, 3], [4]]
    assert [window.targets.tolist() for window in windows] == [[1, 2], [3, 4], [5]]


def test_windows_that_overlap_count_their_new_part_only() -> None:
    piece = np.array([START, 1, 2, 3, 4, 5, 6, END])
    windows = list(piece_windows(piece, 4, 2, pad=PAD))
    assert [window.ids.tolist() for window in windows] == [[START, 1, 2, 3], [2, 3, 4, 5]]
    assert [window.targets.tolist() for window in windows] == [[1, 2, 3, 4], [PAD, PAD, 5, 6]]
    assert [window.place.tolist() for window in windows] == [[0, 1, 2, 3], [2, 3, 4, 5]]


def test_a_stride_that_would_leave_events_out_is_refused() -> None:
    for stride in (0, 5, -1):
        with pytest.raises(ConfigError, match=f"stride={stride} is not in 1..4"):
            list(piece_windows(np.array([START, 1, END]), 4, stride, pad=PAD))


def test_evaluation_windows_go_through_all_pieces_of_a_split(prepare_ids: Prepare) -> None:
    data = prepare_ids([[370, 60, 265], [], [371, 61]])
    windows = list(evaluation_windows(data, "validation", 2))
    assert [window.piece for window in windows] == [0, 0, 2]
    total = sum(int((window.targets != PAD).sum()) for window in windows)
    assert total == data.events("validation") == 5
    with pytest.raises(DatasetError, match="no split 'test'"):
        list(evaluation_windows(data, "test", 2))


def test_collating_pads_at_the_end() -> None:
    def window(values: list[int], place: int) -> Window:
        ids: Tensor = torch.tensor(values)
        return Window(ids, ids + 1, torch.arange(place, place + len(values)), 0)

    batch = collate([window([1, 2, 3], 0), window([7], 4)], pad=PAD)
    assert batch.ids.tolist() == [[1, 2, 3], [7, PAD, PAD]]
    assert batch.targets.tolist() == [[2, 3, 4], [8, PAD, PAD]]
    assert batch.place.tolist() == [[0, 1, 2], [4, 5, 6]]
    assert _equal(batch.to("cpu"), batch)
