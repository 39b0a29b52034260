"""A file system on which one operation after the other fails, under every command that writes.

Each open for writing, write (half of it arrives), sync, rename, new folder and deletion fails in
turn, as on a full disk. Then: one line and exit 3 (0 where only tidying up failed), the old output
or the new one is there and whole, every file of the user's is there, and the same command given
again ends as if nothing had been.
"""

import builtins
import contextlib
import hashlib
import io
import os
import shutil
import wave
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from music_transformer.checkpoint import load_checkpoint, save_checkpoint
from music_transformer.cli.main import main
from music_transformer.datasets import PreparedData
from music_transformer.datasets.download import CHECKPOINTS
from music_transformer.evaluation.memorisation import MemorisationIndex
from music_transformer.midi import read_midi, write_midi
from music_transformer.model import ModelConfig, MusicTransformer
from music_transformer.notes import NoteSequence
from music_transformer.representations import PerformanceTokenizer
from tests.datasets.test_download_files import _Server as Server
from tests.datasets.test_download_files import server  # noqa: F401 - a fixture

CALLS = ("fsync", "replace", "rename", "mkdir", "unlink")
MINE = "a file of the user's"


class _File:
    """An open file, whose writes may fail half-way."""

    def __init__(self, file: Any, due: Callable[[str], bool]) -> None:
        self._file, self._due = file, due

    def write(self, data: Any) -> Any:
        if self._due("write"):
            self._file.write(data[: len(data) // 2])
            raise OSError(28, "No space left on device")
        return self._file.write(data)

    def __enter__(self) -> "_File":
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def __iter__(self) -> Iterator[Any]:
        return iter(self._file)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


@contextlib.contextmanager
def failing(moment: int, below: Path) -> Iterator[list[str]]:
    """Let operation number `moment` below a folder fail; the operations that came, in order."""
    came: list[str] = []
    real_open, real = io.open, {name: getattr(os, name) for name in CALLS}

    def due(name: str) -> bool:
        came.append(name)
        return len(came) - 1 == moment

    def inside(path: object) -> bool:
        return isinstance(path, str | os.PathLike) and str(below) in os.path.abspath(path)

    def opened(file: Any, mode: str = "r", *arguments: Any, **keywords: Any) -> Any:
        writes = not set(mode).isdisjoint("wax+") and inside(file)
        if writes and due(f"open {file}"):
            raise OSError(28, "No space left on device", str(file))
        found = real_open(file, mode, *arguments, **keywords)
        return _File(found, due) if writes else found

    def called(name: str) -> Callable[..., Any]:
        def call(*arguments: Any, **keywords: Any) -> Any:
            named = inside(arguments[0]) and keywords.get("dir_fd") is None
            if (named or name == "fsync") and due(f"{name} {arguments[0]}"):
                path = () if name == "fsync" else (str(arguments[0]),)
                raise OSError(28, "No space left on device", *path)
            return real[name](*arguments, **keywords)

        return call

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(builtins, "open", opened)
        patch.setattr(io, "open", opened)
        for name in CALLS:
            patch.setattr(os, name, called(name))
        yield came


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of MIDI files, prepared data, a checkpoint and an old run, with the user's files."""
    root = tmp_path_factory.mktemp("faults")
    (root / "corpus").mkdir()
    for index in range(3):
        pitches = [50 + index, 55, 60, 64]
        notes = NoteSequence(
            pitch=pitches, velocity=[64] * 4, start=[0, 0.1, 0.2, 0.3], end=[0.1, 0.2, 0.3, 0.4]
        )
        write_midi(notes, root / "corpus" / f"{index}.mid")
    config = ModelConfig(n_layers=1, d_model=6, n_heads=2, d_ff=10, context=13, max_distance=7)
    torch.manual_seed(0)
    for name in ("tiny", "copy"):  # two models
        save_checkpoint(root / name, MusicTransformer(config), PerformanceTokenizer(), training={})
    assert main(["prepare", str(root / "corpus"), "--out", str(root / "data"), "--jobs", "1"]) == 0
    shutil.copy(root / "corpus" / "0.mid", root / "out.mid")
    with wave.open(str(root / "out.wav"), "wb") as sound:
        sound.setparams((1, 2, 8000, 0, "NONE", ""))
        sound.writeframes(bytes(100))
    for place in ("data", "copy", "run", ".", "data.tmp", "out.mid.tmp"):
        (root / place).mkdir(exist_ok=True)
        (root / place / "mine.txt").write_text(MINE)
    return root


def _whole_data(root: Path) -> bytes:
    return PreparedData.open(root / "data").verify().checksum.encode()


def _whole_copy(root: Path) -> bytes:
    load_checkpoint(root / "copy", "cpu")
    return (root / "copy" / "model.safetensors").read_bytes()


def _whole_midi(root: Path) -> bytes:
    read_midi(root / "out.mid")
    return (root / "out.mid").read_bytes()


def _whole_run(root: Path) -> bytes:
    if not (root / "run" / "latest").exists() and not list((root / "run").glob("step-*")):
        return b""
    return bytes(load_checkpoint(root / "run", "cpu").model.output.bias.detach().numpy())


TRAIN = "train --data data --preset piano-small --out run --resume --device cpu --set steps=2 "
TRAIN += "--set n_layers=1 --set d_model=12 --set d_attention=12 --set n_heads=2 --set d_ff=8 "
TRAIN += "--set context=16 --set max_distance=8 --set batch_size=1 --set checkpoint_every=1 "
TRAIN += "--set evaluate_every=1 --set autocast=off --set threads=1"


def _whole_sound(root: Path) -> bytes:
    with wave.open(str(root / "out.wav")) as sound:
        return sound.readframes(sound.getnframes())


GENERATE = "generate --checkpoint tiny --events 4 --device cpu --out out.mid --force"
COMMANDS = {
    "prepare": ("prepare corpus --out data --force --jobs 1 --split 1/0/0", _whole_data),
    "download": ("download piano --from tiny --out copy --force", _whole_copy),
    "decode": ("decode ids.json --out out.mid --force", _whole_midi),
    "generate": (GENERATE, _whole_midi),
    "fetch": ("download piano --url URL --out copy --force", _whole_copy),
    "render": ("render corpus/0.mid --out out.wav --force", _whole_sound),
    "train": (TRAIN, _whole_run),
}


@pytest.mark.skipif(os.name == "nt", reason="the operations of POSIX")
@pytest.mark.parametrize("name", COMMANDS)
def test_no_operation_that_fails_loses_anything(
    name: str,
    source: Path,
    tmp_path: Path,
    server: Server,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    command, whole = COMMANDS[name]
    if name == "fetch":
        command = command.replace("URL", server.url)
        shutil.make_archive(str(tmp_path / "tiny"), "zip", source / "tiny")
        server.content = (tmp_path / "tiny.zip").read_bytes()
        released = replace(
            CHECKPOINTS["piano"],
            size=len(server.content),
            sha256=hashlib.sha256(server.content).hexdigest(),
        )
        monkeypatch.setitem(CHECKPOINTS, "piano", released)
    moment, failed = -1, 0
    clean: bytes | None = None
    while True:
        root = tmp_path / f"{moment}"
        shutil.copytree(source, root)
        (root / "ids.json").write_text("[60, 300, 188]")
        if name == "train":
            (root / "run" / "mine.txt").rename(root / "run.txt")  # a run begins in an empty folder
        monkeypatch.chdir(root)
        before = whole(root)
        mine = sorted(root.rglob("mine.txt"))
        with failing(moment, root) as came:
            code = main(command.split())
        said = capsys.readouterr().err
        if moment < 0:
            assert code == 0, said
            clean, total = whole(root), len(came)
            assert clean != before
        else:
            what = f"{came[moment]}: exit {code}: {said}"
            assert code in (0, 3), what
            assert code == 0 or "o space left on device" in said, what
            assert "error: no space" not in said, what  # of which file?
            assert name == "train" or whole(root) in ((clean,) if code == 0 else (before, clean)), (
                what
            )
            failed += code == 3
            assert all(path.read_text() == MINE for path in mine if path.exists()), what
            assert len(list(root.rglob("mine.txt"))) == len(mine), what
            assert main(command.split()) in (0, 2), what + capsys.readouterr().err
            capsys.readouterr()
            assert whole(root) == clean, what
        shutil.rmtree(root)
        moment += 1
        if moment == total:
            break
    assert failed > 3


@pytest.mark.skipif(os.name == "nt", reason="the operations of POSIX")
def test_a_memorisation_index_is_the_old_one_or_the_new_one(source: Path, tmp_path: Path) -> None:
    notes = [read_midi(path) for path in sorted((source / "corpus").glob("*.mid"))]
    old, new = (
        MemorisationIndex.build(notes, n=2, size_bytes=size, data=str(size)) for size in (64, 128)
    )
    path = tmp_path / "memorisation.safetensors"
    with failing(-1, tmp_path) as came:
        new.save(path)
    for moment in range(len(came)):
        old.save(path)
        with failing(moment, tmp_path), contextlib.suppress(OSError):
            new.save(path)
        assert MemorisationIndex.load(path).data in ("64", "128")
