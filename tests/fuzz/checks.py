"""What must hold of every file, however damaged: one of our errors, or a result that agrees.

Nothing but `MusicTransformerError` comes out of a reader or a writer, no warning is given, what is
written is read again, and time and memory stay within a bound for each byte and each second of
music (a rest costs events too).
"""

import json
import os
import shutil
import time
import warnings
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
from music_transformer.midi import bar_lines, part_of, read_midi, read_midi_bytes, write_midi
from music_transformer.model import ModelConfig, MusicTransformer
from music_transformer.notes import NoteSequence
from music_transformer.render.audio import render_audio
from music_transformer.render.pianoroll import plot_pianoroll
from music_transformer.representations import MelodyTokenizer, PerformanceTokenizer, extract_melody
from music_transformer.representations.registry import REPRESENTATIONS
from music_transformer.study.analysis import read_answers, read_key
from music_transformer.training.state import RunState
from music_transformer.web.takes import rows_of
from tests.fuzz.files import midi_file, mutated, mutated_json

T = TypeVar("T")
MOTIFS = Path(__file__).resolve().parents[2] / "data" / "motifs"
SECONDS, SECONDS_PER_BYTE, SECONDS_PER_SECOND = 1.0, 1e-3, 5e-6
_SLOW_EVERY = 499  # files between two whose sound and picture are made


class Case(NamedTuple):
    """What became of one file."""

    number: int
    size: int  # bytes
    kind: str  # read, refused, or the document that was damaged
    seconds: float  # of CPU
    allowed: float


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

    def data(self, number: int) -> tuple[str, bytes, Random]:
        """The name of the document that is damaged, "" for a MIDI file; and its bytes."""
        random = Random(f"{self.seed}/{number}")
        if number % 20:
            return "", midi_file(random, self._motifs), random
        name = random.choice(sorted(self._documents))
        whole = (self.folder / name).read_bytes()
        damaged = mutated if name.endswith(("bin", "safetensors")) else mutated_json
        return name, damaged(random, whole), random

    def check(self, number: int) -> Case:
        """Check one file.

        Raises:
            Exception: whatever should not have been raised.
        """
        name, data, random = self.data(number)
        begun, seconds, kind = time.process_time(), 0.0, name
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            if name:
                self._check_document(name, data)
            else:
                try:
                    notes = read_midi_bytes(data, "fuzz.mid")
                    kind, seconds = "read", notes.end_time
                    self._check_notes(notes, random, number % _SLOW_EVERY == 1)
                except MusicTransformerError as error:
                    if kind == "read":
                        raise AssertionError("an error where none is allowed") from error
                    kind = "refused"
        used = time.process_time() - begun
        allowed = SECONDS + SECONDS_PER_BYTE * len(data) + SECONDS_PER_SECOND * seconds
        assert used <= 10 * allowed, f"{used:.1f} s for {len(data)} bytes, {seconds:.0f} s of music"
        return Case(number, len(data), kind, used, allowed)

    def _check_notes(self, notes: NoteSequence, random: Random, slow: bool) -> None:
        bar_lines(notes)
        rows_of(notes)
        for one in REPRESENTATIONS.values():
            representation = one()
            ids = _or_none(lambda r=representation: r.encode_array(notes))
            if ids is not None:
                decoded = representation.decode(ids)
                assert len(representation.note_of_event(ids).note) == len(ids)
                if one is PerformanceTokenizer and len(decoded):
                    assert np.array_equal(representation.encode_array(decoded), ids)
            _or_none(lambda r=representation: r.read_primer(notes, last_seconds=10))
        if len(notes):
            melody = _or_none(lambda: extract_melody(notes))
            if melody is not None:
                _or_none(lambda: MelodyTokenizer().encode(melody))
        first = random.random() * min(notes.end_time, 1e5)
        part = _or_none(lambda: part_of(notes, f"{first}", f"{first + 5}"))
        path = self.folder / "written.mid"
        if _or_none(lambda: write_midi(notes, path)) is not None:
            again = read_midi(path)
            assert len(again) == len(notes), (len(again), len(notes))
        if slow and part is not None:
            render_audio(part, self.folder / "sound.wav")
            plot_pianoroll(notes, bars=bar_lines(notes)).savefig(self.folder / "roll.png")

    def _check_document(self, name: str, data: bytes) -> None:
        path = self.folder / name
        whole = path.read_bytes()
        path.write_bytes(data)
        try:
            self._documents[name]()
        except MusicTransformerError as error:
            assert "\n" not in str(error)  # noqa: PT017
        finally:
            path.write_bytes(whole)


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
