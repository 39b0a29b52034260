"""MAESTRO v3: the performances of its CSV, split as the CSV says; a corpus.

The source is the unpacked folder (with ``maestro-v3.0.0.csv``), the official zip of the MIDI
files, a tar of the same tree, or a folder that holds one of these. Archives are unpacked next to
the output and removed with the rest of the work when it is complete.

Split by the CSV, never by title: five titles stand in more than one split.

Source: Hawthorne et al. 2019, "Enabling Factorized Piano Music Modeling and Generation with the
MAESTRO Dataset". The files are CC BY-NC-SA 4.0, and so is whatever is derived from them.
"""

import csv
import hashlib
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from music_transformer.datasets.encoding import Watcher
from music_transformer.datasets.prepare import Corpus
from music_transformer.datasets.prepared import SPLITS
from music_transformer.errors import DatasetError
from music_transformer.files import errors_name, new_folder

CSV_PATTERN = "maestro*.csv"
_ARCHIVES = ("maestro*.zip", "maestro*.tar", "maestro*.tar.*", "maestro*.tgz")
_WANTED = (".mid", ".midi", ".csv")
_LARGEST_MEMBER = 64 << 20  # bytes; the largest file of the corpus has half a megabyte
_HINT = "`music-transformer download maestro` fetches the official zip"
_BROKEN_ARCHIVE = (
    zipfile.BadZipFile,
    tarfile.TarError,
    lzma.LZMAError,
    zlib.error,
    EOFError,
    OSError,
    NotImplementedError,  # a zip method this Python does not know
    RuntimeError,  # a zip with a password
)


@dataclass(frozen=True)
class Performance:
    """A line of the CSV: name of the MIDI file, relative to the CSV, and its split."""

    name: str
    split: str


def list_maestro(source: Path, work: Path, watcher: Watcher | None = None) -> Corpus:
    """The performances of `source`; an archive is unpacked into `work`.

    Raises:
        DatasetError: the source is missing or of another kind.
    """
    table = _locate(source, work, watcher or Watcher())
    return Corpus(
        "maestro",
        [(item.name, table.parent / item.name, item.split) for item in read_csv(table)],
        {
            "source": table.name,
            "source_sha256": hashlib.sha256(table.read_bytes()).hexdigest(),
        },
    )


def read_csv(path: Path) -> list[Performance]:
    """The performances that a CSV of MAESTRO lists, in its order.

    Raises:
        DatasetError: it is not such a CSV.
    """
    try:
        with open(path, encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        performances = [Performance(row["midi_filename"], row["split"]) for row in rows]
    except (KeyError, csv.Error, UnicodeDecodeError) as error:
        raise DatasetError(f"{path}: not the CSV of MAESTRO ({error}); {_HINT}.") from error
    if not performances:
        raise DatasetError(f"{path}: the CSV lists no performance; {_HINT}.")
    seen: set[str] = set()
    for item in performances:
        if item.split not in SPLITS or not item.name or not _is_inside(item.name):
            raise DatasetError(f"{path}: {item.name!r} in split {item.split!r} makes no sense.")
        if item.name in seen:
            raise DatasetError(f"{path}: {item.name} is listed twice.")
        seen.add(item.name)
    return performances


def _locate(source: Path, work: Path, watcher: Watcher) -> Path:
    """The CSV of an unpacked tree; an archive is unpacked first."""
    if source.is_file():
        return _only_csv(_unpack(source, work, watcher), source)
    if not source.is_dir():
        raise DatasetError(f"{source}: no such file or folder; {_HINT}.")
    tables = [*source.glob(CSV_PATTERN), *source.glob(f"*/{CSV_PATTERN}")]
    for table in sorted(tables):
        if any((table.parent / item.name).is_file() for item in read_csv(table)):
            return table
    archives = sorted(path for pattern in _ARCHIVES for path in source.glob(pattern))
    if archives:
        return _only_csv(_unpack(archives[0], work, watcher), archives[0])
    what = "the CSV, but none of its MIDI files," if tables else f"no {CSV_PATTERN}"
    raise DatasetError(f"{source}: {what} in it, nor a zip or tar; {_HINT}.")


def _only_csv(tree: Path, archive: Path) -> Path:
    """The CSV in an unpacked archive, at the top or one folder down."""
    tables = sorted([*tree.glob(CSV_PATTERN), *tree.glob(f"*/{CSV_PATTERN}")])
    if len(tables) != 1:
        raise DatasetError(f"{archive}: {len(tables)} files {CSV_PATTERN} in it, not 1; {_HINT}.")
    return tables[0]


def _unpack(archive: Path, work: Path, watcher: Watcher) -> Path:
    """The folder with the MIDI files and the CSV of an archive; unpacked once, then kept."""
    state = archive.stat()
    key = hashlib.sha256(f"{archive.name} {state.st_size} {state.st_mtime_ns}".encode()).hexdigest()
    done = work / "source" / key[:16]
    if done.is_dir():
        return done
    if not (zipfile.is_zipfile(archive) or tarfile.is_tarfile(archive)):
        raise DatasetError(f"{archive}: not a whole zip or tar; {_HINT}.")
    watcher.say(f"unpacking {archive}")
    with new_folder(done) as part:
        try:
            for name, size, file in _members(archive):
                if size > _LARGEST_MEMBER or not _is_inside(name):
                    raise DatasetError(
                        f"{archive}: {name} is too large or leaves the folder; {_HINT}."
                    )
                target = part / name
                target.parent.mkdir(parents=True, exist_ok=True)
                with file:
                    content = file.read()
                with errors_name(target):
                    target.write_bytes(content)
        except _BROKEN_ARCHIVE as error:
            if isinstance(error, OSError) and error.filename is not None:
                raise  # it is not the archive that is at fault
            raise DatasetError(f"{archive}: not a whole zip or tar ({error}); {_HINT}.") from error
        part.rename(done)
    return done


def _members(archive: Path) -> Iterator[tuple[str, int, IO[bytes]]]:
    """Name, size and open content of the files in an archive that the corpus is made of."""
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as packed:
            for entry in packed.infolist():
                if entry.filename.lower().endswith(_WANTED):
                    yield entry.filename, entry.file_size, packed.open(entry)
        return
    with tarfile.open(archive) as packed_tar:
        for member in packed_tar:
            content = packed_tar.extractfile(member) if member.isfile() else None
            if content is not None and member.name.lower().endswith(_WANTED):
                yield member.name, member.size, content


def _is_inside(name: str) -> bool:
    """Whether a relative path stays inside the folder it is relative to, on every system."""
    path = PurePosixPath(name)
    return not (path.is_absolute() or ".." in path.parts or "\\" in name or ":" in path.parts[0])
