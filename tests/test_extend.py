"""A corpus and a command, added in the way that docs/EXTEND.md says."""

import argparse
import hashlib
import sys
from pathlib import Path
from types import ModuleType

import pytest

from music_transformer.cli.main import COMMANDS, main
from music_transformer.datasets import PreparedData
from music_transformer.datasets.corpora import CORPORA, KnownCorpus
from music_transformer.datasets.download import DOWNLOADS, Download
from music_transformer.datasets.encoding import Source
from music_transformer.datasets.prepare import Corpus
from music_transformer.midi import read_midi, write_midi
from music_transformer.notes import NoteSequence
from music_transformer.progress import Progress


def list_hymns(source: Path, work: Path, progress: Progress) -> Corpus:
    """The files of a folder; a name begins with its split."""
    files = [Source(path.stem, path, path.stem.split("-")[0]) for path in source.iterdir()]
    return Corpus("hymns", files, {"source": source.name})


@pytest.fixture
def hymns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three hymns, one of them damaged, of a corpus that is known by name."""
    monkeypatch.setitem(CORPORA, "hymns", KnownCorpus(list_hymns, refuses=("split",)))
    folder = tmp_path / "hymns"
    folder.mkdir()
    for pitch, name in ((60, "train-1"), (62, "test-1")):
        notes = NoteSequence(pitch=[pitch], velocity=[64], start=[0.0], end=[1.0])
        write_midi(notes, folder / f"{name}.mid")
    (folder / "train-2.mid").write_bytes(b"MThd")
    return folder


def test_a_new_corpus_is_prepared_by_its_name(
    hymns: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prepare = ["prepare", "hymns", "--out", str(tmp_path / "out"), "--jobs", "1"]
    assert main([*prepare, "--source", str(hymns)]) == 0
    assert "skipped train-2: " in capsys.readouterr().err
    data = PreparedData.open(tmp_path / "out")
    assert data.corpus == "hymns"
    assert {split: data.names(split) for split in data.splits} == {
        "train": ["train-1"],
        "test": ["test-1"],
    }
    assert data.pieces("test")[0].tolist() == [389, 372, 62, 355, 190, 390]


def test_a_new_corpus_refuses_what_means_nothing_for_it(
    hymns: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prepare = ["prepare", "hymns", "--out", str(tmp_path / "out")]
    assert main([*prepare, "--source", str(hymns), "--split", "8/1/1"]) == 2
    assert "prepare hymns: --split means nothing here" in capsys.readouterr().err
    assert main(prepare) == 2
    assert "`music-transformer download hymns` fetches it" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_new_corpus_is_downloaded_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    content = b"all hymns"
    known = Download(
        name="hymns",
        file="hymns.zip",
        url="https://example.org/hymns.zip",
        size=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
        terms="in the public domain",
    )
    monkeypatch.setitem(DOWNLOADS, "hymns", known)
    (tmp_path / "copy.zip").write_bytes(content)
    download = ["download", "hymns", "--from", str(tmp_path / "copy.zip"), "--out", str(tmp_path)]
    assert main(download) == 0
    assert (tmp_path / "hymns.zip").read_bytes() == content
    assert "hymns: in the public domain" in capsys.readouterr().err


@pytest.fixture
def count_notes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command `count-notes`: a module of cli/ and one line of COMMANDS."""

    def add_arguments(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("midi", type=Path)
        parser.add_argument("--at-least", type=int, default=0)

    def run(args: argparse.Namespace) -> int:
        sys.stdout.write(f"{len(read_midi(args.midi))}\n")
        return 0

    module = ModuleType("music_transformer.cli.count_notes")
    vars(module).update(
        DESCRIPTION="Count the notes of a MIDI file.",
        EPILOG="examples:\n  music-transformer count-notes motif.mid\n",
        add_arguments=add_arguments,
        run=run,
    )
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(COMMANDS, "count-notes", "count the notes of a MIDI file")


@pytest.mark.usefixtures("count_notes")
def test_a_new_command_runs_and_has_its_help(
    motifs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = motifs / "fur_elise_opening.mid"
    assert main(["count-notes", str(file)]) == 0
    assert capsys.readouterr().out == f"{len(read_midi(file))}\n"
    assert main(["--help"]) == 0
    assert "count the notes of a MIDI file" in capsys.readouterr().out
    assert main(["count-notes", "--help"]) == 0
    assert "\n  music-transformer count-notes motif.mid\n" in capsys.readouterr().out


@pytest.mark.usefixtures("count_notes")
def test_errors_of_a_new_command_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for line, code, message in (
        (["nothing.mid"], 3, "nothing.mid: there is no such file"),
        (["a.mid", "--at-least", "1" + "0" * 400], 2, "--at-least"),
        (["a.mid", "--loud"], 2, "--loud"),
    ):
        assert main(["count-notes", *line]) == code
        assert message in capsys.readouterr().err.splitlines()[-1]
