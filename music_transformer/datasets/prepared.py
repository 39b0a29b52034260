"""Prepared data: a folder of id arrays and the file that says what they are.

``meta.json`` names the tokenizer, the corpus, the settings, everything that was skipped, and for
each split its file, number of events, sha256 and pieces. A split is one file of little-endian
``uint16`` ids, read through ``numpy.memmap``: all its pieces, each with START before and END after
it, one behind the other. ``offset`` and ``length`` of a piece count these, ``events`` never does.

Data of accompaniments have a second file for each split: the melody of each piece, in the same
order and of the same make, as events of the performance vocabulary whose time begins when that of
the accompaniment does.
"""

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from music_transformer.errors import ConfigError, DatasetError, MusicTransformerError
from music_transformer.files import followed, new_folder, output_lock, publish_folder
from music_transformer.representations.base import Representation, representation_from_config
from music_transformer.representations.chorale.grid import SILENCE
from music_transformer.representations.performance.vocabulary import NOTE_OFF

Ids = npt.NDArray[np.uint16]
Piece = tuple[str, npt.ArrayLike]  # name and ids, without START and END

FORMAT = 1
MELODY_FORMAT = 1
META_FILE = "meta.json"
SPLITS = ("train", "validation", "test")
_ID = np.dtype("<u2")
_BIN = re.compile(r"\w+(\.melody)?\.bin")  # the names of the files of ids
_LARGEST = 1 << 48  # bound on every number of meta.json


@dataclass(frozen=True)
class Skipped:
    """A file that was not taken, and why."""

    name: str
    reason: str


@dataclass(frozen=True)
class Melodies:
    """The melodies of accompaniments: how they were found, and split -> (name, ids) of each."""

    rule: str
    splits: Mapping[str, Iterable[Piece]]


@dataclass(frozen=True, eq=False)
class PreparedData:
    """A prepared folder, opened; `open` checks it and `verify` reads every byte of it."""

    path: Path
    meta: dict[str, Any]
    tokenizer: Representation
    arrays: dict[str, Ids]
    melody_arrays: dict[str, Ids] = field(default_factory=dict)
    _checked: set[str] = field(default_factory=set)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Self:
        """Prepared data at `path`; the ids stay on the disk.

        Raises DatasetError where nothing is there, or not what its ``meta.json`` says.
        """
        folder = Path(path)
        meta = _read_meta(folder)
        try:
            _check_meta(meta)
            tokenizer = representation_from_config(meta["tokenizer"])
            arrays = {
                name: _open_split(folder, name, meta["splits"][name]) for name in _order(meta)
            }
            melodies = _open_melodies(folder, meta) if tokenizer.has_melody else {}
        except DatasetError:
            raise
        except MusicTransformerError as error:
            raise _broken(folder, f"its tokenizer is unknown ({error})") from error
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise _broken(folder, f"{META_FILE} lacks or garbles {error}") from error
        return cls(folder, meta, tokenizer, arrays, melodies)

    @property
    def corpus(self) -> str:
        """Name of the corpus: ``jsb``, ``maestro`` or that of the folder."""
        return str(self.meta["corpus"])

    @property
    def splits(self) -> tuple[str, ...]:
        """Names of the splits that hold pieces, in the order train, validation, test."""
        return tuple(self.arrays)

    @property
    def checksum(self) -> str:
        """sha256 over tokenizer, piece boundaries and the checksums of all ids; cheap to ask."""
        parts = [json.dumps(self.meta["tokenizer"], sort_keys=True)]
        for name in self.splits:
            for part in _parts(self.meta["splits"][name]):
                parts += [name, part["sha256"], str([piece["offset"] for piece in part["pieces"]])]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    def events(self, split: str) -> int:
        """Number of events of `split`, without START and END."""
        return int(self._said(split)["events"])

    def names(self, split: str) -> list[str]:
        """Names of the pieces of `split`, in the order of `pieces`."""
        return [str(piece["name"]) for piece in self._said(split)["pieces"]]

    def pieces(self, split: str) -> list[Ids]:
        """The pieces of `split`, each ``START ... END``: views of the file, read when touched."""
        said = self._said(split)
        return self._checked_views(self.arrays[split], said)

    def melodies(self, split: str) -> list[Ids]:
        """The melody of each of `pieces`, as ``START ... END`` of performance events."""
        said = self._said(split)
        if split not in self.melody_arrays:
            raise DatasetError(
                f"{self.path}: these data have no melodies; prepare them with --task accompaniment."
            )
        return self._checked_views(self.melody_arrays[split], said["melody"])

    def melody_notes(self, split: str) -> int:
        """Number of notes of all melodies of `split`."""
        return int(sum((ids < NOTE_OFF).sum() for ids in self.melodies(split)))

    def verify(self) -> Self:
        """These data, after everything was read; DatasetError if a byte is not as written."""
        splits = self.meta["splits"]
        files = [(ids, splits[name]) for name, ids in self.arrays.items()]
        files += [(ids, splits[name]["melody"]) for name, ids in self.melody_arrays.items()]
        for ids, split in files:
            if hashlib.sha256(ids.tobytes()).hexdigest() != split["sha256"]:
                raise _broken(self.path, f"{split['file']} has another sha256 than when written")
            for piece in self._checked_views(ids, split):
                if piece[0] != self.tokenizer.start or piece[-1] != self.tokenizer.end:
                    raise _broken(self.path, f"{split['file']} has a piece without START or END")
        return self

    def _checked_views(self, ids: Ids, split: dict[str, Any]) -> list[Ids]:
        """The pieces of an array; that its ids are known to the tokenizer is checked once."""
        if split["file"] not in self._checked:
            if int(ids.max()) >= self.tokenizer.vocab_size:
                raise _broken(self.path, f"{split['file']} holds ids outside the vocabulary")
            self._checked.add(split["file"])
        return _views(ids, split)

    def _said(self, split: str) -> dict[str, Any]:
        """What ``meta.json`` says of a split."""
        if split not in self.arrays:
            known = ", ".join(self.splits)
            raise DatasetError(f"{self.path}: no split {split!r}; it has {known}.")
        return dict(self.meta["splits"][split])


def check_destination(out: str | os.PathLike[str], *, force: bool) -> Path:
    """Where prepared data for `out` go, links followed; to be called before the work.

    Raises ConfigError where prepared data are and `force` is off, or other things are, which no
    flag may delete.
    """
    path = Path(out)
    if path.name in ("", ".."):
        raise ConfigError(f"--out {str(out)!r}: give the folder a name, such as data/NAME.")
    path = followed(path)
    if not os.path.lexists(path):
        return path
    if not path.is_dir():
        raise ConfigError(f"{path}: this is a file; prepared data is a folder.")
    if not any(path.iterdir()):
        return path
    if not _made_files(path):
        raise ConfigError(f"{path}: the folder holds other things; choose another --out.")
    if not force:
        raise ConfigError(f"{path}: prepared data exists; add --force to replace it.")
    return path


def write_prepared(
    out: Path,
    *,
    tokenizer: Representation,
    corpus: str,
    splits: Mapping[str, Iterable[Piece]],
    melodies: Melodies | None = None,
    skipped: Iterable[Skipped] = (),
    settings: Mapping[str, Any] | None = None,
    report: Mapping[str, Any] | None = None,
    locked: bool = False,
) -> PreparedData:
    """Write prepared data and put it at `out` in one step, replacing what was there.

    Of what was there only the files of prepared data are deleted; others move into the new folder.
    Raises ConfigError where another command is writing there.

    Args:
        splits: split -> (name, ids) of each piece, without START and END; empty ones are left out.
        melodies: of the same pieces in the same order, where `tokenizer` is of accompaniments.
        settings, report: what else decided the contents, and what there is to tell of the sources.
        locked: whether the caller holds the `output_lock` of `out`.
    """
    final = followed(out)
    meta: dict[str, Any] = {
        "format": FORMAT,
        "corpus": corpus,
        "tokenizer": tokenizer.to_config(),
        "settings": dict(settings or {}),
        "splits": {},
        "skipped": [{"name": item.name, "reason": item.reason} for item in skipped],
        "report": dict(report or {}),
    }
    if melodies is not None:
        meta["melody"] = {"format": MELODY_FORMAT, "rule": melodies.rule}
    with contextlib.nullcontext() if locked else output_lock(final), new_folder(final) as ready:
        for name, pieces in splits.items():
            split = _write_split(ready, name, pieces, tokenizer)
            if melodies is not None:
                tunes = melodies.splits.get(name, ())
                split["melody"] = _write_split(ready, f"{name}.melody", tunes, tokenizer)
            if split["pieces"]:
                meta["splits"][name] = split
        if train := meta["splits"].get("train"):
            views = _views(np.fromfile(ready / train["file"], dtype=_ID), train)
            meta |= tokenizer.describe_training([piece[1:-1] for piece in views])
        text = json.dumps(meta, indent=1, ensure_ascii=False)
        (ready / META_FILE).write_bytes(text.encode("utf-8", "surrogateescape"))
        publish_folder(ready, final, made=_made_files(final).__contains__)
    return PreparedData.open(out)


def _write_split(
    folder: Path, name: str, pieces: Iterable[Piece], tokenizer: Representation
) -> dict[str, Any]:
    """Write one file of ids; its entry of ``meta.json``. A split of no pieces leaves no file."""
    path = folder / f"{name}.bin"
    digest, offset, index = hashlib.sha256(), 0, []
    with open(path, "wb") as file:
        for piece, events in pieces:
            middle = np.asarray(events, dtype=_ID)
            ids = np.concatenate(
                [np.array([tokenizer.start], _ID), middle, np.array([tokenizer.end], _ID)]
            ).tobytes()
            file.write(ids)
            digest.update(ids)
            index.append({"name": piece, "offset": offset, "length": len(middle) + 2})
            offset += len(middle) + 2
    if not index:
        path.unlink()
    return {
        "file": path.name,
        "events": offset - 2 * len(index),
        "sha256": digest.hexdigest(),
        "pieces": index,
    }


def _parts(split: dict[str, Any]) -> list[dict[str, Any]]:
    """What ``meta.json`` says of the files of a split: of its ids, and of its melodies."""
    return [split, *([split["melody"]] if "melody" in split else [])]


def _views(ids: Ids, split: dict[str, Any]) -> list[Ids]:
    """The pieces of an array, by its entry of ``meta.json``."""
    return [ids[piece["offset"] : piece["offset"] + piece["length"]] for piece in split["pieces"]]


def _made_files(folder: Path) -> set[str]:
    """The files of prepared data in `folder`, whole or damaged; none where there are none.

    Its ``meta.json`` is the mark that it is ours, and names what else is.
    """
    try:
        meta = _read_meta(folder)
        parts = [part for split in meta["splits"].values() for part in _parts(split)]
        names = {META_FILE, *(str(part["file"]) for part in parts)}
        representation_from_config(meta["tokenizer"])
    except (MusicTransformerError, KeyError, TypeError, ValueError, AttributeError):
        return set()
    return {name for name in names if name == META_FILE or _BIN.fullmatch(name)}


def _read_meta(folder: Path) -> dict[str, Any]:
    """``meta.json`` of a folder, known to be of this format."""
    path = folder / META_FILE
    if not path.is_file():
        what = f"no {META_FILE} in it, so this is no prepared data"
        what = what if folder.is_dir() else "no such folder"
        raise DatasetError(f"{folder}: {what}; make it with `music-transformer prepare`.")
    try:
        meta = json.loads(path.read_bytes().decode("utf-8", "surrogateescape"))
    except (ValueError, RecursionError) as error:
        raise DatasetError(
            f"{folder}: {META_FILE} is not JSON ({error}); prepare the data again at another --out."
        ) from error
    if not isinstance(meta, dict):
        raise DatasetError(f"{folder}: {META_FILE} is not that of prepared data.")
    if meta.get("format") != FORMAT:
        raise _broken(folder, f"format {meta.get('format')!r}, this version reads {FORMAT}")
    return meta


def _check_meta(meta: dict[str, Any]) -> None:
    """Raise KeyError or ValueError, with its name, for a field missing or of another type."""

    def field_of(holder: Any, key: str, kind: type) -> Any:
        value = holder[key]
        small = not isinstance(value, int) or abs(value) < _LARGEST
        if not isinstance(value, kind) or isinstance(value, bool) or not small:
            raise ValueError(repr(key))
        return value

    field_of(meta, "corpus", str)
    for key in ("tokenizer", "splits", "report"):
        field_of(meta, key, dict)
    for item in field_of(meta, "skipped", list):
        for key in ("name", "reason"):
            field_of(item, key, str)
    for split in meta["splits"].values():
        for part in _parts(split):
            for key, kind in (("file", str), ("events", int), ("sha256", str), ("pieces", list)):
                field_of(part, key, kind)
            for piece in part["pieces"]:
                for key, kind in (("name", str), ("offset", int), ("length", int)):
                    field_of(piece, key, kind)
    for pair in meta.get("voice_ranges") or ():
        if not (isinstance(pair, list) and len(pair) == 2 and 0 <= pair[0] <= pair[1] < SILENCE):
            raise ValueError("'voice_ranges'")


def _open_melodies(folder: Path, meta: dict[str, Any]) -> dict[str, Ids]:
    """The melodies of each split of accompaniments: one for each piece."""
    version = meta["melody"]["format"]
    if version != MELODY_FORMAT:
        raise _broken(
            folder, f"its melodies have format {version!r}, this version reads {MELODY_FORMAT}"
        )
    opened = {}
    for name in _order(meta):
        split, melody = meta["splits"][name], meta["splits"][name]["melody"]
        if [piece["name"] for piece in melody["pieces"]] != [p["name"] for p in split["pieces"]]:
            raise _broken(folder, f"split {name!r} has other melodies than pieces")
        opened[name] = _open_split(folder, f"{name} (melody)", melody)
    return opened


def _order(meta: dict[str, Any]) -> list[str]:
    """Names of the splits: the three usual ones first."""
    names = list(meta["splits"])
    return [name for name in SPLITS if name in names] + [n for n in names if n not in SPLITS]


def _open_split(folder: Path, name: str, split: dict[str, Any]) -> Ids:
    """The ids of one split as a memmap; sizes and the index are checked, bytes are not read."""
    file = split["file"]
    if Path(file).name != file:
        raise _broken(folder, f"{META_FILE} names a file outside the folder: {file}")
    pieces = split["pieces"]
    offsets = np.array([piece["offset"] for piece in pieces], dtype=np.int64)
    lengths = np.array([piece["length"] for piece in pieces], dtype=np.int64)
    ends = np.cumsum(lengths)
    if not len(pieces) or lengths.min() < 2 or not np.array_equal(offsets, ends - lengths):
        raise _broken(folder, f"the index of split {name!r} does not add up")
    if split["events"] != int(ends[-1]) - 2 * len(pieces):
        raise _broken(folder, f"split {name!r} has another number of events than its pieces")
    path = folder / file
    size = path.stat().st_size if path.is_file() else -1
    if size != int(ends[-1]) * _ID.itemsize:
        found = "is missing" if size < 0 else f"has {size:,} bytes"
        raise _broken(folder, f"{file} {found}, expected {int(ends[-1]) * _ID.itemsize:,} bytes")
    return np.memmap(path, dtype=_ID, mode="r")


def _broken(folder: Path, what: str) -> DatasetError:
    return DatasetError(f"{folder}: {what}; prepare it again with --force.")
