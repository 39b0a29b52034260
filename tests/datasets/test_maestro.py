"""MAESTRO: the CSV decides, and the source may be a folder, a zip or a tar."""

import shutil
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from music_transformer.datasets.corpora import list_maestro, read_csv
from music_transformer.datasets.encoding import MidiSettings
from music_transformer.datasets.prepare import prepare_corpus
from music_transformer.datasets.prepared import PreparedData
from music_transformer.errors import DatasetError
from music_transformer.representations import PerformanceTokenizer

SETTINGS = MidiSettings(PerformanceTokenizer().to_config())
HEADER = "canonical_composer,canonical_title,split,year,midi_filename,audio_filename,duration\n"
ROWS = (
    '"Bach, J. S.","Same title",train,2004,2004/a.midi,2004/a.wav,5.0\n'
    "Chopin,Same title,test,2006,2006/b.midi,2006/b.wav,5.0\n"
    "Liszt,Étude,validation,2006,2006/c.midi,2006/c.wav,5.0\n"
    "Liszt,Étude,train,2004,2004/d.midi,2004/d.wav,5.0\n"
)


@pytest.fixture
def tree(tmp_path: Path, write_scale: Callable[..., None]) -> Path:
    """The corpus in small: four performances and their CSV."""
    folder = tmp_path / "maestro-v3.0.0"
    for index, name in enumerate(("2004/a", "2006/b", "2006/c", "2004/d")):
        write_scale(folder / f"{name}.midi", 40 + 5 * index)
    (folder / "maestro-v3.0.0.csv").write_text(HEADER + ROWS, encoding="utf-8")
    return folder


def _names(data: PreparedData) -> dict[str, list[str]]:
    return {split: data.names(split) for split in data.splits}


EXPECTED = {
    "train": ["2004/a.midi", "2004/d.midi"],
    "validation": ["2006/c.midi"],
    "test": ["2006/b.midi"],
}


def test_the_csv_decides_the_split(tree: Path, tmp_path: Path) -> None:
    data = prepare_corpus(list_maestro, tree, tmp_path / "out", settings=SETTINGS, jobs=1)
    assert _names(data) == EXPECTED
    assert data.pieces("test")[0][:3].tolist() == [389, 372, 45]
    assert data.meta["skipped"] == []
    data.verify()


@pytest.mark.parametrize("kind", ["zip", "xztar", "tar", "gztar"])
def test_an_archive_is_as_good_as_the_folder(tree: Path, tmp_path: Path, kind: str) -> None:
    archive = shutil.make_archive(
        str(tmp_path / "maestro-v3.0.0-midi"), kind, tree.parent, "maestro-v3.0.0"
    )
    folder = prepare_corpus(list_maestro, tree, tmp_path / "folder", settings=SETTINGS, jobs=1)
    packed = prepare_corpus(
        list_maestro, Path(archive), tmp_path / "packed", settings=SETTINGS, jobs=1
    )
    assert packed.checksum == folder.checksum
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        ["folder", "packed", "maestro-v3.0.0", Path(archive).name]
    )


def test_the_folder_around_the_tree_or_around_an_archive_will_do(
    tree: Path, tmp_path: Path
) -> None:
    around = prepare_corpus(list_maestro, tree.parent, tmp_path / "one", settings=SETTINGS, jobs=1)
    assert _names(around) == EXPECTED
    box = tmp_path / "box"
    box.mkdir()
    shutil.make_archive(str(box / "maestro-v3.0.0-midi"), "xztar", tree.parent, "maestro-v3.0.0")
    shutil.copy(tree / "maestro-v3.0.0.csv", box)
    assert (
        _names(prepare_corpus(list_maestro, box, tmp_path / "two", settings=SETTINGS, jobs=1))
        == EXPECTED
    )


def test_a_file_that_is_missing_or_broken_is_skipped_and_named(tree: Path, tmp_path: Path) -> None:
    (tree / "2006" / "b.midi").unlink()
    (tree / "2004" / "a.midi").write_bytes(b"MThd")
    data = prepare_corpus(list_maestro, tree, tmp_path / "out", settings=SETTINGS, jobs=1)
    assert _names(data) == {"train": ["2004/d.midi"], "validation": ["2006/c.midi"]}
    assert [item["name"] for item in data.meta["skipped"]] == ["2004/a.midi", "2006/b.midi"]
    assert data.meta["skipped"][1]["reason"] == "no such file, or not an ordinary one"


def test_a_cut_archive_is_refused_and_leaves_nothing(tree: Path, tmp_path: Path) -> None:
    for kind in ("zip", "xztar"):
        archive = Path(
            shutil.make_archive(str(tmp_path / "maestro-midi"), kind, tree.parent, tree.name)
        )
        archive.write_bytes(archive.read_bytes()[: archive.stat().st_size // 2])
        with pytest.raises(DatasetError, match="not a whole zip or tar"):
            prepare_corpus(list_maestro, archive, tmp_path / "out", settings=SETTINGS, jobs=1)
        assert not (tmp_path / "out").exists()


def test_an_archive_whose_files_leave_its_folder_is_refused(tmp_path: Path) -> None:
    zipped = tmp_path / "maestro.zip"
    with zipfile.ZipFile(zipped, "w") as packed:
        packed.writestr("../../evil.mid", b"MThd")
    tarred = tmp_path / "maestro.tar"
    (tmp_path / "evil.mid").write_bytes(b"MThd")
    with tarfile.open(tarred, "w") as packed_tar:
        packed_tar.add(tmp_path / "evil.mid", "/absolute/evil.mid")
        packed_tar.getmembers()[0].name = "/absolute/evil.mid"
    for archive in (zipped, tarred):
        try:
            prepare_corpus(
                list_maestro, archive, tmp_path / "out" / "data", settings=SETTINGS, jobs=1
            )
        except DatasetError:
            pass
        else:
            pytest.fail("an archive without the CSV was taken")
    assert not (tmp_path.parent / "evil.mid").exists()


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("a,b\n1,2\n", "not the CSV of MAESTRO"),
        (HEADER, "lists no performance"),
        (HEADER + "C,T,train,2004,../a.midi,a.wav,1\n", "makes no sense"),
        (HEADER + "C,T,training,2004,a.midi,a.wav,1\n", "'training' makes no sense"),
        (HEADER + "C,T,train,2004,,a.wav,1\n", "makes no sense"),
        (HEADER + "C,T,train\n", "makes no sense"),
        (HEADER + 2 * "C,T,train,2004,a.midi,a.wav,1\n", r"a\.midi is listed twice"),
    ],
)
def test_another_csv_is_refused(tmp_path: Path, text: str, match: str) -> None:
    path = tmp_path / "maestro.csv"
    path.write_text(text)
    with pytest.raises(DatasetError, match=match):
        read_csv(path)


def test_a_source_that_is_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for source, match in (
        (tmp_path / "none", "no such file or folder"),
        (tmp_path / "in", r"no maestro\*\.csv in it, nor a zip or tar"),
    ):
        with pytest.raises(DatasetError, match=match):
            prepare_corpus(list_maestro, source, tmp_path / "out", settings=SETTINGS, jobs=1)
    (tmp_path / "letter.zip").write_text("a letter")
    with pytest.raises(DatasetError, match="not a whole zip or tar"):
        prepare_corpus(
            list_maestro, tmp_path / "letter.zip", tmp_path / "out", settings=SETTINGS, jobs=1
        )
    (tmp_path / "in" / "maestro-v3.0.0.csv").write_text(HEADER + ROWS, encoding="utf-8")
    with pytest.raises(DatasetError, match="none of its MIDI files"):
        prepare_corpus(list_maestro, tmp_path / "in", tmp_path / "out", settings=SETTINGS, jobs=1)
