"""Which checkpoints are offered."""

import json
import shutil
from pathlib import Path

import pytest

from music_transformer.errors import CheckpointError
from music_transformer.web.models import MAX_LOADED, Shelf, available_models


@pytest.fixture
def folder(checkpoints: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of checkpoints, the only place where they are looked for but the checkout's."""
    folder = tmp_path / "models"
    shutil.copytree(checkpoints, folder, ignore=shutil.ignore_patterns("piano-fill"))
    monkeypatch.setenv("MUSIC_TRANSFORMER_CHECKPOINTS", str(folder))
    monkeypatch.chdir(tmp_path)
    return folder


def names_in(folder: Path) -> list[str]:
    return [model.name for model in available_models() if model.folder.parent == folder]


def test_the_released_ones_lead(folder: Path) -> None:
    shutil.copytree(folder / "piano", folder / "another")
    assert names_in(folder) == ["piano", "bach", "another"]


def test_a_run_is_offered_by_its_name_and_what_is_damaged_is_not(folder: Path) -> None:
    run = folder / "run"
    shutil.copytree(folder / "piano", run / "step-7")
    shutil.copy(run / "step-7" / "config.json", run / "config.json")
    (run / "latest").write_text("step-7\n")
    (folder / "bach" / "config.json").write_text("{")
    (folder / "empty").mkdir()
    assert names_in(folder) == ["piano", "run"]


def test_a_kind_that_nobody_knows_is_not_offered(folder: Path) -> None:
    path = folder / "bach" / "config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps({**config, "kind": "accompaniment"}))
    assert names_in(folder) == ["piano"]


def test_a_model_that_knows_what_comes_fills_gaps(checkpoints: Path) -> None:
    [model] = available_models([str(checkpoints / "piano-fill")])
    assert model.tasks == ("fill",)


def test_the_page_is_told_how_each_model_is_drawn_from(folder: Path) -> None:
    told = [one.to_dict() for one in available_models() if one.folder.parent == folder]
    keys = ("name", "temperature", "top_p", "tasks")
    assert [tuple(one[key] for key in keys) for one in told] == [
        ("piano", 1.0, 0.95, ("continue",)),
        ("bach", 1.07, 1.0, ("continue", "accompany")),
    ]


def test_a_name_that_is_none_is_refused(folder: Path) -> None:
    with pytest.raises(CheckpointError, match="no checkpoint 'nobody'"):
        available_models(["nobody"])


def test_the_shelf_keeps_the_last_few(folder: Path) -> None:
    shutil.copytree(folder / "piano", folder / "third")
    shelf = Shelf("cpu")
    first, second, third = (m for m in available_models() if m.folder.parent == folder)
    assert MAX_LOADED == 2
    kept = shelf.session(first)
    assert shelf.session(second) is not kept
    assert shelf.session(first) is kept
    shelf.session(third)
    assert shelf.session(first) is kept
