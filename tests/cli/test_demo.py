"""`demo`: one `generate` command, run again and again without being asked to overwrite."""

import importlib.util
from pathlib import Path

import pytest

from music_transformer.cli import demo
from music_transformer.cli.demo import find_motif
from music_transformer.cli.main import main
from music_transformer.midi import read_midi


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint that has learnt nothing, to be continued with in a moment."""
    import torch

    from music_transformer.checkpoint import save_checkpoint
    from music_transformer.model import ModelConfig, MusicTransformer
    from music_transformer.representations import PerformanceTokenizer

    torch.manual_seed(0)
    tokenizer = PerformanceTokenizer()
    config = ModelConfig(
        vocab_size=tokenizer.vocab_size,
        n_layers=1,
        d_model=16,
        d_attention=16,
        n_heads=2,
        d_ff=16,
        context=64,
        max_distance=64,
    )
    folder = tmp_path_factory.mktemp("demo") / "tiny"
    save_checkpoint(folder, MusicTransformer(config), tokenizer, training={})
    return folder


def test_it_writes_midi_sound_and_picture_twice_and_says_where(
    tiny: Path, motifs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("midirenderer")
    pytest.importorskip("matplotlib")
    out = tmp_path / "out"
    command = ["demo", "--checkpoint", str(tiny), "--seconds", "2", "--out-dir", str(out)]
    command += ["--device", "cpu"]
    files = [out / f"continuation{suffix}" for suffix in (".mid", ".wav", ".png")]
    contents = []
    for _ in range(2):
        assert main(command) == 0
        captured = capsys.readouterr()
        assert captured.out.splitlines() == [str(file) for file in files]
        assert "music-transformer generate " in captured.err
        contents.append(files[0].read_bytes())
    assert sorted(out.iterdir()) == sorted(files)
    assert contents[0] == contents[1]
    primer, continued = read_midi(motifs / "fur_elise_opening.mid"), read_midi(files[0])
    assert continued.end_time >= primer.end_time + 2 - 0.011


def test_a_motif_is_found_by_name_or_path(motifs: Path, tmp_path: Path) -> None:
    assert find_motif("twinkle_melody").name == "twinkle_melody.mid"
    assert find_motif("twinkle_melody.mid").name == "twinkle_melody.mid"
    mine = tmp_path / "mine.mid"
    mine.write_bytes((motifs / "c_major_scale.mid").read_bytes())
    assert find_motif(str(mine)) == mine


def test_every_motif_that_help_names_is_there(motifs: Path) -> None:
    for file in motifs.glob("*.mid"):
        assert file.stem in demo.EPILOG
        assert find_motif(file.stem).read_bytes() == file.read_bytes()


def test_an_unknown_motif_is_one_line_with_those_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)  # the motifs are found from any folder
    assert main(["demo", "unknown"]) == 3
    [line] = capsys.readouterr().err.splitlines()
    assert "unknown: neither a MIDI file nor a motif" in line
    assert demo.DEFAULT_MOTIF in line


def test_without_the_extras_the_midi_file_is_still_written(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    command = ["demo", "c_major_scale", "--checkpoint", str(tiny), "--seconds", "1"]
    assert main([*command, "--out-dir", str(tmp_path)]) == 0
    captured = capsys.readouterr()
    assert captured.out == f"{tmp_path / 'continuation.mid'}\n"
    assert "no wav: it needs pip install music-transformer[audio]" in captured.err
    assert "no plot: it needs pip install music-transformer[plot]" in captured.err
