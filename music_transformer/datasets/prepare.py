"""A corpus of MIDI files -> prepared data, in a way that may be interrupted.

What a corpus is, a function says: `Listing`, source -> (name, path, split) of each file. The rest
is the same for all. What is done is kept in a folder beside the output, found again by the mark in
it and removed with the last step; one command at a time prepares an output.

Corpora bring their split. A folder of MIDI files (of any name that `SUFFIXES` has, in any case and
at any depth) gets one by this rule, which depends on the music alone, not on names, order or dates:

1. pieces with equal ids are one group, so that a copy never stands in two splits;
2. groups are put in the order of the sha256 of their ids (a fixed shuffle);
3. with shares such as 80/10/10, validation has its share of the groups, rounded, and at least one
   where there are two; test its share, rounded; training has the rest, and always at least one. The
   first groups are training, then validation, then test.

The result is written to ``meta.json``, piece by piece.
"""

import contextlib
import glob
import os
import shutil
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from music_transformer.datasets.encoding import (
    Encoded,
    MidiSettings,
    Source,
    encode_files,
    melodies_of,
    sum_warnings,
)
from music_transformer.datasets.prepared import (
    SPLITS,
    Piece,
    PreparedData,
    check_destination,
    write_prepared,
)
from music_transformer.errors import ConfigError, DatasetError
from music_transformer.files import errors_name, output_lock
from music_transformer.midi.read import SUFFIXES
from music_transformer.progress import Progress

Shares = tuple[float, float, float]

DEFAULT_SHARES: Shares = (80, 10, 10)


def parse_shares(text: str) -> Shares:
    """The shares of training, validation and test from a text such as ``80/10/10``.

    Raises:
        ConfigError: not three numbers, or one is negative, or training has nothing.
    """
    try:
        train, validation, test = (float(part) for part in text.split("/"))
    except ValueError as error:
        raise ConfigError(f"split {text!r} is not three shares; try 80/10/10.") from error
    if not (0 < train < float("inf") and 0 <= validation < float("inf") and 0 <= test < 1e9):
        raise ConfigError(f"split {text!r}: training needs a share, none is negative.")
    return train, validation, test


def split_pieces(digests: Sequence[str], shares: Shares = DEFAULT_SHARES) -> list[str]:
    """The split of each piece, by the rule above.

    Args:
        digests: sha256 of each piece's ids, hexadecimal.
        shares: of training, validation and test; only their ratio counts.
    """
    groups = sorted(set(digests))
    n_train, n_validation, _ = _counts(len(groups), shares)
    split_of = {}
    for rank, digest in enumerate(groups):
        if rank < n_train:
            split_of[digest] = "train"
        elif rank < n_train + n_validation:
            split_of[digest] = "validation"
        else:
            split_of[digest] = "test"
    return [split_of[digest] for digest in digests]


def _counts(groups: int, shares: Shares) -> tuple[int, int, int]:
    """How many groups training, validation and test get."""
    _, validation, test = (int(groups * share / sum(shares) + 0.5) for share in shares)
    if shares[1] > 0:
        validation = max(validation, 1)
    validation = min(validation, max(groups - 1, 0))
    test = min(test, max(groups - 1 - validation, 0))
    return groups - validation - test, validation, test


_MARK = "half-prepared-by-music-transformer"


@dataclass(frozen=True)
class Corpus:
    """MIDI files and what is said of them.

    Attributes:
        name: for reports.
        files: (name, path, split) of each; all splits are None where the rule above is to
            divide them.
        settings: where they are from; kept in ``meta.json``.
    """

    name: str
    files: Sequence[tuple[str, Path, str | None]]
    settings: dict[str, str] = field(default_factory=dict)


#: source, folder for what must be unpacked, progress -> what is there.
Listing = Callable[[Path, Path, Progress], Corpus]


def prepare_corpus(
    listing: Listing,
    source: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    settings: MidiSettings,
    shares: Shares = DEFAULT_SHARES,
    jobs: int | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> PreparedData:
    """Encode the files of a corpus and write them to `out`.

    Raises:
        DatasetError: the source is missing or of another kind, or no file could be read.
        ConfigError: `out` exists and `force` is off, or another command is preparing it.
        OSError: `out` cannot be written.
    """
    destination, progress = check_destination(out, force=force), progress or Progress()
    with output_lock(destination):
        check_destination(out, force=force)  # another command may have just made it
        with _half_prepared(destination) as work:
            corpus = listing(Path(source), work, progress)
            sources = [Source(name, path) for name, path, _ in corpus.files]
            encoded, skipped = encode_files(sources, settings, work, jobs=jobs, progress=progress)
            if not encoded:
                raise DatasetError(
                    f"{source}: none of its {len(sources)} MIDI files could be read; "
                    f"{skipped[0].name}: {skipped[0].reason}"
                )
            split_of = {name: split for name, _, split in corpus.files if split is not None}
            report: dict[str, object] = {"warnings": sum_warnings(encoded)}
            division = "the one of the corpus"
            if not split_of:
                splits = split_pieces([item.sha256 for item in encoded], shares)
                split_of = {item.name: split for item, split in zip(encoded, splits, strict=True)}
                report["duplicates"] = find_duplicates(encoded)
                division = "/".join(f"{share:g}" for share in shares)
            return write_prepared(
                Path(out),
                tokenizer=settings.make_tokenizer(),
                corpus=corpus.name,
                splits={name: _pieces(encoded, split_of, name) for name in SPLITS},
                melodies=melodies_of(encoded, split_of, settings),
                skipped=skipped,
                settings={
                    **corpus.settings,
                    "piano_only": settings.piano_only,
                    "one_pedal": settings.one_pedal,
                    "keep_silence": settings.keep_silence,
                    "split": division,
                },
                report=report,
                locked=True,
            )


def find_duplicates(encoded: Sequence[Encoded]) -> list[list[str]]:
    """Names of the pieces that have the same ids, group by group."""
    names: dict[str, list[str]] = defaultdict(list)
    for item in encoded:
        names[item.sha256].append(item.name)
    return [group for group in names.values() if len(group) > 1]


def find_work(out: Path) -> Path | None:
    """The folder of an interrupted preparation of `out`, if there is one."""
    for name in sorted(glob.glob(f".{glob.escape(out.name)}-*.work", root_dir=out.parent)):
        if (out.parent / name / _MARK).is_file():
            return out.parent / name
    return None


@contextmanager
def _half_prepared(out: Path) -> Iterator[Path]:
    """The folder of what is done for `out`; it stays only where there is something to go on from.

    It is made under a new name and marked at once: only a marked folder is used or removed.
    """
    work = find_work(out)
    if work is None:
        with errors_name(out):
            made = tempfile.mkdtemp(prefix=f".{out.name}-", suffix=".work", dir=out.parent)
            work = Path(made)
            try:
                (work / _MARK).touch(exist_ok=False)
            except OSError:
                work.rmdir()
                raise
    try:
        yield work
    except BaseException:
        if all(path.is_dir() or path.name == _MARK for path in work.rglob("*")):
            shutil.rmtree(work, ignore_errors=True)
        raise
    with contextlib.suppress(OSError):
        (work / _MARK).rename(work / f"{_MARK}-done")  # no later command finds half of it
    shutil.rmtree(work, ignore_errors=True)


def _pieces(encoded: Sequence[Encoded], split_of: dict[str, str], split: str) -> Iterator[Piece]:
    """Name and ids of the pieces of one split."""
    return ((item.name, item.ids()) for item in encoded if split_of[item.name] == split)


def find_midi(
    folder: str | os.PathLike[str], passed_over: Counter[str] | None = None
) -> list[Source]:
    """The MIDI files in a folder, by their names, in the order of their relative paths.

    Links to files are followed, links to folders are not. A folder that may not be read is listed
    too, so that it is reported like a file that cannot be read. The suffixes of all other files are
    counted in `passed_over`.

    Raises:
        DatasetError: there is no such folder, or no such file in it.
    """
    root = Path(folder)
    if not root.is_dir():
        what = "this is a file, not a folder" if root.exists() else "no such folder"
        raise DatasetError(f"{root}: {what}; give a folder of MIDI files.")
    sources = sorted(
        _walk(root, Counter() if passed_over is None else passed_over),
        key=lambda source: source.name,
    )
    if not sources:
        raise DatasetError(f"{root}: no file in it is named {', '.join(SUFFIXES)}.")
    return sources


def list_folder(source: Path, work: Path | None = None, progress: Progress | None = None) -> Corpus:
    """The MIDI files of a folder; a `Listing` that unpacks nothing.

    Raises:
        DatasetError: see `find_midi`.
    """
    others: Counter[str] = Counter()
    files = [(item.name, item.path, None) for item in find_midi(source, others)]
    settings = {}
    if others:
        settings["passed_over"] = ", ".join(
            f"{count} {suffix}" for suffix, count in others.most_common()
        )
        if progress is not None:
            progress.info(f"passed over, by suffix: {settings['passed_over']}")
    return Corpus(source.resolve().name, files, settings)


def _walk(root: Path, passed_over: Counter[str]) -> Iterator[Source]:
    """Every file with a MIDI name, and every folder that cannot be listed."""
    closed: list[str] = []
    for folder, _, files in os.walk(root, onerror=lambda error: closed.append(error.filename)):
        for file in files:
            if file.lower().endswith(SUFFIXES):
                path = Path(folder, file)
                yield Source(path.relative_to(root).as_posix(), path)
            else:
                passed_over[Path(file).suffix.lower() or "without a suffix"] += 1
    for name in closed:
        yield Source(Path(name).relative_to(root).as_posix(), Path(name))
