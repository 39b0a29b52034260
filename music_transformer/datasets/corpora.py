"""The corpora that are known by name: `CORPORA`.

JSB Chorales on the sixteenth grid: the JSON file is ``{"train": [...], "valid": [...], "test":
[...]}``, its own split; a piece is a list of sixteenths, each a list of four MIDI pitches, soprano,
alto, tenor, bass; -1 is silence. It knows no ties: held and repeated notes look the same.

MAESTRO v3: the performances of its CSV, split as the CSV says, never by title. The source is the
unpacked folder, the official zip, a tar of the same tree, or a folder that holds one of these. The
files are CC BY-NC-SA 4.0, and so is whatever is derived from them.

Sources: Boulanger-Lewandowski et al. 2012; file ``Jsb16thSeparated.json`` of the repository
czhuang/JSB-Chorales-dataset. Hawthorne et al. 2019, "Enabling Factorized Piano Music Modeling and
Generation with the MAESTRO Dataset".
"""

import csv
import hashlib
import json
import lzma
import os
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from music_transformer.datasets.encoding import Source
from music_transformer.datasets.prepare import Corpus, Listing, list_folder
from music_transformer.datasets.prepared import (
    SPLITS,
    PreparedData,
    check_destination,
    write_prepared,
)
from music_transformer.errors import DatasetError
from music_transformer.files import errors_name, new_folder
from music_transformer.progress import Progress
from music_transformer.representations.chorale.tokenizer import ChoraleTokenizer

Grid = npt.NDArray[np.int64]

FILE_NAME = "Jsb16thSeparated.json"
_SPLIT_OF = {"train": "train", "valid": "validation", "test": "test"}
_GET_JSB = f"expected {FILE_NAME}; `music-transformer download jsb` fetches it"


def prepare_jsb(
    source: str | os.PathLike[str], out: str | os.PathLike[str], *, force: bool = False
) -> PreparedData:
    """Encode the chorales of the JSON file `source`, or of the one in that folder, to `out`.

    Raises:
        DatasetError: the source is missing or of another format.
        ConfigError: `out` exists and `force` is off.
    """
    check_destination(out, force=force)
    path = Path(source, FILE_NAME) if Path(source).is_dir() else Path(source)
    tokenizer = ChoraleTokenizer()
    splits = {
        split: [
            (f"{split}-{index:03d}", tokenizer.encode_grid(grid))
            for index, grid in enumerate(grids)
        ]
        for split, grids in read_jsb(path).items()
    }
    settings = {**_origin(path), "split": "the one of the corpus"}
    return write_prepared(
        Path(out), tokenizer=tokenizer, corpus="jsb", splits=splits, settings=settings
    )


def _origin(path: Path) -> dict[str, str]:
    """Where prepared data are from, for meta.json."""
    return {"source": path.name, "source_sha256": hashlib.sha256(path.read_bytes()).hexdigest()}


def read_jsb(path: Path) -> dict[str, list[Grid]]:
    """The chorales of each split, every one a grid (T, 4) with -1 for silence.

    Raises:
        DatasetError: the JSON file is missing or of another format.
    """
    if not path.is_file():
        raise DatasetError(f"{path}: no such file; {_GET_JSB}.")
    try:
        corpus = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:  # wrong encoding is a ValueError too
        raise DatasetError(f"{path}: not a JSON file; {_GET_JSB}.") from error
    if not isinstance(corpus, dict) or set(corpus) != set(_SPLIT_OF):
        raise DatasetError(f"{path}: no JSON object with train, valid and test; {_GET_JSB}.")
    grids = {}
    for key, split in _SPLIT_OF.items():
        if not isinstance(corpus[key], list) or not corpus[key]:
            raise DatasetError(f"{path}: {key} holds no list of chorales; {_GET_JSB}.")
        grids[split] = [
            _grid(path, f"{key}[{index}]", steps) for index, steps in enumerate(corpus[key])
        ]
    return grids


def _grid(path: Path, place: str, steps: Any) -> Grid:
    """One chorale as an array (T, 4), every value a pitch or -1."""
    try:
        grid = np.array(steps)
    except ValueError:  # rows of different lengths
        grid = np.array([])
    is_whole = np.issubdtype(grid.dtype, np.signedinteger)
    if not (is_whole and grid.shape[1:] == (4,) and len(grid)):
        raise DatasetError(f"{path}: {place} is not a list of four pitches; {_GET_JSB}.")
    if grid.min() < -1 or grid.max() > 127:
        raise DatasetError(f"{path}: {place} has a pitch outside -1..127; {_GET_JSB}.")
    return grid.astype(np.int64)


CSV_PATTERN = "maestro*.csv"
_ARCHIVES = ("maestro*.zip", "maestro*.tar", "maestro*.tar.*", "maestro*.tgz")
_WANTED = (".mid", ".midi", ".csv")
_LARGEST_MEMBER = 64 << 20  # bytes; the largest file of the corpus has half a megabyte
_GET_ZIP = "`music-transformer download maestro` fetches the official zip"
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


def list_maestro(source: Path, work: Path, progress: Progress) -> Corpus:
    """The performances of `source`; an archive is unpacked into `work`.

    Raises:
        DatasetError: the source is missing or of another kind.
    """
    table = _locate(source, work, progress)
    return Corpus("maestro", read_csv(table), _origin(table))


def read_csv(path: Path) -> list[Source]:
    """The performances that a CSV of MAESTRO lists, beside it, in its order.

    Raises:
        DatasetError: it is not such a CSV.
    """
    try:
        with open(path, encoding="utf-8", newline="") as file:
            rows = [(row["midi_filename"], row["split"]) for row in csv.DictReader(file)]
    except (KeyError, csv.Error, UnicodeDecodeError) as error:
        raise DatasetError(f"{path}: not the CSV of MAESTRO ({error}); {_GET_ZIP}.") from error
    if not rows:
        raise DatasetError(f"{path}: the CSV lists no performance; {_GET_ZIP}.")
    seen: set[str] = set()
    for name, split in rows:
        if split not in SPLITS or not name or not _is_inside(name):
            raise DatasetError(f"{path}: {name!r} in split {split!r} makes no sense.")
        if name in seen:
            raise DatasetError(f"{path}: {name} is listed twice.")
        seen.add(name)
    return [Source(name, path.parent / name, split) for name, split in rows]


def _locate(source: Path, work: Path, progress: Progress) -> Path:
    """The CSV of an unpacked tree; an archive is unpacked first."""
    if source.is_file():
        return _only_csv(_unpack(source, work, progress), source)
    if not source.is_dir():
        raise DatasetError(f"{source}: no such file or folder; {_GET_ZIP}.")
    tables = _tables(source)
    for table in tables:
        if any(item.path.is_file() for item in read_csv(table)):
            return table
    archives = sorted(path for pattern in _ARCHIVES for path in source.glob(pattern))
    if archives:
        return _only_csv(_unpack(archives[0], work, progress), archives[0])
    what = "the CSV, but none of its MIDI files," if tables else f"no {CSV_PATTERN}"
    raise DatasetError(f"{source}: {what} in it, nor a zip or tar; {_GET_ZIP}.")


def _tables(tree: Path) -> list[Path]:
    """The CSVs at the top of a tree or one folder down."""
    return sorted([*tree.glob(CSV_PATTERN), *tree.glob(f"*/{CSV_PATTERN}")])


def _only_csv(tree: Path, archive: Path) -> Path:
    """The CSV in an unpacked archive."""
    tables = _tables(tree)
    if len(tables) != 1:
        raise DatasetError(
            f"{archive}: {len(tables)} files {CSV_PATTERN} in it, not 1; {_GET_ZIP}."
        )
    return tables[0]


def _unpack(archive: Path, work: Path, progress: Progress) -> Path:
    """The folder with the MIDI files and the CSV of an archive; unpacked once, then kept."""
    state = archive.stat()
    key = hashlib.sha256(f"{archive.name} {state.st_size} {state.st_mtime_ns}".encode()).hexdigest()
    done = work / "source" / key[:16]
    if done.is_dir():
        return done
    if not (zipfile.is_zipfile(archive) or tarfile.is_tarfile(archive)):
        raise DatasetError(f"{archive}: not a whole zip or tar; {_GET_ZIP}.")
    progress.info(f"unpacking {archive}")
    with new_folder(done) as part:
        try:
            for name, size, file in _members(archive):
                if size > _LARGEST_MEMBER or not _is_inside(name):
                    raise DatasetError(
                        f"{archive}: {name} is too large or leaves the folder; {_GET_ZIP}."
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
            raise DatasetError(
                f"{archive}: not a whole zip or tar ({error}); {_GET_ZIP}."
            ) from error
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


@dataclass(frozen=True)
class KnownCorpus:
    """A corpus that `prepare` knows by name: the MIDI files that are listed, or else `prepare`.

    `refuses` names the options of the command that mean nothing for it.
    """

    listing: Listing = list_folder
    prepare: Callable[..., PreparedData] | None = None  # (source, out, force=...)
    refuses: tuple[str, ...] = ()


_OF_FOLDERS = ("split", "melody_track")  # options of files whose split and tracks nobody knows
_OF_MIDI = ("task", "tokenizer", "pedal", "piano_only", "one_pedal", "keep_silence", "jobs")

CORPORA = {
    "jsb": KnownCorpus(prepare=prepare_jsb, refuses=_OF_FOLDERS + _OF_MIDI),
    "maestro": KnownCorpus(list_maestro, refuses=_OF_FOLDERS),
}
