"""Copies of checkpoints: whole or not at all, and nothing of the user's is lost."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from music_transformer.checkpoint.hub import copy_checkpoint
from music_transformer.errors import CheckpointError


def _checkpoint(folder: Path) -> Path:
    folder.mkdir()
    save_file({"w": np.zeros(3, np.float16)}, folder / "model.safetensors")
    (folder / "config.json").write_text('{"model": {}, "tokenizer": {}, "training": {}}')
    (folder / "README.md").write_text("how it was trained")
    return folder


def test_a_checkpoint_is_copied_whole_and_replaced_whole(tmp_path: Path) -> None:
    source, out = _checkpoint(tmp_path / "piano"), tmp_path / "checkpoints" / "piano"
    for _ in range(2):
        copy_checkpoint(source, out)
        assert sorted(path.name for path in out.iterdir()) == [
            "README.md",
            "config.json",
            "model.safetensors",
        ]
        assert [path.name for path in out.parent.iterdir()] == ["piano"]


def _in_several_files(folder: Path) -> Path:
    """A checkpoint as `save_checkpoint` writes it with `max_file_bytes`."""
    (_checkpoint(folder) / "model.safetensors").unlink()
    for number, name in enumerate("vw", start=1):
        save_file({name: np.zeros(3, np.float16)}, folder / _shard(number))
    index = {"metadata": {"total_size": 12}, "weight_map": {"v": _shard(1), "w": _shard(2)}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def _shard(number: int) -> str:
    return f"model-{number:05d}-of-00002.safetensors"


def test_a_checkpoint_in_several_files_is_copied_whole_and_nothing_of_the_old_one_stays(
    tmp_path: Path,
) -> None:
    source, out = _in_several_files(tmp_path / "large"), _checkpoint(tmp_path / "out")
    copy_checkpoint(source, out)
    copied = {path.name: path.read_bytes() for path in out.iterdir()}
    assert copied == {path.name: path.read_bytes() for path in source.iterdir()}
    assert {_shard(1), _shard(2), "model.safetensors.index.json", "config.json"} < set(copied)
    copy_checkpoint(_checkpoint(tmp_path / "piano"), out)
    assert not list(out.glob("model*-of-*")) + list(out.glob("*.index.json"))


@pytest.mark.parametrize(
    ("name", "content", "match"),
    [
        (_shard(2), None, r"00002-of-00002\.safetensors is missing; the checkpoint"),
        (_shard(2), b"\x00" * 9, r"00002-of-00002\.safetensors: damaged or cut short"),
        (_shard(2), "cut", r"00002-of-00002\.safetensors: damaged or cut short"),
        (_shard(2), "of another model", r"00002-of-00002\S+: the weight w is missing"),
        ("model.safetensors.index.json", b"{", r"index\.json: not readable as JSON"),
        ("model.safetensors.index.json", b"[]", r"index\.json: not a JSON object"),
        (
            "model.safetensors.index.json",
            b'{"weight_map": {"w": "../secret.safetensors"}}',
            r"index\.json: no map from weights to files",
        ),
        ("model.safetensors.index.json", None, r"no model\.safetensors in it"),
    ],
)
def test_a_broken_checkpoint_in_several_files_is_not_copied(
    tmp_path: Path, name: str, content: bytes | str | None, match: str
) -> None:
    source = _in_several_files(tmp_path / "large")
    if content is None:
        (source / name).unlink()
    elif content == "cut":
        (source / name).write_bytes((source / name).read_bytes()[:-1])
    elif content == "of another model":
        save_file({"other": np.zeros(3, np.float16)}, source / name)
    elif isinstance(content, bytes):
        (source / name).write_bytes(content)
    with pytest.raises(CheckpointError, match=match):
        copy_checkpoint(source, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["large"]


def test_a_checkpoint_that_cannot_be_put_in_place_destroys_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, out = _checkpoint(tmp_path / "piano"), _checkpoint(tmp_path / "out")
    (out / "README.md").write_text("the old one")
    rename = Path.rename

    def refused(path: Path, target: Path) -> Path:
        if path.name.endswith(".tmp"):
            raise PermissionError(13, "Permission denied", str(target))
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", refused)
    with pytest.raises(PermissionError):
        copy_checkpoint(source, out)
    assert (out / "README.md").read_text() == "the old one"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "piano"]


@pytest.mark.parametrize(
    ("name", "content", "match"),
    [
        ("config.json", b"{", r"config\.json: not readable as JSON"),
        ("config.json", b"{}", r"config\.json: no 'model' in it"),
        ("model.safetensors", b"\x00" * 9, r"model\.safetensors: damaged or cut short"),
        ("model.safetensors", None, r"no model\.safetensors in it"),
    ],
)
def test_a_broken_checkpoint_is_not_copied(
    tmp_path: Path, name: str, content: bytes | None, match: str
) -> None:
    source = _checkpoint(tmp_path / "piano")
    if content is None:
        (source / name).unlink()
    else:
        (source / name).write_bytes(content)
    with pytest.raises(CheckpointError, match=match):
        copy_checkpoint(source, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["piano"]
