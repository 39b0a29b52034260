"""The corpora that are known by name.

JSB Chorales on the sixteenth grid: the JSON file is ``{"train": [...], "valid": [...], "test":
[...]}``; a piece is a list of sixteenths, each a list of four MIDI pitches, soprano, alto, tenor,
bass; -1 is silence. The split is the one of the file (229 / 76 / 77 chorales). It knows no ties,
titles or tempo: held and repeated notes look the same.

MAESTRO v3: the performances of its CSV, split as the CSV says, never by title: five titles stand in
more than one split. The source is the unpacked folder (with ``maestro-v3.0.0.csv``), the official
zip of the MIDI files, a tar of the same tree, or a folder that holds one of these. Archives are
unpacked next to the output and removed with the rest of the work when it is complete. The files are
CC BY-NC-SA 4.0, and so is whatever is derived from them.

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
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from music_transformer.datasets.prepare import Corpus
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


def read_jsb(source: str | os.PathLike[str]) -> dict[str, list[Grid]]:
    """The chorales of each split, every one a grid (T, 4) with -1 for silence.

    Args:
        source: the JSON file, or a folder that contains it.

    Raises:
        DatasetError: it is missing or of another format.
    """
    return _parse(_find(Path(source)))


def prepare_jsb(
    source: str | os.PathLike[str], out: str | os.PathLike[str], *, force: bool = False
) -> PreparedData:
    """Encode the chorales of `source` and write them to `out`.

    Raises:
        DatasetError: the source is missing or of another format.
        ConfigError: `out` exists and `force` is off.
    """
    check_destination(out, force=force)
    path = _find(Path(source))
    tokenizer = ChoraleTokenizer()
    return write_prepared(
        Path(out),
        tokenizer=tokenizer,
        corpus="jsb",
        splits={
            split: [
                (f"{split}-{index:03d}", tokenizer.encode_grid(grid))
                for index, grid in enumerate(grids)
            ]
            for split, grids in _parse(path).items()
        },
        settings={
            "source": path.name,
            "source_sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
            "split": "the one of the corpus",
        },
    )


def _find(source: Path) -> Path:
    """The JSON file at `source`, or in it."""
    path = source / FILE_NAME if source.is_dir() else source
    if not path.is_file():
        raise DatasetError(f"{path}: no such file; {_GET_JSB}.")
    return path


def _parse(path: Path) -> dict[str, list[Grid]]:
    """The grids of a JSON file, split by split."""
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
    except ValueError as error:  # rows of different lengths
        raise DatasetError(f"{path}: {place} is not a list of four pitches; {_GET_JSB}.") from error
    if (
        grid.ndim != 2
        or grid.shape[1] != 4
        or not np.issubdtype(grid.dtype, np.signedinteger)
        or not len(grid)
    ):
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


@dataclass(frozen=True)
class Performance:
    """A line of the CSV: name of the MIDI file, relative to the CSV, and its split."""

    name: str
    split: str


def list_maestro(source: Path, work: Path, progress: Progress | None = None) -> Corpus:
    """The performances of `source`; an archive is unpacked into `work`.

    Raises:
        DatasetError: the source is missing or of another kind.
    """
    table = _locate(source, work, progress or Progress())
    return Corpus(
        "maestro",
        [(item.name, table.parent / item.name, item.split) for item in read_csv(table)],
        {"source": table.name, "source_sha256": hashlib.sha256(table.read_bytes()).hexdigest()},
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
        raise DatasetError(f"{path}: not the CSV of MAESTRO ({error}); {_GET_ZIP}.") from error
    if not performances:
        raise DatasetError(f"{path}: the CSV lists no performance; {_GET_ZIP}.")
    seen: set[str] = set()
    for item in performances:
        if item.split not in SPLITS or not item.name or not _is_inside(item.name):
            raise DatasetError(f"{path}: {item.name!r} in split {item.split!r} makes no sense.")
        if item.name in seen:
            raise DatasetError(f"{path}: {item.name} is listed twice.")
        seen.add(item.name)
    return performances


def _locate(source: Path, work: Path, progress: Progress) -> Path:
    """The CSV of an unpacked tree; an archive is unpacked first."""
    if source.is_file():
        return _only_csv(_unpack(source, work, progress), source)
    if not source.is_dir():
        raise DatasetError(f"{source}: no such file or folder; {_GET_ZIP}.")
    tables = [*source.glob(CSV_PATTERN), *source.glob(f"*/{CSV_PATTERN}")]
    for table in sorted(tables):
        if any((table.parent / item.name).is_file() for item in read_csv(table)):
            return table
    archives = sorted(path for pattern in _ARCHIVES for path in source.glob(pattern))
    if archives:
        return _only_csv(_unpack(archives[0], work, progress), archives[0])
    what = "the CSV, but none of its MIDI files," if tables else f"no {CSV_PATTERN}"
    raise DatasetError(f"{source}: {what} in it, nor a zip or tar; {_GET_ZIP}.")


def _only_csv(tree: Path, archive: Path) -> Path:
    """The CSV in an unpacked archive, at the top or one folder down."""
    tables = sorted([*tree.glob(CSV_PATTERN), *tree.glob(f"*/{CSV_PATTERN}")])
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
