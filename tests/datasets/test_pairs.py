"""Pairs of melody and accompaniment: how they are prepared, cut, augmented, measured, exchanged."""

import json
import pickle
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from music_transformer.datasets import PreparedData
from music_transformer.datasets.corpora import list_maestro
from music_transformer.datasets.encoding import MidiSettings
from music_transformer.datasets.pairs import (
    TrainingPairs,
    cut_segment,
    evaluation_pairs,
    shuffled_pairs,
)
from music_transformer.datasets.prepare import list_folder, prepare_corpus
from music_transformer.datasets.prepared import Melodies, write_prepared
from music_transformer.datasets.windows import Batch, collate
from music_transformer.errors import ConfigError, DatasetError
from music_transformer.midi import write_midi
from music_transformer.notes import NoteSequence
from music_transformer.representations import AccompanimentTokenizer, MelodyTokenizer, split_melody
from music_transformer.representations.accompaniment.tokenizer import N_MELODY_IDS
from music_transformer.representations.performance.vocabulary import NOTE_OFF

PAD, START, END = 388, 389, 390
SILENCE, MELODY_PAD = 256, 257
TOKENIZER = AccompanimentTokenizer()
SETTINGS = MidiSettings(TOKENIZER.to_config())


def _piece(beats: int, *, lowest: int = 48, highest: int = 72, begin: float = 0.0) -> NoteSequence:
    """A tune of one note a beat of half a second over broken chords of two."""
    beat = np.arange(beats)
    tune = np.stack([highest + beat % 5, beat * 0.5, beat * 0.5 + 0.4], axis=1)
    low = np.stack([lowest + beat % 7, beat * 0.5, beat * 0.5 + 0.2], axis=1)
    high = np.stack([lowest + 4 + beat % 7, beat * 0.5 + 0.25, beat * 0.5 + 0.45], axis=1)
    pitch, start, end = np.concatenate([tune, low, high]).T
    return NoteSequence(
        pitch=pitch.astype(int),
        velocity=[80] * beats + [50] * (2 * beats),
        start=start + begin,
        end=end + begin,
        track=[0] * beats + [1] * (2 * beats),
    )


@pytest.fixture
def write_prepared_pairs(tmp_path: Path) -> Callable[..., PreparedData]:
    """A function that prepares pieces as they are, the same in training and validation."""

    def write(pieces: list[NoteSequence], name: str = "pairs") -> PreparedData:
        sides = [split_melody(piece) for piece in pieces]

        def named(side: int) -> dict[str, list[tuple[str, Any]]]:
            ids = [(f"piece-{i}", TOKENIZER.encode_array(s[side])) for i, s in enumerate(sides)]
            return {"train": ids, "validation": ids}

        return write_prepared(
            tmp_path / name,
            tokenizer=TOKENIZER,
            corpus="made up",
            splits=named(1),
            melodies=Melodies("skyline", named(0)),
        )

    return write


Write = Callable[..., PreparedData]


@pytest.fixture
def data(write_prepared_pairs: Write) -> PreparedData:
    return write_prepared_pairs(
        [_piece(120), _piece(90, lowest=36, highest=76), _piece(7, highest=84)]
    )


def _rows(notes: NoteSequence) -> list[tuple[int, float, float]]:
    columns = (notes.pitch.tolist(), notes.start.round(2).tolist(), notes.end.round(2).tolist())
    return list(zip(*columns, strict=True))


def _equal(one: Batch, two: Batch) -> bool:
    assert one.source is not None
    assert two.source is not None
    return torch.equal(one.source, two.source) and all(
        torch.equal(getattr(one, name), getattr(two, name)) for name in ("ids", "targets", "place")
    )


def _sides(batch: Batch, row: int) -> tuple[list[int], list[int]]:
    """The real source ids and the real targets of a row."""
    assert batch.source is not None
    source, targets = batch.source[row].tolist(), batch.targets[row].tolist()
    return [i % N_MELODY_IDS for i in source if i != MELODY_PAD], [i for i in targets if i != PAD]


# Prepared data


def test_a_piece_is_kept_as_melody_and_rest_that_together_are_the_piece(
    write_prepared_pairs: Write,
) -> None:
    piece = _piece(9)
    data = write_prepared_pairs([piece])
    data.verify()
    assert data.tokenizer == TOKENIZER
    (rest,), (melody,) = data.pieces("train"), data.melodies("train")
    assert (melody[0], melody[-1], rest[0], rest[-1]) == (START, END, START, END)
    assert _rows(TOKENIZER.decode(melody)) == _rows(split_melody(piece)[0])
    assert _rows(TOKENIZER.decode(rest)) == _rows(split_melody(piece)[1])
    assert data.melody_notes("train") == 9
    assert data.events("train") == len(rest) - 2


def test_a_folder_becomes_pairs_and_what_has_no_two_sides_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    write_midi(_piece(20, begin=1.003), folder / "good.mid")
    write_midi(_piece(30, lowest=40), folder / "other.mid")
    tune, chords = split_melody(_piece(5))
    write_midi(tune, folder / "tune.mid")
    write_midi(chords.transposed(-20), folder / "low.mid")
    (folder / "letter.mid").write_text("a letter")
    data = prepare_corpus(list_folder, folder, tmp_path / "out", settings=SETTINGS, jobs=1)
    data.verify()
    assert sorted(name for split in data.splits for name in data.names(split)) == [
        "good.mid",
        "other.mid",
    ]
    reasons = {item["name"]: item["reason"] for item in data.meta["skipped"]}
    assert sorted(reasons) == ["letter.mid", "low.mid", "tune.mid"]
    assert reasons["tune.mid"] == "by the rule (skyline) it has no accompaniment; leave it out."
    assert reasons["low.mid"] == "by the rule (skyline) it has no melody; leave it out."
    assert data.meta["melody"] == {"format": 1, "rule": "skyline"}
    assert not (tmp_path / "out.tmp").exists()


def test_both_sides_count_time_from_the_first_note_of_either(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    late = NoteSequence(  # the accompaniment is half a second before the melody
        pitch=[48, 72], velocity=[50, 80], start=[2.0, 2.5], end=[3.0, 3.0]
    )
    write_midi(late, folder / "a.mid")
    data = prepare_corpus(list_folder, folder, tmp_path / "out", settings=SETTINGS, jobs=1)
    assert _rows(TOKENIZER.decode(data.pieces("train")[0])) == [(48, 0.0, 1.0)]
    assert _rows(TOKENIZER.decode(data.melodies("train")[0])) == [(72, 0.5, 1.0)]
    keeping = MidiSettings(SETTINGS.tokenizer, keep_silence=True)
    data = prepare_corpus(list_folder, folder, tmp_path / "kept", settings=keeping, jobs=1)
    assert _rows(TOKENIZER.decode(data.melodies("train")[0])) == [(72, 2.5, 3.0)]


def test_the_melody_may_be_a_track(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    write_midi(_piece(8), folder / "a.mid")
    write_midi(split_melody(_piece(8))[0], folder / "one-track.mid")
    low = MidiSettings(SETTINGS.tokenizer, melody_track=1)
    data = prepare_corpus(list_folder, folder, tmp_path / "out", settings=low, jobs=1)
    assert data.melody_notes("train") == 16
    assert data.meta["melody"]["rule"] == "track 1"
    assert data.meta["skipped"] == [
        {"name": "one-track.mid", "reason": "there are no notes on track 1; tracks with notes: 0."}
    ]


def test_maestro_becomes_pairs_split_by_its_csv(tmp_path: Path) -> None:
    folder = tmp_path / "maestro"
    folder.mkdir()
    for index, name in enumerate("abc"):
        write_midi(_piece(10 + index), folder / f"{name}.midi")
    (folder / "maestro-v3.0.0.csv").write_text(
        "split,midi_filename\ntrain,a.midi\nvalidation,b.midi\ntest,c.midi\n"
    )
    data = prepare_corpus(list_maestro, folder, tmp_path / "out", settings=SETTINGS, jobs=1)
    data.verify()
    assert {split: data.melody_notes(split) for split in data.splits} == {
        "train": 10,
        "validation": 11,
        "test": 12,
    }


def test_ordinary_data_has_no_melodies_and_says_how_to_get_them(
    prepare_ids: Callable[..., PreparedData],
) -> None:
    data = prepare_ids([[60]])
    assert "melody" not in data.meta
    assert sorted(path.name for path in data.path.iterdir()) == [
        "meta.json",
        "train.bin",
        "validation.bin",
    ]
    with pytest.raises(DatasetError, match="prepare them with --task accompaniment"):
        data.melodies("train")
    with pytest.raises(DatasetError, match="have no melodies"):
        TrainingPairs(data, length=5, batch_size=1)


def test_the_checksum_follows_the_melodies(write_prepared_pairs: Write) -> None:
    one = write_prepared_pairs([_piece(9)], "one")
    assert write_prepared_pairs([_piece(9)], "same").checksum == one.checksum
    assert write_prepared_pairs([_piece(9, highest=73)], "other").checksum != one.checksum


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda meta: meta["melody"].update(format=2), "melodies have format 2, .* reads 1"),
        (lambda meta: meta.pop("melody"), "lacks or garbles 'melody'"),
        (lambda meta: meta["splits"]["train"].pop("melody"), "lacks or garbles 'melody'"),
        (lambda meta: meta["splits"]["train"]["melody"].update(events=3), "number of events"),
        (lambda meta: meta["splits"]["train"]["melody"]["pieces"].pop(), "other melodies than"),
    ],
)
def test_an_index_of_melodies_that_does_not_fit_is_refused(
    data: PreparedData, change: Callable[[dict[str, Any]], None], match: str
) -> None:
    path = data.path / "meta.json"
    meta = json.loads(path.read_text())
    change(meta)
    path.write_text(json.dumps(meta))
    with pytest.raises(DatasetError, match=match):
        PreparedData.open(data.path)


def test_a_file_of_melodies_that_is_damaged_is_found(data: PreparedData) -> None:
    path = data.path / "train.melody.bin"
    whole = path.read_bytes()
    path.write_bytes(whole[:10] + b"\x01\x00" + whole[12:])
    with pytest.raises(DatasetError, match=r"train\.melody\.bin has another sha256"):
        PreparedData.open(data.path).verify()
    path.write_bytes(whole[:-2])
    with pytest.raises(DatasetError, match=r"train\.melody\.bin has [\d,]+ bytes, expected"):
        PreparedData.open(data.path)
    path.unlink()
    with pytest.raises(DatasetError, match=r"train\.melody\.bin is missing"):
        PreparedData.open(data.path)


# Segments


def _cut(rest: list[Any], melody: list[Any], begin: int, end: int, **changes: Any) -> Any:
    sides = []
    for rows in (rest, melody):
        pitch, start, stop = zip(*rows, strict=True)
        sides.append(NoteSequence(pitch=pitch, velocity=[66] * len(rows), start=start, end=stop))
    accompaniment, tune = sides
    source, events = cut_segment(accompaniment, tune, begin, end, **changes)
    return (source % N_MELODY_IDS).tolist(), _rows(TOKENIZER.decode(events))


def test_a_segment_has_the_notes_that_begin_in_it_and_closes_them_at_its_end() -> None:
    rest = [(40, 0.5, 1.5), (42, 1.0, 1.2), (44, 1.9, 3.0), (46, 2.0, 2.5)]
    source, notes = _cut(rest, [(72, 1.0, 1.2)], 100, 200)
    assert notes == [(42, 0.0, 0.2), (44, 0.9, 1.0)]
    assert source == [72, 200, *[SILENCE] * 8]


def test_a_melody_note_that_sounds_when_a_segment_begins_is_held_from_there() -> None:
    source, _ = _cut([(40, 1.0, 2.0)], [(72, 0.53, 1.3), (74, 1.3, 5.0)], 100, 200)
    assert source == [200, 200, 200, 74, *[202] * 6]


def test_a_segment_may_begin_between_the_steps_of_the_melody() -> None:
    source, notes = _cut([(40, 1.0, 1.3)], [(72, 1.04, 1.2)], 95, 145)
    assert source == [72, 200, 200, SILENCE, SILENCE]
    note = NoteSequence(pitch=[72], velocity=[66], start=[1.04], end=[1.2])
    assert cut_segment(note, note, 95, 145)[0][0] == 72 + 9 * N_MELODY_IDS  # 90 ms into its step
    assert notes == [(40, 0.05, 0.35)]


def test_both_sides_are_stretched_and_moved_alike() -> None:
    rest = [(40 + i, i * 37 / 100, i * 37 / 100 + 0.3) for i in range(20)]
    melody = [(72 + i, i * 37 / 100, i * 37 / 100 + 0.3) for i in range(20)]
    for factor in (0.95, 0.975, 1.025, 1.05):
        source, notes = _cut(rest, melody, 111, 611, factor=factor, semitones=-2)
        tune = MelodyTokenizer().decode(source)
        assert len(source) == round(50 * factor)
        starts = {pitch: start for pitch, start, _ in notes}
        begun = tune.pitch.tolist()
        assert begun == [pitch + 32 for pitch in starts]
        assert min(begun) == 72 - 2 + 3  # the first note from 1.11 s on, two semitones lower
        for pitch, start in zip(begun, tune.start.tolist(), strict=True):
            assert start - 1e-6 <= starts[pitch - 32] < start + 0.1 - 1e-6
            original = (pitch - 70) * 0.37
            assert starts[pitch - 32] == pytest.approx((original - 1.11) * factor, abs=0.0051)


def test_a_note_that_is_rounded_out_of_its_segment_is_left_out() -> None:
    _, notes = _cut([(40, 0.0, 0.1), (41, 0.99, 1.0)], [(72, 0.0, 0.1)], 0, 100, factor=1.007)
    assert notes == [(40, 0.0, 0.1)]


# Training


def test_a_row_is_the_melody_and_the_events_of_some_seconds(data: PreparedData) -> None:
    pairs = TrainingPairs(data, length=1200, batch_size=3, augment=False)
    lengths = []
    for step in range(8):
        batch = pairs.batch(step)
        assert batch.source is not None
        assert batch.ids.shape == batch.targets.shape == batch.place.shape == (3, 1200)
        assert batch.ids.dtype == batch.source.dtype == torch.int64
        assert batch.place.tolist() == [list(range(1200))] * 3
        assert batch.given().keys() == {"place", "source"}
        for row in range(3):
            source, targets = _sides(batch, row)
            assert batch.ids[row, : len(targets)].tolist() == [START, *targets[:-1]]
            assert set(batch.ids[row, len(targets) :].tolist()) <= {PAD}
            assert targets.count(END) == 1
            assert targets[-1] == END
            assert TOKENIZER.duration_seconds(targets) <= len(source) / 10 + 1e-9
            lengths.append(len(source))
    assert max(lengths) <= 300
    assert min(lengths) < 100 < 200 < max(lengths)


def test_a_segment_too_long_for_the_window_is_cut_without_end(data: PreparedData) -> None:
    batch = TrainingPairs(data, length=11, batch_size=4).batch(0)
    assert batch.ids[:, 0].tolist() == [START] * 4
    assert (batch.targets != PAD).all()
    assert (batch.targets != END).all()
    assert torch.equal(batch.ids[:, 1:], batch.targets[:, :-1])


def test_the_tune_meets_its_accompaniment_under_every_augmentation(data: PreparedData) -> None:
    """In these pieces a low note begins with each note of the tune."""
    pairs = TrainingPairs(data, length=600, batch_size=4, seed=3)
    for step in range(6):
        batch = pairs.batch(step)
        for row in range(4):
            source, targets = _sides(batch, row)
            steps = {int(s * 10 + 1e-6) for s in TOKENIZER.decode(targets).start.tolist()}
            begun = {step for step, i in enumerate(source) if i < 128}
            assert len(begun) > 5
            assert begun <= steps


def test_transpositions_keep_both_sides_on_the_piano(write_prepared_pairs: Write) -> None:
    data = write_prepared_pairs([_piece(30, lowest=21, highest=104)])
    pairs = TrainingPairs(data, length=50, batch_size=8)
    original = {pitch for piece in data.pieces("train") for pitch in piece[piece < NOTE_OFF]}
    for step in range(3):
        batch = pairs.batch(step)
        assert set(batch.ids[batch.ids < NOTE_OFF].tolist()) <= original


def test_a_batch_depends_on_seed_step_and_rank_alone(data: PreparedData) -> None:
    def make(**changes: Any) -> TrainingPairs:
        return TrainingPairs(data, **{"length": 64, "batch_size": 2, "seed": 5} | changes)

    assert _equal(make().batch(7), make().batch(7))
    assert not _equal(make().batch(7), make().batch(8))
    assert not _equal(make().batch(7), make(seed=6).batch(7))
    whole = make(batch_size=4).batch(3)
    for rank in range(2):
        part = make(rank=rank, world_size=2).batch(3)
        rows = slice(2 * rank, 2 * rank + 2)
        assert torch.equal(part.ids, whole.ids[rows])
        assert whole.source is not None
        assert part.source is not None
        assert torch.equal(part.source, whole.source[rows, : part.source.shape[1]])


def test_batches_come_in_order_and_another_process_makes_the_same(data: PreparedData) -> None:
    pairs = TrainingPairs(data, length=64, batch_size=2, seed=1)
    prefetched = pairs.prefetch(4)
    for step, batch in enumerate(islice(prefetched, 3), start=4):
        assert _equal(batch, pairs.batch(step))
    prefetched.close()
    again = pickle.loads(pickle.dumps(pairs))
    assert isinstance(again, TrainingPairs)
    assert _equal(again.batch(9), pairs.batch(9))


def test_an_epoch_is_counted_in_events_of_the_accompaniment(data: PreparedData) -> None:
    pairs = TrainingPairs(data, length=64, batch_size=2, world_size=3)
    assert pairs.events_per_epoch == data.events("train") + 3
    assert pairs.events_per_step == 64 * 2 * 3


def test_a_piece_shorter_than_a_segment_is_taken_whole(write_prepared_pairs: Write) -> None:
    data = write_prepared_pairs([_piece(4)])
    batch = TrainingPairs(data, length=64, batch_size=1, augment=False).batch(0)
    source, targets = _sides(batch, 0)
    assert source[0] == 72
    assert len(source) in (19, 20)
    assert targets == [*data.pieces("train")[0][1:-1].tolist(), END]


# Evaluation


def test_segments_side_by_side_hold_every_note_once(data: PreparedData) -> None:
    pairs = evaluation_pairs(data, "validation", 2000)
    for index, piece in enumerate(data.pieces("validation")):
        own = [pair for pair in pairs if pair.piece == index]
        notes, begin = [], 0
        for pair in own:
            segment = TOKENIZER.decode(pair.targets.numpy())
            notes += [(p, round(s + begin / 10, 2)) for p, s, _ in _rows(segment)]
            begin += len(pair.source)
        assert notes == [row[:2] for row in _rows(TOKENIZER.decode(piece))]
        grid = MelodyTokenizer().encode(TOKENIZER.decode(data.melodies("validation")[index]), begin)
        assert torch.cat([pair.source for pair in own]).tolist() == grid.tolist()
    assert [len(pair.source) for pair in pairs] == [200, 200, 200, 150, 150, 150, 35]


def test_every_event_up_to_the_length_is_a_target_and_nothing_else(data: PreparedData) -> None:
    whole, cut = (evaluation_pairs(data, "validation", length) for length in (2000, 40))
    for long, short in zip(whole, cut, strict=True):
        assert long.ids.tolist() == [START, *long.targets.tolist()[:-1]]
        assert END not in long.targets.tolist()
        assert short.targets.tolist() == long.targets.tolist()[:40]
        assert torch.equal(short.source, long.source)
        assert short.place.tolist() == list(range(len(short.ids)))


def test_a_segment_without_accompaniment_is_left_out(write_prepared_pairs: Write) -> None:
    melody = NoteSequence(
        pitch=[72] * 60, velocity=[80] * 60, start=np.arange(60.0), end=np.arange(60) + 0.9
    )
    data = write_prepared_pairs([_joined(melody, [(48, 1.0, 2.0), (48, 55.0, 56.0)])])
    pairs = evaluation_pairs(data, "validation", 100)
    assert [pair.ids[0].item() for pair in pairs] == [START, START]
    assert [int((pair.targets == 48).sum()) for pair in pairs] == [1, 1]


def _joined(melody: NoteSequence, rest: list[tuple[int, float, float]]) -> NoteSequence:
    pitch, start, end = zip(*rest, strict=True)
    return NoteSequence(
        pitch=[*melody.pitch, *pitch],
        velocity=[*melody.velocity, *[50] * len(rest)],
        start=[*melody.start, *start],
        end=[*melody.end, *end],
    )


def test_shuffling_gives_every_piece_the_melody_of_another(data: PreparedData) -> None:
    pairs = evaluation_pairs(data, "validation", 100)
    for seed in range(5):
        shuffled = shuffled_pairs(pairs, seed)
        givers = {}
        for one, two in zip(pairs, shuffled, strict=True):
            assert len(one.source) == len(two.source)
            assert one.ids is two.ids
            assert one.targets is two.targets
            highest = {72: 0, 76: 1, 84: 2}  # the lowest note of each tune
            givers[one.piece] = highest[int((two.source % N_MELODY_IDS).min())]
        assert sorted(givers) == sorted(givers.values())
        assert all(giver != taker for taker, giver in givers.items())
        again = shuffled_pairs(pairs, seed)
        assert all(torch.equal(a.source, b.source) for a, b in zip(shuffled, again, strict=True))
    with pytest.raises(ConfigError, match="pairs of 1 piece: melodies are exchanged among two"):
        shuffled_pairs(pairs[:2], 0)


def test_a_shorter_melody_begins_again(data: PreparedData) -> None:
    pairs = evaluation_pairs(data, "validation", 100)
    short = next(pair.source for pair in pairs if pair.piece == 2)
    for seed in range(9):
        shuffled = shuffled_pairs(pairs, seed)
        if torch.equal(shuffled[0].source[:35], short):
            received = torch.cat([pair.source for pair in shuffled if pair.piece == 0])
            expected = short.repeat(len(received) // 35 + 1)[: len(received)]
            assert torch.equal(received, expected)
            return
    pytest.fail("no seed gave the first piece the shortest melody")


def test_pairs_are_padded_on_both_sides_each_with_its_own_pad(data: PreparedData) -> None:
    pairs = evaluation_pairs(data, "validation", 60)[-2:]
    batch = collate(pairs, pad=PAD)
    assert batch.source is not None
    assert batch.source.shape == (2, 150)
    assert batch.ids.shape == (2, max(len(pair.ids) for pair in pairs))
    assert batch.source[1, 35:].tolist() == [MELODY_PAD] * 115
    assert set(batch.targets[1, len(pairs[1].ids) :].tolist()) <= {PAD}
    for row, pair in enumerate(pairs):
        assert torch.equal(batch.source[row, : len(pair.source)], pair.source)
        assert torch.equal(batch.ids[row, : len(pair.ids)], pair.ids)
        assert torch.equal(batch.targets[row, : len(pair.ids)], pair.targets)


def test_no_window_is_no_pair(data: PreparedData) -> None:
    with pytest.raises(ConfigError, match="length=0: a window holds at least one"):
        evaluation_pairs(data, "validation", 0)
    with pytest.raises(DatasetError, match="no split 'test'"):
        evaluation_pairs(data, "test", 10)
