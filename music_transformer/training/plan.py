"""What a run is to be: from a preset and settings, or as the run itself recorded it.

A resumed run takes its own ``config.json``, and refuses every change that would make another run.
"""

import contextlib
import platform
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy
import torch

from music_transformer._version import __version__
from music_transformer.checkpoint.format import load_weights, read_config
from music_transformer.checkpoint.hub import find_checkpoint
from music_transformer.checkpoint.session import load_checkpoint
from music_transformer.datasets.prepared import PreparedData
from music_transformer.errors import CheckpointError, ConfigError
from music_transformer.files import checkout
from music_transformer.model.config import ModelConfig
from music_transformer.model.registry import KINDS, build_model, kind_of
from music_transformer.training.config import TrainingConfig, apply_settings
from music_transformer.training.estimate import require_memory
from music_transformer.training.precision import resolve_autocast
from music_transformer.training.presets import find_preset
from music_transformer.training.run_dir import RunFolder

#: Settings that decide nothing of what is computed: a resumed run may change them.
FREE = (
    *("checkpoint_activations", "workers", "max_minutes", "threads"),
    *("evaluate_every", "checkpoint_every", "checkpoint_minutes", "log_every"),
)
#: Tables that --set may give to a model that was trained without: adding nothing at first, they
#: leave it as it was.
ZERO_AT_FIRST = (
    *("time_embedding", "pitch_embedding"),
    *("held_embedding", "interval_vectors", "interval_bias"),
    *("input_table", "output_table", "output_table_bias"),
)


@dataclass(frozen=True)
class Plan:
    """A model, its training and its data."""

    model: Any
    training: TrainingConfig
    data: PreparedData
    preset: str
    init: str | None = None  # the checkpoint that the first weights are from; None draws them
    recorded: Mapping[str, Any] | None = None  # config.json of the run that is resumed
    notes: tuple[str, ...] = ()  # what was changed on resuming, and deserves a line

    def build(self, *, resumed: bool = False) -> Any:
        """The model with its first weights, on the CPU; draws from the global generator.

        A run that is ``resumed`` does not need the weights it began with.
        """
        require_memory(self.model, self.training)
        model = build_model(self.model)
        if self.init is not None and not resumed:
            folder = find_checkpoint(self.init)
            if read_config(folder).get("kind", "decoder") == kind_of(self.model):
                load_weights(model, folder, zero=ZERO_AT_FIRST)
            else:
                copy_weights(model, folder)
        return model

    def resolve(self, device: torch.device, world_size: int) -> dict[str, Any]:
        """What depends on the machine; a resumed run keeps the arithmetic it began with."""
        if self.recorded is None:
            bfloat16 = resolve_autocast(self.training.autocast, device)
        else:
            bfloat16 = self.recorded["resolved"]["bfloat16"]
        threads = torch.get_num_threads()
        here = {"device": device.type, "threads": threads, "world_size": world_size}
        return {"bfloat16": bfloat16, **here}

    def changes_of_machine(self, resolved: Mapping[str, Any]) -> list[str]:
        """What is not as it was when the run was begun, and makes its numbers differ a little."""
        before = resolved if self.recorded is None else self.recorded["resolved"]
        return [
            f"warning: {key} was {before[key]}, is {resolved[key]}: not the same bit for bit"
            for key in ("device", "threads")
            if before[key] != resolved[key]
        ]

    def description(self) -> dict[str, Any]:
        """What each checkpoint says of its making, beside the settings."""
        return {
            "preset": self.preset,
            "init": self.init,
            "data": {"corpus": self.data.corpus, "checksum": self.data.checksum},
            "versions": {
                "music_transformer": __version__,
                "torch": torch.__version__,
                "numpy": numpy.__version__,
                "python": platform.python_version(),
            },
            "commit": _commit(),
        }

    def run_config(self, resolved: Mapping[str, Any]) -> dict[str, Any]:
        """``config.json`` of the run."""
        description = self.description()
        description["data"]["path"] = str(self.data.path)
        return {
            "format": 1,
            "kind": kind_of(self.model),
            "model": self.model.to_dict(),
            "tokenizer": self.data.tokenizer.to_config(),
            "training": self.training.to_dict(),
            "resolved": dict(resolved),
            **description,
        }


def new_plan(
    data_path: str,
    preset_name: str,
    settings: Sequence[str] = (),
    *,
    seed: int | None = None,
    init: str | None = None,
) -> Plan:
    """The plan of a new run.

    `ConfigError` where a setting is wrong, or preset, data and checkpoint do not go together.
    """
    preset = find_preset(preset_name)
    model, training = apply_settings(preset.model, preset.training, settings)
    if seed is not None:
        training = replace(training, seed=seed)
    data = PreparedData.open(data_path).verify()
    if data.tokenizer.kind != preset.tokenizer:
        raise ConfigError(
            f"preset {preset_name} is for the {preset.tokenizer} tokenizer, {data_path} was "
            f"prepared with {data.tokenizer.kind}; choose another preset."
        )
    if "train" not in data.splits:
        raise ConfigError(f"{data_path} has no split named train; prepare it with one.")
    model = replace(model, vocab_size=data.tokenizer.vocab_size)
    if init is None:
        return Plan(model, training, data, preset_name)
    folder = find_checkpoint(init)
    given = read_config(folder)
    kind = given.get("kind", "decoder")
    alone = data.tokenizer.has_melody and given["tokenizer"] == data.tokenizer.events_config()
    if alone and KINDS[kind].config is ModelConfig:  # it writes without a melody
        known = KINDS[kind].config.from_dict(given["model"])
        note = describe_partial_init(init, known, model)
        return Plan(model, training, data, preset_name, init=str(folder), notes=(note,))
    if given["tokenizer"] != data.tokenizer.to_config():
        raise ConfigError(
            f"--init {init} has another tokenizer than {data_path}: {given['tokenizer']} and "
            f"{data.tokenizer.to_config()}."
        )
    if kind != kind_of(model):
        raise ConfigError(
            f"--init {init} is of kind {kind}, preset {preset_name} of kind {kind_of(model)}; "
            "choose another preset."
        )
    known = KINDS[kind].config.from_dict(given["model"])
    names = {field.name for field in fields(known)}
    about = [one for one in settings if one.partition("=")[0].removeprefix("model.") in names]
    model, _ = apply_settings(known, training, about)
    return Plan(model, training, data, preset_name, init=str(folder))


def resumed_plan(
    run: RunFolder,
    settings: Sequence[str] = (),
    *,
    data_path: str | None = None,
    preset_name: str | None = None,
    seed: int | None = None,
    world_size: int = 1,
) -> Plan:
    """The plan that a run recorded, with such changes as do not change what it computes.

    Another number of processes is such a change as long as all of them together draw as many
    windows at a time as before: a window depends on its row in the batch of all. ``preset_name``
    and ``seed`` are to make sure.

    Raises:
        ConfigError: a setting that matters was changed, or the data; it is named.
    """
    recorded = run.config()
    try:
        model = KINDS[recorded.get("kind", "decoder")].config.from_dict(recorded["model"])
        training = TrainingConfig.from_dict(recorded["training"])
        known_path, known_checksum = recorded["data"]["path"], recorded["data"]["checksum"]
        preset, init = recorded["preset"], recorded["init"]
    except (KeyError, TypeError) as error:
        raise CheckpointError(
            f"{run.path / 'config.json'}: no {error} in it; restore it."
        ) from error
    if preset_name not in (None, preset):
        raise ConfigError(f"--resume: preset={preset_name}, but {run.path} has preset={preset}.")
    new_model, new_training = apply_settings(model, training, settings)
    if seed is not None:
        new_training = replace(new_training, seed=seed)
    before = {**model.to_dict(), **training.to_dict()}
    after = {**new_model.to_dict(), **new_training.to_dict()}
    ranks_before = int(recorded.get("resolved", {}).get("world_size", 1))
    notes = []
    if world_size != ranks_before:
        joint = ranks_before * training.batch_size
        _require_joint_batch(run, joint, world_size, new_training.batch_size)
        notes.append(
            f"note: {ranks_before} processes with batch_size={training.batch_size} were, "
            f"{world_size} with batch_size={new_training.batch_size} are: the same windows, not "
            "the same bit for bit"
        )
        before["batch_size"] = after["batch_size"]
    notes += [
        _change(run, key, before[key], value, training)
        for key, value in after.items()
        if value != before[key]
    ]
    data = PreparedData.open(data_path or known_path).verify()
    if data.checksum != known_checksum:
        raise ConfigError(
            f"--resume: data={data.path} is not what {run.path} was trained on (another checksum)."
        )
    return Plan(new_model, new_training, data, preset, init, recorded, tuple(notes))


def _require_joint_batch(run: RunFolder, joint: int, world_size: int, batch_size: int) -> None:
    """Raise ConfigError unless so many processes draw ``joint`` windows at a time together."""
    if world_size * batch_size == joint:
        return
    fitting = [str(ranks) for ranks in range(1, joint + 1) if joint % ranks == 0]
    mend = f"add --set batch_size={joint // world_size}"
    if joint % world_size:
        mend = f"start {', '.join(fitting[:-1])} or {joint}" if joint > 1 else "start one"
    raise ConfigError(
        f"--resume: {world_size} processes with batch_size={batch_size} draw "
        f"{world_size * batch_size} windows at a time, {run.path} was begun with {joint}; {mend}."
    )


def _change(run: RunFolder, key: str, old: Any, new: Any, training: TrainingConfig) -> str:
    """The note on a change, unless it makes another run."""
    if key in FREE:
        return f"note: {key} was {old}, is {new}"
    if key == "compile":
        return f"note: compile was {old}, is {new}: not the same bit for bit"
    if key == "steps" and training.schedule == "wsd":
        return f"note: steps was {old}, is {new}: the cool-down moves with it"
    hint = " (only schedule=wsd can be extended)" if key == "steps" else ""
    raise ConfigError(
        f"--resume: {key}={new}, but {run.path} was begun with {key}={old}{hint}; leave it, or "
        f"start a new run with --init {run.path}."
    )


def _commit() -> str | None:
    """The commit of the checkout this package runs from; None where there is none."""
    root = checkout()
    if root is None or not (root / ".git").exists():
        return None
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(
            ["git", "-C", str(root), "rev-parse", "HEAD"],
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
        return done.stdout.strip()
    return None


def describe_partial_init(init: str, donor: Any, model: Any) -> str:
    """One line on what a ``model`` would take over from a checkpoint of the config ``donor``.

    `ConfigError` where no layer of it fits.
    """
    with torch.device("meta"):  # shapes without memory
        given, wanted = build_model(donor).state_dict(), build_model(model).state_dict()
    taken = [name for name in wanted if _fits(name, given, wanted)]
    if not any(name.startswith("layers.") and wanted[name].dim() > 1 for name in taken):
        raise ConfigError(
            f"--init {init}: no matrix of its layers fits the decoder of this preset; make "
            "n_layers, d_model, n_heads, d_ff and max_distance agree with it."
        )
    numbers = sum(wanted[name].numel() for name in taken)
    total = sum(tensor.numel() for tensor in wanted.values())
    return (
        f"{init}: {len(taken)} of {len(wanted)} weights copied ({numbers:,} of {total:,} numbers); "
        f"{len(wanted) - len(taken)} are new"
    )


def copy_weights(model: Any, folder: Path) -> None:
    """Copy into ``model`` the weights of a checkpoint that agree in name and shape."""
    given, wanted = load_checkpoint(folder, "cpu").model.state_dict(), model.state_dict()
    with torch.no_grad():
        for name, tensor in wanted.items():
            if _fits(name, given, wanted):
                tensor.copy_(given[name])


def _fits(name: str, given: dict[str, Any], wanted: dict[str, Any]) -> bool:
    return name in given and given[name].shape == wanted[name].shape
