"""The scripts that fill the paper's tables: runs go on, are measured once, orders are earned."""

import argparse
import contextlib
import importlib.util
import io
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from music_transformer.cli.main import main as command
from music_transformer.datasets.prepared import write_prepared
from music_transformer.representations import ChoraleTokenizer
from music_transformer.training.config import apply_settings
from music_transformer.training.presets import find_preset

SCRIPTS = Path(__file__).parents[2] / "scripts" / "studies"


def load_script(name: str) -> Any:
    """A script as a module under its own name, as its neighbours import it."""
    spec = importlib.util.spec_from_file_location(name, SCRIPTS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


reproduce = load_script("reproduce")

TABLE = reproduce.Table(
    title="A table",
    unit="nats per note",
    rows=(
        reproduce.Row("plain", "jsb-transformer", 0.417, "jsb-small", ("attention_position=none",)),
        reproduce.Row("relative", "jsb-relative", 0.357, "jsb-small", (), "a note"),
    ),
    small_shape="one layer",
    equal_settings=("n_layers=1", "d_model=16", "n_heads=2", "d_ff=16", "context=32"),
    steps=3,
    known=(("Coconet", 0.436),),
)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    random = np.random.default_rng(3)
    pieces = [(str(t), random.integers(50, 70, 4 * t)) for t in (16, 20, 24)]
    splits = {"train": pieces, "validation": pieces, "test": pieces[1:]}
    write_prepared(tmp_path / "toy", tokenizer=ChoraleTokenizer(), corpus="toy", splits=splits)
    return tmp_path / "toy"


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Run the command in this process; gives the folders trained, in order."""
    folders: list[str] = []

    def tool(*arguments: object) -> str:
        words = [str(argument) for argument in arguments]
        folders.append(Path(words[words.index("--out") + 1]).name)
        with contextlib.redirect_stdout(io.StringIO()) as output:
            assert command([*words, "--set", "autocast=off"]) == 0
        return output.getvalue()

    monkeypatch.setattr(reproduce, "_tool", tool)
    return folders


def reproduced(monkeypatch: pytest.MonkeyPatch, data: Path, out: Path, *flags: str) -> None:
    words = ["reproduce", "--data", str(data), "--out", str(out), "--device", "cpu", *flags]
    monkeypatch.setattr("sys.argv", words)
    assert reproduce.main(TABLE, "what it does") == 0


def run_of(nll: list[float], seed: int = 0) -> dict[str, Any]:
    by_piece = [{"piece": i, "events": 10, "nll": value} for i, value in enumerate(nll)]
    mean = float(np.mean(nll))
    return {
        "seed": seed,
        "nll": mean,
        "by_piece": by_piece,
        "by_quarter": [0.7 - 0.2 * seed, 0.5, 0.4, None],
        "seconds": 90.0,
        "events": 120_000,  # of training
        "parameters": 10_000,
    }


def test_an_order_is_claimed_only_where_the_interval_leaves_out_0() -> None:
    pieces = np.linspace(0, 1, 30)
    noise = np.random.default_rng(0).normal(0, 0.2, 30)
    results = {
        "jsb-transformer": [run_of(list(pieces + 0.1), 0), run_of(list(pieces + 0.101), 1)],
        "jsb-relative": [run_of(list(pieces), 0), run_of(list(pieces + 0.002), 1)],
    }
    [clear] = reproduce.compare(results)
    assert (clear["first"], clear["second"], clear["order"]) == (*results, 1)
    args = argparse.Namespace(scale="small", steps=7, seeds=[0, 1], windows=None)
    text = reproduce.equal_table(TABLE, TABLE.rows, results, [clear], args)
    assert text.splitlines()[-1].endswith("| relative |")
    assert (
        "| plain | 0.417 | 0.6005 | 0.0007 | 0.600 / 0.500 / 0.400 / - | 0.01 M | 0.12 M | 1.5 |"
    ) in text
    unclear = {**results, "jsb-relative": [run_of(list(pieces + 0.1 + noise))]}
    assert reproduce.compare(unclear)[0]["order"] == 0
    text = reproduce.equal_table(TABLE, TABLE.rows, unclear, reproduce.compare(unclear), args)
    assert text.splitlines()[-1].endswith("| not known |")


def test_the_table_stands_beside_the_papers_numbers_and_says_what_is_not_trained() -> None:
    result = {**run_of([0.4, 0.5]), "step": 10, "steps": 20, "test": 0.5}
    text = reproduce.full_table(TABLE, TABLE.rows, {"jsb-relative": result})
    assert "| Coconet | 0.436 |" in text
    assert "| plain | 0.417 | not trained yet |" in text
    assert (
        "| relative (a note) | 0.357 | 0.4500 | 10 of 20 steps, 0.1 M events, 2 min | 0.0 M | "
        "0.700 / 0.500 / 0.400 / - | 0.5000 |"
    ) in text


def test_equal_runs_are_trained_once_and_compared(
    data: Path, tmp_path: Path, trained: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    reproduced(monkeypatch, data, out, "--equal", "--seeds", "0", "1")
    names = ["jsb-transformer-seed0", "jsb-relative-seed0"]
    assert trained == [*names, *(name.replace("seed0", "seed1") for name in names)]
    results = json.loads((out / "equal-small-steps3" / "results.json").read_text())
    assert [run["seed"] for run in results["rows"]["jsb-relative"]] == [0, 1]
    assert results["differences"][0]["runs"] == [2, 2]
    model = json.loads((out / "equal-small-steps3" / names[0] / "config.json").read_text())["model"]
    assert (model["d_model"], model["attention_position"]) == (16, "none")
    reproduced(monkeypatch, data, out, "--equal", "--seeds", "0", "1")
    assert len(trained) == 4
    monkeypatch.setattr(reproduce, "evaluate_nll", None)  # nothing is measured again either
    reproduced(monkeypatch, data, out, "--equal", "--seeds", "0", "1")


def test_a_row_goes_on_in_slices_and_is_tested_when_it_is_finished(
    data: Path, tmp_path: Path, trained: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    shape = [part for s in TABLE.equal_settings for part in ("--set", s)]
    flags = ["--rows", "jsb-relative", "--steps", "4", *shape, "--set", "d_attention=16", "--test"]

    def one_update(clock: Any) -> float | None:
        return 1e-5 if clock.minutes == 1 else None

    monkeypatch.setattr(reproduce.Clock, "left", property(one_update))
    monkeypatch.setattr(reproduce.Clock, "is_over", False)
    reproduced(monkeypatch, data, out, *flags, "--minutes", "1")
    assert "1 of 4 steps" in (out / "table.md").read_text()
    reproduced(monkeypatch, data, out, *flags)
    text = (out / "table.md").read_text()
    assert "4 of 4 steps" in text
    assert "ours, test" in text
    assert trained == ["jsb-relative"] * 2
    with pytest.raises(SystemExit, match="take another --out"):
        reproduced(monkeypatch, data, out, *flags, "--set", "dropout=0.3")


@pytest.mark.parametrize("script", ["reproduce_jsb", "reproduce_maestro"])
def test_every_row_of_the_papers_tables_can_be_built(script: str) -> None:
    table = load_script(script).TABLE
    models = []
    for row in table.rows:
        find_preset(row.preset)
        small = find_preset(row.small_preset)
        model, _ = apply_settings(small.model, small.training, [*table.equal_settings, *row.small])
        assert getattr(model, "step_labels", 0) == 0
        models.append(model)
    assert len(set(models)) == len(table.rows) == 6
