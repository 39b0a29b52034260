"""`download` on the command line, without a network."""

import hashlib
import io
import json
import runpy
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from music_transformer.cli.main import main
from music_transformer.datasets import download as downloads
from music_transformer.datasets.download import CHECKPOINTS, RELEASE_URL
from music_transformer.render import audio
from music_transformer.render.audio import default_soundfont

REPOSITORY = Path(__file__).resolve().parents[2]
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


def test_released_weights_are_what_the_table_of_downloads_says(tmp_path: Path) -> None:
    """After a new release: put the line of scripts/release/archive.py into datasets/download.py."""
    pack = runpy.run_path(str(REPOSITORY / "scripts" / "release" / "archive.py"))["pack"]
    for name, download in CHECKPOINTS.items():
        line = pack(REPOSITORY / "checkpoints" / name, tmp_path)
        assert line == f'"{name}", {download.size:_}, "{download.sha256}"'
        assert download.url == f"{RELEASE_URL}/{name}.zip"


def test_released_weights_are_unpacked_from_their_archive(
    checkpoint: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    archive = tmp_path / "piano.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for path in checkpoint.iterdir():
            file.write(path, path.name)
    content = archive.read_bytes()
    sha256 = hashlib.sha256(content).hexdigest()
    known = replace(CHECKPOINTS["piano"], size=len(content), sha256=sha256)
    monkeypatch.setitem(CHECKPOINTS, "piano", known)
    out = tmp_path / "checkpoints" / "piano"
    assert main(["download", "piano", "--from", str(archive), "--out", str(out)]) == 0
    assert {path.name for path in out.iterdir()} == {"config.json", "model.safetensors"}
    assert "not for commercial use" in capsys.readouterr().err
    archive.write_bytes(content[:-1])
    _fails(
        capsys,
        ["piano", "--from", str(archive), "--out", str(tmp_path / "x")],
        code=3,
        match="not piano.zip",
    )


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
    _fails(capsys, arguments, code=3, match="holds something that is no checkpoint")
    assert (tmp_path / "music" / "song.mid").exists()


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package as Debian makes them, with the default font under the name of the better one."""
    content = default_soundfont().read_bytes()
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:xz") as file:
        for name, size in (("./usr/share/doc/README", 9), ("./usr/share/FluidR3_GM.sf2", -1)):
            member = tarfile.TarInfo(name)
            member.size = size if size > 0 else len(content)
            file.addfile(member, io.BytesIO(content))
    parts = {"debian-binary": b"2.0", "control.tar.xz": b"none", "data.tar.xz": packed.getvalue()}
    archive = b"!<arch>\n"
    for name, part in parts.items():
        archive += f"{name:16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(part):<10}`\n".encode()
        archive += part + b"\n" * (len(part) % 2)
    path = tmp_path / "local.deb"
    path.write_bytes(archive)
    for constant, data in (("SOUNDFONT_PACKAGE", archive), ("PIANO_SOUNDFONT", content)):
        known = getattr(downloads, constant)
        sum_ = hashlib.sha256(data).hexdigest()
        monkeypatch.setattr(downloads, constant, replace(known, size=len(data), sha256=sum_))
    monkeypatch.setattr(audio, "checkout", lambda: None)
    monkeypatch.setattr(audio, "_SYSTEM_FONT", tmp_path / "none.sf2")
    monkeypatch.chdir(tmp_path)
    return path


def test_a_better_piano_is_taken_out_of_its_package_and_played_by_its_name(
    package: Path, motifs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("midirenderer", reason="needs the [audio] extra")
    play = ["render", str(motifs / "c_major_scale.mid"), "--soundfont", "piano", "--out", "a.wav"]
    assert main(play) == 3
    assert "download piano-soundfont fetches it" in capsys.readouterr().err
    assert main(["download", "piano-soundfont", "--from", str(package)]) == 0
    printed = capsys.readouterr()
    assert printed.out == f"{Path('data') / 'piano.sf2'}\n"
    assert "MIT" in printed.err
    assert "--soundfont piano" in printed.err
    font = tmp_path / "data" / "piano.sf2"
    assert font.read_bytes() == default_soundfont().read_bytes()
    assert main(play) == 0
    other = tmp_path / "other.sf2"
    assert main(["download", "piano-soundfont", "--from", str(font), "--out", str(other)]) == 0
    assert other.read_bytes() == font.read_bytes()
    capsys.readouterr()
    _fails(capsys, ["piano-soundfont", "--from", str(package)], code=2, match="--force")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "a.wav", "data", "local.deb", "other.sf2"
    ]  # fmt: skip


def test_of_a_wrong_package_nothing_is_kept(
    package: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    package.write_bytes(package.read_bytes()[:-1])
    _fails(
        capsys, ["piano-soundfont", "--from", str(package)], code=3, match="not fluid-soundfont-gm"
    )
    arguments = ["piano-soundfont", "--from", str(tmp_path / "none.deb")]
    _fails(capsys, arguments, code=3, match="none.deb: no such file")
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["local.deb"]


def test_without_a_place_only_the_piano_has_one(capsys: pytest.CaptureFixture[str]) -> None:
    for what in ("jsb", "piano"):
        _fails(capsys, [what], code=2, match=f"download {what}: say where to put it, with --out.")


def test_an_unknown_name_is_exit_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["mozart", "--out", str(tmp_path / "out")]
    _fails(capsys, arguments, code=2, match="choose from jsb, maestro, bach, piano")
