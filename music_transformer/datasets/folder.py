"""A folder of MIDI files -> prepared data.

All files named ``.mid``, ``.midi`` or ``.kar``, in any case and at any depth, are tried; a file
that cannot be read is skipped and listed with its reason. The split is the one of `splits`.
"""

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
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
    work_folder,
    write_prepared,
)
from music_transformer.datasets.splits import DEFAULT_SHARES, Shares, split_pieces
from music_transformer.errors import DatasetError

SUFFIXES = (".mid", ".midi", ".kar")


def find_midi(folder: str | os.PathLike[str]) -> list[Source]:
    """The MIDI files in a folder, by their names, in the order of their relative paths.

    Links to files are followed, links to folders are not. A folder that may not be read is listed
    too, so that it is reported like a file that cannot be read.

    Raises:
        DatasetError: there is no such folder, or no such file in it.
    """
    root = Path(folder)
    if not root.is_dir():
        what = "this is a file, not a folder" if root.exists() else "no such folder"
        raise DatasetError(f"{root}: {what}; give a folder of MIDI files.")
    sources = sorted(_walk(root), key=lambda source: source.name)
    if not sources:
        raise DatasetError(f"{root}: no file in it is named {', '.join(SUFFIXES)}.")
    return sources


def prepare_folder(
    source: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    settings: MidiSettings,
    shares: Shares = DEFAULT_SHARES,
    jobs: int | None = None,
    force: bool = False,
    watcher: Watcher | None = None,
) -> PreparedData:
    """Encode all MIDI files of a folder and write them to `out`.

    Raises:
        DatasetError: no file could be read.
        ConfigError: `out` exists and `force` is off.
    """
    destination = check_destination(out, force=force)
    root = Path(source)
    work = work_folder(destination)
    sources = find_midi(root)
    encoded, skipped = encode_files(sources, settings, work, jobs=jobs, watcher=watcher)
    if not encoded:
        raise DatasetError(
            f"{root}: none of its {len(sources)} MIDI files could be read; "
            f"{skipped[0].name}: {skipped[0].reason}"
        )
    splits = split_pieces([item.sha256 for item in encoded], shares)
    split_of = {item.name: split for item, split in zip(encoded, splits, strict=True)}
    return write_prepared(
        destination,
        tokenizer=settings.make_tokenizer(),
        corpus=root.resolve().name,
        splits={name: _pieces(encoded, split_of, name) for name in SPLITS},
        melodies=melodies_of(encoded, split_of, settings),
        skipped=skipped,
        settings={
            "piano_only": settings.piano_only,
            "keep_silence": settings.keep_silence,
            "split": "/".join(f"{share:g}" for share in shares),
        },
        report={"warnings": sum_warnings(encoded), "duplicates": find_duplicates(encoded)},
    )


def find_duplicates(encoded: Sequence[Encoded]) -> list[list[str]]:
    """Names of the pieces that have the same ids, group by group."""
    names: dict[str, list[str]] = defaultdict(list)
    for item in encoded:
        names[item.sha256].append(item.name)
    return [group for group in names.values() if len(group) > 1]


def _pieces(encoded: Sequence[Encoded], split_of: Mapping[str, str], split: str) -> Iterator[Piece]:
    """Name and ids of the pieces of one split."""
    return ((item.name, item.ids()) for item in encoded if split_of[item.name] == split)


def _walk(root: Path) -> Iterator[Source]:
    """Every file with a MIDI name, and every folder that cannot be listed."""
    closed: list[str] = []
    for folder, _, files in os.walk(root, onerror=lambda error: closed.append(error.filename)):
        for file in files:
            if file.lower().endswith(SUFFIXES):
                path = Path(folder, file)
                yield Source(path.relative_to(root).as_posix(), path)
    for name in closed:
        yield Source(Path(name).relative_to(root).as_posix(), Path(name))
