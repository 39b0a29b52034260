"""`download` on the command line, without a network."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from music_transformer.cli.main import main

CLOSED = "http://127.0.0.1:9/file"  # the discard port: nobody listens


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    folder = tmp_path / "released"
    folder.mkdir()
    save_file({"w": np.zeros(3, np.float16)}, folder / "model.safetensors")
    (folder / "config.json").write_text('{"model": {}, "tokenizer": {}, "training": {}}')
    return folder


def _fails(
    capsys: pytest.CaptureFixture[str], arguments: list[str], *, code: int, match: str
) -> None:
    """The command ends with `code` and says why in its last line."""
    assert main(["download", *arguments]) == code
    printed = capsys.readouterr()
    assert printed.out == ""
    assert match in printed.err.splitlines()[-1]


def test_no_network_is_exit_code_3_and_leaves_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    out = str(tmp_path / "jsb.json")
    _fails(capsys, ["jsb", "--out", out, "--url", CLOSED], code=3, match="no connection")
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_local_copy_is_refused_and_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "maestro.zip"
    source.write_bytes(b"PK")
    arguments = ["maestro", "--out", str(tmp_path / "out.zip"), "--from", str(source)]
    _fails(capsys, arguments, code=3, match="it has 2 bytes")
    assert [path.name for path in tmp_path.iterdir()] == ["maestro.zip"]


@pytest.mark.corpus
def test_a_local_copy_of_the_corpus_is_copied_into_a_folder_with_its_terms_on_stderr(
    corpora: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = str(corpora / "jsb" / "Jsb16thSeparated.json")
    assert main(["download", "jsb", "--from", source, "--out", str(tmp_path), "--json"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["path"] == str(tmp_path / "Jsb16thSeparated.json")
    assert "no licence is stated" in printed.err
    assert (tmp_path / "Jsb16thSeparated.json").stat().st_size == 1_666_444


def test_an_existing_file_needs_force(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "jsb.json").write_text("mine")
    arguments = ["jsb", "--out", str(tmp_path / "jsb.json"), "--url", CLOSED]
    _fails(capsys, arguments, code=2, match="--force")
    assert (tmp_path / "jsb.json").read_text() == "mine"


def test_released_weights_have_no_place_on_the_network_and_the_line_says_where_they_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("bach", "piano"):
        arguments = [name, "--out", str(tmp_path / "out")]
        _fails(capsys, arguments, code=3, match=f"checkpoints/{name}")


def test_released_weights_are_copied_from_a_folder(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "checkpoints" / "piano"
    arguments = ["piano", "--from", str(checkpoint), "--out", str(out)]
    assert main(["download", *arguments]) == 0
    assert capsys.readouterr().out == f"{out}\n"
    assert (out / "model.safetensors").is_file()
    _fails(capsys, arguments, code=2, match="--force replaces the folder of a checkpoint")
    assert main(["download", *arguments, "--force"]) == 0


def test_released_weights_in_several_files_are_copied_and_replaced_and_a_missing_one_is_named(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shard = "model-00001-of-00001.safetensors"
    (checkpoint / "model.safetensors").rename(checkpoint / shard)
    index = json.dumps({"metadata": {}, "weight_map": {"w": shard}})
    (checkpoint / "model.safetensors.index.json").write_text(index)
    out = tmp_path / "piano"
    arguments = ["piano", "--from", str(checkpoint), "--out", str(out)]
    assert main(["download", *arguments]) == 0
    assert main(["download", *arguments, "--force"]) == 0
    capsys.readouterr()
    assert (out / shard).read_bytes() == (checkpoint / shard).read_bytes()
    (checkpoint / shard).unlink()
    _fails(capsys, [*arguments, "--force"], code=3, match=f"{checkpoint / shard} is missing")
    assert (out / shard).is_file()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["piano", "released"]


def test_force_does_not_delete_a_folder_of_other_things(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "music").mkdir()
    (tmp_path / "music" / "song.mid").touch()
    arguments = ["piano", "--from", str(checkpoint), "--out", str(tmp_path / "music"), "--force"]
    _fails(capsys, arguments, code=2, match="it exists")
    assert (tmp_path / "music" / "song.mid").exists()


def test_an_unknown_name_is_exit_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["mozart", "--out", str(tmp_path / "out")]
    _fails(capsys, arguments, code=2, match="choose from jsb, maestro, bach, piano")
