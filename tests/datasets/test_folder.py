"""A folder of MIDI files: which are tried, what is skipped, and going on after an interruption."""

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from music_transformer.datasets import encoding
from music_transformer.datasets.encoding import MidiSettings
from music_transformer.datasets.prepare import find_work, list_folder, prepare_corpus
from music_transformer.datasets.prepared import PreparedData
from music_transformer.errors import ConfigError, DatasetError
from music_transformer.midi import read_midi, write_midi
from music_transformer.notes import NoteSequence, Pedals
from music_transformer.progress import Progress
from music_transformer.representations import ChoraleTokenizer, PerformanceTokenizer

SETTINGS = MidiSettings(PerformanceTokenizer().to_config())
WriteScale = Callable[..., None]


class _Count(Progress):
    """Counts what it hears; interrupts after `limit` files."""

    def __init__(self, limit: int | None = None) -> None:
        self.total, self.done, self.finished, self.limit = 0, 0, 0, limit
        self.said: list[str] = []

    def info(self, message: str) -> None:
        self.said.append(message)

    def begin(self, total: int, *, done: int = 0, unit: str = "step") -> None:
        self.total = total

    def update(self, count: int = 1) -> None:
        self.done += count
        if self.done == self.limit:
            raise KeyboardInterrupt

    def end(self) -> None:
        self.finished += 1


@pytest.fixture
def mixed(tmp_path: Path, write_scale: WriteScale) -> Path:
    """Good files under every kind of name, and bad ones of every kind."""
    folder = tmp_path / "mixed"
    write_scale(folder / "A.MID", 60)
    write_scale(folder / "b.midi", 62)
    write_scale(folder / "deep" / "er" / "c.Kar", 64)
    write_scale(folder / "not-by-name.txt", 66)
    (folder / "empty.mid").touch()
    (folder / "text.mid").write_text("this is a letter, not music")
    whole = (folder / "A.MID").read_bytes()
    (folder / "cut.mid").write_bytes(whole[: len(whole) // 2])
    (folder / "silent.mid").write_bytes(
        b"MThd" + b"\x00\x00\x00\x06" + b"\x00\x00\x00\x01\x01\xe0"  # type 0, 1 track, 480 ticks
        b"MTrk" + b"\x00\x00\x00\x04" + b"\x00\xff\x2f\x00"  # end of track
    )
    (folder / "folder.mid").mkdir()
    return folder


def _all_pieces(data: PreparedData) -> dict[str, list[int]]:
    return {
        name: piece[1:-1].tolist()
        for split in data.splits
        for name, piece in zip(data.names(split), data.pieces(split), strict=True)
    }


def test_files_are_found_by_their_names_in_any_case_and_at_any_depth(mixed: Path) -> None:
    assert [source.name for source in list_folder(mixed, mixed, Progress()).files] == [
        "A.MID",
        "b.midi",
        "cut.mid",
        "deep/er/c.Kar",
        "empty.mid",
        "silent.mid",
        "text.mid",
    ]


@pytest.mark.parametrize("jobs", [1, 2])
def test_good_files_are_taken_and_each_bad_one_is_named_with_its_reason(
    mixed: Path, tmp_path: Path, jobs: int
) -> None:
    watcher = _Count()
    data = prepare_corpus(
        list_folder, mixed, tmp_path / "out", settings=SETTINGS, jobs=jobs, progress=watcher
    )
    pieces = _all_pieces(data)
    assert sorted(pieces) == ["A.MID", "b.midi", "deep/er/c.Kar"]
    assert pieces["A.MID"] == PerformanceTokenizer().encode(
        read_midi(mixed / "A.MID"), keep_silence=False
    )
    reasons = {item["name"]: item["reason"] for item in data.meta["skipped"]}
    assert sorted(reasons) == ["cut.mid", "empty.mid", "silent.mid", "text.mid"]
    assert all(reasons.values())
    assert not any(str(mixed) in reason for reason in reasons.values())
    assert (watcher.total, watcher.done, watcher.finished) == (7, 7, 1)
    assert watcher.said[0] == "passed over, by suffix: 1 .txt"
    assert data.meta["settings"]["passed_over"] == "1 .txt"
    assert find_work(tmp_path / "out") is None
    data.verify()


def test_leading_silence_is_dropped_unless_it_is_to_be_kept(
    tmp_path: Path, write_scale: WriteScale
) -> None:
    write_scale(tmp_path / "in" / "a.mid")
    first = {}
    for keep in (False, True):
        settings = MidiSettings(SETTINGS.tokenizer, keep_silence=keep)
        data = prepare_corpus(
            list_folder, tmp_path / "in", tmp_path / f"{keep}", settings=settings, jobs=1
        )
        first[keep] = data.pieces("train")[0][1:4].tolist()
    assert first == {False: [372, 60, 275], True: [355, 372, 60]}


def test_one_pedal_is_that_of_both_hands(tmp_path: Path) -> None:
    hands = NoteSequence(
        pitch=[60, 72], velocity=[80, 80], start=[0, 0], end=[0.5, 0.5], channel=[0, 1]
    )
    write_midi(hands.replaced(pedals=Pedals([1], [0.2], [2.0])), tmp_path / "in" / "disklavier.mid")
    ids = []
    for one_pedal in (False, True):
        how = replace(SETTINGS, one_pedal=one_pedal)
        data = prepare_corpus(list_folder, tmp_path / "in", tmp_path / str(one_pedal), settings=how)
        [piece] = _all_pieces(data).values()
        ids.append(PerformanceTokenizer().decode(piece).end.tolist())
    assert ids == [[0.5, 2.0], [2.0, 2.0]]


def test_chorales_are_encoded_as_four_voices(tmp_path: Path, write_scale: WriteScale) -> None:
    write_scale(tmp_path / "in" / "a.mid", notes=2)
    settings = MidiSettings(ChoraleTokenizer().to_config())
    data = prepare_corpus(list_folder, tmp_path / "in", tmp_path / "out", settings=settings, jobs=1)
    assert data.tokenizer.kind == "chorale"
    assert data.meta["voice_ranges"]
    assert (len(data.pieces("train")[0]) - 2) % 4 == 0


def test_copies_are_reported_and_stay_in_one_split(tmp_path: Path, write_scale: WriteScale) -> None:
    for index in range(6):
        write_scale(tmp_path / "in" / f"{index}.mid", 50 + index)
        write_scale(tmp_path / "in" / "copies" / f"copy-{index}.mid", 50 + index)
    data = prepare_corpus(list_folder, tmp_path / "in", tmp_path / "out", settings=SETTINGS, jobs=1)
    split_of = {name: split for split in data.splits for name in data.names(split)}
    assert len(split_of) == 12
    for index in range(6):
        assert split_of[f"{index}.mid"] == split_of[f"copies/copy-{index}.mid"]
    assert sorted(map(sorted, data.meta["report"]["duplicates"]))[0] == [
        "0.mid",
        "copies/copy-0.mid",
    ]


def test_two_preparations_of_one_folder_are_equal(mixed: Path, tmp_path: Path) -> None:
    one = prepare_corpus(list_folder, mixed, tmp_path / "one", settings=SETTINGS, jobs=1)
    two = prepare_corpus(list_folder, mixed, tmp_path / "two", settings=SETTINGS, jobs=2)
    assert one.checksum == two.checksum
    assert (one.path / "meta.json").read_bytes() == (two.path / "meta.json").read_bytes()


def test_what_was_done_before_an_interruption_is_not_done_again(
    tmp_path: Path, write_scale: WriteScale, monkeypatch: pytest.MonkeyPatch
) -> None:
    for index in range(5):
        write_scale(tmp_path / "in" / f"{index}.mid", 50 + index)
    out = tmp_path / "out"
    watcher = _Count(limit=2)
    with pytest.raises(KeyboardInterrupt):
        prepare_corpus(
            list_folder, tmp_path / "in", out, settings=SETTINGS, jobs=1, progress=watcher
        )
    assert watcher.finished == 1
    assert not out.exists()

    read: list[str] = []

    def reading(path: Path, **how: bool) -> object:
        read.append(path.name)
        return read_midi(path, **how)

    monkeypatch.setattr(encoding, "read_midi", reading)
    write_scale(tmp_path / "in" / "1.mid", 70, notes=6)  # changed since: has to be read again
    data = prepare_corpus(list_folder, tmp_path / "in", out, settings=SETTINGS, jobs=1)
    assert read == ["1.mid", "2.mid", "3.mid", "4.mid"]
    assert 70 in _all_pieces(data)["1.mid"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out"]


def test_other_settings_do_not_take_what_was_kept(tmp_path: Path, write_scale: WriteScale) -> None:
    write_scale(tmp_path / "in" / "a.mid")
    write_scale(tmp_path / "in" / "b.mid", 40)
    with pytest.raises(KeyboardInterrupt):
        prepare_corpus(
            list_folder,
            tmp_path / "in",
            tmp_path / "out",
            settings=SETTINGS,
            jobs=1,
            progress=_Count(limit=2),
        )
    keeping = MidiSettings(SETTINGS.tokenizer, keep_silence=True)
    data = prepare_corpus(list_folder, tmp_path / "in", tmp_path / "out", settings=keeping, jobs=1)
    assert all(ids[0] == 355 for ids in _all_pieces(data).values())


def test_a_folder_where_nothing_can_be_read_is_an_error_and_leaves_no_output(
    tmp_path: Path,
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.mid").write_bytes(b"nothing")
    watcher = _Count()
    with pytest.raises(DatasetError, match=r"none of its 1 MIDI files could be read; a\.mid: "):
        prepare_corpus(
            list_folder,
            tmp_path / "in",
            tmp_path / "out",
            settings=SETTINGS,
            jobs=1,
            progress=watcher,
        )
    assert watcher.done == 1
    assert not (tmp_path / "out").exists()


def test_a_folder_without_midi_files_or_no_folder_at_all_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"no file in it is named \.mid, \.midi, \.kar"):
        list_folder(tmp_path, tmp_path, Progress())
    with pytest.raises(DatasetError, match="no such folder"):
        list_folder(tmp_path / "none", tmp_path, Progress())
    (tmp_path / "a.mid").touch()
    with pytest.raises(DatasetError, match="this is a file, not a folder"):
        list_folder(tmp_path / "a.mid", tmp_path, Progress())


def test_links_that_lead_nowhere_or_in_circles_do_no_harm(
    tmp_path: Path, write_scale: WriteScale
) -> None:
    write_scale(tmp_path / "in" / "a.mid")
    try:
        (tmp_path / "in" / "gone.mid").symlink_to(tmp_path / "nowhere.mid")
        (tmp_path / "in" / "circle").symlink_to(tmp_path / "in", target_is_directory=True)
    except OSError:
        pytest.skip("this system makes no symbolic links")
    data = prepare_corpus(list_folder, tmp_path / "in", tmp_path / "out", settings=SETTINGS, jobs=1)
    assert data.names("train") == ["a.mid"]
    assert [item["name"] for item in data.meta["skipped"]] == ["gone.mid"]


def test_less_than_one_process_is_refused(tmp_path: Path, write_scale: WriteScale) -> None:
    write_scale(tmp_path / "in" / "a.mid")
    with pytest.raises(ConfigError, match="jobs=0"):
        prepare_corpus(list_folder, tmp_path / "in", tmp_path / "out", settings=SETTINGS, jobs=0)


def test_the_sources_are_not_changed(mixed: Path, tmp_path: Path) -> None:
    def state() -> dict[str, str]:
        return {
            str(path): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(mixed.rglob("*"))
            if path.is_file()
        }

    before = state()
    prepare_corpus(list_folder, mixed, tmp_path / "out", settings=SETTINGS, jobs=1)
    assert state() == before
