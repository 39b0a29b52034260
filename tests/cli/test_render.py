"""`render`: a path on stdout, a WAV beside it, or one line and nothing."""

from pathlib import Path

import pytest

from music_transformer.cli.main import main
from music_transformer.midi import write_midi
from music_transformer.notes import NoteSequence
from music_transformer.render.audio import synthesize

pytest.importorskip("midirenderer", reason="needs the [audio] extra")


def test_it_writes_a_wav_and_prints_its_path(
    motifs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "sounds" / "a.wav"
    assert main(["render", str(motifs / "c_major_scale.mid"), "--out", str(out)]) == 0
    assert out.read_bytes().startswith(b"RIFF")
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == (f"{out}\n", "")


def test_it_overwrites_only_with_force(
    motifs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "a.wav"
    out.write_bytes(b"mine")
    command = ["render", str(motifs / "c_major_scale.mid"), "--out", str(out)]
    assert main(command) == 2
    assert "--force" in capsys.readouterr().err
    assert out.read_bytes() == b"mine"
    assert main([*command, "--force"]) == 0
    assert out.read_bytes() != b"mine"


def test_a_name_that_is_no_sound_is_refused(
    motifs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "a.aac"
    assert main(["render", str(motifs / "c_major_scale.mid"), "--out", str(out)]) == 2
    assert "end the name of a sound in .wav, .flac, .mp3, .opus" in capsys.readouterr().err


def test_it_writes_opus_with_a_silence_after_the_primer(motifs: Path, tmp_path: Path) -> None:
    soundfile = pytest.importorskip("soundfile", reason="needs the [audio] extra")
    lengths = []
    for gap in ([], ["--primer-end", "1"], ["--primer-end", "1", "--primer-gap", "1"]):
        out = tmp_path / f"{len(gap)}.opus"
        assert main(["render", str(motifs / "c_major_scale.mid"), "--out", str(out), *gap]) == 0
        assert out.read_bytes().startswith(b"OggS")
        lengths.append(soundfile.info(out).duration)
    assert [round(length - lengths[0], 1) for length in lengths] == [0, 2.5, 1]


def test_a_gap_needs_to_know_where(
    motifs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["render", str(motifs / "c_major_scale.mid"), "--out", str(tmp_path / "a.wav")]
    assert main([*command, "--primer-gap", "2.5"]) == 2
    assert "--primer-end" in capsys.readouterr().err


@pytest.mark.parametrize("content", [None, b"", b"\x89PNG\r\n\x1a\n", b"MThd"])
def test_a_missing_or_broken_input_is_one_line_and_no_file(
    content: bytes | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, out = tmp_path / "in.mid", tmp_path / "a.wav"
    if content is not None:
        file.write_bytes(content)
    assert main(["render", str(file), "--out", str(out)]) == 3
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"music-transformer: error: {file}")
    assert captured.err.count("\n") == 1
    assert not out.exists()


def test_a_missing_font_is_one_line_and_no_file(
    motifs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, font = tmp_path / "a.wav", tmp_path / "none.sf2"
    file = str(motifs / "c_major_scale.mid")
    assert main(["render", file, "--out", str(out), "--soundfont", str(font)]) == 3
    captured = capsys.readouterr().err
    assert "none.sf2" in captured
    assert captured.count("\n") == 1
    assert not out.exists()


def test_pitches_that_the_default_font_lacks_are_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    heard = []
    for pitch in (108, 109):
        notes = NoteSequence(pitch=[pitch], velocity=[90], start=[0], end=[0.5])
        file = str(write_midi(notes, tmp_path / f"{pitch}.mid"))
        assert main(["render", file, "--out", str(tmp_path / f"{pitch}.wav")]) == 0
        heard.append(bool(synthesize(notes).samples.any()))
        said = "cannot play C#8: 1 notes are silent" in capsys.readouterr().err
        assert said == (pitch == 109)
    assert heard == [True, False]
