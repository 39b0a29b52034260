"""A fourth kind of music: one module and one line of the registry, and every room asks it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from music_transformer.checkpoint import Session, load_checkpoint
from music_transformer.cli.main import main
from music_transformer.datasets import PreparedData
from music_transformer.datasets.pairs import training_windows
from music_transformer.errors import ConfigError
from music_transformer.evaluation.baselines import count_baselines
from music_transformer.evaluation.nll import evaluate_nll
from music_transformer.generation import accompany, generate
from music_transformer.midi import write_midi
from music_transformer.model import ModelConfig, MusicTransformer
from music_transformer.notes import NoteSequence
from music_transformer.representations import Grammar, Limits, Primer, Representation
from music_transformer.representations.base import REPRESENTATIONS, NoteIndex, register
from music_transformer.representations.ids import IdArray, Ids, Mask, check_ids
from music_transformer.training.config import TrainingConfig
from music_transformer.training.loop import Trainer
from music_transformer.training.run_dir import RunFolder

STEP = 0.5  # seconds


class DrumGrammar(Grammar):
    """Three strokes a bar, each loud or soft."""

    finished: ClassVar[bool] = False

    def __init__(self, primer: Primer, limits: Limits) -> None:
        self.wanted = limits.events
        if limits.seconds is not None:
            self.wanted = round(limits.seconds / STEP)
        self.read(primer.ids)

    @property
    def seconds(self) -> float:
        return self.strokes * STEP

    def read(self, ids: Iterable[int]) -> None:
        self.strokes = 0

    def mask(self, remaining: int | None = None) -> Mask:
        return np.arange(5) < 2

    def clip(self, event_id: int) -> int:
        return event_id

    def advance(self, event_id: int) -> None:
        self.strokes += 1

    def closing(self) -> list[int]:
        return []


@dataclass(frozen=True)
class Drum(Representation):
    """Every half second a stroke: 0 soft, 1 loud; bars of three."""

    kind: ClassVar[str] = "drum"
    vocab_size: ClassVar[int] = 5
    pad: ClassVar[int] = 2
    start: ClassVar[int] = 3
    end: ClassVar[int] = 4
    crop_step: ClassVar[int] = 3

    def to_config(self) -> dict[str, Any]:
        return {"kind": self.kind}

    def encode_array(self, notes: NoteSequence, *, keep_silence: bool = True) -> Any:
        return (notes.velocity > 64).astype(np.uint16)

    def decode(self, ids: Ids, *, seconds_per_beat: float = 0.0) -> NoteSequence:
        loud = np.array(self.events_of(ids), dtype=np.int64)
        at = np.arange(len(loud)) * STEP
        return NoteSequence(pitch=loud * 0 + 60, velocity=40 + 60 * loud, start=at, end=at + 0.1)

    def symbols(self, ids: Ids) -> list[str]:
        return [("SOFT", "LOUD", "PAD", "START", "END")[i] for i in check_ids(ids, 5)]

    def duration_seconds(self, ids: Ids, *, seconds_per_beat: float = 0.0) -> float:
        return len(self.events_of(ids)) * STEP

    def note_of_event(self, ids: Ids) -> NoteIndex:
        return NoteIndex(np.arange(len(ids)), np.arange(len(ids)))

    def transpositions(self, events: IdArray, meta: Mapping[str, Any]) -> list[int]:
        return [0, int(meta["loud"] > 0)]

    def transposed(self, ids: IdArray, semitones: int) -> IdArray:
        return np.where(ids < 2, ids ^ semitones, ids)  # loud for soft

    def describe_training(self, pieces: Sequence[IdArray]) -> dict[str, Any]:
        return {"loud": int(sum(piece.sum() for piece in pieces))}

    def evaluation_stride(self, context: int) -> int:
        return context

    def baselines(self, train: Sequence[IdArray], pieces: Sequence[IdArray]) -> dict[str, float]:
        return {"a coin": float(np.log(2))}

    def _read_primer(
        self, primer: NoteSequence | Sequence[int], last_seconds: float | None, keep_silence: bool
    ) -> Primer:
        ids = self.encode(primer) if isinstance(primer, NoteSequence) else self.events_of(primer)
        return Primer(ids)

    def grammar(self, primer: Primer, limits: Limits) -> DrumGrammar:
        return DrumGrammar(primer, limits)

    def _split_at(self, ids: list[int], seconds: float) -> tuple[list[int], list[int]]:
        cut = round(seconds / STEP)
        return ids[:cut], ids[cut:]


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(REPRESENTATIONS, Drum.kind, Drum)  # and gone after the test
    register(Drum)


@pytest.fixture
def data(tmp_path: Path) -> PreparedData:
    """Seven files of twenty strokes, one loud in three, prepared by the command."""
    (tmp_path / "midi").mkdir()
    for number in range(7):
        strokes = [int((i + number) % 3 == 0) for i in range(20)]
        write_midi(Drum().decode(strokes), tmp_path / "midi" / f"{number}.mid")
    folder = tmp_path / "data"
    prepare = ["prepare", str(tmp_path / "midi"), "--tokenizer", "drum", "--jobs", "1"]
    assert main([*prepare, "--split", "5/1/1", "--out", str(folder)]) == 0
    return PreparedData.open(folder)


@pytest.fixture
def session(tmp_path: Path) -> Session:
    torch.manual_seed(0)
    config = ModelConfig(vocab_size=5, n_layers=1, d_model=8, n_heads=2, d_ff=8, context=12)
    model = MusicTransformer(config).eval()
    session = Session(model, Drum(), config, {}, tmp_path / "drum", torch.device("cpu"))
    return load_checkpoint(session.save(tmp_path / "drum"), device="cpu")


def test_a_question_left_open_is_an_error_when_the_kind_is_registered() -> None:
    class Half(Drum):
        kind: ClassVar[str] = "half"
        symbols: Any = Representation.symbols

    with pytest.raises(TypeError, match="Half does not define symbols"):
        register(Half)

    class Nameless(Representation):
        pad: ClassVar[int] = 2

    with pytest.raises(TypeError, match=r"Nameless .* kind, start, end, crop_step"):
        register(Nameless)  # type: ignore[type-abstract]


def test_crops_and_augmentation_are_those_of_the_new_kind(data: PreparedData) -> None:
    assert data.tokenizer == Drum()
    windows = training_windows(data, length=7, batch_size=5)
    seen = set()
    for step in range(20):
        batch = windows.batch(step)
        assert (batch.place[:, 0] % 3 == 0).all()
        for row, place in zip(batch.ids.tolist(), batch.place[:, 0].tolist(), strict=True):
            events = row[1:] if place == 0 else row
            seen.add(sum(event == 1 for event in events[:6]))
    assert seen == {2, 4}  # of six strokes, as they are and exchanged


def test_a_new_kind_is_trained_and_evaluated(
    data: PreparedData, session: Session, tmp_path: Path
) -> None:
    run = RunFolder(tmp_path / "run")
    run.begin({"preset": "", "training": {}})
    training = TrainingConfig(steps=40, batch_size=4, learning_rate=0.02, augment=False)
    Trainer(session.model, data, training, run).train()
    report = evaluate_nll(session.model, data, "validation")
    [coin] = count_baselines(data, "validation").values()
    assert report.nll < coin
    assert report.by_voice is report.on_beat is None


def test_a_new_kind_is_continued_by_its_own_grammar(session: Session) -> None:
    primer = Drum().decode([1, 0, 0, 1])
    result = generate(session, primer=primer, seconds=4, seed=1)
    assert result.primer_ids == [1, 0, 0, 1]
    assert len(result.ids) == 12
    assert set(result.ids) <= {0, 1}
    assert result.report.seconds == 4
    assert result.notes.start.tolist() == (np.arange(12) / 2).tolist()


def test_what_a_new_kind_does_not_do_is_refused_in_one_line(
    data: PreparedData, session: Session, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ConfigError, match="does not accompany, it continues drums"):
        accompany(session, Drum().decode([1, 0]))
    with pytest.raises(ConfigError, match=r"plain=0.5: only performances .* holds drum ids"):
        training_windows(data, length=7, batch_size=5, plain=0.5)
    capsys.readouterr()
    train = ["train", "--data", str(data.path), "--preset", "piano-small"]
    assert main([*train, "--out", str(tmp_path / "run")]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
