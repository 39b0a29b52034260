"""Numbers that nothing is made for: one line, exit 2, before any work."""

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from music_transformer.checkpoint import load_checkpoint, save_checkpoint
from music_transformer.cli.main import COMMANDS, _parser, main
from music_transformer.datasets.prepared import write_prepared
from music_transformer.errors import CheckpointError, ConfigError
from music_transformer.model import ModelConfig, MusicTransformer
from music_transformer.representations import PerformanceTokenizer
from music_transformer.sampling import Settings
from music_transformer.training.config import TrainingConfig, apply_settings
from music_transformer.training.estimate import require_memory

CONFIG = ModelConfig(n_layers=1, d_model=6, n_heads=2, d_ff=10, context=13, max_distance=7)
WILD = ("1e308", "inf", "-1e300", "1" + "0" * 400, str(2**63), "9" * 5000)


def _numbers() -> list[tuple[str, str, bool]]:
    """Command, flag and whether it may be real, of every flag that takes a number."""
    found = []
    for command in COMMANDS:
        (subparsers,) = (
            a for a in _parser(command)._actions if hasattr(a, "choices") and a.choices
        )
        stack = [subparsers.choices[command]]  # type: ignore[index]
        while stack:
            for action in stack.pop()._actions:
                if action.type in (int, float) and action.option_strings:
                    found.append((command, action.option_strings[-1], action.type is float))
    return found


@pytest.mark.parametrize(("command", "flag", "real"), _numbers())
def test_no_flag_takes_a_number_out_of_range(
    command: str, flag: str, real: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    needed = {
        "render": ["a.mid", "--out", "o"],
        "plot": ["a.mid", "--out", "o"],
        "accompany": ["a.mid", "--checkpoint", "x", "--out", "o"],
        "generate": ["--checkpoint", "x", "--out", "o"],
        "evaluate": ["--checkpoint", "x", "--data", "d"],
        "prepare": ["d", "--out", "o"],
        "train": ["--out", "o"],
    }
    for number in WILD:
        if flag == "--hold-seconds" and float(number) == float("inf"):
            continue
        assert main([command, *needed.get(command, []), f"{flag}={number}"]) == 2
        printed = capsys.readouterr().err
        assert "Traceback" not in printed
        assert flag in printed


NUMBERS = [one for one in dataclasses.fields(Settings) if one.metadata["kind"] in (int, float)]
TEXTS = {"key": "H major", "low": "C99", "high": "X", "loudness": "fff", "end": "never"}


def _beyond(one: dataclasses.Field[Any]) -> list[Any]:
    """What lies just outside both limits of a setting, and is no number."""
    known = one.metadata
    step = 1 if known["kind"] is int else 1e-3
    low = known["above"] if "above" in known else known["low"] - step
    return [low, known["high"] + step, *([math.nan] if known["kind"] is float else [])]


@pytest.mark.parametrize("one", NUMBERS, ids=lambda one: str(one.name))
def test_every_number_that_is_drawn_by_has_a_lower_and_an_upper_limit(
    one: dataclasses.Field[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    lowest, highest = one.metadata.get("low"), one.metadata["high"]
    for inside in (highest, *([lowest] if lowest is not None else [])):
        assert getattr(Settings(**{one.name: inside}), one.name) == inside
    for value in _beyond(one):
        with pytest.raises(ConfigError, match=rf"^{one.name}=\S+; choose .*\.$"):
            Settings(**{one.name: value})
        flag = f"--{one.name.replace('_', '-')}={value}"
        assert main(["generate", "--checkpoint", "x", "--out", "o.mid", flag]) == 2
        [line] = capsys.readouterr().err.splitlines()
        assert "error: " in line
    for value in ("much", True, [1]):
        with pytest.raises(ConfigError, match=rf"^{one.name}=.*; give a (whole )?number"):
            Settings(**{one.name: value})


@pytest.mark.parametrize(("name", "text"), TEXTS.items())
def test_a_wish_in_words_that_means_nothing_is_one_line(
    name: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for value in (text, 7):
        with pytest.raises(ConfigError, match=rf"^{name}={value}; (choose|give)"):
            Settings(**{name: value})
    assert main(["generate", "--checkpoint", "x", "--out", "o.mid", f"--{name}={text}"]) == 2
    assert f"error: {name}={text}; choose " in capsys.readouterr().err


@pytest.mark.parametrize(
    "setting",
    ["warmup=inf", "threads=99999999999", "threads=5000", "n_layers=100000000000", "seed=-1"]
    + [f"{key}={value}" for key in ("steps", "d_model", "clip", "betas") for value in WILD],
)
def test_no_setting_takes_a_number_out_of_range(setting: str) -> None:
    with pytest.raises(ConfigError):
        apply_settings(CONFIG, TrainingConfig(), [setting])


@pytest.mark.parametrize(
    "settings",
    [["n_layers=2000000000"], ["batch_size=1000000000"], ["d_model=2000000000"], ["d_ff=99999999"]],
)
def test_a_run_larger_than_the_machine_is_refused_before_it_is_built(settings: list[str]) -> None:
    model, training = apply_settings(CONFIG, TrainingConfig(), settings)
    before = torch.get_rng_state()
    with pytest.raises(ConfigError, match=r"GiB|can be built"):
        require_memory(model, training)
    require_memory(CONFIG, TrainingConfig())
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("value", [2**63, 10**30, -(2**70)])
@pytest.mark.parametrize("key", ["d_model", "d_ff", "max_distance", "context", "n_heads"])
def test_a_damaged_config_is_one_line(tmp_path: Path, key: str, value: int) -> None:
    folder = save_checkpoint(
        tmp_path / "c", MusicTransformer(CONFIG), PerformanceTokenizer(), training={}
    )
    config = json.loads((folder / "config.json").read_text())
    config["model"][key] = value
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match=rf"config\.json: model: {key} is out of range"):
        load_checkpoint(folder)
    config["model"] = CONFIG.to_dict()
    config["sampling"] = {"temperature": value}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match="sampling: temperature is out of range"):
        load_checkpoint(folder)


def test_evaluating_weights_that_are_no_numbers_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = MusicTransformer(CONFIG)
    torch.nn.init.constant_(model.output.bias, float("nan"))
    folder = save_checkpoint(tmp_path / "c", model, PerformanceTokenizer(), training={})
    pieces = [("a", [60, 300, 188] * 9)]
    splits = {"train": pieces, "validation": pieces}
    tokenizer = PerformanceTokenizer()
    data = write_prepared(tmp_path / "d", tokenizer=tokenizer, corpus="a", splits=splits)
    command = ["evaluate", "--checkpoint", str(folder), "--data", str(data.path), "--device", "cpu"]
    for flags in ([], ["--lengths", "5"]):
        assert main([*command, *flags]) == 3
        assert "its NLL is nan" in capsys.readouterr().err
