"""What must hold of every file, however damaged: one of our errors, or a result that agrees.

Nothing but `MusicTransformerError` comes out of a reader or a writer, no warning is given, what is
written is read again, and time and memory stay within a bound for each byte and each second of
music (a rest costs events too).
"""

import json
import os
import resource
import shutil
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random
from typing import NamedTuple, TypeVar

import numpy as np
import torch

from music_transformer.checkpoint import load_checkpoint, save_checkpoint
from music_transformer.cli.main import main
from music_transformer.datasets import PreparedData
from music_transformer.datasets.corpora import read_jsb
from music_transformer.errors import MusicTransformerError
from music_transformer.midi import (
    SUFFIXES,
    bar_lines,
    part_of,
    read_midi,
    read_midi_bytes,
    write_midi,
)
from music_transformer.model import ModelConfig, MusicTransformer
from music_transformer.notes import NoteSequence
from music_transformer.render.audio import render_audio
from music_transformer.render.pianoroll import plot_pianoroll
from music_transformer.representations import MelodyTokenizer, PerformanceTokenizer, split_melody
from music_transformer.representations.base import REPRESENTATIONS
from music_transformer.study.analysis import read_answers, read_key
from music_transformer.training.run_dir import RunState
from music_transformer.web.takes import rows_of
from tests.fuzz.files import damaged, midi_files, mutated, mutated_json

T = TypeVar("T")
MOTIFS = Path(__file__).resolve().parents[2] / "data" / "motifs"
CLEAR = "/proc/self/clear_refs"
SECONDS, SHOW_SECONDS, SECONDS_PER_BYTE = 0.1, 5.0, 5e-5
MIB, MIB_PER_BYTE = 32, 0.004
BLOCK = 1000  # files that are made of the same few
DOCUMENT_EVERY = 100  # files, of which one is no MIDI
RARE_EVERY = 2000


class Case(NamedTuple):
    """What became of one file.

    Attributes:
        kind: the course that was taken, refused, or the document that was damaged.
        music: seconds of it; a rest costs events too.
        seconds: of CPU, the best of three where the first is too long.
        memory: MiB at most above what the process had before it.
    """

    number: int
    size: int
    kind: str
    music: float
    seconds: float
    memory: float

    @property
    def time_share(self) -> float:
        """Of the time that is allowed."""
        begin = SHOW_SECONDS if self.kind == "show" else SECONDS
        return self.seconds / (begin + SECONDS_PER_BYTE * self.size + 5e-6 * self.music)

    @property
    def memory_share(self) -> float:
        """Of the memory that is allowed."""
        return self.memory / (MIB + MIB_PER_BYTE * self.size + 1e-4 * self.music)


class Fuzzer:
    """Files by number, and what is checked of each.

    Args:
        folder: an empty one, for what is written.
        seed: with the number of a file it says which file that is.
    """

    def __init__(self, folder: Path, seed: int = 0) -> None:
        self.folder, self.seed = folder, seed
        self._motifs = [path.read_bytes() for path in sorted(MOTIFS.glob("*.mid"))]
        self._documents = _documents(folder)
        self._block: tuple[int, list[bytes]] = (-1, [])
        for course in COURSES + RARE:  # what is loaded once is no file's fault
            course(self, read_midi_bytes(self._motifs[0], "warm.mid"), Random(0))

    def data(self, number: int) -> tuple[str, bytes, Random]:
        """The name of the document that is damaged, "" for a MIDI file; its bytes; what follows."""
        random = Random(f"{self.seed}/{number}")
        if number % DOCUMENT_EVERY:
            if self._block[0] != number // BLOCK:
                block = Random(f"{self.seed}/block {number // BLOCK}")
                self._block = (number // BLOCK, midi_files(block, BLOCK // 20) + self._motifs[:3])
            return "", damaged(random, random.choice(self._block[1])), random
        name = random.choice(sorted(self._documents))
        whole = (self.folder / name).read_bytes()
        change = mutated if name.endswith(("bin", "safetensors")) else mutated_json
        return name, change(random, whole), random

    def check(self, number: int) -> Case:
        """Check one file.

        Raises:
            Exception: whatever should not have been raised.
        """
        case = self._measured(number)
        for _ in range(2):
            if case.time_share > 1:  # others may use this machine
                case = min(case, self._measured(number), key=lambda one: one.seconds)
        assert case.time_share <= 1, f"too slow: {case}"
        assert case.memory_share <= 1, f"too much memory: {case}"
        return case

    def _measured(self, number: int) -> Case:
        name, data, random = self.data(number)
        before = forget_memory()
        begun = time.process_time()
        kind, music = self._check_document(name, data) if name else self._check(data, random)
        used = time.process_time() - begun
        return Case(number, len(data), kind, music, used, _most_memory() - before)

    def _check(self, data: bytes, random: Random) -> tuple[str, float]:
        try:
            notes = read_midi_bytes(data, "fuzz.mid")
        except MusicTransformerError as error:
            assert "\n" not in str(error)  # noqa: PT017
            return "refused", 0
        course = random.choice(RARE if random.random() < 1 / RARE_EVERY else COURSES)
        try:
            course(self, notes, random)
        except MusicTransformerError as error:
            raise AssertionError("an error where none is allowed") from error
        return course.__name__.strip("_"), notes.end_time

    def _write(self, notes: NoteSequence, random: Random) -> None:
        path = self.folder / f"written{random.choice(SUFFIXES)}"
        if _or_none(lambda: write_midi(notes, path)) is None:
            return
        again = read_midi(path)
        assert np.array_equal(np.sort(again.pitch), np.sort(notes.pitch))
        if random.random() < 0.75:
            return
        write_midi(again, path)
        twice = read_midi(path)
        for column in ("pitch", "velocity", "start", "end", "track"):
            assert np.array_equal(getattr(twice, column), getattr(again, column)), column

    def _encode(self, notes: NoteSequence, random: Random) -> None:
        one = random.choice(list(REPRESENTATIONS.values()))
        representation = one()
        ids = _or_none(lambda: representation.encode_array(notes))
        if ids is not None:
            decoded = representation.decode(ids)
            assert len(representation.note_of_event(ids).note) == len(ids)
            if one is PerformanceTokenizer and len(decoded):
                assert np.array_equal(representation.encode_array(decoded), ids)

    def _primer(self, notes: NoteSequence, random: Random) -> None:
        representation = random.choice(list(REPRESENTATIONS.values()))()
        last = random.choice((10, None))
        _or_none(lambda: representation.read_primer(notes, last_seconds=last))

    def _part(self, notes: NoteSequence, random: Random) -> None:
        bar_lines(notes)
        first = random.random() * min(notes.end_time, 1e5)
        part = _or_none(lambda: part_of(notes, f"{first}", f"{first + 5}"))
        if part is not None:
            rows_of(part)

    def _melody(self, notes: NoteSequence, random: Random) -> None:
        melody = _or_none(lambda: split_melody(notes)[0]) if len(notes) else None
        if melody is not None:
            _or_none(lambda: MelodyTokenizer().encode(melody))

    def _show(self, notes: NoteSequence, random: Random) -> None:
        part = _or_none(lambda: part_of(notes, "0", "5"))
        if part is not None:
            render_audio(part, self.folder / "sound.wav")
            plot_pianoroll(part, bars=bar_lines(part)).savefig(self.folder / "roll.png")

    def _check_document(self, name: str, data: bytes) -> tuple[str, float]:
        path = self.folder / name
        whole = path.read_bytes()
        path.write_bytes(data)
        try:
            self._documents[name]()
        except MusicTransformerError as error:
            assert "\n" not in str(error)  # noqa: PT017
        finally:
            path.write_bytes(whole)
        return name, 0


#: What is done with a file that is read, one of them each; drawing takes a second.
_encode, _show = Fuzzer._encode, Fuzzer._show
COURSES = (Fuzzer._write, _encode, _encode, Fuzzer._primer, Fuzzer._part, Fuzzer._melody)
RARE = (_show,)


def forget_memory() -> float:
    """MiB of this process; begin to measure the most of it anew (Linux)."""
    if os.path.exists(CLEAR):
        with open(CLEAR, "wb", 0) as file:
            file.write(b"5")
    return _most_memory()


def _most_memory() -> float:
    """MiB of this process at most, since `forget_memory`."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _or_none(work: Callable[[], T]) -> T | None:
    try:
        return work()
    except MusicTransformerError:
        return None


def _documents(folder: Path) -> dict[str, Callable[[], object]]:
    """A file of each kind that is no MIDI, and what reads it."""
    corpus, data, model, run = (folder / name for name in ("corpus", "data", "model", "run"))
    corpus.mkdir()
    for path in MOTIFS.glob("*.mid"):
        shutil.copy(path, corpus)
    _run(["prepare", str(corpus), "--out", str(data), "--jobs", "1", "--split", "3/1/1"])
    config = ModelConfig(n_layers=1, d_model=6, n_heads=2, d_ff=10, context=13, max_distance=7)
    save_checkpoint(model, MusicTransformer(config), PerformanceTokenizer(), training={})
    small = "autocast=off n_layers=1 d_model=12 d_attention=12 n_heads=2 d_ff=8 context=16 "
    small += "max_distance=8 steps=1"
    settings = [word for one in small.split() for word in ("--set", one)]
    _run(["train", "--data", str(data), "--preset", "piano-small", "--out", str(run), "--device",
          "cpu", "--set", "batch_size=1", "--set", "threads=1", *settings])  # fmt: skip
    state = next(run.glob("step-*"))
    grid = {part: [[[60, 57, 53, 48]] * 4] for part in ("train", "valid", "test")}
    (folder / "jsb.json").write_text(json.dumps(grid))
    (folder / "ids.json").write_text("[60, 300, 188]")
    trials = [{"name": "1", "primer": "p", "a": "m", "b": "n"}]
    key = {"study": "s", "sources": ["m", "n"], "trials": trials, "clips": {"m": {"p": "1.wav"},
           "n": {"p": "2.wav"}}, "settings": {}}  # fmt: skip
    (folder / "key.json").write_text(json.dumps(key))
    (folder / "answers.json").write_text(
        json.dumps({"study": "s", "answers": [{"study": "s", "trial": "1", "score": 1}]})
    )
    decode = ["decode", str(folder / "ids.json"), "--out", str(folder / "d.mid"), "--force"]
    return {
        "data/meta.json": lambda: PreparedData.open(data).verify(),
        "data/train.bin": lambda: PreparedData.open(data).verify(),
        "model/config.json": lambda: load_checkpoint(model, "cpu"),
        "model/model.safetensors": lambda: load_checkpoint(model, "cpu"),
        f"run/{state.name}/state.json": lambda: RunState.read(state),
        "run/config.json": lambda: load_checkpoint(run, "cpu"),
        "jsb.json": lambda: read_jsb(folder / "jsb.json"),
        "ids.json": lambda: _run(decode, (0, 2, 3)),
        "key.json": lambda: read_key(folder / "key.json"),
        "answers.json": lambda: read_answers(
            folder / "answers.json", read_key(folder / "key.json")
        ),
    }


def _run(arguments: Iterable[str], codes: tuple[int, ...] = (0,)) -> None:
    quiet = open(os.devnull, "w")  # noqa: SIM115
    from contextlib import redirect_stderr, redirect_stdout

    threads = torch.get_num_threads()
    with quiet, redirect_stdout(quiet), redirect_stderr(quiet):
        code = main(list(arguments))
    torch.set_num_threads(threads)
    assert code in codes, f"exit {code}"
