"""`accompany` with a model of accompaniments: two tracks, the melody as it was."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from music_transformer.checkpoint import save_checkpoint
from music_transformer.cli.main import main
from music_transformer.midi import read_midi, write_midi
from music_transformer.model import AccompanimentConfig, AccompanimentTransformer
from music_transformer.notes import NoteSequence
from music_transformer.representations import AccompanimentTokenizer

Command = Callable[..., list[str]]
Output = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that has learned nothing."""
    config = AccompanimentConfig(
        n_layers=1,
        d_model=16,
        n_heads=2,
        d_ff=16,
        n_encoder_layers=1,
        d_encoder=8,
        d_encoder_ff=8,
        d_cross=8,
        context=64,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = AccompanimentTransformer(config)
    folder = tmp_path_factory.mktemp("checkpoints") / "duets"
    return save_checkpoint(folder, model, AccompanimentTokenizer(), training={})


@pytest.fixture
def command(checkpoint: Path, motifs: Path) -> Command:
    """Give the function that makes a command line."""

    def make(out: Path, *flags: object, file: Path | None = None) -> list[str]:
        melody = motifs / "twinkle_melody.mid" if file is None else file
        line = ["accompany", melody, "--checkpoint", checkpoint, "--device", "cpu", "--out", out]
        return [str(part) for part in (*line, *flags)]

    return make


def same_notes(first: NoteSequence, second: NoteSequence) -> bool:
    return all(
        np.array_equal(getattr(first, name), getattr(second, name))
        for name in ("pitch", "velocity", "start", "end")
    )


def test_the_file_keeps_every_note_of_the_melody_on_a_track_of_its_own(
    command: Command, motifs: Path, tmp_path: Path, capsys: Output
) -> None:
    out = tmp_path / "a.mid"
    assert main(command(out)) == 0
    captured = capsys.readouterr()
    assert captured.out.splitlines() == [str(out)]
    written, given = read_midi(out), read_midi(motifs / "twinkle_melody.mid")
    rows = written.track == 0
    assert same_notes(given, _rows(written, rows))
    assert set(written.track.tolist()) == {0, 1}


def test_either_part_can_be_written_alone(command: Command, motifs: Path, tmp_path: Path) -> None:
    for parts in ("both", "melody", "accompaniment"):
        assert main(command(tmp_path / f"{parts}.mid", "--parts", parts, "--seed", 3)) == 0
    both = read_midi(tmp_path / "both.mid")
    melody = read_midi(tmp_path / "melody.mid")
    piano = read_midi(tmp_path / "accompaniment.mid")
    assert same_notes(melody, read_midi(motifs / "twinkle_melody.mid"))
    assert same_notes(piano, _rows(both, both.track == 1))
    assert set(piano.track.tolist()) == {0}


def test_several_samples_are_candidates_by_rank(
    command: Command, tmp_path: Path, capsys: Output
) -> None:
    assert main(command(tmp_path / "a.mid", "--samples", 2, "--json")) == 0
    found = json.loads(capsys.readouterr().out)
    assert [sample["report"]["rank"] for sample in found["samples"]] == [1, 2]
    assert [set(one) for one in found["ranking"]] == [{"rank", "candidate", "nll"}] * 2
    assert (tmp_path / "a-1.mid").is_file()
    assert (tmp_path / "a-2.mid").is_file()


def test_what_makes_no_sense_is_one_line_and_no_file(
    command: Command, tmp_path: Path, capsys: Output
) -> None:
    out = tmp_path / "out" / "a.mid"
    assert main(command(out, "--keep-key")) == 2
    assert "--keep-key is for chorales" in capsys.readouterr().err
    low = tmp_path / "low.mid"
    write_midi(
        NoteSequence(pitch=[30, 34], velocity=[70] * 2, start=[0.0, 0.0], end=[1.0, 1.0]), low
    )
    assert main(command(out, file=low)) == 3
    assert "low.mid: more than one note sounds at a time" in capsys.readouterr().err
    assert not out.exists()


def _rows(notes: NoteSequence, rows: np.ndarray) -> NoteSequence:
    return NoteSequence(
        pitch=notes.pitch[rows],
        velocity=notes.velocity[rows],
        start=notes.start[rows],
        end=notes.end[rows],
    )
