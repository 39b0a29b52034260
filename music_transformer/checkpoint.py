"""A trained model in one folder: weights, model config, tokenizer config.

``load_checkpoint(name_or_folder)`` needs no other argument. A checkpoint is ``model.safetensors``,
``config.json`` and, for people, ``README.md``; nothing in it is ever unpickled. The folder of a
training run counts as a checkpoint too: its best step, or its latest where none was evaluated.

``config.json`` is ``{"format": 1, "kind": "decoder", "model": ..., "tokenizer": ..., "training":
...}``; ``kind`` says which model class the ``model`` part configures. There may be ``"sampling":
{"temperature": ..., "top_k": ..., "top_p": ..., "min_p": ...}``, any of them: how to draw from this
model where the call does not say. Weights may be stored in half precision; a loaded model is always
float32.

Weights too large for one file stand in several, as is usual: ``model-00001-of-00003.safetensors``
and so on, with ``model.safetensors.index.json`` to say which weight is where.
"""

import json
import os
import re
import shutil
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from music_transformer.errors import CheckpointError, ConfigError, MusicTransformerError
from music_transformer.files import replace_folder
from music_transformer.model.kinds import KINDS, kind_of
from music_transformer.sampling import Sampling
from music_transformer.tokenizers import Tokenizer, tokenizer_from_config

FORMAT = 1
WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
CONFIG = "config.json"
README = "README.md"
SEARCH_VARIABLE = "MUSIC_TRANSFORMER_CHECKPOINTS"
_SHARD = re.compile(r"model-\d{5}-of-\d{5}\.safetensors")
_ENTRY_BYTES = 160  # a weight's type, shape and place, which stand before the numbers; generous


@dataclass(frozen=True)
class Session:
    """A loaded model with all that is needed to use it; the model is in eval mode, float32.

    Model and config are of one of the kinds of `model/kinds.py`, most often `MusicTransformer` and
    `ModelConfig`; `sampling` is what the checkpoint says of how to draw from it.
    """

    model: Any
    tokenizer: Tokenizer
    config: Any
    training: dict[str, Any]
    path: Path
    device: torch.device
    sampling: Sampling = field(default_factory=Sampling)

    def save(
        self, folder: str | Path, *, half: bool = True, max_file_bytes: int | None = None
    ) -> Path:
        """Write the session as a checkpoint folder and return its path; see `save_checkpoint`."""
        return save_checkpoint(
            folder,
            self.model,
            self.tokenizer,
            training=self.training,
            sampling=self.sampling,
            half=half,
            max_file_bytes=max_file_bytes,
        )


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
    raise CheckpointError(
        f"no checkpoint {str(name)!r}; looked for: {looked}. Train one, download one, or pass its "
        "folder."
    )


def load_checkpoint(name_or_path: str | Path, device: str | torch.device = "auto") -> Session:
    """Load a released checkpoint by name, or any checkpoint or run by folder.

    Raises:
        CheckpointError: it is missing, damaged, or its weights do not fit its config.
        ConfigError: the device is not there.
    """
    target = device if isinstance(device, torch.device) else select_device(device)
    folder = find_checkpoint(name_or_path)
    config = read_config(folder)
    model_config, model_class = _configured(folder, config)
    tokenizer = _tokenizer(folder, config)
    if tokenizer.vocab_size != model_config.vocab_size:
        raise CheckpointError(
            f"{folder / CONFIG}: the model has vocab_size={model_config.vocab_size}, its tokenizer "
            f"{tokenizer.vocab_size}; restore the file from its source."
        )
    model = _build(folder, model_class, model_config)
    model.to(target).eval()
    return Session(
        model,
        tokenizer,
        model_config,
        config["training"],
        folder,
        target,
        sampling_of(config),
    )


def save_checkpoint(
    folder: str | Path,
    model: Any,
    tokenizer: Tokenizer,
    *,
    training: Mapping[str, Any],
    sampling: Sampling | None = None,
    half: bool = False,
    max_file_bytes: int | None = None,
) -> Path:
    """Write a checkpoint folder and return its path; a reader never sees half of it.

    A checkpoint that is already there is replaced, its README.md and other files are kept. Where
    there is no README.md, one is written from what ``training`` tells.

    Args:
        sampling: how to draw from the model where a call does not say; None says nothing.
        half: store the weights in half precision.
        max_file_bytes: weights that take more stand in several files, each at most so large.

    Raises:
        CheckpointError: the folder holds something that is no checkpoint, or cannot be written.
        ConfigError: a single weight is larger than ``max_file_bytes``.
    """
    final = Path(folder)
    old = check_replaceable(final)
    temporary = final.with_name(f".{final.name}.tmp-{os.getpid()}")
    try:
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        for kept in old:
            if not _is_written(kept.name):
                shutil.copy2(kept, temporary / kept.name)
        write_files(
            temporary,
            model,
            tokenizer,
            training=training,
            sampling=sampling,
            half=half,
            max_file_bytes=max_file_bytes,
        )
        if not (temporary / README).exists():
            (temporary / README).write_text(_readme(final.name, training), encoding="utf-8")
        sync(temporary)
        replace_folder(temporary, final)
    except OSError as error:
        raise CheckpointError(f"{final}: cannot be written: {error}.") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return final


def check_replaceable(folder: Path) -> list[Path]:
    """The files of the checkpoint that a save may replace; to be asked before long work.

    Raises:
        CheckpointError: the folder holds anything else.
    """
    if not folder.exists():
        return []
    if not folder.is_dir():
        raise CheckpointError(f"{folder} is a file; a checkpoint is saved as a folder.")
    content = list(folder.iterdir())
    names = {path.name for path in content}
    whole = CONFIG in names and has_weights(folder)
    if content and not (names <= {README} or whole):
        raise CheckpointError(f"{folder} holds something that is no checkpoint; save elsewhere.")
    if any(path.is_dir() for path in content):
        raise CheckpointError(f"{folder} has folders inside, so it is left alone; save elsewhere.")
    return content


def write_files(
    folder: Path,
    model: Any,
    tokenizer: Tokenizer,
    *,
    training: Mapping[str, Any],
    sampling: Sampling | None = None,
    half: bool = False,
    max_file_bytes: int | None = None,
) -> None:
    """Write weights and config into ``folder`` as it is; who calls makes the whole atomic."""
    weights = {name: _stored(tensor, half) for name, tensor in model.state_dict().items()}
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
        known = ", ".join(KINDS)
        raise CheckpointError(f"{path}: kind {config['kind']!r} is unknown; known: {known}.")
    try:
        sampling_of(config)
    except ConfigError as error:
        raise CheckpointError(f"{path}: sampling: {error}") from error
    return config


def sampling_of(config: Mapping[str, Any]) -> Sampling:
    """What a config that was read says of how to draw from the model."""
    return Sampling.from_dict(config.get("sampling", {}))


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file of a checkpoint.

    Raises:
        CheckpointError: the file is missing or holds something else.
    """
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
    """All tensors of a safetensors file, on the CPU.

    Raises:
        CheckpointError: the file is missing, cut short or no safetensors file.
    """
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


def load_weights(model: Any, folder: Path, *, zero: Collection[str] = ()) -> None:
    """Put the weights of a checkpoint folder into ``model``, every one of them and no other.

    Args:
        model: whose weights are replaced.
        folder: of the checkpoint.
        zero: last parts of the names of weights that become zero where the checkpoint has none.

    Raises:
        CheckpointError: a weight is missing, unknown or of another shape; the first is named.
    """
    path, weights = _read_weights(folder)
    for name, tensor in model.state_dict().items():
        if name not in weights and name.rpartition(".")[2] in zero:
            weights[name] = torch.zeros_like(tensor)
    _check_weights(path, weights, model.state_dict())
    _put(weights, model)


def _read_weights(folder: Path) -> tuple[Path, dict[str, Tensor]]:
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
    """The weights in their order, as many at a time as a file of ``max_bytes`` has room for.

    Raises:
        ConfigError: a weight alone is larger.
    """
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


def _is_written(name: str) -> bool:
    """Whether a file of this name is part of what a save writes anew."""
    return name in (WEIGHTS, INDEX, CONFIG) or _SHARD.fullmatch(name) is not None


def _put(weights: Mapping[str, Tensor], model: Any) -> None:
    """Copy weights that were checked into ``model``, in the types it has."""
    expected = model.state_dict()
    model.load_state_dict(
        {name: tensor.to(expected[name].dtype) for name, tensor in weights.items()}, strict=True
    )


def _check_weights(
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


def sync(folder: Path) -> None:
    """Force the files of ``folder`` and its list of names to the disk."""
    for path in folder.iterdir():
        with path.open("rb+") as file:
            os.fsync(file.fileno())
    sync_names(folder)


def sync_names(folder: Path) -> None:
    """Force the list of names of ``folder`` to the disk, where the system can do that."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _places(name: str) -> list[tuple[str, Path | None]]:
    """The four places of a name, each with the words an error uses for it."""
    folder = os.environ.get(SEARCH_VARIABLE)
    variable = Path(folder) / name if folder else None
    checkout = Path(__file__).resolve().parents[1]
    editable = checkout / "checkpoints" / name if (checkout / "pyproject.toml").exists() else None
    return [
        (f"the path {name}", Path(name)),
        (f"${SEARCH_VARIABLE} ({variable or 'not set'})", variable),
        (f"./checkpoints ({Path('checkpoints') / name})", Path("checkpoints") / name),
        (f"the checkout ({editable or 'not an editable install'})", editable),
    ]


def _step_of_run(folder: Path) -> Path | None:
    """The best step of a run folder, else its latest; None where it is no run with a step."""
    for pointer in ("best", "latest"):
        path = folder / pointer
        if path.is_file():
            step = folder / path.read_text(encoding="utf-8", errors="replace").strip()
            if step.is_dir() and step.parent == folder:
                return step
    return None


def _configured(folder: Path, config: dict[str, Any]) -> tuple[Any, type[Any]]:
    config_class, model_class = KINDS[config.get("kind", "decoder")]
    try:
        return config_class.from_dict(config["model"]), model_class
    except (MusicTransformerError, TypeError, ValueError, AttributeError) as error:
        raise CheckpointError(f"{folder / CONFIG}: model: {error}") from error


def _build(folder: Path, model_class: type[Any], config: Any) -> Any:
    """The model with its weights, built only after these were found to fit the config."""
    path, weights = _read_weights(folder)
    if config.n_layers > len(weights):
        raise CheckpointError(
            f"{path}: {len(weights)} weights for n_layers={config.n_layers}; weights and {CONFIG} "
            "are of different models."
        )
    try:
        with torch.device("meta"):  # shapes without memory: a wild size in the config costs nothing
            expected = model_class(config).state_dict()
        _check_weights(path, weights, expected)
        with torch.random.fork_rng(devices=[]):  # building draws weights that are replaced at once
            model = model_class(config)
    except (RuntimeError, MemoryError) as error:
        raise CheckpointError(
            f"{folder / CONFIG}: no model can be built of it ({str(error).splitlines()[0]}); "
            "restore it from its source."
        ) from error
    _put(weights, model)
    return model


def _tokenizer(folder: Path, config: dict[str, Any]) -> Tokenizer:
    try:
        return tokenizer_from_config(config["tokenizer"])
    except (MusicTransformerError, TypeError, ValueError, KeyError, AttributeError) as error:
        raise CheckpointError(f"{folder / CONFIG}: tokenizer: {error}") from error


def _stored(tensor: Tensor, half: bool) -> Tensor:
    """A copy on the CPU that shares no memory, as safetensors wants it."""
    copy = tensor.detach().to("cpu", copy=True).contiguous()
    return copy.half() if half and copy.is_floating_point() else copy


def _readme(name: str, training: Mapping[str, Any]) -> str:
    data = training.get("data", {})
    corpus = data.get("corpus", "unknown") if isinstance(data, Mapping) else "unknown"
    lines = [f"# {name}", "", f"- Data: {corpus}"]
    if "maestro" in str(corpus).lower():
        lines.append("- Licence of the weights: CC BY-NC-SA 4.0, like the MAESTRO data")
    else:
        lines.append("- Licence of the weights: follows that of the data")
    nll = training.get("validation_nll")
    if nll is not None:
        lines.append(f"- Validation NLL while training (quick): {nll:.4f} nats per event")
    lines.append(f"- Steps: {training.get('step', 'unknown')}")
    lines.append("- Protocol and floors: `music-transformer evaluate --checkpoint FOLDER`")
    return "\n".join(lines) + "\n"
