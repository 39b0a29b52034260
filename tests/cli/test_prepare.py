"""`prepare` on the command line: exit codes, what is printed where, and what is refused."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from music_transformer.cli.main import main
from music_transformer.datasets import PreparedData
from music_transformer.midi import write_midi
from music_transformer.notes import NoteSequence

CHORALES = {split: [[[67, 62, 59, 45]] * 4] for split in ("train", "valid", "test")}


@pytest.fixture
def jsb_file(tmp_path: Path) -> Path:
    path = tmp_path / "chorales.json"
    path.write_text(json.dumps(CHORALES))
    return path


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """Two good files and two bad ones."""
    folder = tmp_path / "mixed"
    folder.mkdir()
    for index, name in enumerate(("A.MID", "b.midi")):
        notes = NoteSequence(pitch=[60 + index], velocity=[64], start=[0.5], end=[1.0])
        write_midi(notes, folder / name)
    (folder / "empty.mid").touch()
    (folder / "letter.mid").write_text("a letter")
    return folder


def test_jsb_is_prepared_and_counted(
    jsb_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "data" / "jsb"
    assert main(["prepare", "jsb", "--source", str(jsb_file), "--out", str(out), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["splits"] == {
        split: {"pieces": 1, "events": 16} for split in ("train", "validation", "test")
    }
    assert printed["path"] == str(out)
    assert PreparedData.open(out).corpus == "jsb"


def test_a_folder_takes_the_good_files_and_names_the_others_on_stderr(
    mixed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert main(["prepare", str(mixed), "--out", str(out), "--jobs", "1"]) == 0
    printed = capsys.readouterr()
    assert str(out) in printed.out
    assert "2 files" in printed.out
    for name in ("empty.mid", "letter.mid"):
        lines = [line for line in printed.err.splitlines() if line.startswith(f"skipped {name}: ")]
        assert len(lines) == 1
        assert len(lines[0]) > len(f"skipped {name}: ")
    assert PreparedData.open(out).splits == ("train", "validation")


def test_a_folder_where_nothing_can_be_read_is_exit_code_3(
    mixed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (mixed / "A.MID").unlink()
    (mixed / "b.midi").unlink()
    assert main(["prepare", str(mixed), "--out", str(tmp_path / "out"), "--jobs", "1"]) == 3
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "skipped letter.mid: " in printed.err
    assert "none of its 2 MIDI files could be read" in printed.err.splitlines()[-1]
    assert not (tmp_path / "out").exists()


def test_an_existing_output_needs_force(
    mixed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["prepare", str(mixed), "--out", str(tmp_path / "out"), "--jobs", "1"]
    assert main(command) == 0
    assert main(command) == 2
    assert "add --force" in capsys.readouterr().err
    assert main([*command, "--force"]) == 0


def test_the_tokenizer_and_the_pedal_are_chosen_by_flags(mixed: Path, tmp_path: Path) -> None:
    for flags, expected in (
        (["--pedal", "events"], {"kind": "performance", "pedal": "events"}),
        (["--tokenizer", "chorale"], {"kind": "chorale"}),
        ([], {"kind": "performance", "pedal": "sustain"}),
    ):
        out = tmp_path / "-".join(["out", *flags])
        command = ["prepare", "folder", "--source", str(mixed), "--out", str(out), "--jobs", "1"]
        assert main([*command, *flags]) == 0
        assert PreparedData.open(out).meta["tokenizer"] == expected


def test_a_task_of_accompaniment_divides_each_file_and_counts_its_melody(
    mixed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    both = NoteSequence(
        pitch=[72, 48, 50], velocity=[64] * 3, start=[0.5, 0.5, 0.7], end=[1.0, 0.6, 0.9]
    )
    write_midi(both, mixed / "both.mid")
    out = tmp_path / "out"
    command = ["prepare", str(mixed), "--task", "accompaniment", "--out", str(out), "--jobs", "1"]
    assert main(command) == 0
    printed = capsys.readouterr()
    assert "1 pieces" in printed.out
    assert "1 notes of melody" in printed.out
    reason = "by the rule (skyline) it has no accompaniment; leave it out."
    for stream in (printed.out, printed.err):
        assert f"A.MID: {reason}" in stream
    assert PreparedData.open(out).tokenizer.kind == "accompaniment"

    assert main([*command, "--json", "--force"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["splits"] == {"train": {"pieces": 1, "events": 8, "melody_notes": 1}}
    assert [item["name"] for item in summary["skipped"]] == [
        "A.MID",
        "b.midi",
        "empty.mid",
        "letter.mid",
    ]


def test_an_ordinary_summary_has_no_melodies(
    mixed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["prepare", str(mixed), "--task", "continuation", "--out", str(tmp_path / "out")]
    assert main([*command, "--jobs", "1", "--json"]) == 0
    splits = json.loads(capsys.readouterr().out)["splits"]
    assert splits["train"].keys() == {"pieces", "events"}


@pytest.mark.parametrize(
    ("arguments", "code", "match"),
    [
        (["jsb"], 2, "prepare jsb needs --source"),
        (["maestro"], 2, "music-transformer download maestro"),
        (["jsb", "--source", "none.json"], 3, "none.json: no such file"),
        (["jsb", "--source", "x", "--pedal", "events"], 2, "--pedal means nothing here"),
        (["jsb", "--source", "x", "--piano-only"], 2, "--piano-only means nothing here"),
        (["maestro", "--source", "x", "--split", "8/1/1"], 2, "--split means nothing here"),
        (["maestro", "--source", "none"], 3, "none: no such file or folder"),
        (["nowhere"], 3, "nowhere: no such folder"),
        (["nowhere", "--split", "80/20"], 2, "is not three shares"),
        (["nowhere", "--tokenizer", "chorale", "--pedal", "events"], 2, "does not know 'pedal'"),
        (["nowhere", "--source", "x"], 2, "name a folder just once"),
        (["jsb", "--source", "x", "--task", "accompaniment"], 2, "--task means nothing here"),
        (["maestro", "--source", "x", "--melody-track", "0"], 2, "--melody-track means nothing"),
        (["nowhere", "--melody-track", "0"], 2, "only --task accompaniment has a melody"),
        (["nowhere", "--task", "accompaniment", "--melody-track", "-1"], 2, "0 is the first"),
        (
            ["nowhere", "--task", "accompaniment", "--pedal", "events"],
            2,
            "--task accompaniment: --pedal means nothing here",
        ),
        (
            ["nowhere", "--task", "accompaniment", "--tokenizer", "performance"],
            2,
            "--task accompaniment: --tokenizer means nothing here",
        ),
    ],
)
def test_what_cannot_be_done_is_one_line(
    arguments: list[str],
    code: int,
    match: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["prepare", *arguments, "--out", "out"]) == code
    printed = capsys.readouterr()
    assert match in printed.err
    assert len(printed.err.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_preparing_a_folder_needs_no_torch(mixed: Path, tmp_path: Path) -> None:
    code = (
        "import sys; from music_transformer.cli.main import main; "
        f"code = main(['prepare', {str(mixed)!r}, '--out', {str(tmp_path / 'out')!r}]); "
        "assert 'torch' not in sys.modules, 'torch was imported'; sys.exit(code)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_a_source_that_is_no_archive_leaves_nothing_behind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "maestro.zip"
    source.write_bytes(b"not a zip")
    out = tmp_path / "out"
    assert main(["prepare", "maestro", "--source", str(source), "--out", str(out)]) == 3
    assert "not a whole zip or tar;" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [source]
