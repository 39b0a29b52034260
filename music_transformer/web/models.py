"""Which checkpoints the page offers, and the few that are kept in memory."""

import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from music_transformer.checkpoint.format import CONFIG, read_config, sampling_of
from music_transformer.checkpoint.hub import SEARCH_VARIABLE, find_checkpoint
from music_transformer.checkpoint.session import Session, load_checkpoint
from music_transformer.errors import CheckpointError
from music_transformer.files import checkout
from music_transformer.representations.base import REPRESENTATIONS, Representation
from music_transformer.sampling import Sampling

MAX_LOADED = 2

_log = logging.getLogger(__name__)
_FIRST = ("piano", "bach")  # the released ones lead the list
CONTINUE, ACCOMPANY, FILL = "continue", "accompany", "fill"


@dataclass(frozen=True)
class Model:
    """A checkpoint on offer, or a run, whose best step is taken each time it is loaded."""

    name: str
    folder: Path
    kind: str  # the tokenizer's: performance, chorale, accompaniment
    sampling: Sampling = field(default_factory=Sampling)
    anchors: bool = False  # whether it knows of notes to come

    @property
    def tasks(self) -> tuple[str, ...]:
        """What it can do with a motif."""
        kind = REPRESENTATIONS.get(self.kind, Representation)
        if kind.has_melody:
            return (ACCOMPANY,)
        if kind.accompanied:
            return (CONTINUE, ACCOMPANY)
        return (FILL if self.anchors else CONTINUE,)

    def to_dict(self) -> dict[str, Any]:
        """What the page is told."""
        sampling = self.sampling.resolved()
        return {
            "name": self.name,
            "kind": self.kind,
            "tasks": self.tasks,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "closeness": sampling.closeness,
        }


def available_models(names: Sequence[str] = ()) -> list[Model]:
    """The checkpoints with these names, or all that lie where names are looked up."""
    if names:
        return [_model(Path(name).name or name, find_checkpoint(name)) for name in names]
    found: dict[str, Model] = {}
    for folder in _folders():
        try:
            found.setdefault(folder.name, _model(folder.name, folder))
        except CheckpointError as error:
            _log.warning("not offered: %s", error)
    if not found:
        find_checkpoint(_FIRST[0])  # its message names all places
    place = {name: number for number, name in enumerate(_FIRST)}
    return sorted(found.values(), key=lambda one: (place.get(one.name, len(place)), one.name))


class Shelf:
    """The sessions used last; one more than fits puts the oldest back."""

    def __init__(self, device: str = "auto") -> None:
        self._device = device
        self._sessions: dict[Path, Session] = {}

    def session(self, model: Model) -> Session:
        """The loaded model."""
        folder = find_checkpoint(model.folder)
        session = self._sessions.pop(folder, None) or load_checkpoint(folder, self._device)
        self._sessions[folder] = session
        while len(self._sessions) > MAX_LOADED:
            del self._sessions[next(iter(self._sessions))]
        return session


def _folders() -> Iterator[Path]:
    """Every folder that may be a checkpoint, in the order in which names are looked up."""
    named, clone = os.environ.get(SEARCH_VARIABLE), checkout()
    roots = [Path(named)] if named else []
    for root in (*roots, Path("checkpoints"), *([clone / "checkpoints"] if clone else [])):
        for folder in sorted(root.iterdir()) if root.is_dir() else ():
            if not folder.name.startswith(".") and (folder / CONFIG).is_file():
                yield folder


def _model(name: str, folder: Path) -> Model:
    """What the config of a checkpoint says of it."""
    step = find_checkpoint(folder)
    config = read_config(step)
    try:
        kind, anchors = str(config["tokenizer"]["kind"]), bool(config["model"].get("anchors"))
        return Model(name, folder, kind, sampling_of(config), anchors)
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{step / CONFIG}: not readable ({error}); restore it.") from error
