"""Small corpora, made where they are needed."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from music_transformer.datasets.prepared import PreparedData, write_prepared
from music_transformer.midi import write_midi
from music_transformer.notes import NoteSequence
from music_transformer.representations import ChoraleTokenizer, PerformanceTokenizer

#: Two chorales for training, one for each other split; the second falls silent in the bass.
CHORALES = {
    "test": [[[65, 60, 53, 45]] * 4],
    "train": [
        [[67, 62, 59, 45], [67, 62, 59, 45], [67, 62, 57, 43], [69, 64, 57, 43]],
        [[72, 64, 55, 48], [72, 64, 55, -1]] * 4,
    ],
    "valid": [[[-1, -1, -1, -1]] * 2 + [[64, 60, 55, 36]] * 2],
}


@pytest.fixture
def jsb_file(tmp_path: Path) -> Path:
    """A file in the format of the JSB corpus."""
    path = tmp_path / "chorales.json"
    path.write_text(json.dumps(CHORALES))
    return path


@pytest.fixture
def write_scale() -> Callable[..., None]:
    """A function that writes a MIDI file of a few notes from `lowest` upwards."""

    def write(path: Path, lowest: int = 60, notes: int = 5) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_midi(
            NoteSequence(
                pitch=range(lowest, lowest + notes),
                velocity=[64] * notes,
                start=[1.0 + 0.25 * index for index in range(notes)],
                end=[1.2 + 0.25 * index for index in range(notes)],
            ),
            path,
        )

    return write


@pytest.fixture
def prepare_ids(tmp_path: Path) -> Callable[..., PreparedData]:
    """A function that makes prepared data of pieces of ids; the same pieces in every split."""

    def prepare(
        pieces: Sequence[Sequence[int]], *, chorale: bool = False, name: str = "prepared"
    ) -> PreparedData:
        named = [(f"piece-{index}", ids) for index, ids in enumerate(pieces)]
        return write_prepared(
            tmp_path / name,
            tokenizer=ChoraleTokenizer() if chorale else PerformanceTokenizer(),
            corpus="made up",
            splits={"train": named, "validation": named},
        )

    return prepare
