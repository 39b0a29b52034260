"""Notes to sound, through a SoundFont, as WAV or Opus.

midirenderer ([audio]) plays the notes with their pedal applied; what comes back is 16-bit stereo at
the 48 kHz it works in, and quiet, so it is scaled to the loudness of `loudness`: never clipped, and
all pieces are equally loud.

A long piece is played in stretches of five minutes, each from the notes that begin in it, added up
in a temporary file (690 MB an hour) and scaled from there: work grows with the notes and the length
of the file, memory does not. A note is played for a minute at most; a piano string has died away
by then (the default font's lowest after 22 s).

Opus is encoded by libsndfile (soundfile, also in [audio]) from those samples. midirenderer 0.1.3
writes Opus itself, but cannot scale it, and at every bitrate except "max" what it writes decodes
to noise.

The default font is the TimGM6mb.sf2 that pretty_midi installs. It is GPL-2: it is read where it
lies and never copied, and found without importing pretty_midi.
"""

import base64
import importlib.util
import io
import os
import tempfile
import wave
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from music_transformer.errors import ConfigError, RenderError
from music_transformer.files import atomic_path, errors_name
from music_transformer.midi import write_midi
from music_transformer.notes import NoteSequence, Pedals
from music_transformer.render.loudness import gain

SUFFIXES = (".wav", ".opus")
#: The silence between primer and continuation in the paper's listening test.
PRIMER_GAP_SECONDS = 2.5
#: What is heard after the last event: a piano string rings on when the hammer has gone.
TAIL_SECONDS = 1.5

#: The longest sound, unless the caller asks for more: more is a damaged file rather than music.
MAX_SOUND_SECONDS = 3600.0

#: The highest pitch of the default font's piano; what lies above is silent.
DEFAULT_FONT_HIGHEST = 108

_FONT_NAME = "TimGM6mb.sf2"
_SAMPLE_RATE = 48_000
_BLOCK_FRAMES = 1 << 16
_STRETCH_SECONDS = 300
_RING_SECONDS = 60.0
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
    """Write the sound of `notes` to `path`, whole or not at all; its suffix says WAV or Opus.

    Args:
        notes: played with the pedal applied, all tracks as piano.
        path: an existing file is replaced.
        soundfont: an .sf2 file; None takes the one inside the installed pretty_midi.
        max_seconds: longer sound is refused before any work.

    Raises:
        RenderError: [audio] is not installed, the font is missing or broken, the sound too long.
        ConfigError: another suffix.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in SUFFIXES:
        raise ConfigError(
            f"{path}: sound is written as WAV or Opus; end the name in .wav or .opus."
        )
    sound = synthesize(notes, soundfont=soundfont, max_seconds=max_seconds)
    with atomic_path(path) as temporary:
        if suffix == ".opus":
            _write_opus(temporary, sound)
        else:
            with temporary.open("wb") as file:
                _write_frames(file, *sound, gain(*sound))


def render_wav(
    notes: NoteSequence,
    path: str | os.PathLike[str],
    *,
    soundfont: str | os.PathLike[str] | None = None,
    max_seconds: float = MAX_SOUND_SECONDS,
) -> None:
    """Write the sound of `notes` to `path` as a 16-bit stereo WAV; the rest as `render_audio`."""
    sound = synthesize(notes, soundfont=soundfont, max_seconds=max_seconds)
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        _write_frames(file, *sound, gain(*sound))


def with_primer_gap(
    notes: NoteSequence, *, primer_end: float, gap: float = PRIMER_GAP_SECONDS
) -> NoteSequence:
    """The notes with a silence between primer and continuation, as the paper's listeners had it.

    What starts at `primer_end` or later comes `gap` seconds later. What began before and still
    sounds there, by key or by pedal, ends there: it would fill the silence.

    Raises:
        ConfigError: a time below 0.
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
        pedals=Pedals(),
        end_time=notes.end_time + gap,
    )


def check_sound_length(seconds: float, max_seconds: float = MAX_SOUND_SECONDS) -> None:
    """Refuse sound that is longer than `max_seconds`; to be asked before other work, too.

    Raises:
        RenderError: it is.
    """
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
    """Return the sound of `notes` as the synthesizer gives it: int16, not yet normalised.

    The samples of a long piece are in a temporary file, which goes with them.

    Raises:
        RenderError: as `render_audio`.
    """
    check_sound_length(notes.end_time, max_seconds)
    font = default_soundfont() if soundfont is None else Path(soundfont)
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
    midirenderer = _midirenderer()
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
    """Return an HTML player of `notes` for a notebook; nothing where there is no way to play.

    The sound is inside the page (mono, 24 kHz: 3 MB a minute), so only short pieces get a player.
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


def default_soundfont() -> Path:
    """Return the path of the font inside the installed pretty_midi, which is not imported.

    Raises:
        RenderError: there is none.
    """
    spec = importlib.util.find_spec("pretty_midi")
    for folder in (spec.submodule_search_locations or []) if spec is not None else []:
        font = Path(folder) / _FONT_NAME
        if font.is_file():
            return font
    raise RenderError(
        f"no sound font: {_FONT_NAME} is not in the installed pretty_midi; "
        "name an .sf2 file with --soundfont."
    )


def _midirenderer() -> Any:
    """The synthesizer, or an error that says what to install."""
    try:
        import midirenderer
    except ImportError as error:
        raise RenderError(
            "sound needs the [audio] extra: pip install music-transformer[audio]"
        ) from error
    return midirenderer


def _midi_bytes(notes: NoteSequence, seconds: float) -> bytes:
    """The notes as a MIDI file that ends late, so that the last ones ring out."""
    plain = NoteSequence(
        pitch=notes.pitch,
        velocity=notes.velocity,
        start=notes.start,
        end=notes.end,
        end_time=seconds,
    )
    with tempfile.TemporaryDirectory() as folder:
        return write_midi(plain, Path(folder) / "notes.mid").read_bytes()


def _soundfile() -> Any:
    """The Opus encoder, or an error that says what to install."""
    try:
        import soundfile
    except (ImportError, OSError) as error:  # OSError: the package without its library
        raise RenderError(
            "Opus needs the [audio] extra: pip install music-transformer[audio]"
        ) from error
    return soundfile


def _write_opus(path: Path, sound: Sound) -> None:
    """Write the sound as Opus in an Ogg file, scaled."""
    scale = gain(*sound) / 32768
    with _soundfile().SoundFile(
        path,
        "w",
        samplerate=sound.sample_rate,
        channels=sound.samples.shape[1],
        format="OGG",
        subtype="OPUS",
    ) as file:
        for block in _blocks(sound.samples):
            file.write((block * scale).astype(np.float32))


def _write_frames(file: BinaryIO, samples: np.ndarray, sample_rate: int, scale: float) -> None:
    """Write samples (N, channels), multiplied with `scale`, as a 16-bit WAV."""
    with wave.open(file, "wb") as frames:
        frames.setnchannels(samples.shape[1])
        frames.setsampwidth(2)
        frames.setframerate(sample_rate)
        for block in _blocks(samples):
            frames.writeframes(np.rint(block * scale).astype("<i2").tobytes())


def _blocks(samples: np.ndarray) -> Iterator[np.ndarray]:
    """The samples piece by piece: an hour as floats would be gigabytes."""
    for first in range(0, len(samples), _BLOCK_FRAMES):
        yield samples[first : first + _BLOCK_FRAMES]
