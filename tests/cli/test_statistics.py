"""`statistics FILE --data D`: files beside data of their kind."""

import json
from pathlib import Path

import numpy as np
import pytest

from music_transformer.cli.main import main
from music_transformer.datasets.prepared import write_prepared
from music_transformer.evaluation.memorisation import INDEX_FILE, MemorisationIndex
from music_transformer.midi import write_midi
from music_transformer.notes import NoteSequence
from music_transformer.representations import ChoraleTokenizer, PerformanceTokenizer

Output = pytest.CaptureFixture[str]

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
    line = ["statistics", chorale, "--chorale", "--data", data, "--split", "train"]
    assert main([*line, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["pieces"], found["data"]["pieces"]) == (1, 2)
    assert found["mean"]["parallel_fifths"] == pytest.approx(1 / 3)  # of soprano, tenor, bass
    assert found["data"]["mean"]["parallel_fifths"] == pytest.approx(1 / 4)  # pooled: 1 of 4
    assert 0 < found["mean"]["pitch_class_distance"] < 1
    assert [one["name"] for one in found["each"]] == [chorale]

    assert main(line) == 0
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
    assert main(["statistics", chorale, "--data", data]) == 2
    assert "add --chorale" in capsys.readouterr().err
    notes = NoteSequence(pitch=[60, 64], velocity=[64] * 2, start=[0, 1], end=[1, 2])
    tokenizer = PerformanceTokenizer()
    pieces = [("a", tokenizer.encode_array(notes))]
    splits = {"train": pieces, "validation": pieces}
    write_prepared(tmp_path / "p", tokenizer=tokenizer, corpus="toy", splits=splits)
    beside = ["statistics", chorale, "--data", str(tmp_path / "p"), "--split", "train"]
    assert main([*beside, "--chorale"]) == 2
    assert "leave --chorale out" in capsys.readouterr().err
    assert main([*beside, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["data"]["mean"]["notes"] == 2
    assert "parallel_fifths" not in found["mean"]


@pytest.mark.parametrize("seconds", ["nan", "inf", "0", "-1"])
@pytest.mark.parametrize("chorale", [[], ["--chorale"]])
def test_a_length_that_is_no_number_of_seconds_is_refused(
    seconds: str, chorale: list[str], motifs: Path, capsys: Output
) -> None:
    file = str(motifs / "twinkle_melody.mid")
    assert main(["statistics", file, f"--seconds={seconds}", *chorale]) == 2
    message = "inf is outside" if seconds == "inf" else "choose a number above 0"
    assert message in capsys.readouterr().err


def test_a_file_that_lasts_too_long_for_a_chorale_is_named(tmp_path: Path, capsys: Output) -> None:
    starts = np.arange(0, 40_000.0, 3_000.0)
    n = len(starts)
    notes = NoteSequence(pitch=[60] * n, velocity=[64] * n, start=starts, end=starts + 1)
    file = str(write_midi(notes, tmp_path / "long.mid"))
    assert main(["statistics", file, "--chorale"]) == 3
    assert f"error: {file}: the notes last" in capsys.readouterr().err


def test_the_longest_run_that_a_checkpoint_was_trained_on_is_counted(
    tmp_path: Path, capsys: Output
) -> None:
    pitches = np.random.default_rng(0).integers(40, 80, 40)
    notes = NoteSequence(
        pitch=pitches, velocity=[80] * 40, start=np.arange(40.0), end=np.arange(40) + 0.5
    )
    file = str(write_midi(notes.transposed(3), tmp_path / "a.mid"))
    line = ["statistics", file, "--checkpoint", str(tmp_path / "c"), "--json"]
    (tmp_path / "c").mkdir()
    for name in ("config.json", "model.safetensors"):
        (tmp_path / "c" / name).write_text("{}")
    assert main(line) == 3
    assert "has no index of its training data" in capsys.readouterr().err
    MemorisationIndex.build([notes], size_bytes=1000).save(tmp_path / "c" / INDEX_FILE)
    assert main(line) == 0
    assert json.loads(capsys.readouterr().out)["mean"]["longest_known_run_notes"] == 40
    assert main(["statistics", "--data", "d", "--checkpoint", "c"]) == 2
    assert "give some" in capsys.readouterr().err
