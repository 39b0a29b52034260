"""Where checkpoints are: names, runs, copies; and the devices they may be loaded on."""

import os
import re
import shutil
import zipfile
from pathlib import Path

import torch

from music_transformer.checkpoint.format import (
    CONFIG,
    README,
    WEIGHTS,
    has_weights,
    is_made,
    read_config,
    read_weights,
)
from music_transformer.datasets.download import CHECKPOINTS, Download, check_file, fetch
from music_transformer.errors import CheckpointError, ConfigError
from music_transformer.files import checkout, followed, new_folder, output_lock, publish_folder
from music_transformer.progress import Progress

_RELEASED = (README, "memorisation.safetensors")  # comes with weights
SEARCH_VARIABLE = "MUSIC_TRANSFORMER_CHECKPOINTS"


def select_device(name: str = "auto") -> torch.device:
    """The device called ``name``; ``auto`` is the GPU where there is one, else the CPU.

    Raises:
        ConfigError: no device has this name, or it is not there.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ConfigError(f"device={name!r} is not known; try auto, cpu or cuda.") from error
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        count = torch.cuda.device_count()
        raise ConfigError(f"device={name}: {count} CUDA devices here; try --device cpu.")
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise ConfigError("device=mps: no MPS device here; try --device cpu.")
    if device.type not in ("cpu", "cuda", "mps"):
        raise ConfigError(f"device={name!r} is not supported; try auto, cpu or cuda.")
    return device


def find_checkpoint(name: str | Path) -> Path:
    """The folder with the weights that ``name`` means.

    Looked up as an existing path, in ``$MUSIC_TRANSFORMER_CHECKPOINTS``, in ``./checkpoints`` and
    in the checkout of an editable install. A run folder is followed to its best or latest step.

    Raises:
        CheckpointError: none of the four places has it.
    """
    places = _places(str(name))
    for _, place in places:
        if place is not None and place.is_dir():
            step = _step_of_run(place)
            if step is not None:
                return step
            if has_weights(place):
                return place
            if (place / CONFIG).is_file():
                raise CheckpointError(
                    f"{place}: no {WEIGHTS} in it; a run has none before its first saved step."
                )
    asked = Path(name)
    if asked.is_file():
        raise CheckpointError(f"{name} is a file; a checkpoint is the folder that holds {WEIGHTS}.")
    if asked.is_dir():
        raise CheckpointError(f"{name} is no checkpoint: it has neither {CONFIG} nor {WEIGHTS}.")
    looked = ", ".join(label for label, _ in places)
    fetch_it = f"`music-transformer download {name} --out checkpoints/{name}` fetches it"
    mend = fetch_it if str(name) in CHECKPOINTS else "Train one, or pass its folder"
    raise CheckpointError(f"no checkpoint {str(name)!r}; looked for: {looked}. {mend}.")


def copy_checkpoint(source: Path, out: Path) -> None:
    """Copy the folder of a checkpoint to `out`, in one step; it is read first, so it is whole.

    Of a checkpoint that is replaced, files that do not come with weights stay.

    Raises:
        CheckpointError: it is no such folder, or a file of it is missing or damaged.
    """
    if not is_checkpoint(source):
        missing = WEIGHTS if (source / CONFIG).is_file() else CONFIG
        raise CheckpointError(f"{source}: no {missing} in it, so this is no checkpoint folder.")
    read_config(source)
    read_weights(source)
    names = {path.name for path in source.iterdir() if path.is_file()}
    final = followed(out)
    with output_lock(final), new_folder(final) as ready:
        for name in names:
            shutil.copyfile(source / name, ready / name)
        publish_folder(ready, final, made=lambda name: name in _RELEASED or is_made(name))


def fetch_checkpoint(
    download: Download, out: Path, *, url: str | None = None, progress: Progress | None = None
) -> None:
    """Download the archive of released weights, as `fetch` does, and unpack it to `out`."""
    archive = out.with_name(f".{download.sha256[:16]}-{download.file}")  # nobody else's name
    fetch(download, archive, url=url, progress=progress)
    unpack_checkpoint(download, archive, out)
    archive.unlink()


def unpack_checkpoint(download: Download, archive: Path, out: Path) -> None:
    """Unpack a local copy of an archive to the folder `out`, once its size and sha256 are right."""
    if not archive.is_file():
        raise CheckpointError(f"{archive}: no such folder or file; expected {download.file}.")
    check_file(download, archive, delete=False, origin=str(archive))
    with new_folder(out) as temporary:
        with zipfile.ZipFile(archive) as file:
            file.extractall(temporary)
        copy_checkpoint(temporary, out)


def is_checkpoint(folder: Path) -> bool:
    """Whether `folder` holds a configuration and weights, in one file or in several."""
    return has_weights(folder) and (folder / CONFIG).is_file()


def named_step(pointer: Path) -> Path | None:
    """The folder of a run that its text file ``latest`` or ``best`` names; None: no such file."""
    if not pointer.is_file():
        return None
    name = pointer.read_text(encoding="utf-8", errors="replace").strip()
    return pointer.parent / (name if re.fullmatch(r"step-\d+", name) else "(no step)")


def _places(name: str) -> list[tuple[str, Path | None]]:
    """The four places of a name, each with the words an error uses for it."""
    folder = os.environ.get(SEARCH_VARIABLE)
    variable = Path(folder) / name if folder else None
    clone = checkout()
    editable = clone / "checkpoints" / name if clone is not None else None
    return [
        (f"the path {name}", Path(name)),
        (f"${SEARCH_VARIABLE} ({variable or 'not set'})", variable),
        (f"./checkpoints ({Path('checkpoints') / name})", Path("checkpoints") / name),
        (f"the checkout ({editable or 'not an editable install'})", editable),
    ]


def _step_of_run(folder: Path) -> Path | None:
    """The best step of a run folder, else its latest; None where it is no run with a step."""
    for pointer in ("best", "latest"):
        step = named_step(folder / pointer)
        if step is not None and step.is_dir():
            return step
    return None
