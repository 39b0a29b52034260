"""Notes to sound, through a SoundFont, as WAV, FLAC, MP3 or Opus; all pieces are equally loud.

midirenderer ([audio]) plays the notes, a long piece in stretches of five minutes that are added up
in a temporary file (690 MB an hour), so that memory does not grow. FLAC, MP3 and Opus are encoded
by libsndfile (soundfile, also in [audio]): the Opus of midirenderer 0.1.3 decodes to noise.

The default font is the TimGM6mb.sf2 that pretty_midi installs. It is GPL-2: it is read where it
lies and never copied, and found without importing pretty_midi.

Loudness is that of ITU-R BS.1770-4, but for its filters: they are applied by FFT, stretch by
stretch, which numpy can do fast; the difference is below 0.01 LU.
"""

import base64
import importlib.util
import io
import math
import os
import tempfile
import wave
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from music_transformer.errors import ConfigError, RenderError
from music_transformer.files import atomic_path, checkout, errors_name
from music_transformer.midi.write import write_midi
from music_transformer.notes import NoteSequence

#: Suffix, and format and subtype of libsndfile.
_ENCODED = {
    ".flac": ("FLAC", "PCM_16"),
    ".mp3": ("MP3", "MPEG_LAYER_III"),
    ".opus": ("OGG", "OPUS"),
}
SUFFIXES = (".wav", *_ENCODED)
#: The silence between primer and continuation in the paper's listening test.
PRIMER_GAP_SECONDS = 2.5
#: What is heard after the last event: a piano string rings on when the hammer has gone.
TAIL_SECONDS = 1.5

#: The longest sound, unless the caller asks for more: more is a damaged file rather than music.
MAX_SOUND_SECONDS = 3600.0

#: The highest pitch of the default font's piano; what lies above is silent.
DEFAULT_FONT_HIGHEST = 108

_FONT_NAME = "TimGM6mb.sf2"
#: What `--soundfont piano` means, where `download piano-soundfont` puts it and where Debian does.
PIANO_FONT = "piano"
PIANO_FONT_PATH = Path("data") / "piano.sf2"
_SYSTEM_FONT = Path("/usr/share/sounds/sf2/FluidR3_GM.sf2")
_SAMPLE_RATE = 48_000
_BLOCK_FRAMES = 1 << 16
_STRETCH_SECONDS = 300
_RING_SECONDS = 60.0  # of a note at most; the default font's lowest has died away after 22
_STRETCH_TAIL_SECONDS = 5.0
_PLAYER_SECONDS = 120.0


class Sound(NamedTuple):
    """Samples (N, channels) int16 and the rate they are played at, in Hz."""

    samples: np.ndarray
    sample_rate: int


def render_audio(
    notes: NoteSequence,
    path: str | os.PathLike[str],
    *,
    soundfont: str | os.PathLike[str] | None = None,
    max_seconds: float = MAX_SOUND_SECONDS,
) -> None:
    """Write the sound of `notes` to `path`, whole or not at all; its suffix names the format.

    The pedal is applied, and all tracks are played as piano, by a font of `find_soundfont`. Longer
    sound than `max_seconds` is refused before any work.

    Raises:
        RenderError: [audio] is not installed, the font is missing or broken, the sound too long.
        ConfigError: another suffix.
    """
    check_sound_name(path)
    sound = synthesize(notes, soundfont=soundfont, max_seconds=max_seconds)
    with atomic_path(path) as temporary:
        if temporary.suffix.lower() in _ENCODED:
            _write_encoded(temporary, sound)
        else:
            with temporary.open("wb") as file:
                _write_frames(file, *sound, gain(*sound))


def check_sound_name(path: str | os.PathLike[str]) -> None:
    """Refuse, by ConfigError, a file name that ends in none of `SUFFIXES`."""
    if Path(path).suffix.lower() not in SUFFIXES:
        raise ConfigError(f"{path}: end the name of a sound in {', '.join(SUFFIXES)}.")


def with_primer_gap(
    notes: NoteSequence, *, primer_end: float, gap: float = PRIMER_GAP_SECONDS
) -> NoteSequence:
    """The notes with a silence between primer and continuation, as the paper's listeners had it.

    What starts at `primer_end` or later comes `gap` seconds later. What began before ends there,
    the pedal applied: it would fill the silence. ConfigError for a time below 0.
    """
    if not (np.isfinite([primer_end, gap]).all() and primer_end >= 0 and gap >= 0):
        raise ConfigError(f"a silence of {gap:g} s at {primer_end:g} s: both must be 0 or more.")
    notes = notes.sustained()
    primer = notes.start < primer_end - 1e-9  # (N,) times on a grid carry rounding errors
    return NoteSequence(
        pitch=notes.pitch,
        velocity=notes.velocity,
        start=np.where(primer, notes.start, notes.start + gap),
        end=np.where(primer, np.minimum(notes.end, primer_end), notes.end + gap),
        channel=notes.channel,
        track=notes.track,
        end_time=notes.end_time + gap,
    )


def check_sound_length(seconds: float, max_seconds: float = MAX_SOUND_SECONDS) -> None:
    """Refuse, by RenderError, sound that is longer than `max_seconds`; also before other work."""
    if seconds > max_seconds:
        raise RenderError(
            f"{seconds:,.0f} s of sound are more than {max_seconds:,.0f}: cut the silence, or take "
            "a part (render --from, --to), or raise the limit (render --max-seconds)."
        )


def synthesize(
    notes: NoteSequence,
    *,
    soundfont: str | os.PathLike[str] | None = None,
    max_seconds: float = MAX_SOUND_SECONDS,
) -> Sound:
    """The sound of `notes` as the synthesizer gives it, not yet scaled; errors as `render_audio`.

    The samples of a long piece are in a temporary file, which goes with them.
    """
    check_sound_length(notes.end_time, max_seconds)
    font = find_soundfont(soundfont)
    try:
        font_bytes = font.read_bytes()
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise RenderError(f"{font}: {reason}; give an .sf2 file with --soundfont.") from error
    heard = notes.sustained()
    heard = heard.replaced(end=np.minimum(heard.end, heard.start + _RING_SECONDS))
    if heard.end_time <= _STRETCH_SECONDS:
        return Sound(_play(heard, heard.end_time + TAIL_SECONDS, font, font_bytes), _SAMPLE_RATE)
    with errors_name(Path(tempfile.gettempdir())), tempfile.TemporaryFile() as file:
        for block in _stretches(heard, font, font_bytes):
            file.write(block.astype("<i2").tobytes())
        file.flush()
        return Sound(np.memmap(file, "<i2", "r").reshape(-1, 2), _SAMPLE_RATE)


def _stretches(notes: NoteSequence, font: Path, font_bytes: bytes) -> Iterator[np.ndarray]:
    """The samples of a long piece, stretch by stretch: what began before is added to each."""
    missing = round((notes.end_time + TAIL_SECONDS) * _SAMPLE_RATE)
    ringing = np.zeros((0, 2), np.int32)
    for first in range(0, int(notes.end_time) + 1, _STRETCH_SECONDS):
        rows = slice(*np.searchsorted(notes.start, [first, first + _STRETCH_SECONDS]))
        sound = np.zeros((0, 2), np.int16)
        if rows.start < rows.stop:
            part = notes.selected(np.arange(rows.start, rows.stop))
            part = part.replaced(start=part.start - first, end=part.end - first)
            sound = _play(part, float(part.end.max()) + _STRETCH_TAIL_SECONDS, font, font_bytes)
        frames = max(_STRETCH_SECONDS * _SAMPLE_RATE, len(sound), len(ringing))
        mixed = np.zeros((frames, 2), np.int32)
        mixed[: len(sound)] += sound
        mixed[: len(ringing)] += ringing
        mixed, ringing = np.split(mixed, [_STRETCH_SECONDS * _SAMPLE_RATE])
        yield mixed[:missing].clip(-32768, 32767)
        missing -= len(mixed)
    if missing > 0:
        yield np.pad(ringing, ((0, missing), (0, 0)))[:missing].clip(-32768, 32767)


def _play(notes: NoteSequence, seconds: float, font: Path, font_bytes: bytes) -> np.ndarray:
    """(N, 2) int16 samples of notes without pedals, to the end of `seconds`."""
    try:
        import midirenderer
    except ImportError as error:
        raise RenderError(
            "sound needs the [audio] extra: pip install music-transformer[audio]"
        ) from error
    try:
        sound = midirenderer.render_wave_from(font_bytes, _midi_bytes(notes, seconds))
    except BaseException as error:
        # A font of whole chunks and broken contents is a panic, which no `except Exception` sees.
        if isinstance(error, RuntimeError | ValueError) or type(error).__name__ == "PanicException":
            raise RenderError(f"{font}: this font cannot be played ({error}).") from error
        raise
    with wave.open(io.BytesIO(sound)) as file:
        assert (file.getframerate(), file.getnchannels()) == (_SAMPLE_RATE, 2)
        return np.frombuffer(file.readframes(file.getnframes()), dtype="<i2").reshape(-1, 2)


def audio_html(notes: NoteSequence) -> str:
    """An HTML player for a notebook; nothing for a long piece, or where there is no way to play.

    The sound is inside the page (mono, 24 kHz: 3 MB a minute).
    """
    if notes.end_time > _PLAYER_SECONDS or importlib.util.find_spec("midirenderer") is None:
        return ""
    try:
        sound = synthesize(notes)
    except RenderError:
        return ""  # a picture without sound is better than no picture
    frames = len(sound.samples) // 2
    mono = sound.samples[: 2 * frames].reshape(frames, -1).mean(axis=1)  # (frames,) two into one
    page = io.BytesIO()
    _write_frames(page, mono[:, None], sound.sample_rate // 2, gain(*sound))
    data = base64.b64encode(page.getvalue()).decode("ascii")
    return f'<br><audio controls src="data:audio/wav;base64,{data}"></audio>'


def find_soundfont(name: str | os.PathLike[str] | None = None) -> Path:
    """The file of a sound font: a path, ``piano``, or None for the default one; else RenderError.

    ``piano`` is looked up in ``./data``, in the ``data`` of a clone, and among those of the system.
    """
    if name is None:
        return default_soundfont()
    if Path(name).is_file():
        return Path(name)
    if os.fspath(name) != PIANO_FONT:
        raise RenderError(
            f"{name}: no such file; give an .sf2 file with --soundfont, or {PIANO_FONT}."
        )
    places = PIANO_FONT_PATH, (checkout() or Path()) / PIANO_FONT_PATH, _SYSTEM_FONT
    for place in places:
        if place.is_file():
            return place
    raise RenderError(
        f"no sound font {PIANO_FONT!r} in {', '.join(str(place) for place in places)}: "
        "music-transformer download piano-soundfont fetches it."
    )


def default_soundfont() -> Path:
    """The font inside the installed pretty_midi, which is not imported; RenderError without it."""
    spec = importlib.util.find_spec("pretty_midi")
    for folder in (spec.submodule_search_locations or []) if spec is not None else []:
        font = Path(folder) / _FONT_NAME
        if font.is_file():
            return font
    raise RenderError(
        f"no sound font: {_FONT_NAME} is not in the installed pretty_midi; "
        "name an .sf2 file with --soundfont."
    )


def _midi_bytes(notes: NoteSequence, seconds: float) -> bytes:
    """The notes as a MIDI file that ends late, so that the last ones ring out."""
    columns = {name: getattr(notes, name) for name in ("pitch", "velocity", "start", "end")}
    plain = NoteSequence(**columns, end_time=seconds)
    with tempfile.TemporaryDirectory() as folder:
        return write_midi(plain, Path(folder) / "notes.mid").read_bytes()


def _write_encoded(path: Path, sound: Sound) -> None:
    """Write the sound, scaled, in the format of the suffix, which libsndfile has to know."""
    form, subtype = _ENCODED[path.suffix.lower()]
    try:
        import soundfile
    except (ImportError, OSError) as error:  # OSError: the package without its library
        raise RenderError(
            f"{path.suffix} needs the [audio] extra: pip install music-transformer[audio]"
        ) from error
    if form not in soundfile.available_formats():
        raise RenderError(f"{path.suffix}: the installed libsndfile cannot write it; take .wav.")
    rate, channels, scale = sound.sample_rate, sound.samples.shape[1], gain(*sound)
    with soundfile.SoundFile(path, "w", rate, channels, subtype, format=form) as file:
        for block in _blocks(sound.samples):
            exact = _scaled(block, scale)  # libsndfile 1.2 makes wrong MP3s of integers
            file.write(exact if form == "FLAC" else (exact / 32768).astype(np.float32))


def _write_frames(file: BinaryIO, samples: np.ndarray, sample_rate: int, scale: float) -> None:
    """Write samples (N, channels), multiplied with `scale`, as a 16-bit WAV."""
    with wave.open(file, "wb") as frames:
        frames.setnchannels(samples.shape[1])
        frames.setsampwidth(2)
        frames.setframerate(sample_rate)
        for block in _blocks(samples):
            frames.writeframes(_scaled(block, scale).tobytes())


def _scaled(samples: np.ndarray, scale: float) -> np.ndarray:
    scaled: np.ndarray = np.rint(samples * scale).astype("<i2")
    return scaled


def _blocks(samples: np.ndarray) -> Iterator[np.ndarray]:
    """The samples piece by piece: an hour as floats would be gigabytes."""
    for first in range(0, len(samples), _BLOCK_FRAMES):
        yield samples[first : first + _BLOCK_FRAMES]


#: Usual for music players (ReplayGain 2), and low enough for the peaks of a piano to fit.
TARGET_LUFS = -18.0
PEAK_DBFS = -1.0

_FULL_SCALE = 32768.0
_HOPS_PER_SECOND = 10
_HOPS_PER_BLOCK = 4
_STRETCH_HOPS = 25
_WARM_UP_HOPS = 2  # the filters forget within 100 ms
_SILENCE_LUFS = -70.0
_GATE_LU = 10.0
_OFFSET = -0.691

Floats = NDArray[np.float64]


def integrated_loudness(samples: NDArray[np.int16], sample_rate: int) -> float:
    """The loudness in LUFS of samples (N, channels) int16; minus infinity for silence.

    The mean square of K-weighted blocks of 400 ms every 100 ms, without those that are silent or
    10 LU below the rest. A full-scale sine of 997 Hz in both channels has 0.
    """
    power = _hop_power(samples, sample_rate)  # (hops,)
    if len(power) < _HOPS_PER_BLOCK:
        power = np.pad(power, (0, _HOPS_PER_BLOCK - len(power)))
    blocks = np.convolve(power, np.ones(_HOPS_PER_BLOCK) / _HOPS_PER_BLOCK, mode="valid")
    loud = blocks[blocks > _power_of(_SILENCE_LUFS)]
    if not len(loud):
        return -math.inf
    loud = loud[loud > loud.mean() / 10 ** (_GATE_LU / 10)]
    return _OFFSET + 10 * math.log10(loud.mean())


def gain(samples: NDArray[np.int16], sample_rate: int) -> float:
    """What brings samples (N, channels) int16 to `TARGET_LUFS`, with no peak above `PEAK_DBFS`."""
    peak = max(float(samples.max(initial=0)), -float(samples.min(initial=0)))
    loudness = integrated_loudness(samples, sample_rate)
    if not peak:
        return 1.0
    highest = 10 ** (PEAK_DBFS / 20) * 32767 / peak
    return min(highest, 10 ** ((TARGET_LUFS - loudness) / 20)) if loudness > -math.inf else highest


def _power_of(lufs: float) -> float:
    return float(10 ** ((lufs - _OFFSET) / 10))


def _hop_power(samples: NDArray[np.int16], sample_rate: int) -> Floats:
    """(hops,) K-weighted mean square of each 100 ms, the channels added; the last is padded."""
    hop = sample_rate // _HOPS_PER_SECOND
    new, warm_up = _STRETCH_HOPS * hop, _WARM_UP_HOPS * hop
    response = _k_weighting(np.fft.rfftfreq(new + warm_up, 1 / sample_rate), sample_rate)
    powers = []
    for first in range(0, len(samples), new):  # an hour as floats would be gigabytes
        stretch = np.zeros((warm_up + new, samples.shape[1]))
        before = samples[max(0, first - warm_up) : first]
        after = samples[first : first + new]
        stretch[warm_up - len(before) : warm_up] = before / _FULL_SCALE
        stretch[warm_up : warm_up + len(after)] = after / _FULL_SCALE
        spectrum = np.fft.rfft(stretch, axis=0) * response[:, None]
        weighted = np.fft.irfft(spectrum, len(stretch), axis=0)[warm_up:]  # (new, channels)
        hops = -(-len(after) // hop)
        powers.append((weighted**2).sum(1).reshape(-1, hop).mean(1)[:hops])
    return np.concatenate(powers) if powers else np.zeros(0)


def _k_weighting(frequency: NDArray[np.floating[Any]], sample_rate: int) -> NDArray[np.complex128]:
    """The response at frequencies in Hz of both filters: a shelf for the head, a high-pass.

    From the analogue values behind the standard's table for 48 kHz, so that any rate can be had.
    """
    back = np.exp(-2j * np.pi * frequency / sample_rate)  # one sample back
    k, q, shelf = math.tan(math.pi * 1681.974450955533 / sample_rate), 0.7071752369554196, 1.5848647
    middle = shelf**0.4996667741545416
    scale = 1 + k / q + k * k
    numerator = (
        (shelf + middle * k / q + k * k)
        + 2 * (k * k - shelf) * back
        + (shelf - middle * k / q + k * k) * back**2
    )
    head = numerator / (scale + 2 * (k * k - 1) * back + (1 - k / q + k * k) * back**2)
    k, q = math.tan(math.pi * 38.13547087602444 / sample_rate), 0.5003270373238773
    scale = 1 + k / q + k * k
    high_pass = (1 - 2 * back + back**2) / (
        1 + 2 * (k * k - 1) / scale * back + (1 - k / q + k * k) / scale * back**2
    )
    response: NDArray[np.complex128] = head * high_pass
    return response
