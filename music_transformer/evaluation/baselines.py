"""Counting baselines: what a table of counts reaches, over the same events as `nll`.

The representation says what is counted. The results are kept beside the data, under its checksum,
so that 22 million events are counted once.
"""

import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING

from music_transformer.files import atomic_path

if TYPE_CHECKING:
    from music_transformer.datasets.prepared import PreparedData

BASELINES_FILE = "baselines.json"
BASELINES_FORMAT = 1

_LOG = logging.getLogger(__name__)


def count_baselines(data: "PreparedData", split: str = "validation") -> dict[str, float]:
    """Baselines of `split` in nats per event by name, weakest first, counted on the training split.

    A kept file of other data or of another format is ignored, a folder that cannot be written is
    fine.

    Raises:
        DatasetError: the data has no training split, or `split` holds no events.
    """
    path = Path(data.path) / BASELINES_FILE
    kept = _read(path, data.checksum)
    if split in kept:
        return kept[split]
    kept[split] = data.tokenizer.baselines(data.pieces("train"), data.pieces(split))
    content = {
        "format": BASELINES_FORMAT,
        "checksum": data.checksum,
        "baselines": [{"split": name, "values": kept[name]} for name in sorted(kept)],
    }
    try:
        with atomic_path(path) as temporary:
            temporary.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        _LOG.info("%s: baselines are not kept (%s).", path, error)
    return kept[split]


def _read(path: Path, checksum: str) -> dict[str, dict[str, float]]:
    """Baselines by split that an earlier count on the same data left."""
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        if kept["format"] != BASELINES_FORMAT or kept["checksum"] != checksum:
            return {}
        return {entry["split"]: dict(entry["values"]) for entry in kept["baselines"]}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError) as error:
        _LOG.warning("%s: not readable (%s); counting again.", path, error)
        return {}
