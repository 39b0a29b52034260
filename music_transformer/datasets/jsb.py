"""JSB Chorales on the sixteenth grid: the JSON file of the corpus -> grids of pitches.

The file is ``{"train": [...], "valid": [...], "test": [...]}``; a piece is a list of sixteenths,
each a list of four MIDI pitches, soprano, alto, tenor, bass; -1 is silence. The split is the one
of the file (229 / 76 / 77 chorales). It knows no ties, titles or tempo: held and repeated notes
look the same.

Source: Boulanger-Lewandowski et al. 2012; file ``Jsb16thSeparated.json`` of the repository
czhuang/JSB-Chorales-dataset.
"""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from music_transformer.datasets.prepared import PreparedData, check_destination, write_prepared
from music_transformer.errors import DatasetError
from music_transformer.representations import ChoraleTokenizer

Grid = npt.NDArray[np.int64]

FILE_NAME = "Jsb16thSeparated.json"
_SPLIT_OF = {"train": "train", "valid": "validation", "test": "test"}
_HINT = f"expected {FILE_NAME}; `music-transformer download jsb` fetches it"


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
        raise DatasetError(f"{path}: no such file; {_HINT}.")
    return path


def _parse(path: Path) -> dict[str, list[Grid]]:
    """The grids of a JSON file, split by split."""
    try:
        corpus = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:  # wrong encoding is a ValueError too
        raise DatasetError(f"{path}: not a JSON file; {_HINT}.") from error
    if not isinstance(corpus, dict) or set(corpus) != set(_SPLIT_OF):
        raise DatasetError(f"{path}: no JSON object with train, valid and test; {_HINT}.")
    grids = {}
    for key, split in _SPLIT_OF.items():
        if not isinstance(corpus[key], list) or not corpus[key]:
            raise DatasetError(f"{path}: {key} holds no list of chorales; {_HINT}.")
        grids[split] = [
            _grid(path, f"{key}[{index}]", steps) for index, steps in enumerate(corpus[key])
        ]
    return grids


def _grid(path: Path, place: str, steps: Any) -> Grid:
    """One chorale as an array (T, 4), every value a pitch or -1."""
    try:
        grid = np.array(steps)
    except ValueError as error:  # rows of different lengths
        raise DatasetError(f"{path}: {place} is not a list of four pitches; {_HINT}.") from error
    if (
        grid.ndim != 2
        or grid.shape[1] != 4
        or not np.issubdtype(grid.dtype, np.signedinteger)
        or not len(grid)
    ):
        raise DatasetError(f"{path}: {place} is not a list of four pitches; {_HINT}.")
    if grid.min() < -1 or grid.max() > 127:
        raise DatasetError(f"{path}: {place} has a pitch outside -1..127; {_HINT}.")
    return grid.astype(np.int64)
