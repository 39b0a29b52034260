"""`plot`: a path on stdout, a picture beside it, or one line and nothing."""

from pathlib import Path

import pytest

from music_transformer.cli.main import main

pytest.importorskip("matplotlib", reason="needs the [plot] extra")


@pytest.mark.parametrize(
    ("suffix", "begins"), [(".png", b"\x89PNG"), (".svg", b"<?xml"), (".pdf", b"%PDF")]
)
def test_it_writes_a_picture_and_prints_its_path(
    suffix: str,
    begins: bytes,
    motifs: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
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
