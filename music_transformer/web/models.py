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
from music_transformer.representations.base import Representation
from music_transformer.representations.registry import REPRESENTATIONS
from music_transformer.sampling import Sampling

MAX_LOADED = 2

_log = logging.getLogger(__name__)
_FIRST = ("piano", "bach")  # the released ones lead the list
CONTINUE, ACCOMPANY, FILL = "continue", "accompany", "fill"


@dataclass(frozen=True)
class Model:
    """A checkpoint on offer.

    Attributes:
        name: what the page calls it.
        folder: a checkpoint, or a run, whose best step is taken each time it is loaded.
        kind: the tokenizer's: performance, chorale, accompaniment.
        sampling: what it says of how to draw from it.
        anchors: whether it knows of notes to come.
    """

    name: str
    folder: Path
    kind: str
    sampling: Sampling = field(default_factory=Sampling)
    anchors: bool = False

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
    """The checkpoints with these names, or all that lie where names are looked up.

    Raises:
        CheckpointError: a name that is none, or nothing to offer at all.
    """
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
    return sorted(
        found.values(),
        key=lambda model: (
            _FIRST.index(model.name) if model.name in _FIRST else len(_FIRST),
            model.name,
        ),
    )


class Shelf:
    """The sessions used last; one more than fits puts the oldest back."""

    def __init__(self, device: str = "auto") -> None:
        self._device = device
        self._sessions: dict[Path, Session] = {}

    def session(self, model: Model) -> Session:
        """The loaded model.

        Raises:
            CheckpointError: it is gone or damaged.
        """
        folder = find_checkpoint(model.folder)
        session = self._sessions.pop(folder, None) or load_checkpoint(folder, self._device)
        self._sessions[folder] = session
        while len(self._sessions) > MAX_LOADED:
            del self._sessions[next(iter(self._sessions))]
        return session


def _folders() -> Iterator[Path]:
    """Every folder that may be a checkpoint, in the order in which names are looked up."""
    named = os.environ.get(SEARCH_VARIABLE)
    clone = checkout()
    roots = [Path(named)] if named else []
    roots.append(Path("checkpoints"))
    if clone is not None:
        roots.append(clone / "checkpoints")
    for root in roots:
        if root.is_dir():
            for folder in sorted(root.iterdir()):
                if not folder.name.startswith(".") and (folder / CONFIG).is_file():
                    yield folder


def _model(name: str, folder: Path) -> Model:
    """What the config of a checkpoint says of it.

    Raises:
        CheckpointError: it is damaged.
    """
    step = find_checkpoint(folder)
    config = read_config(step)
    try:
        return Model(
            name,
            folder,
            str(config["tokenizer"]["kind"]),
            sampling_of(config),
            bool(config["model"].get("anchors")),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{step / CONFIG}: not readable ({error}); restore it.") from error
