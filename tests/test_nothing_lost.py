"""What is the user's is never deleted, what is written is whole: commands that once lost data."""

import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

import music_transformer
from music_transformer.cli.main import main
from music_transformer.datasets import PreparedData
from music_transformer.datasets import prepare as datasets_prepare
from music_transformer.datasets.prepare import find_work
from music_transformer.errors import CheckpointError, ConfigError, DatasetError
from music_transformer.files import atomic_path, locked, output_lock
from music_transformer.midi import write_midi
from music_transformer.notes import NoteSequence

#: What Windows lacks.
POSIX = re.compile(
    r"^(?:import|from) (?:fcntl|resource|pwd|grp|termios)\b|\bsignal\.SIG(?:HUP|KILL|USR1)\b|\bos\."
    r"(?:fork|getuid|geteuid|setsid|killpg|pread|pwrite|nice|O_NOFOLLOW|uname|mkfifo)\b",
    re.MULTILINE,
)
LINKS = pytest.mark.skipif(os.name == "nt", reason="links and locks of POSIX")


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Eight files of a few notes."""
    folder = tmp_path / "corpus"
    folder.mkdir()
    for index in range(8):
        notes = NoteSequence(
            pitch=[50 + index] * 3, velocity=[64] * 3, start=[0, 1, 2], end=[1, 2, 3]
        )
        write_midi(notes, folder / f"{index}.mid")
    return folder


def full(*arguments: object, **keywords: object) -> None:
    raise OSError(28, "No space left on device")


def prepare(corpus: Path, out: Path, *flags: str) -> int:
    return main(["prepare", str(corpus), "--out", str(out), "--jobs", "1", *flags])


def test_pieces_that_a_full_disk_left_empty_are_read_again(corpus: Path, tmp_path: Path) -> None:
    assert prepare(corpus, tmp_path / "clean") == 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(datasets_prepare, "write_prepared", full)  # after the pieces are kept
        assert prepare(corpus, tmp_path / "out") == 3
    work = find_work(tmp_path / "out")
    assert work is not None
    for kept in list((work / "pieces").glob("*.ids"))[:5]:
        kept.write_bytes(kept.read_bytes()[: kept.stat().st_size // 3])
    assert prepare(corpus, tmp_path / "out") == 0
    clean = PreparedData.open(tmp_path / "clean")
    assert PreparedData.open(tmp_path / "out").verify().checksum == clean.checksum
    assert {path.name for path in tmp_path.iterdir()} == {"corpus", "clean", "out"}


def test_a_piece_that_cannot_be_written_is_an_error_and_no_skipped_file(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "write_bytes", full)
        assert prepare(corpus, tmp_path / "out") == 3
    printed = capsys.readouterr().err
    assert "skipped" not in printed
    assert ".ids: no space left on device." in printed


@pytest.mark.parametrize("meta", ['{"name": "mine"}', "{", '{"format": 1, "splits": {}}'])
def test_a_folder_with_a_meta_file_of_the_users_is_not_replaced(
    corpus: Path, tmp_path: Path, meta: str
) -> None:
    out = tmp_path / "project"
    (out / "src").mkdir(parents=True)
    (out / "meta.json").write_text(meta)
    (out / "thesis.txt").write_text("work")
    assert prepare(corpus, out, "--force") == 2
    assert {path.name for path in out.iterdir()} == {"src", "meta.json", "thesis.txt"}


def test_files_of_the_users_in_and_beside_prepared_data_stay(corpus: Path, tmp_path: Path) -> None:
    out, beside = tmp_path / "data", tmp_path / "data.tmp" / "source" / "mine.txt"
    beside.parent.mkdir(parents=True)
    beside.write_text("mine")
    assert prepare(corpus, out) == 0
    (out / "notes").mkdir()
    (out / "notes" / "a.txt").write_text("mine")
    (out / "other.bin").write_text("mine")
    assert prepare(corpus, out, "--force") == 0
    assert (out / "notes" / "a.txt").read_text() == (out / "other.bin").read_text() == "mine"
    assert beside.read_text() == "mine"
    PreparedData.open(out).verify()
    assert not list(tmp_path.glob(".*"))


@LINKS
@pytest.mark.parametrize("target_is_there", [True, False])
def test_a_link_as_output_is_followed(corpus: Path, tmp_path: Path, target_is_there: bool) -> None:
    real, link = tmp_path / "disk" / "real", tmp_path / "link"
    real.parent.mkdir()
    if target_is_there:
        real.mkdir()
    link.symlink_to(real)
    for flags in ((), ("--force",)):
        assert prepare(corpus, link, *flags) == 0
        assert link.is_symlink()
        PreparedData.open(real).verify()
    with atomic_path(tmp_path / "to-file") as temporary:
        temporary.write_text("old")
    (tmp_path / "file-link").symlink_to(tmp_path / "to-file")
    with atomic_path(tmp_path / "file-link") as temporary:
        temporary.write_text("new")
    assert (tmp_path / "file-link").is_symlink()
    assert (tmp_path / "to-file").read_text() == "new"


@LINKS
def test_a_second_command_with_the_same_output_is_one_line(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    with output_lock(out):
        assert prepare(corpus, out) == 2
        assert "out: another command is writing it; wait for it" in capsys.readouterr().err
    assert prepare(corpus, out) == 0
    assert not list(tmp_path.glob(".*"))


def test_nothing_in_the_package_needs_posix() -> None:
    root = Path(music_transformer.__file__).parent
    assert not [path for path in root.rglob("*.py") if POSIX.search(path.read_text("utf-8"))]


def test_there_is_a_lock_on_windows_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = set()

    def locking(descriptor: int, mode: int, count: int) -> None:
        inode = os.fstat(descriptor).st_ino
        if inode in held:
            raise PermissionError(13, "Permission denied")
        held.add(inode)

    msvcrt = SimpleNamespace(locking=locking, LK_NBLCK=2)
    monkeypatch.setitem(sys.modules, "fcntl", None)
    monkeypatch.setitem(sys.modules, "msvcrt", msvcrt)
    with (
        locked(tmp_path / "new" / ".lock", "busy"),
        pytest.raises(ConfigError, match="busy"),
        locked(tmp_path / "new" / ".lock", "busy"),
    ):
        pass
    assert not list(tmp_path.iterdir())


@LINKS
def test_a_lock_does_not_delete_a_file_of_the_users(tmp_path: Path) -> None:
    (tmp_path / ".lock").write_text("mine")
    with (
        locked(tmp_path / ".lock", "busy"),
        pytest.raises(ConfigError, match="busy"),
        locked(tmp_path / ".lock", "busy"),
    ):
        pass
    assert (tmp_path / ".lock").read_text() == "mine"


@pytest.mark.parametrize("out", ["", ".", "/", ".."])
def test_an_output_without_a_name_is_one_line(
    corpus: Path, out: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["prepare", str(corpus), "--out", out, "--force"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda meta: meta.pop("corpus"),
        lambda meta: meta.update(voice_ranges="x"),
        lambda meta: meta.update(skipped=[1]),
        lambda meta: meta["splits"]["train"].update(sha256=3),
        lambda meta: meta["splits"]["train"].update(file="a\0b"),
        *(
            lambda meta, key=key, value=value: meta["splits"]["train"]["pieces"][0].update(
                {key: value}
            )
            for key in ("offset", "length")
            for value in (0.5, "0", None, 2**70, True)
        ),
    ],
)
def test_damaged_meta_data_are_one_line(
    corpus: Path, tmp_path: Path, change: Callable[[dict[str, object]], None]
) -> None:
    assert prepare(corpus, tmp_path / "out") == 0
    path = tmp_path / "out" / "meta.json"
    meta = json.loads(path.read_text())
    change(meta)
    path.write_text(json.dumps(meta))
    with pytest.raises(DatasetError):
        PreparedData.open(tmp_path / "out")
    path.write_text("[" * 100_000)
    with pytest.raises(DatasetError, match=r"meta\.json is not JSON"):
        PreparedData.open(tmp_path / "out")


def test_prepared_data_are_verified_by_a_command(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert prepare(corpus, tmp_path / "out") == 0
    command = ["prepare", str(tmp_path / "out"), "--verify"]
    assert main(command) == 0
    data = tmp_path / "out" / "train.bin"
    data.write_bytes(b"\xff" * data.stat().st_size)
    assert main(command) == 3
    assert "train.bin has another sha256 than when written" in capsys.readouterr().err
    with pytest.raises(DatasetError, match="outside the vocabulary"):
        PreparedData.open(tmp_path / "out").pieces("train")


def test_a_checkpoint_is_no_run_and_another_model_no_checkpoint(tmp_path: Path) -> None:
    from music_transformer.checkpoint.session import check_replaceable
    from music_transformer.training.run_dir import RunFolder

    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text('{"format": 1, "model": {}, "training": {}}')
    (folder / "model.safetensors").write_bytes(b"years of work")
    run = RunFolder(folder)
    assert not run.has_run()
    assert not run.is_free()
    with pytest.raises(CheckpointError, match="holds something that is no checkpoint"):
        check_replaceable(folder)
