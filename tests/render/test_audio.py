"""Sound: the right loudness, the pedal heard, the font read in place."""

import subprocess
import sys
import wave
from pathlib import Path

import numpy as np
import pytest

from music_transformer.errors import RenderError
from music_transformer.notes import NoteSequence, Pedals
from music_transformer.render import audio
from music_transformer.render.audio import (
    TAIL_SECONDS,
    Sound,
    audio_html,
    default_soundfont,
    render_wav,
    synthesize,
)

pytest.importorskip("midirenderer", reason="needs the [audio] extra")

CHORD = NoteSequence(pitch=[60, 64, 67], velocity=[80, 80, 80], start=[0, 0, 0], end=[1, 1, 1])


def read_wav(path: Path) -> tuple[np.ndarray, int]:
    """(N, channels) samples as float64, and the rate."""
    with wave.open(str(path)) as file:
        assert file.getsampwidth() == 2
        samples = np.frombuffer(file.readframes(file.getnframes()), dtype="<i2")
        return samples.reshape(-1, file.getnchannels()).astype(np.float64), file.getframerate()


def loudness(samples: np.ndarray) -> float:
    """Root mean square."""
    return float(np.sqrt(np.mean(samples.astype(np.float64) ** 2)))


@pytest.mark.parametrize("velocity", [20, 64, 127])
def test_the_loudest_sample_lies_one_decibel_below_full_scale(
    velocity: int, tmp_path: Path
) -> None:
    pitches = list(range(40, 80, 4))
    notes = NoteSequence(pitch=pitches, velocity=[velocity] * 10, start=[0.0] * 10, end=[0.5] * 10)
    render_wav(notes, tmp_path / "a.wav")
    samples, _ = read_wav(tmp_path / "a.wav")
    assert abs(20 * np.log10(np.abs(samples).max() / 32767) + 1) < 0.001


def test_the_file_is_stereo_and_lasts_until_the_last_note_has_rung_out(tmp_path: Path) -> None:
    render_wav(CHORD, tmp_path / "a.wav")
    samples, rate = read_wav(tmp_path / "a.wav")
    assert (samples.shape[1], rate) == (2, 48_000)
    assert abs(len(samples) / rate - (1 + TAIL_SECONDS)) < 0.1
    assert loudness(samples[: rate // 2]) > 10 * loudness(samples[-rate // 10 :])


def test_a_rest_at_the_end_is_silence_that_lasts(tmp_path: Path) -> None:
    notes = NoteSequence(pitch=[60], velocity=[80], start=[0], end=[0.5], end_time=4.0)
    render_wav(notes, tmp_path / "a.wav")
    samples, rate = read_wav(tmp_path / "a.wav")
    assert abs(len(samples) / rate - (4 + TAIL_SECONDS)) < 0.1


def test_a_note_held_by_the_pedal_sounds_on_when_the_key_is_up() -> None:
    def sound(pedals: Pedals) -> Sound:
        return synthesize(
            NoteSequence(
                pitch=[60], velocity=[80], start=[0.0], end=[0.2], end_time=3.0, pedals=pedals
            )
        )

    short, held = sound(Pedals()), sound(Pedals([0], [0.1], [3.0]))
    second = slice(short.sample_rate, 2 * short.sample_rate)
    assert loudness(held.samples[second]) > 10 * loudness(short.samples[second])


def test_the_same_notes_give_the_same_file(tmp_path: Path) -> None:
    render_wav(CHORD, tmp_path / "a.wav")
    render_wav(CHORD, tmp_path / "b.wav")
    assert (tmp_path / "a.wav").read_bytes() == (tmp_path / "b.wav").read_bytes()


def test_no_notes_are_silence_and_not_a_division_by_zero(tmp_path: Path) -> None:
    render_wav(NoteSequence(pitch=[], velocity=[], start=[], end=[]), tmp_path / "a.wav")
    samples, _ = read_wav(tmp_path / "a.wav")
    assert not samples.any()


def test_long_sound_is_scaled_in_blocks_as_in_one_piece(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    render_wav(CHORD, tmp_path / "a.wav")
    monkeypatch.setattr(audio, "_BLOCK_FRAMES", 997)
    render_wav(CHORD, tmp_path / "b.wav")
    assert (tmp_path / "a.wav").read_bytes() == (tmp_path / "b.wav").read_bytes()


def test_the_default_font_is_found_without_importing_pretty_midi() -> None:
    code = (
        "import sys\n"
        "from music_transformer.render.audio import default_soundfont\n"
        "print(default_soundfont().name, 'pretty_midi' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["TimGM6mb.sf2", "False"]
    assert "pretty_midi" in default_soundfont().parts


def test_without_a_font_the_error_names_the_flag(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audio, "_FONT_NAME", "NoSuchFont.sf2")
    with pytest.raises(RenderError, match=r"no sound font: NoSuchFont\.sf2 .* --soundfont"):
        synthesize(CHORD)


def test_without_the_extra_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "midirenderer", None)
    with pytest.raises(RenderError, match=r"pip install music-transformer\[audio\]"):
        synthesize(CHORD)


def test_a_font_that_is_missing_or_none_is_named_and_nothing_is_written(tmp_path: Path) -> None:
    font = tmp_path / "font.sf2"
    with pytest.raises(RenderError, match=r"font\.sf2: no such file"):
        render_wav(CHORD, tmp_path / "a.wav", soundfont=font)
    for content in (b"", b"RIFF", b"this is no font at all"):
        font.write_bytes(content)
        with pytest.raises(RenderError, match=r"font\.sf2: this font cannot be played"):
            render_wav(CHORD, tmp_path / "a.wav", soundfont=font)
    assert [path.name for path in tmp_path.iterdir()] == ["font.sf2"]


def test_a_cut_font_is_an_error_and_not_a_crash(tmp_path: Path) -> None:
    font = tmp_path / "cut.sf2"
    whole = default_soundfont().read_bytes()
    font.write_bytes(whole[: len(whole) * 2 // 3])
    with pytest.raises(RenderError, match=r"cut\.sf2"):
        synthesize(CHORD, soundfont=font)


def test_notes_in_a_notebook_have_a_player_when_they_are_short() -> None:
    assert audio_html(CHORD).startswith('<br><audio controls src="data:audio/wav;base64,UklGR')
    assert audio_html(CHORD.stretched(1000.0)) == ""


def test_notes_got_from_the_package_have_the_player() -> None:
    import music_transformer

    notes = music_transformer.NoteSequence(pitch=[60], velocity=[80], start=[0], end=[0.1])
    assert "<audio" in notes._repr_html_()
