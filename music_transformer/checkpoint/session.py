"""A loaded model with its tokenizer, and how it is saved."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from music_transformer.checkpoint.format import (
    CONFIG,
    README,
    check_weights,
    has_weights,
    is_made,
    put_weights,
    read_config,
    read_weights,
    sampling_of,
    write_files,
)
from music_transformer.checkpoint.hub import find_checkpoint, select_device
from music_transformer.errors import CheckpointError, MusicTransformerError
from music_transformer.files import followed, new_folder, output_lock, publish_folder
from music_transformer.model.registry import KINDS
from music_transformer.representations.base import representation_from_config
from music_transformer.sampling import Sampling

if TYPE_CHECKING:
    from music_transformer.representations.base import Representation


@dataclass(frozen=True)
class Session:
    """A loaded model with all that is needed to use it; the model is in eval mode, float32.

    Model and config are of one of the kinds of `model/registry.py`; `sampling` is what the
    checkpoint says of how to draw from it.
    """

    model: Any
    tokenizer: "Representation"
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
        model, tokenizer, model_config, config["training"], folder, target, sampling_of(config)
    )


def save_checkpoint(
    folder: str | Path,
    model: Any,
    tokenizer: "Representation",
    *,
    training: Mapping[str, Any],
    sampling: Sampling | None = None,
    half: bool = False,
    max_file_bytes: int | None = None,
) -> Path:
    """Write a checkpoint folder and return its path; a reader never sees half of it.

    A checkpoint that is already there is replaced, its README.md and other files are kept; a
    README.md is written where there is none. ``half`` stores half precision, ``max_file_bytes``
    parts weights among files.

    Raises:
        CheckpointError: the folder holds something that is no checkpoint, or cannot be written.
        ConfigError: a single weight is larger than ``max_file_bytes``.
    """
    final = followed(folder)
    check_replaceable(final)
    try:
        with output_lock(final), new_folder(final) as ready:
            write_files(
                ready,
                model,
                tokenizer,
                training=training,
                sampling=sampling,
                half=half,
                max_file_bytes=max_file_bytes,
            )
            if not (final / README).exists():
                (ready / README).write_text(_readme(final.name, training), encoding="utf-8")
            publish_folder(ready, final, made=is_made)
    except OSError as error:
        raise CheckpointError(f"{final}: cannot be written: {error}.") from error
    return Path(folder)


def check_replaceable(folder: Path) -> None:
    """Refuse a folder that a save may not replace (`CheckpointError`); ask before long work."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise CheckpointError(f"{folder} is a file; a checkpoint is saved as a folder.")
    content = list(folder.iterdir())
    if any(path.is_dir() for path in content):
        raise CheckpointError(f"{folder} has folders inside, so it is left alone; save elsewhere.")
    if {path.name for path in content} <= {README}:
        return
    try:
        read_config(folder)
        whole = has_weights(folder)
    except CheckpointError:
        whole = False
    if not whole:
        raise CheckpointError(f"{folder} holds something that is no checkpoint; save elsewhere.")


def _configured(folder: Path, config: dict[str, Any]) -> tuple[Any, type[Any]]:
    config_class, model_class = KINDS[config.get("kind", "decoder")]
    try:
        return config_class.from_dict(config["model"]), model_class
    except (MusicTransformerError, TypeError, ValueError, AttributeError) as error:
        raise CheckpointError(f"{folder / CONFIG}: model: {error}") from error


def _build(folder: Path, model_class: type[Any], config: Any) -> Any:
    """The model with its weights, built only after these were found to fit the config."""
    path, weights = read_weights(folder)
    if config.n_layers > len(weights):
        raise CheckpointError(
            f"{path}: {len(weights)} weights for n_layers={config.n_layers}; weights and {CONFIG} "
            "are of different models."
        )
    try:
        with torch.device("meta"):  # shapes without memory: a wild size in the config costs nothing
            expected = model_class(config).state_dict()
        check_weights(path, weights, expected)
        with torch.random.fork_rng(devices=[]):  # building draws weights that are replaced at once
            model = model_class(config)
    except (RuntimeError, MemoryError, TypeError, ValueError, OverflowError) as error:
        raise CheckpointError(
            f"{folder / CONFIG}: no model can be built of it ({str(error).splitlines()[0]}); "
            "restore it from its source."
        ) from error
    put_weights(weights, model)
    return model


def _tokenizer(folder: Path, config: dict[str, Any]) -> "Representation":
    try:
        return representation_from_config(config["tokenizer"])
    except (MusicTransformerError, TypeError, ValueError, KeyError, AttributeError) as error:
        raise CheckpointError(f"{folder / CONFIG}: tokenizer: {error}") from error


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
