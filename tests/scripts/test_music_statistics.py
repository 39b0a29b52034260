"""`music_statistics.py`: files, data, and files beside data of their kind."""

import json
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from describe_music import describe

from music_transformer.cli.main import exit_code
from music_transformer.datasets.prepared import write_prepared
from music_transformer.evaluation.memorisation import INDEX_FILE, MemorisationIndex
from music_transformer.midi import write_midi
from music_transformer.notes import NoteSequence
from music_transformer.representations import ChoraleTokenizer, PerformanceTokenizer

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "studies" / "music_statistics.py"
MAIN: Any = runpy.run_path(str(SCRIPT))["main"]
Output = pytest.CaptureFixture[str]


def study(line: list[str]) -> int:
    """Its exit code."""
    return exit_code(lambda: MAIN(line))


CHORALE = ChoraleTokenizer()
FIFTHS = [[72, 67, 55, 48]] * 4 + [[74, 67, 57, 50]] * 4  # parallel fifths and octaves


@pytest.fixture
def data(tmp_path: Path) -> str:
    """Two chorales: one that stands still, and one that moves as `FIFTHS` does, twice as long."""
    held = CHORALE.encode_grid(np.array([[72, 67, 60, 48]] * 8))
    moving = CHORALE.encode_grid(np.array([*FIFTHS, [74, 69, 57, 50], [74, 70, 57, 49]]))
    splits = {"train": [("held", held), ("moving", moving)], "validation": [("held", held)]}
    write_prepared(tmp_path / "d", tokenizer=CHORALE, corpus="toy", splits=splits)
    return str(tmp_path / "d")


@pytest.fixture
def chorale(tmp_path: Path) -> str:
    return str(write_midi(CHORALE.decode(CHORALE.encode_grid(FIFTHS)), tmp_path / "c.mid"))


def test_a_chorale_is_printed_beside_the_data(data: str, chorale: str, capsys: Output) -> None:
    line = [chorale, "--chorale", "--data", data, "--split", "train"]
    assert study([*line, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["pieces"], found["data"]["pieces"]) == (1, 2)
    assert found["mean"]["parallel_fifths"] == pytest.approx(1 / 3)  # of soprano, tenor, bass
    assert found["data"]["mean"]["parallel_fifths"] == pytest.approx(1 / 4)  # pooled: 1 of 4
    assert 0 < found["mean"]["pitch_class_distance"] < 1
    assert [one["name"] for one in found["each"]] == [chorale]

    assert study(line) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"{chorale} beside train of {data} (2 pieces)"
    assert lines[1].split() == ["here", "data", "ratio"]
    table = {line.split()[0]: line.split()[1:] for line in lines[2:]}
    assert table["soprano_highest"] == ["74", "73", "1.01"]
    assert table["parallel_fifths"] == ["0.3333", "0.25", "1.33"]
    assert len(table["pitch_class_share"]) == len(table["of"][2:]) == 12


def test_files_are_read_like_the_data_they_stand_beside(
    data: str, chorale: str, tmp_path: Path, capsys: Output
) -> None:
    assert study([chorale, "--data", data]) == 2
    assert "add --chorale" in capsys.readouterr().err
    notes = NoteSequence(pitch=[60, 64], velocity=[64] * 2, start=[0, 1], end=[1, 2])
    tokenizer = PerformanceTokenizer()
    pieces = [("a", tokenizer.encode_array(notes))]
    splits = {"train": pieces, "validation": pieces}
    write_prepared(tmp_path / "p", tokenizer=tokenizer, corpus="toy", splits=splits)
    beside = [chorale, "--data", str(tmp_path / "p"), "--split", "train"]
    assert study([*beside, "--chorale"]) == 2
    assert "leave --chorale out" in capsys.readouterr().err
    assert study([*beside, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["data"]["mean"]["notes"] == 2
    assert "parallel_fifths" not in found["mean"]


@pytest.mark.parametrize("seconds", ["nan", "inf", "0", "-1"])
@pytest.mark.parametrize("chorale", [[], ["--chorale"]])
def test_a_length_that_is_no_number_of_seconds_is_refused(
    seconds: str, chorale: list[str], motifs: Path, capsys: Output
) -> None:
    file = str(motifs / "twinkle_melody.mid")
    assert study([file, f"--seconds={seconds}", *chorale]) == 2
    assert "choose a number above 0" in capsys.readouterr().err


def test_a_file_that_lasts_too_long_for_a_chorale_is_named(tmp_path: Path, capsys: Output) -> None:
    starts = np.arange(0, 40_000.0, 3_000.0)
    n = len(starts)
    notes = NoteSequence(pitch=[60] * n, velocity=[64] * n, start=starts, end=starts + 1)
    file = str(write_midi(notes, tmp_path / "long.mid"))
    assert study([file, "--chorale"]) == 3
    assert f"error: {file}: the notes last" in capsys.readouterr().err


def test_the_longest_run_that_a_checkpoint_was_trained_on_is_counted(
    tmp_path: Path, capsys: Output
) -> None:
    pitches = np.random.default_rng(0).integers(40, 80, 40)
    notes = NoteSequence(
        pitch=pitches, velocity=[80] * 40, start=np.arange(40.0), end=np.arange(40) + 0.5
    )
    file = str(write_midi(notes.transposed(3), tmp_path / "a.mid"))
    line = [file, "--checkpoint", str(tmp_path / "c"), "--json"]
    (tmp_path / "c").mkdir()
    for name in ("config.json", "model.safetensors"):
        (tmp_path / "c" / name).write_text("{}")
    assert study(line) == 3
    assert "has no index of its training data" in capsys.readouterr().err
    MemorisationIndex.build([notes], size_bytes=1000).save(tmp_path / "c" / INDEX_FILE)
    assert study(line) == 0
    assert json.loads(capsys.readouterr().out)["mean"]["longest_known_run_notes"] == 40
    assert study(["--data", "d", "--checkpoint", "c"]) == 2
    assert "give some" in capsys.readouterr().err


def chorales(folder: Path) -> Path:
    random = np.random.default_rng(3)
    pieces = [(str(t), random.integers(40, 81, 4 * t)) for t in (7, 11, 13)]
    splits = {"train": pieces, "validation": pieces[:2], "test": pieces[1:]}
    out = folder / "chorales"
    write_prepared(out, tokenizer=CHORALE, corpus="toy", splits=splits)
    return out


def performances(folder: Path) -> Path:
    melody = NoteSequence(
        pitch=[60, 64, 67, 72], velocity=[64] * 4, start=[0, 0.5, 1, 2], end=[0.4, 1, 2, 3]
    )
    tokenizer = PerformanceTokenizer()
    pieces = [("a", tokenizer.encode_array(melody)), ("b", tokenizer.encode_array(melody))]
    out = folder / "performances"
    write_prepared(
        out, tokenizer=tokenizer, corpus="toy", splits={"train": pieces, "validation": pieces}
    )
    return out


def midi_file(folder: Path, name: str, semitones: int = 0) -> tuple[Path, NoteSequence]:
    notes = NoteSequence(
        pitch=[60 + semitones, 64, 67], velocity=[66] * 3, start=[0, 0.5, 1], end=[0.5, 1, 2]
    )
    write_midi(notes, folder / name)
    return folder / name, notes


def test_statistics_of_a_file_are_those_of_its_notes(tmp_path: Path, capsys: Output) -> None:
    path, notes = midi_file(tmp_path, "a.mid")
    assert study([str(path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["pieces"] == 1
    expected = describe(notes)
    assert list(found["mean"]) == list(expected)
    for name, value in expected.items():
        assert found["mean"][name] == pytest.approx(value, abs=1e-6), name


def test_statistics_of_files_are_averaged(tmp_path: Path, capsys: Output) -> None:
    paths = [str(midi_file(tmp_path, f"{n}.mid", n)[0]) for n in (0, 2)]
    assert study([*paths, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["mean"]["pitch_lowest"] == 61
    assert found["sd"]["pitch_lowest"] == 1
    assert [one["pitch_lowest"] for one in found["each"]] == [60, 62]
    assert study([*paths]) == 0
    assert "2 pieces: mean, standard deviation" in capsys.readouterr().out


def test_statistics_can_be_of_the_first_seconds(tmp_path: Path, capsys: Output) -> None:
    path, _ = midi_file(tmp_path, "a.mid")
    assert study([str(path), "--seconds", "0.8", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["mean"]
    assert found["notes"] == 2
    assert found["seconds"] == pytest.approx(0.8)


def test_statistics_of_data_take_so_many_pieces(tmp_path: Path, capsys: Output) -> None:
    data = str(chorales(tmp_path))
    assert study(["--data", data, "--split", "train", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["pieces"] == 3
    where = ["--data", data, "--split", "train", "--pieces", "2"]
    assert study([*where, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["name"] for one in found["each"]] == ["7", "11"]
    assert found["mean"]["sixteenths"] == 9


def test_statistics_of_performances_are_of_their_notes(tmp_path: Path, capsys: Output) -> None:
    assert study(["--data", str(performances(tmp_path)), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["mean"]["notes"] == 4
    assert found["mean"]["seconds"] == pytest.approx(3.0)


def test_statistics_of_a_chorale_file_read_four_voices(tmp_path: Path, capsys: Output) -> None:
    tokenizer = ChoraleTokenizer()
    grid = np.array([[72, 67, 60, 48]] * 4 + [[74, 67, 59, 47]] * 4)
    write_midi(tokenizer.decode(tokenizer.encode_grid(grid)), tmp_path / "c.mid")
    assert study([str(tmp_path / "c.mid"), "--chorale", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["mean"]
    assert found["sixteenths"] == 8
    assert found["soprano_highest"] == 74
    assert found["pair_motions"] == 3


@pytest.mark.parametrize(
    "flags", [[], ["a.mid", "--seconds", "0"], ["--data", "d", "--pieces", "0"]]
)
def test_statistics_refuse_a_wrong_request(flags: list[str], capsys: Output) -> None:
    assert study([*flags]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_statistics_of_a_missing_file_are_one_line(tmp_path: Path, capsys: Output) -> None:
    assert study([str(tmp_path / "no.mid")]) == 3
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
