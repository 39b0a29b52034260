"""Counting baselines: what a table of counts reaches, printed beside the NLL of every model.

A model that does not beat these numbers has learned less than counting does. All are counted on the
training split and measured on another, in nats per event, over the same events as `nll`: START and
END are context, never counted. What is counted is the representation's to say.

Numbers are exact counts in float64. They are kept in ``baselines.json`` beside the data, under the
checksum of the data, so that 22 million events are counted once.
"""

import json
import logging
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from music_transformer.files import atomic_path

if TYPE_CHECKING:
    from music_transformer.datasets.prepared import PreparedData

BASELINES_FILE = "baselines.json"
BASELINES_FORMAT = 1

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Baselines:
    """Baselines of one split, in nats per event, weakest first.

    `values` maps the name of a baseline to its NLL; `best` is the lowest of them.
    """

    split: str
    events: int
    values: dict[str, float]

    @property
    def best(self) -> float:
        """The lowest baseline, nats per event: what a model has to beat."""
        return min(self.values.values())

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON values."""
        return asdict(self)


def count_baselines(
    data: "PreparedData", split: str = "validation", *, cache: bool = True
) -> Baselines:
    """Baselines of `split`, counted on the training split of `data`.

    With `cache`, the result is taken from, or left in, ``baselines.json`` in the folder of the
    data; a file of other data or of another format is ignored, a folder that cannot be written is
    fine.

    Raises:
        DatasetError: the data has no training split, or `split` holds no events.
    """
    kept = _read_cache(data) if cache else {}
    if split in kept:
        return kept[split]
    train, pieces = data.pieces("train"), data.pieces(split)
    values = data.tokenizer.baselines(train, pieces)
    baselines = Baselines(split, sum(len(piece) - 2 for piece in pieces), values)
    if cache:
        _write_cache(data, {**kept, split: baselines})
    return baselines


def _read_cache(data: "PreparedData") -> dict[str, Baselines]:
    """Baselines by split, as an earlier count on the same data left them; empty without one."""
    path = Path(data.path) / BASELINES_FILE
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        if kept["format"] != BASELINES_FORMAT or kept["checksum"] != data.checksum:
            return {}
        return {entry["split"]: Baselines(**entry) for entry in kept["baselines"]}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError) as error:
        _LOG.warning("%s: not readable (%s); counting again.", path, error)
        return {}


def _write_cache(data: "PreparedData", baselines: dict[str, Baselines]) -> None:
    """Replace ``baselines.json`` in one step; a folder that cannot be written is left alone."""
    content = {
        "format": BASELINES_FORMAT,
        "checksum": data.checksum,
        "baselines": [entry.to_dict() for entry in _sorted(baselines.values())],
    }
    path = Path(data.path) / BASELINES_FILE
    try:
        with atomic_path(path) as temporary:
            temporary.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        _LOG.info("%s: baselines are not kept (%s).", path, error)


def _sorted(baselines: Iterable[Baselines]) -> list[Baselines]:
    return sorted(baselines, key=lambda entry: entry.split)
