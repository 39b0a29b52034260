"""Sound: the right loudness, the pedal heard, the font read in place."""

import subprocess
import sys
import wave
from pathlib import Path

import numpy as np
import pytest

from music_transformer.errors import ConfigError, RenderError
from music_transformer.notes import NoteSequence, Pedals
from music_transformer.render import audio
from music_transformer.render.audio import (
    PEAK_DBFS,
    PRIMER_GAP_SECONDS,
    TAIL_SECONDS,
    TARGET_LUFS,
    Sound,
    audio_html,
    default_soundfont,
    integrated_loudness,
    render_audio,
    synthesize,
    with_primer_gap,
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


def decibels(samples: np.ndarray) -> float:
    """The loudest sample, against full scale."""
    return float(20 * np.log10(np.abs(samples).max() / 32767))


@pytest.mark.parametrize("velocity", [20, 64, 127])
def test_soft_and_loud_pieces_come_out_equally_loud_and_unclipped(
    velocity: int, tmp_path: Path
) -> None:
    pitches = list(range(40, 80, 4))
    notes = NoteSequence(
        pitch=pitches, velocity=[velocity] * 10, start=np.arange(10) / 4, end=np.arange(10) / 4 + 2
    )
    render_audio(notes, tmp_path / "a.wav")
    samples, rate = read_wav(tmp_path / "a.wav")
    assert abs(integrated_loudness(samples.astype(np.int16), rate) - TARGET_LUFS) < 0.5
    assert decibels(samples) <= PEAK_DBFS + 0.001


def test_a_piece_too_spiky_for_its_loudness_stops_at_the_peak(tmp_path: Path) -> None:
    pitches = [24, 31, 36, 40, 43, 48]
    notes = NoteSequence(
        pitch=[*pitches, 60, 62, 64],
        velocity=[127] * 6 + [1] * 3,
        start=[0.0] * 6 + [5, 10, 15],
        end=[0.01] * 6 + [10, 15, 20],
    )
    render_audio(notes, tmp_path / "a.wav")
    samples, _ = read_wav(tmp_path / "a.wav")
    assert decibels(samples) <= PEAK_DBFS + 0.001


def test_the_file_is_stereo_and_lasts_until_the_last_note_has_rung_out(tmp_path: Path) -> None:
    render_audio(CHORD, tmp_path / "a.wav")
    samples, rate = read_wav(tmp_path / "a.wav")
    assert (samples.shape[1], rate) == (2, 48_000)
    assert abs(len(samples) / rate - (1 + TAIL_SECONDS)) < 0.1
    assert loudness(samples[: rate // 2]) > 10 * loudness(samples[-rate // 10 :])


def test_a_rest_at_the_end_is_silence_that_lasts(tmp_path: Path) -> None:
    notes = NoteSequence(pitch=[60], velocity=[80], start=[0], end=[0.5], end_time=4.0)
    render_audio(notes, tmp_path / "a.wav")
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
    render_audio(CHORD, tmp_path / "a.wav")
    render_audio(CHORD, tmp_path / "b.wav")
    assert (tmp_path / "a.wav").read_bytes() == (tmp_path / "b.wav").read_bytes()


def test_no_notes_are_silence_and_not_a_division_by_zero(tmp_path: Path) -> None:
    render_audio(NoteSequence(pitch=[], velocity=[], start=[], end=[]), tmp_path / "a.wav")
    samples, _ = read_wav(tmp_path / "a.wav")
    assert not samples.any()


def test_long_sound_is_scaled_in_blocks_as_in_one_piece(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    render_audio(CHORD, tmp_path / "a.wav")
    monkeypatch.setattr(audio, "_BLOCK_FRAMES", 997)
    render_audio(CHORD, tmp_path / "b.wav")
    assert (tmp_path / "a.wav").read_bytes() == (tmp_path / "b.wav").read_bytes()


@pytest.mark.parametrize(("suffix", "smaller"), [("opus", 4), ("mp3", 4), ("flac", 1.5)])
def test_encoded_it_sounds_as_the_wav_does_and_is_smaller(
    tmp_path: Path, suffix: str, smaller: float
) -> None:
    soundfile = pytest.importorskip("soundfile", reason="needs the [audio] extra")
    if suffix.upper() not in {**soundfile.available_formats(), "OPUS": ""}:
        pytest.skip("this libsndfile is too old")
    render_audio(CHORD, tmp_path / "a.wav")
    render_audio(CHORD, tmp_path / f"a.{suffix}")
    wav, rate = read_wav(tmp_path / "a.wav")
    encoded, encoded_rate = soundfile.read(tmp_path / f"a.{suffix}")
    encoded = encoded[: len(wav)]  # MP3 fills its last frame
    assert (encoded_rate, encoded.shape) == (rate, wav.shape)
    assert np.abs(encoded).max() < 1
    error = encoded - wav / 32768
    assert loudness(error) < {"flac": 1e-9, "mp3": 0.1, "opus": 0.05}[suffix] * loudness(
        wav / 32768
    )
    sizes = [(tmp_path / f"a.{kind}").stat().st_size for kind in (suffix, "wav")]
    assert sizes[0] * smaller < sizes[1]


def test_a_library_that_is_too_old_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    soundfile = pytest.importorskip("soundfile", reason="needs the [audio] extra")
    monkeypatch.setattr(soundfile, "available_formats", lambda: {"FLAC": "", "OGG": ""})
    with pytest.raises(RenderError, match=r"\.mp3: the installed libsndfile cannot write it"):
        render_audio(CHORD, tmp_path / "a.mp3")
    assert not list(tmp_path.iterdir())


def test_another_kind_of_sound_is_refused_before_it_is_made(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"a\.aac: end the name .* in \.wav, \.flac, \.mp3, \.opus"
    ):
        render_audio(CHORD, tmp_path / "a.aac")


def test_without_the_encoder_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "soundfile", None)
    with pytest.raises(RenderError, match=r"pip install music-transformer\[audio\]"):
        render_audio(CHORD, tmp_path / "a.opus")
    assert not list(tmp_path.iterdir())


def test_between_primer_and_continuation_nothing_sounds() -> None:
    notes = NoteSequence(
        pitch=[48, 60, 62, 64],
        velocity=[80] * 4,
        start=[0.0, 0.0, 1.0, 2.0],
        end=[3.0, 0.5, 1.5, 3.0],
        pedals=Pedals([0], [0.2], [1.8]),
        end_time=4.0,
    )
    gapped = with_primer_gap(notes, primer_end=1.0)
    assert gapped.pitch.tolist() == [48, 60, 62, 64]
    assert gapped.start.tolist() == [0.0, 0.0, 3.5, 4.5]
    assert gapped.end.tolist() == [1.0, 1.0, 4.3, 5.5]
    assert gapped.end_time == 4.0 + PRIMER_GAP_SECONDS == 6.5
    samples, rate = synthesize(gapped)
    assert loudness(samples[int(3.0 * rate) : int(3.45 * rate)]) < 0.02 * loudness(samples)


@pytest.mark.parametrize(("primer_end", "gap"), [(-1.0, 1.0), (1.0, -1.0), (float("nan"), 1.0)])
def test_a_silence_that_cannot_be_is_refused(primer_end: float, gap: float) -> None:
    with pytest.raises(ConfigError, match="both must be 0 or more"):
        with_primer_gap(CHORD, primer_end=primer_end, gap=gap)


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
        render_audio(CHORD, tmp_path / "a.wav", soundfont=font)
    for content in (b"", b"RIFF", b"this is no font at all"):
        font.write_bytes(content)
        with pytest.raises(RenderError, match=r"font\.sf2: this font cannot be played"):
            render_audio(CHORD, tmp_path / "a.wav", soundfont=font)
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
