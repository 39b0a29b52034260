"""`accompany`: the melody's file in, four voices out, or one line on stderr and nothing."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from music_transformer.checkpoint import save_checkpoint
from music_transformer.cli.main import main
from music_transformer.midi import read_midi, write_midi
from music_transformer.model import ModelConfig, MusicTransformer
from music_transformer.notes import NoteSequence, Tempos
from music_transformer.representations import ChoraleTokenizer, PerformanceTokenizer
from music_transformer.sampling import Sampling

Command = Callable[..., list[str]]


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the checkpoints `piano` and `bach`, which have learnt nothing."""
    folder = tmp_path_factory.mktemp("checkpoints")
    for name, tokenizer, labels in (
        ("piano", PerformanceTokenizer(), 0),
        ("bach", ChoraleTokenizer(), 4),
    ):
        with torch.random.fork_rng():
            torch.manual_seed(0)
            model = MusicTransformer(
                ModelConfig(
                    vocab_size=tokenizer.vocab_size,
                    n_layers=1,
                    d_model=16,
                    n_heads=2,
                    d_ff=16,
                    context=64,
                    voice_labels=labels,
                )
            )
        save_checkpoint(folder / name, model, tokenizer, training={})
    own = Sampling(temperature=1.6, top_p=1.0)
    save_checkpoint(folder / "own-bach", model, tokenizer, training={}, sampling=own)
    return folder


@pytest.fixture
def melody(tmp_path: Path) -> Path:
    """Four quarters of 0.6 s, the first two repeated."""
    path = tmp_path / "given" / "melody.mid"
    path.parent.mkdir()
    notes = NoteSequence(
        pitch=[64, 64, 65, 62],
        velocity=[70] * 4,
        start=[0.0, 0.6, 1.2, 1.8],
        end=[0.6, 1.2, 1.8, 2.4],
        tempos=Tempos([0.0], [0.6]),
    )
    return write_midi(notes, path)


@pytest.fixture
def command(checkpoints: Path, melody: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Give the function that makes a command line."""
    monkeypatch.setenv("MUSIC_TRANSFORMER_CHECKPOINTS", str(checkpoints))

    def make(out: Path, *flags: object, checkpoint: str = "bach", file: Path = melody) -> list[str]:
        line = ["accompany", file, "--checkpoint", checkpoint, "--device", "cpu", "--out", out]
        return [str(part) for part in (*line, "--candidates", 3, *flags)]

    return make


def test_a_checkpoint_says_how_it_is_drawn_from_and_a_flag_wins(
    command: Command, tmp_path: Path
) -> None:
    def made(checkpoint: str, *flags: object) -> bytes:
        out = tmp_path / "a.mid"
        assert main(command(out, "--force", *flags, checkpoint=checkpoint)) == 0
        return out.read_bytes()

    defaults = made("bach")
    own = made("own-bach")
    assert own == made("bach", "--temperature", 1.6, "--top-p", 1) != defaults
    assert made("own-bach", "--temperature", 1, "--top-p", 0.95) == defaults


def test_it_writes_the_melody_with_three_voices_under_it(
    command: Command, melody: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out" / "a.mid"
    assert main(command(out)) == 0
    captured = capsys.readouterr()
    assert captured.out.splitlines() == [str(out)]
    assert "is kept" in captured.err
    given, written = read_midi(melody), read_midi(out)
    own = written.track == 0
    for name in ("pitch", "start", "end", "velocity"):
        assert np.array_equal(getattr(written, name)[own], getattr(given, name))
    assert set(written.track) == {0, 1, 2, 3}
    assert written.tempos.seconds_per_quarter == pytest.approx([0.6])
    assert sorted(out.parent.iterdir()) == [out]


def test_sound_and_picture_come_with_it(command: Command, tmp_path: Path) -> None:
    pytest.importorskip("midirenderer")
    pytest.importorskip("matplotlib")
    out = tmp_path / "out" / "a.mid"
    assert main(command(out, "--wav", "--plot")) == 0
    assert out.with_suffix(".wav").read_bytes().startswith(b"RIFF")
    assert out.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    assert len(list(out.parent.iterdir())) == 3


def test_the_same_command_writes_the_same_file(command: Command, tmp_path: Path) -> None:
    for name, seed in (("a.mid", 1), ("b.mid", 1), ("c.mid", 2)):
        assert main(command(tmp_path / name, "--seed", seed)) == 0
    a, b, c = ((tmp_path / name).read_bytes() for name in ("a.mid", "b.mid", "c.mid"))
    assert a == b
    assert a != c


def test_the_best_samples_are_written_in_the_order_of_the_ranking(
    command: Command, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command(tmp_path / "a.mid", "--samples", 2, "--json")) == 0
    captured = capsys.readouterr()
    [line] = captured.out.splitlines()
    found = json.loads(line)
    assert [each["rank"] for each in found["ranking"]] == [1, 2, 3]
    assert [each["nll"] for each in found["ranking"]] == sorted(e["nll"] for e in found["ranking"])
    assert {each["candidate"] for each in found["ranking"]} == {0, 1, 2}
    assert [sample["midi"] for sample in found["samples"]] == [
        str(tmp_path / f"a-{number}.mid") for number in (1, 2)
    ]
    for sample, ranked in zip(found["samples"], found["ranking"], strict=False):
        assert sample["report"]["sample"] == ranked["candidate"]
        assert Path(sample["midi"]).exists()
    assert not (tmp_path / "a-3.mid").exists()


def test_a_low_melody_is_warned_of_and_written_where_it_was(
    command: Command, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    low = write_midi(
        read_midi(tmp_path / "given" / "melody.mid").transposed(-12), tmp_path / "l.mid"
    )
    for name, flags, words in (
        ("a.mid", [], "10 semitones higher"),
        ("b.mid", ["--keep-key"], "expect weaker harmony"),
    ):
        assert main(command(tmp_path / name, *flags, file=low)) == 0
        assert words in capsys.readouterr().err
        written = read_midi(tmp_path / name)
        assert written.pitch[written.track == 0].tolist() == [52, 52, 53, 50]


def test_a_performance_checkpoint_is_refused_in_one_line(
    command: Command, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command(tmp_path / "a.mid", checkpoint="piano")) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert "this checkpoint does not accompany" in line
    assert not (tmp_path / "a.mid").exists()


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--samples", 4], "--candidates 3"),
        (["--samples", 0], "samples=0; choose 1"),
        (["--candidates", 0], "candidates=0"),
        (["--temperature", -1], "temperature=-1"),
        (["--context", 1], "context=1"),
    ],
)
def test_what_makes_no_sense_is_exit_2(
    command: Command,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    flags: list[object],
    words: str,
) -> None:
    assert main(command(tmp_path / "a.mid", *flags)) == 2
    assert words in capsys.readouterr().err
    assert not list(tmp_path.glob("*.mid"))


def test_an_existing_file_is_kept_unless_forced(command: Command, tmp_path: Path) -> None:
    out = tmp_path / "a.mid"
    out.write_bytes(b"mine")
    assert main(command(out)) == 2
    assert out.read_bytes() == b"mine"
    assert main(command(out, "--force")) == 0
    assert out.read_bytes().startswith(b"MThd")


def test_a_missing_melody_is_exit_3(command: Command, tmp_path: Path) -> None:
    assert main(command(tmp_path / "a.mid", file=tmp_path / "none.mid")) == 3
