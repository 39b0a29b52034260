"""`plot`: a path on stdout, a picture beside it, or one line and nothing."""

from pathlib import Path

import pytest

from music_transformer.checkpoint import save_checkpoint
from music_transformer.cli.main import main
from music_transformer.model import ModelConfig, MusicTransformer
from music_transformer.representations import PerformanceTokenizer

pytest.importorskip("matplotlib", reason="needs the [plot] extra")


@pytest.mark.parametrize(
    ("suffix", "begins"), [(".png", b"\x89PNG"), (".svg", b"<?xml"), (".pdf", b"%PDF")]
)
def test_it_writes_a_picture_and_prints_its_path(
    suffix: str, begins: bytes, motifs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / f"a{suffix}"
    file = str(motifs / "fur_elise_opening.mid")
    assert main(["plot", file, "--out", str(out), "--primer-end", "5"]) == 0
    assert out.read_bytes().startswith(begins)
    assert capsys.readouterr().out == f"{out}\n"


def test_it_overwrites_only_with_force(motifs: Path, tmp_path: Path) -> None:
    out = tmp_path / "a.png"
    out.write_bytes(b"mine")
    command = ["plot", str(motifs / "c_major_scale.mid"), "--out", str(out)]
    assert main(command) == 2
    assert out.read_bytes() == b"mine"
    assert main([*command, "--force"]) == 0


def test_a_kind_of_picture_it_does_not_know_is_refused_before_reading(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plot", str(tmp_path / "no.mid"), "--out", str(tmp_path / "a.bmp")]) == 2
    assert "ending in .png, .svg or .pdf" in capsys.readouterr().err


def test_a_folder_or_a_missing_file_is_one_line_and_no_picture(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "a.png"
    for file in (tmp_path, tmp_path / "no.mid"):
        assert main(["plot", str(file), "--out", str(out)]) == 3
        captured = capsys.readouterr().err
        assert captured.startswith(f"music-transformer: error: {file}")
        assert captured.count("\n") == 1
    assert not out.exists()


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder of a model of two layers and two heads that has learnt nothing."""
    tokenizer = PerformanceTokenizer()
    config = ModelConfig(
        vocab_size=tokenizer.vocab_size, n_layers=2, d_model=16, n_heads=2, d_ff=16, context=64
    )
    folder = tmp_path_factory.mktemp("checkpoints") / "tiny"
    return str(save_checkpoint(folder, MusicTransformer(config), tokenizer, training={}))


@pytest.mark.parametrize(
    "flags",
    [
        ["--attention"],
        ["--attention", "--query", "3s", "--layer", "0", "--heads", "1", "--primer-end", "2"],
        ["--attention", "--query", "-2", "--heads", "0,1"],
        ["--attention-map", "--query", "5"],
    ],
    ids=str,
)
def test_it_draws_what_a_model_attends_to(
    flags: list[str],
    checkpoint: str,
    motifs: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "a.png"
    file = str(motifs / "fur_elise_opening.mid")
    assert main(["plot", file, "--out", str(out), "--checkpoint", checkpoint, *flags]) == 0
    assert out.read_bytes().startswith(b"\x89PNG")
    assert capsys.readouterr().out == f"{out}\n"


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (["--attention"], "need a --checkpoint"),
        (["--checkpoint", "TINY"], "a --checkpoint one of them"),
        (["--attention", "--checkpoint", "TINY", "--layer", "2"], "layers 0 to 1"),
        (["--attention", "--checkpoint", "TINY", "--heads", "0,x"], "--heads 0,x"),
        (["--attention", "--checkpoint", "TINY", "--heads", "2"], "heads 0 to 1"),
        (["--attention", "--checkpoint", "TINY", "--query", "1000"], "note 1000"),
        (["--attention", "--checkpoint", "TINY", "--query", "soon"], "--query soon"),
        (["--attention", "--checkpoint", "TINY", "--query", "999s"], "the music is over"),
    ],
)
def test_a_request_that_makes_no_sense_is_one_line_and_no_picture(
    flags: list[str],
    complaint: str,
    checkpoint: str,
    motifs: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "a.png"
    flags = [checkpoint if flag == "TINY" else flag for flag in flags]
    assert main(["plot", str(motifs / "c_major_scale.mid"), "--out", str(out), *flags]) == 2
    shown = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("device")]
    assert len(shown) == 1
    assert complaint in shown[0]
    assert not out.exists()


@pytest.mark.parametrize(
    "name", ["$$.mid", "x$^{.mid", "\u4e2d\u6587.mid", "a\nb.mid", "bytes\udcff.mid"]
)
def test_a_file_may_have_any_name(
    name: str, motifs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / name
    try:
        file.write_bytes((motifs / "c_major_scale.mid").read_bytes())
    except OSError:
        pytest.skip("this system has no such names")
    assert main(["plot", str(file), "--out", str(tmp_path / "a.png")]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("second", ["nan", "inf", "-1"])
def test_a_primer_that_ends_nowhere_is_refused(
    second: str, motifs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "a.png"
    file = str(motifs / "c_major_scale.mid")
    assert main(["plot", file, "--out", str(out), f"--primer-end={second}"]) == 2
    message = "inf is outside" if second == "inf" else "choose 0 seconds or more"
    assert message in capsys.readouterr().err
    assert not out.exists()
