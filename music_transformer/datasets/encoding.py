"""Many MIDI files -> ids, on all cores, in a way that may be interrupted.

Every file that is encoded leaves its ids in a work folder, under a name made of its own name,
size, date, the settings and the code of this package. A later run of the same code with the same
settings does not read those files again. A file that cannot be read becomes a `Skipped`; ids that
cannot be written stop everything.
"""

import functools
import hashlib
import json
import multiprocessing
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from music_transformer.datasets.prepared import SPLITS, Melodies, Piece, Skipped
from music_transformer.errors import ConfigError, DatasetError, MidiError, TokenError
from music_transformer.files import atomic_path
from music_transformer.midi.read import read_midi
from music_transformer.notes import STEPS_PER_SECOND, NoteSequence, to_steps
from music_transformer.processes import follow_parent, usable_cores
from music_transformer.progress import Progress
from music_transformer.representations.accompaniment.skyline import as_performance, later
from music_transformer.representations.base import Representation, representation_from_config
from music_transformer.representations.performance.tokenizer import PerformanceTokenizer

PIECES = "pieces"  # the part of the work folder that holds ids

_ID = np.dtype("<u2")


@dataclass(frozen=True)
class Source:
    """A MIDI file, what it is called in the prepared data, and its split, where it has one."""

    name: str
    path: Path
    split: str | None = None


@dataclass(frozen=True)
class MidiSettings:
    """What decides the ids of a MIDI file, beside the file."""

    tokenizer: dict[str, Any]
    piano_only: bool = False
    one_pedal: bool = False
    keep_silence: bool = False
    melody_track: int | None = None  # where an accompaniment's melody is; None: the skyline

    def make_tokenizer(self) -> Representation:
        return representation_from_config(self.tokenizer)

    def melody_rule(self) -> str:
        """How the melody is found, for reports."""
        return "skyline" if self.melody_track is None else f"track {self.melody_track}"


@dataclass(frozen=True)
class Encoded:
    """A file that was encoded: where its ids are kept, and what was survived in reading it."""

    name: str
    ids_path: Path
    sha256: str
    warnings: dict[str, int] = field(default_factory=dict)

    def kept(self) -> "Kept":
        """Its ids."""
        kept = Kept.read(self.ids_path)
        if kept is None or kept.sha256 != self.sha256:
            raise DatasetError(f"{self.ids_path}: changed since it was written; run it again.")
        return kept


def encode_files(
    sources: Sequence[Source],
    settings: MidiSettings,
    work: Path,
    *,
    jobs: int | None = None,
    progress: Progress | None = None,
) -> tuple[list[Encoded], list[Skipped]]:
    """Encode files, several at a time; results are in the order of `sources`.

    `work` keeps what is done. `jobs` are processes, by default one for each core this process may
    use; 1 starts none.
    """
    jobs = usable_cores() if jobs is None else jobs
    if jobs < 1:
        raise ConfigError(f"jobs={jobs}: at least one process has to work.")
    folder = work / PIECES
    folder.mkdir(parents=True, exist_ok=True)
    progress = progress or Progress()
    progress.begin(len(sources), unit="file")
    encoded: list[Encoded] = []
    skipped: list[Skipped] = []
    try:
        for result in _results(sources, settings, folder, min(jobs, len(sources))):
            if isinstance(result, Skipped):
                skipped.append(result)
                progress.info(f"skipped {result.name}: {result.reason}")
            else:
                encoded.append(result)
            progress.update()
    finally:
        progress.end()
    return encoded, skipped


def pieces_of(
    encoded: Sequence[Encoded], split_of: Mapping[str, str], split: str, *, melody: bool = False
) -> Iterator[Piece]:
    """Name and ids, or melody, of the pieces of one split."""
    for item in encoded:
        if split_of[item.name] == split:
            kept = item.kept()
            yield item.name, kept.melody if melody else kept.ids


def melodies_of(
    encoded: Sequence[Encoded], split_of: Mapping[str, str], settings: MidiSettings
) -> Melodies | None:
    """Name and melody of the pieces of each split; None where the settings ask for none."""
    if not settings.make_tokenizer().has_melody:
        return None
    splits = {name: pieces_of(encoded, split_of, name, melody=True) for name in SPLITS}
    return Melodies(settings.melody_rule(), splits)


def _results(
    sources: Sequence[Source], settings: MidiSettings, folder: Path, jobs: int
) -> Iterator[Encoded | Skipped]:
    """The result of each file, in order."""
    encode = functools.partial(_encode, settings=settings, folder=folder)
    if jobs <= 1:
        yield from map(encode, sources)
        return
    context = multiprocessing.get_context("spawn")  # the one way that every system has
    pool = ProcessPoolExecutor(jobs, mp_context=context, initializer=follow_parent)
    try:
        yield from pool.map(encode, sources)
    except BrokenProcessPool as error:
        raise DatasetError(
            "a process that encoded files was ended from outside (out of memory?); "
            "run it again with --jobs 1: what is done is kept."
        ) from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


@dataclass(frozen=True, eq=False)
class Kept:
    """What is kept of a file: a line of JSON (sizes and sha256), then the ids, then the melody.

    Both are events without START and END; the melody is empty where there is none.
    """

    ids: npt.NDArray[np.uint16]
    melody: npt.NDArray[np.uint16]
    warnings: dict[str, int]

    @property
    def sha256(self) -> str:
        """Of all ids; equal music has equal ones."""
        return hashlib.sha256(self.ids.tobytes() + self.melody.tobytes()).hexdigest()

    @classmethod
    def read(cls, path: Path) -> "Kept | None":
        """What is kept at `path`; None where there is nothing, or not all that was written."""
        try:
            head, _, body = path.read_bytes().partition(b"\n")
            said = json.loads(head)
            ids = np.frombuffer(body, _ID)
            kept = cls(ids[: said["ids"]], ids[said["ids"] :], said["warnings"])
            return kept if len(kept.ids) and kept.sha256 == said["sha256"] else None
        except (FileNotFoundError, ValueError, TypeError, KeyError):
            return None

    def write(self, path: Path) -> None:
        """Keep it; not synced, for whoever reads it checks it."""
        said = {"ids": len(self.ids), "sha256": self.sha256, "warnings": self.warnings}
        body = self.ids.tobytes() + self.melody.tobytes()
        with atomic_path(path, sync=False) as temporary:
            temporary.write_bytes(json.dumps(said).encode() + b"\n" + body)


def _encode(source: Source, settings: MidiSettings, folder: Path) -> Encoded | Skipped:
    """Encode one file, unless its ids are kept already."""
    try:
        if not source.path.is_file():
            return Skipped(source.name, "no such file, or not an ordinary one")
        path = folder / _key(source, settings)
        kept = Kept.read(path)
        fresh = _read(source, settings) if kept is None else None
    except (MidiError, TokenError) as error:
        reason = str(error).removeprefix(f"{source.path}: ")  # reports name the file anyway
        return Skipped(source.name, reason)
    except OSError as error:
        return Skipped(source.name, (error.strerror or str(error)).lower())
    if fresh is not None:
        fresh.write(path)
        kept = fresh
    assert kept is not None
    return Encoded(source.name, path, kept.sha256, kept.warnings)


def _read(source: Source, settings: MidiSettings) -> Kept:
    tokenizer = settings.make_tokenizer()
    notes = read_midi(source.path, piano_only=settings.piano_only, one_pedal=settings.one_pedal)
    warnings = dict(notes.warnings)
    keep_silence = settings.keep_silence or tokenizer.keeps_silence
    melody = np.zeros(0, _ID)
    if tokenizer.has_melody:
        melody, notes = _divided(notes, settings)
        keep_silence = True  # what there is before the first note of either side is gone already
    ids = tokenizer.encode_array(notes, keep_silence=keep_silence)
    if not len(ids):
        raise MidiError("there are no notes in it; leave it out.")
    return Kept(ids.astype(_ID), melody.astype(_ID), warnings)


def _divided(
    notes: NoteSequence, settings: MidiSettings
) -> tuple[npt.NDArray[np.uint16], NoteSequence]:
    """The events of the melody, and the notes of the rest; both count time from one moment."""
    melody, rest = as_performance(notes, track=settings.melody_track)
    for side, what in ((melody, "melody"), (rest, "accompaniment")):
        if not len(side):
            raise MidiError(
                f"by the rule ({settings.melody_rule()}) it has no {what}; leave it out."
            )
    silence = 0 if settings.keep_silence else int(to_steps(notes.start.min())) / STEPS_PER_SECOND
    return PerformanceTokenizer().encode_array(later(melody, -silence)), later(rest, -silence)


def _key(source: Source, settings: MidiSettings) -> str:
    """Name of the file that keeps the ids of a source: another for every change of either."""
    state = source.path.stat()
    parts = [source.name, state.st_size, state.st_mtime_ns, asdict(settings), _code()]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest() + ".ids"


@functools.cache
def _code() -> str:
    """sha256 of the code of this package, which made the ids."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).resolve().parents[1].rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()
