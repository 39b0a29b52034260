"""No command deletes, replaces or writes into a file of the user's.

Every command runs under an audit hook: Python calls it before each deletion, each renaming and each
opening for writing. Files of the user's are in and beside all outputs, under names that look like
ours; a file is known by its inode, so that moving one away and back is seen as what it is.
"""

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from music_transformer.checkpoint import save_checkpoint
from music_transformer.cli.main import COMMANDS, main
from music_transformer.midi import write_midi
from music_transformer.model import ModelConfig, MusicTransformer
from music_transformer.notes import NoteSequence
from music_transformer.representations import ChoraleTokenizer, PerformanceTokenizer

pytestmark = pytest.mark.skipif(os.name == "nt", reason="files are known by their inodes")

#: In a folder of the user's, as an output that --force must not take.
LIKE_OURS = ("meta.json", "config.json", "train.bin", "model.safetensors", "latest", "best",
             "metrics.jsonl", "index.html", "clips/clip-1.wav", "step-1/state.json", "README.md",
             "step-1/config.json", "mine.txt")  # fmt: skip
#: In and beside each output that is ours.
MINE = ("mine.txt", "mine.tmp", ".mine-abcdefgh.tmp", "step-7.tmp", "step-99/diary.txt",
        "extra.bin", "meta.json.bak", "data.tmp/a", "pieces/0.ids", "clip-1.txt")  # fmt: skip
SMALL = "--device cpu --set n_layers=1 --set d_model=12 --set d_attention=12 --set n_heads=2 "
SMALL += "--set d_ff=8 --set context=16 --set max_distance=8 --set batch_size=1 --set steps=1 "
SMALL += "--set autocast=off --set threads=1"
TINY = "--checkpoint ../tiny --device cpu"
#: Every command; FORCE is nothing at first.
LINES = (
    "prepare ../corpus --out data --jobs 1 --split 1/1/1 FORCE",
    f"train --data data --preset piano-small --out run --export exported {SMALL} FORCE",
    f"train --data data --out run --resume {SMALL}",
    "download piano --from ../tiny --out copy FORCE",
    "evaluate --checkpoint run --data data --device cpu --split train",
    f"generate ../corpus/0.mid {TINY} --events 9 --out out/g.mid --wav --plot FORCE",
    "accompany ../corpus/0.mid --checkpoint ../bach --device cpu --candidates 1 --out out/a.mid "
    "FORCE",
    "fill ../corpus/0.mid --from 1 --to 2 --checkpoint ../filler --device cpu --out out/f.mid "
    "FORCE",
    "encode ../corpus/0.mid",
    "decode ../ids.json --out out/d.mid FORCE",
    "render ../corpus/0.mid --out out/r.wav FORCE",
    "plot ../corpus/0.mid --out out/p.png FORCE",
    "listening-test build --checkpoints ../tiny ../bach2 --device cpu --primers ../corpus --out "
    "test --primer-seconds 0.2 --events 9 --format wav FORCE",
    f"demo ../corpus/0.mid {TINY} --seconds 1 --out-dir demo",
    "serve --checkpoint ../tiny --device cpu --no-browser --port 0",
)
FOLDERS = ("data", "run", "exported", "copy", "test")


class Watch:
    """What happens to the files of the user's while a command runs."""

    def __init__(self) -> None:
        self.mine: dict[Path, tuple[int, bytes]] = {}  # inode and content
        self.violations: list[str] = []
        self.on = False
        sys.addaudithook(self._hear)  # for the rest of the process; off, it returns at once

    def add(self, path: Path) -> None:
        """Keep watch on a file."""
        self.mine[path] = (path.stat().st_ino, path.read_bytes())

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.on or event not in ("os.remove", "os.rename", "os.truncate", "open"):
            return
        path, folder = arguments[0], -1
        if event == "open" and not arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_TRUNC):
            return
        if event == "os.remove":
            folder = arguments[1]
        elif event == "os.rename":  # what is there is replaced
            path, folder = arguments[1], arguments[3]
        try:
            place = {} if folder in (-1, None) else {"dir_fd": folder}
            inode = os.stat(path, follow_symlinks=event == "open", **place).st_ino
        except (OSError, TypeError):
            return  # nothing is there yet
        if any(inode == one for one, _ in self.mine.values()):
            self.violations.append(f"{event} {arguments}")

    def run(self, line: str) -> int:
        """Run a command, and look whether all is as it was."""
        self.on = True
        try:
            code = main(line.split())
        finally:
            self.on = False
        assert not self.violations, (line, self.violations)
        for path, (_, content) in self.mine.items():
            assert path.read_bytes() == content, (line, path)
        return code


@pytest.fixture(scope="module")
def watch() -> Watch:
    return Watch()


@pytest.fixture
def work(tmp_path: Path, watch: Watch, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder where the commands run; beside it are their inputs, which are the user's too."""
    (tmp_path / "corpus").mkdir()
    for index in range(3):
        count = 30
        start = [0.1 * one for one in range(count)]
        notes = NoteSequence(
            pitch=[50 + index, 55, 60] * 10,
            velocity=[64] * count,
            start=start,
            end=[one + 0.1 for one in start],
        )
        write_midi(notes, tmp_path / "corpus" / f"{index}.mid")
    (tmp_path / "ids.json").write_text("[60, 300, 188]")
    for name, tokenizer, more in (
        ("tiny", PerformanceTokenizer(), {}),
        ("bach2", PerformanceTokenizer(), {}),
        ("filler", PerformanceTokenizer(), {"anchors": True}),
        ("bach", ChoraleTokenizer(), {"voice_labels": 4}),
    ):
        torch.manual_seed(0)
        config = ModelConfig(
            vocab_size=tokenizer.vocab_size, n_layers=1, d_model=6, n_heads=2, d_ff=10, context=512,
            **more,
        )  # fmt: skip
        save_checkpoint(tmp_path / name, MusicTransformer(config), tokenizer, training={})
    monkeypatch.setattr("music_transformer.web.run.Server.run", lambda *_, **__: None)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    watch.mine, watch.violations = {}, []
    for path in [*tmp_path.rglob("*.*")]:
        if path.is_file():
            watch.add(path)
    return tmp_path / "work"


def put(watch: Watch, folder: Path, names: tuple[str, ...]) -> None:
    for name in names:
        path = folder / name
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{{}} {path}")
            watch.add(path)


def test_every_command_is_watched() -> None:
    assert {line.split()[0] for line in LINES} == set(COMMANDS)


def test_no_command_takes_a_folder_of_the_users(work: Path, watch: Watch) -> None:
    assert watch.run(LINES[0].replace("FORCE", "")) == 0
    (work / "data").rename(work / "prepared")
    for folder in FOLDERS:
        put(watch, work / folder, LIKE_OURS)
    for line in LINES:
        if line.startswith(("prepare", "train", "download", "listening-test")):
            forced = line.replace("--data data", "--data prepared").replace("FORCE", "--force")
            assert watch.run(forced) in (2, 3), line
    assert {path.name for path in work.iterdir()} == {*FOLDERS, "prepared"}


def test_no_command_touches_what_is_in_and_beside_its_output(work: Path, watch: Watch) -> None:
    for line in LINES:
        assert watch.run(line.replace("FORCE", "")) == 0, line
    for folder in [work, *(path for path in work.rglob("*") if path.is_dir())]:
        plain = folder.name in ("exported", "copy")  # a folder in a checkpoint is refused
        put(watch, folder, tuple(name for name in MINE if not (plain and "/" in name)))
    for line in LINES:
        refused = (2,) if "FORCE" in line and line.startswith("listening") else (0,)
        assert watch.run(line.replace("FORCE", "--force")) in refused, line


def test_the_watch_sees(work: Path, watch: Watch) -> None:
    put(watch, work, MINE)
    for harm in (
        lambda: Path("mine.txt").unlink(),
        lambda: Path("mine.tmp").write_text(""),
        lambda: Path("step-7.tmp").replace("extra.bin"),
        lambda: shutil.rmtree("pieces"),
    ):
        watch.on, watch.violations = True, []
        harm()
        watch.on = False
        assert len(watch.violations) == 1
    watch.violations = []
