"""The files of a checkpoint; nothing in it is ever unpickled.

``config.json`` is ``{"format": 1, "kind": ..., "model": ..., "tokenizer": ..., "training": ...}``;
``kind`` says which model class the ``model`` part configures. There may be ``"sampling"``: how to
draw from this model where the call does not say. Weights may be in half precision; a loaded model
is always float32. Those too large for one ``model.safetensors`` stand in several, with
``model.safetensors.index.json`` to say which is where.
"""

import json
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from music_transformer.errors import CheckpointError, ConfigError
from music_transformer.model.registry import KINDS, kind_of
from music_transformer.sampling import Sampling

if TYPE_CHECKING:
    from music_transformer.representations.base import Representation

FORMAT = 1
WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
CONFIG = "config.json"
README = "README.md"
_SHARD = re.compile(r"model-\d{5}-of-\d{5}\.safetensors")
_ENTRY_BYTES = 160  # a weight's type, shape and place, which stand before the numbers; generous
_LARGEST = 2**53  # bound on every number of a model and of sampling


def write_files(
    folder: Path,
    model: Any,
    tokenizer: "Representation",
    *,
    training: Mapping[str, Any],
    sampling: Sampling | None = None,
    half: bool = False,
    max_file_bytes: int | None = None,
) -> None:
    """Write weights and config into ``folder`` as it is; who calls makes the whole atomic."""
    weights = {name: on_cpu(tensor, half=half) for name, tensor in model.state_dict().items()}
    _write_weights(folder, weights, max_file_bytes)
    said = {} if sampling is None else sampling.to_dict()
    config = {
        "format": FORMAT,
        "kind": kind_of(model.config),
        "model": model.config.to_dict(),
        "tokenizer": tokenizer.to_config(),
        **({"sampling": said} if said else {}),
        "training": dict(training),
    }
    (folder / CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def read_config(folder: Path) -> dict[str, Any]:
    """``config.json`` of a checkpoint, checked for form.

    Raises:
        CheckpointError: it is missing, no JSON, of a later format or of an unknown kind, or what it
            says of sampling makes no sense.
    """
    path = folder / CONFIG
    config = read_json(path)
    missing = [key for key in ("model", "tokenizer", "training") if key not in config]
    if missing:
        raise CheckpointError(f"{path}: no {missing[0]!r} in it; restore it from its source.")
    if config.get("format", FORMAT) != FORMAT:
        raise CheckpointError(
            f"{path}: format {config['format']}, this version reads {FORMAT}; update the package."
        )
    for key in ("model", "tokenizer", "training", "sampling"):
        if not isinstance(config.get(key, {}), dict):
            raise CheckpointError(f"{path}: {key!r} is no object; restore it from its source.")
    if str(config.get("kind", "decoder")) not in KINDS:
        known = ", ".join(sorted(KINDS))
        raise CheckpointError(f"{path}: kind {config['kind']!r} is unknown; known: {known}.")
    for key in ("model", "sampling"):
        for name, value in config.get(key, {}).items():
            if isinstance(value, int | float) and abs(value) >= _LARGEST:
                raise CheckpointError(f"{path}: {key}: {name} is out of range; restore the file.")
    try:
        sampling_of(config)
    except ConfigError as error:
        raise CheckpointError(f"{path}: sampling: {error}") from error
    return config


def sampling_of(config: Mapping[str, Any]) -> Sampling:
    """What a config that was read says of how to draw from the model."""
    return Sampling.from_dict(config.get("sampling", {}))


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file of a checkpoint; `CheckpointError` where there is none."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise CheckpointError(f"{path} is missing; the checkpoint is not complete.") from error
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: not readable as JSON ({error}); restore it.") from error
    if not isinstance(content, dict):
        raise CheckpointError(f"{path}: not a JSON object; restore it from its source.")
    return content


def read_tensors(path: Path) -> dict[str, Tensor]:
    """All tensors of a safetensors file, on the CPU; `CheckpointError` where it is not whole."""
    try:
        return load_file(path, device="cpu")
    except FileNotFoundError as error:
        raise CheckpointError(f"{path} is missing; the checkpoint is not complete.") from error
    except (SafetensorError, OSError, ValueError) as error:
        raise CheckpointError(
            f"{path}: damaged or cut short ({error}); restore it from its source."
        ) from error


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write a safetensors file, readable by whom any new file is (`save_file` makes it 0600)."""
    path.write_bytes(save(dict(tensors)))


def has_weights(folder: Path) -> bool:
    """Whether ``folder`` holds weights, in one file or in several."""
    return (folder / WEIGHTS).is_file() or (folder / INDEX).is_file()


def is_made(name: str) -> bool:
    """Whether a file of this name is part of what a save writes anew."""
    return name in (WEIGHTS, INDEX, CONFIG) or _SHARD.fullmatch(name) is not None


def load_weights(model: Any, folder: Path, *, zero: Collection[str] = ()) -> None:
    """Put the weights of a checkpoint folder into ``model``, every one of them and no other.

    Those whose last part of the name is in ``zero`` become zero where the checkpoint has none.

    Raises:
        CheckpointError: a weight is missing, unknown or of another shape; the first is named.
    """
    path, weights = read_weights(folder)
    for name, tensor in model.state_dict().items():
        if name not in weights and name.rpartition(".")[2] in zero:
            weights[name] = torch.zeros_like(tensor)
    check_weights(path, weights, model.state_dict())
    put_weights(weights, model)


def read_weights(folder: Path) -> tuple[Path, dict[str, Tensor]]:
    """The weights of a folder, and the file to name where they do not fit.

    Raises:
        CheckpointError: a file of them is missing or damaged, or lacks what the index promises.
    """
    index = folder / INDEX
    if (folder / WEIGHTS).is_file() or not index.is_file():
        return folder / WEIGHTS, read_tensors(folder / WEIGHTS)
    places = read_json(index).get("weight_map")
    if not isinstance(places, dict) or not all(
        isinstance(shard, str) and _SHARD.fullmatch(shard) for shard in places.values()
    ):
        raise CheckpointError(f"{index}: no map from weights to files; restore it from its source.")
    weights: dict[str, Tensor] = {}
    for shard in sorted(set(places.values())):
        found = read_tensors(folder / shard)
        for name, place in places.items():
            if place == shard and name not in found:
                raise CheckpointError(
                    f"{folder / shard}: the weight {name} is missing, {INDEX} says it is there; "
                    "the files are of different models."
                )
        weights |= found
    return index, weights


def check_weights(
    path: Path, weights: Mapping[str, Tensor], expected: Mapping[str, Tensor]
) -> None:
    """Raise CheckpointError unless ``weights`` are those ``expected``, of floating-point type."""
    for name, tensor in expected.items():
        if name not in weights:
            raise CheckpointError(f"{path}: the weight {name} is missing; it fits another config.")
        if weights[name].shape != tensor.shape:
            raise CheckpointError(
                f"{path}: {name} is {tuple(weights[name].shape)}, the config asks for "
                f"{tuple(tensor.shape)}; weights and {CONFIG} are of different models."
            )
        if not weights[name].is_floating_point():
            raise CheckpointError(
                f"{path}: {name} is {weights[name].dtype}, not floating point; restore it from its "
                "source."
            )
    unknown = sorted(set(weights) - set(expected))
    if unknown:
        raise CheckpointError(f"{path}: the weight {unknown[0]} is unknown to this model.")


def put_weights(weights: Mapping[str, Tensor], model: Any) -> None:
    """Copy weights that were checked into ``model``, in the types it has."""
    expected = model.state_dict()
    model.load_state_dict(
        {name: tensor.to(expected[name].dtype) for name, tensor in weights.items()}, strict=True
    )


def _write_weights(folder: Path, weights: dict[str, Tensor], max_bytes: int | None) -> None:
    """Write the weights into one file, or into several where ``max_bytes`` asks for it."""
    shards = [weights] if max_bytes is None else _shards(weights, max_bytes)
    if len(shards) == 1:
        write_tensors(folder / WEIGHTS, weights)
        return
    places: dict[str, str] = {}
    for number, shard in enumerate(shards, start=1):
        name = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        write_tensors(folder / name, shard)
        places |= dict.fromkeys(shard, name)
    total = sum(tensor.nbytes for tensor in weights.values())
    index = {"metadata": {"total_size": total}, "weight_map": places}
    (folder / INDEX).write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")


def _shards(weights: Mapping[str, Tensor], max_bytes: int) -> list[dict[str, Tensor]]:
    """The weights in their order, as many at a time as a file of ``max_bytes`` has room for."""
    shards: list[dict[str, Tensor]] = []
    left = 0
    for name, tensor in weights.items():
        needed = tensor.nbytes + len(name) + _ENTRY_BYTES
        if needed > max_bytes:
            raise ConfigError(
                f"max_file_bytes={max_bytes:,}: {name} alone takes {needed:,}; allow larger files."
            )
        if not shards or needed > left:
            shards.append({})
            left = max_bytes
        shards[-1][name] = tensor
        left -= needed
    return shards


def on_cpu(tensor: Tensor, *, half: bool = False) -> Tensor:
    """A copy on the CPU that shares no memory, as safetensors wants it."""
    copy = tensor.detach().to("cpu", copy=True).contiguous()
    return copy.half() if half and copy.is_floating_point() else copy
