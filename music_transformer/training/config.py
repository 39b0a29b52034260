"""How a model is trained: one frozen dataclass, and ``key=value`` settings for it and the model.

Its field names and those of `ModelConfig` are disjoint, so a setting needs no prefix. The learning
rate follows the step, never the clock: a run that is resumed sees the same rates.
"""

import difflib
import functools
import math
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal

from music_transformer.errors import ConfigError
from music_transformer.limits import check_number

_SWITCHES = {"true": True, "on": True, "1": True, "yes": True}
_SWITCHES |= {"false": False, "off": False, "0": False, "no": False}


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """Everything that decides what a training run computes, and a few things that do not."""

    steps: int = 10_000  # updates of the weights in the whole run
    window: int | None = None  # events in a training window; None is the model's context
    batch_size: int = 4  # windows in one forward pass, on each rank
    accumulate: int = 1  # forward passes in one update
    learning_rate: float = 1e-3  # the highest; the matrices that Muon moves use the same one
    schedule: Literal["cosine", "wsd"] = "cosine"  # warm-up, stable, linear decay: it can go on
    warmup: float = 0.05  # steps of linear warm-up; below 1 it is a fraction of all steps
    final_fraction: float = 0.02  # the last learning rate as a fraction of the highest
    cooldown: float = 0.2  # the fraction of all steps over which wsd decays
    optimizer: Literal["adamw", "muon"] = "adamw"  # muon: for the hidden matrices, AdamW the rest
    betas: tuple[float, float] = (0.9, 0.98)
    muon_momentum: float = 0.95
    weight_decay: float = 0.01  # decoupled, on matrices: no embeddings, tables, norms or biases
    clip: float = 1.0  # the largest norm of all gradients; 0 does not clip
    label_smoothing: float = 0.0  # share of the target spread over the vocabulary
    # Share of the input ids that are read as PAD: a model of little data learns less by heart.
    token_dropout: float = 0.0
    ema: float | None = None  # decay of the running mean of the weights that is judged and saved
    autocast: Literal["auto", "on", "off"] = "auto"  # bfloat16 in the linear layers; auto measures
    compile: bool = False  # through `torch.compile`; it needs a compiler, and pays on a GPU
    checkpoint_activations: bool = False  # keep inputs of layers only: less memory, a third slower
    augment: bool = True  # stretch and transpose training windows
    plain: float = 0.0  # share of the windows that open with a plain motif, as users have them
    gaps: float = 0.0  # share of the windows that know what comes after a gap, to learn in-filling
    workers: int = 0  # processes that make the windows; 0 is a thread, enough for most machines
    seed: int = 0  # of the windows; the command also seeds weights and dropout with it
    evaluate_every: int = 500  # steps between quick validations
    evaluate_windows: int = 64  # in a quick validation
    checkpoint_every: int | None = None  # steps between checkpoints; None leaves it to the clock
    checkpoint_minutes: float | None = 10.0  # between checkpoints; None leaves it to the steps
    log_every: int = 10  # steps in one line of metrics.jsonl
    max_minutes: float | None = None  # stop cleanly, with a checkpoint, after so long; None never
    threads: int | None = None  # of the CPU; None leaves PyTorch's choice

    def __post_init__(self) -> None:
        object.__setattr__(self, "betas", tuple(self.betas))  # JSON has only lists
        self._at_least(1, "steps", "window", "batch_size", "accumulate")
        self._at_least(1, "evaluate_every", "evaluate_windows", "checkpoint_every", "log_every")
        self._at_least(0, "workers", most=1024)
        self._at_least(1, "threads", most=4096)
        self._between(0.0, 10.0, "learning_rate", low_open=True)
        self._between(0.0, 1.0, "final_fraction", "cooldown", "plain", "gaps")
        self._between(0.0, 1.0, "muon_momentum", "label_smoothing", "token_dropout", high_open=True)
        self._between(0.0, math.inf, "warmup", "weight_decay", "clip")
        self._between(0.0, math.inf, "max_minutes", "checkpoint_minutes", low_open=True)
        self._between(0.0, 1.0, "ema", low_open=True, high_open=True)
        if len(self.betas) != 2 or not all(0.0 <= beta < 1.0 for beta in self.betas):
            raise ConfigError(f"betas={self.betas}: two numbers from 0 to below 1, as 0.9,0.98.")
        if not 0 <= self.seed < 2**63:
            raise ConfigError(f"seed={self.seed} is outside 0..2**63-1.")
        if self.compile and self.checkpoint_activations:
            raise ConfigError(
                "compile=true with checkpoint_activations=true: a layer that is computed again is "
                "not compiled; choose one."
            )
        for name in ("schedule", "optimizer", "autocast"):
            choices = typing.get_args(_hints()[name])
            if getattr(self, name) not in choices:
                raise ConfigError(
                    f"{name}={getattr(self, name)!r}; choose from {', '.join(choices)}."
                )

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON can hold them."""
        return {**asdict(self), "betas": list(self.betas)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "TrainingConfig":
        """The config that `to_dict` described; a key that is unknown is a `ConfigError`."""
        known = [field.name for field in fields(cls)]
        for key in values:
            if key not in known:
                raise ConfigError(f"training.{key} is unknown{_nearest(key, known)}")
        return cls(**values)

    def _given(self, names: Iterable[str]) -> list[tuple[str, Any]]:
        """Fields with their values, but for those that are None and may be."""
        values = [(name, getattr(self, name)) for name in names]
        return [(n, v) for n, v in values if v is not None or not _may_be_none(_hints()[n])]

    def _at_least(self, least: int, *names: str, most: int = 2**31 - 1) -> None:
        for name, value in self._given(names):
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ConfigError(f"{name}={value} is not a whole number of at least {least}.")
            if value > most:
                raise ConfigError(f"{name}={value} is too large; {most:,} is the most.")

    def _between(
        self, low: float, high: float, *names: str, low_open: bool = False, high_open: bool = False
    ) -> None:
        for name, value in self._given(names):
            inside = isinstance(value, int | float) and low <= value <= high
            if not inside or (low_open and value == low) or (high_open and value == high):
                left = "above" if low_open else "from"
                right = "below" if high_open else "up to"
                raise ConfigError(f"{name}={value} is not {left} {low:g} {right} {high:g}.")


@functools.cache
def _hints() -> dict[str, Any]:
    """The types of the fields."""
    return typing.get_type_hints(TrainingConfig)


def _may_be_none(hint: Any) -> bool:
    return type(None) in typing.get_args(hint)


def apply_settings(
    model: Any, training: TrainingConfig, settings: Iterable[str]
) -> tuple[Any, TrainingConfig]:
    """Both configs with ``key=value`` settings applied.

    Raises:
        ConfigError: a key is unknown (the nearest is named) or a value is not of its type.
    """
    changes: dict[str, dict[str, Any]] = {"model": {}, "training": {}}
    hints = {"model": typing.get_type_hints(type(model)), "training": _hints()}
    names = {
        "model": [f.name for f in fields(model) if f.name != "vocab_size"],
        "training": [f.name for f in fields(training)],
    }
    for setting in settings:
        key, equals, text = setting.partition("=")
        key = key.strip()
        if not equals or not key:
            raise ConfigError(f"--set {setting!r}: write key=value, as in --set steps=1000.")
        owner, name = _owner(key, names)
        changes[owner][name] = _parse(key, text.strip(), hints[owner][name])
    return replace(model, **changes["model"]), replace(training, **changes["training"])


def _owner(key: str, names: dict[str, list[str]]) -> tuple[str, str]:
    prefix, dot, rest = key.partition(".")
    owners = [prefix] if dot and prefix in names else list(names)
    name = rest if dot else key
    for owner in owners:
        if name in names[owner]:
            return owner, name
    known = [name for owner in owners for name in names[owner]]
    raise ConfigError(f"--set {key}: no such setting{_nearest(name, known)}")


def _nearest(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.4)
    return f"; did you mean {close[0]}?" if close else f"; known: {', '.join(known)}."


def _parse(key: str, text: str, hint: Any) -> Any:
    """The value of a setting, read by the type of its field."""
    choices = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    if _may_be_none(hint) and text.lower() in ("none", "null", ""):
        return None
    for choice in choices:
        try:
            value = _parse_as(text, choice)
        except ValueError:
            continue
        check_number(f"--set {key}", value)
        return value
    expected = " or ".join(_type_name(choice) for choice in choices)
    raise ConfigError(f"--set {key}={text}: expected {expected}.")


def _parse_as(text: str, hint: Any) -> Any:
    """``text`` as a value of a type; ValueError where it is none."""
    if hint is bool:
        if text.lower() not in _SWITCHES:
            raise ValueError(text)
        return _SWITCHES[text.lower()]
    if hint in (int, float):
        return hint(text.replace("_", ""))
    if hint is str:
        return text
    if typing.get_origin(hint) is Literal:
        if text not in typing.get_args(hint):
            raise ValueError(text)
        return text
    parts = text.strip("()[]").split(",")  # all that is left are tuples
    kinds = typing.get_args(hint)
    return tuple(_parse_as(part.strip(), kind) for part, kind in zip(parts, kinds, strict=True))


def _type_name(hint: Any) -> str:
    if typing.get_origin(hint) is Literal:
        return "one of " + ", ".join(typing.get_args(hint))
    names = {bool: "true or false", int: "a whole number", float: "a number", type(None): "none"}
    return names.get(hint, str(getattr(hint, "__name__", hint)))
