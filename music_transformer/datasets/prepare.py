"""A corpus of MIDI files -> prepared data, in a way that may be interrupted.

What a corpus is, a function says: `Listing`, source -> (name, path, split) of each file. The rest
is the same for all. What is done is kept in a folder beside the output, found again by the mark in
it and removed with the last step; one command at a time prepares an output.
"""

import contextlib
import glob
import os
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from music_transformer.datasets.encoding import (
    Encoded,
    MidiSettings,
    Source,
    Watcher,
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
from music_transformer.datasets.splits import DEFAULT_SHARES, Shares, split_pieces
from music_transformer.errors import DatasetError
from music_transformer.files import errors_name, output_lock

_MARK = "half-prepared-by-music-transformer"


@dataclass(frozen=True)
class Corpus:
    """MIDI files and what is said of them.

    Attributes:
        name: for reports.
        files: (name, path, split) of each; all splits are None where the rule of `splits` is to
            divide them.
        settings: where they are from; kept in ``meta.json``.
    """

    name: str
    files: Sequence[tuple[str, Path, str | None]]
    settings: dict[str, str] = field(default_factory=dict)


#: source, folder for what must be unpacked, watcher -> what is there.
Listing = Callable[[Path, Path, Watcher], Corpus]


def prepare_corpus(
    listing: Listing,
    source: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    settings: MidiSettings,
    shares: Shares = DEFAULT_SHARES,
    jobs: int | None = None,
    force: bool = False,
    watcher: Watcher | None = None,
) -> PreparedData:
    """Encode the files of a corpus and write them to `out`.

    Raises:
        DatasetError: the source is missing or of another kind, or no file could be read.
        ConfigError: `out` exists and `force` is off, or another command is preparing it.
        OSError: `out` cannot be written.
    """
    destination, watcher = check_destination(out, force=force), watcher or Watcher()
    with output_lock(destination):
        check_destination(out, force=force)  # another command may have just made it
        with _half_prepared(destination) as work:
            corpus = listing(Path(source), work, watcher)
            sources = [Source(name, path) for name, path, _ in corpus.files]
            encoded, skipped = encode_files(sources, settings, work, jobs=jobs, watcher=watcher)
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
