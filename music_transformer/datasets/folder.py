"""A folder of MIDI files, as a corpus.

All files named ``.mid``, ``.midi``, ``.kar`` or ``.rmi``, in any case and at any depth, are tried;
a file that cannot be read is skipped and listed with its reason. The split is the one of `splits`.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from music_transformer.datasets.encoding import Source, Watcher
from music_transformer.datasets.prepare import Corpus
from music_transformer.errors import DatasetError
from music_transformer.midi import SUFFIXES


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


def list_folder(source: Path, work: Path | None = None, watcher: Watcher | None = None) -> Corpus:
    """The MIDI files of a folder; a `Listing` that unpacks nothing.

    Raises:
        DatasetError: see `find_midi`.
    """
    return Corpus(
        source.resolve().name, [(item.name, item.path, None) for item in find_midi(source)]
    )


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
