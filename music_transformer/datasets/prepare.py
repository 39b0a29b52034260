"""A corpus of MIDI files -> prepared data, in a way that may be interrupted.

A `Listing` says which files there are and which split each belongs to; the rest is the same for all
corpora. What is done is kept in a folder beside the output, found again by the mark in it and
removed with the last step; one command at a time prepares an output.

A folder of MIDI files is split by a rule that depends on the music alone, not on names, order or
dates:

1. pieces with equal ids are one group, so that a copy never stands in two splits;
2. groups are put in the order of the sha256 of their ids (a fixed shuffle);
3. with shares such as 80/10/10, validation has its share of the groups, rounded, and at least one
   where there are two; test its share, rounded; training has the rest, and always at least one. The
   first groups are training, then validation, then test.
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
    MidiSettings,
    Source,
    encode_files,
    melodies_of,
    pieces_of,
)
from music_transformer.datasets.prepared import (
    SPLITS,
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
    """The shares of training, validation and test from ``80/10/10`` or the like, or ConfigError."""
    try:
        train, validation, test = (float(part) for part in text.split("/"))
    except ValueError as error:
        raise ConfigError(f"split {text!r} is not three shares; try 80/10/10.") from error
    if not (0 < train < float("inf") and 0 <= validation < float("inf") and 0 <= test < 1e9):
        raise ConfigError(f"split {text!r}: training needs a share, none is negative.")
    return train, validation, test


def split_pieces(digests: Sequence[str], shares: Shares = DEFAULT_SHARES) -> list[str]:
    """The split of each piece, given by the sha256 of its ids, by the rule above.

    Only the ratio of the shares counts.
    """
    groups = sorted(set(digests))
    _, validation, test = (int(len(groups) * share / sum(shares) + 0.5) for share in shares)
    if shares[1] > 0:
        validation = max(validation, 1)
    validation = min(validation, max(len(groups) - 1, 0))
    test = min(test, max(len(groups) - 1 - validation, 0))
    train = len(groups) - validation - test
    splits = ["train"] * train + ["validation"] * validation + ["test"] * test
    split_of = dict(zip(groups, splits, strict=True))
    return [split_of[digest] for digest in digests]


_MARK = "half-prepared-by-music-transformer"


@dataclass(frozen=True)
class Corpus:
    """MIDI files; all their splits are None where the rule above is to divide them."""

    name: str
    files: Sequence[Source]
    settings: dict[str, str] = field(default_factory=dict)  # where they are from, for meta.json


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
            files = corpus.files
            encoded, skipped = encode_files(files, settings, work, jobs=jobs, progress=progress)
            if not encoded:
                raise DatasetError(
                    f"{source}: none of its {len(files)} MIDI files could be read; "
                    f"{skipped[0].name}: {skipped[0].reason}"
                )
            split_of = {file.name: file.split for file in files if file.split is not None}
            warnings = sum((Counter(item.warnings) for item in encoded), Counter[str]())
            report: dict[str, object] = {"warnings": dict(warnings.most_common())}
            division = "the one of the corpus"
            if not split_of:
                splits = split_pieces([item.sha256 for item in encoded], shares)
                split_of = {item.name: split for item, split in zip(encoded, splits, strict=True)}
                same: dict[str, list[str]] = defaultdict(list)  # names by the ids of a piece
                for item in encoded:
                    same[item.sha256].append(item.name)
                report["duplicates"] = [names for names in same.values() if len(names) > 1]
                division = "/".join(f"{share:g}" for share in shares)
            return write_prepared(
                Path(out),
                tokenizer=settings.make_tokenizer(),
                corpus=corpus.name,
                splits={name: pieces_of(encoded, split_of, name) for name in SPLITS},
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


def list_folder(source: Path, work: Path, progress: Progress) -> Corpus:
    """The MIDI files (`SUFFIXES`, in any case and at any depth) of a folder, by relative path.

    Links to files are followed, links to folders are not. A folder that may not be read is listed
    too, so that it is reported like a file. Raises DatasetError where there is nothing.
    """
    if not source.is_dir():
        what = "this is a file, not a folder" if source.exists() else "no such folder"
        raise DatasetError(f"{source}: {what}; give a folder of MIDI files.")
    found: list[Path] = []
    others: Counter[str] = Counter()
    closed = found.append  # folders that may not be read
    for folder, _, files in os.walk(source, onerror=lambda error: closed(Path(error.filename))):
        for path in (Path(folder, file) for file in files):
            if path.name.lower().endswith(SUFFIXES):
                found.append(path)
            else:
                others[path.suffix.lower() or "without a suffix"] += 1
    if not found:
        raise DatasetError(f"{source}: no file in it is named {', '.join(SUFFIXES)}.")
    settings = {}
    if others:
        passed_over = ", ".join(f"{count} {suffix}" for suffix, count in others.most_common())
        settings["passed_over"] = passed_over
        progress.info(f"passed over, by suffix: {passed_over}")
    named = sorted((path.relative_to(source).as_posix(), path) for path in found)
    return Corpus(source.resolve().name, [Source(*file) for file in named], settings)
