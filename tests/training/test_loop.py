"""The loop: it learns, it counts right, and a resumed run is the run."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from music_transformer.checkpoint import load_checkpoint
from music_transformer.datasets import PreparedData
from music_transformer.errors import CheckpointError, ConfigError, DivergenceError
from music_transformer.evaluation.nll import evaluate_nll
from music_transformer.model import ModelConfig, MusicTransformer
from music_transformer.progress import Progress
from music_transformer.training.config import TrainingConfig
from music_transformer.training.loop import Trainer
from music_transformer.training.run_dir import RunFolder

FAST = TrainingConfig(
    steps=12,
    batch_size=3,
    learning_rate=1e-2,
    evaluate_every=4,
    evaluate_windows=2,
    checkpoint_minutes=None,
    log_every=5,
)

Start = Callable[..., Trainer]


@pytest.fixture
def start(data: PreparedData, config: ModelConfig) -> Start:
    """Begin or resume a run in a folder, as the command does."""

    def start(folder: Path, training: TrainingConfig = FAST, **options: Any) -> Trainer:
        torch.manual_seed(training.seed)
        run = RunFolder(folder)
        if not run.has_run():
            run.begin({"preset": "", "training": {}})
        trainer = Trainer(MusicTransformer(config), data, training, run, **options)
        trainer.resume()
        return trainer

    return start


class StopAt(Progress):
    """Asks for a stop at a step."""

    def __init__(self, step: int) -> None:
        self.step = step
        self.trainer: Trainer | None = None

    def update(self, count: int = 1) -> None:
        if self.trainer is not None and self.trainer.state.step == self.step:
            self.trainer.stop("test")


class PowerCutError(Exception):
    pass


class KillAt(StopAt):
    """Leaves in the middle of a step, saving nothing."""

    def update(self, count: int = 1) -> None:
        if self.trainer is not None and self.trainer.state.step == self.step:
            raise PowerCutError


def files(folder: Path) -> dict[str, bytes]:
    return {
        path.name: path.read_bytes()
        for path in sorted(folder.iterdir())
        if path.suffix == ".safetensors"
    }


def metrics(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    clocked = ("seconds", "events_per_second")
    records = [json.loads(line) for line in lines]
    return [{k: v for k, v in record.items() if k not in clocked} for record in records]


VARIANTS = {
    "adamw": FAST,
    "muon, ema, accumulation, no augmentation": replace(
        FAST, optimizer="muon", ema=0.9, accumulate=2, augment=False, window=13
    ),
}


@pytest.mark.parametrize("training", VARIANTS.values(), ids=VARIANTS.keys())
@pytest.mark.parametrize("moment", [1, 6, 11])
def test_a_stopped_and_resumed_run_equals_an_uninterrupted_one(
    training: TrainingConfig, moment: int, start: Start, tmp_path: Path
) -> None:
    start(tmp_path / "whole", training).train()
    progress = StopAt(moment)
    first = start(tmp_path / "parts", training, progress=progress)
    progress.trainer = first
    result = first.train()
    assert (result.step, result.reason) == (moment, "test")
    torch.manual_seed(99)  # whatever the generators were, the state brings back its own
    result = start(tmp_path / "parts", training).train()
    assert result.reason == "finished"
    assert files(tmp_path / "parts/step-12") == files(tmp_path / "whole/step-12")
    assert metrics(tmp_path / "parts") == metrics(tmp_path / "whole")
    assert (tmp_path / "parts/best").read_text() == (tmp_path / "whole/best").read_text()


@pytest.mark.parametrize("moment", [2, 7, 10])
def test_a_killed_and_resumed_run_equals_an_uninterrupted_one(
    moment: int, start: Start, tmp_path: Path
) -> None:
    training = replace(FAST, checkpoint_every=3)
    start(tmp_path / "whole", training).train()
    killer = KillAt(moment)
    killer.trainer = start(tmp_path / "parts", training, progress=killer)
    with pytest.raises(PowerCutError):
        killer.trainer.train()
    start(tmp_path / "parts", training).train()
    assert files(tmp_path / "parts/step-12") == files(tmp_path / "whole/step-12")
    assert metrics(tmp_path / "parts") == metrics(tmp_path / "whole")


def test_timing_updates_changes_nothing_of_the_run(start: Start, tmp_path: Path) -> None:
    start(tmp_path / "plain").train()
    trainer = start(tmp_path / "timed")
    assert trainer.time_update() > 0
    trainer.train()
    assert files(tmp_path / "timed/step-12") == files(tmp_path / "plain/step-12")


def test_when_it_is_evaluated_does_not_change_what_is_learned(start: Start, tmp_path: Path) -> None:
    start(tmp_path / "often", replace(FAST, evaluate_every=1)).train()
    start(tmp_path / "once", replace(FAST, evaluate_every=12)).train()
    assert files(tmp_path / "often/step-12") == files(tmp_path / "once/step-12")


def test_two_accumulated_batches_move_the_weights_as_one_of_both(
    start: Start, tmp_path: Path
) -> None:
    one = replace(FAST, steps=1, batch_size=4, warmup=0)
    trainers = []
    for name, training in {"one": one, "two": replace(one, batch_size=2, accumulate=2)}.items():
        trainer = start(tmp_path / name, training)
        trainer.model.input.dropout.p = 0.0
        trainer.model.layers[0].dropout.p = 0.0  # type: ignore[union-attr]
        trainers.append(trainer)
    whole, halves = trainers
    both = whole.windows.batch(0)

    def half(first: int) -> Any:
        rows = slice(first, first + 2)
        return type(both)(both.ids[rows], both.targets[rows], both.place[rows])

    halves.windows.batch = lambda step: half(2 * step)  # type: ignore[method-assign]
    assert whole.train().loss == pytest.approx(halves.train().loss, abs=1e-6)
    expected = whole.model.state_dict()
    for name, tensor in halves.model.state_dict().items():
        # float32 sums in another order, then divided by a root of itself in Adam
        torch.testing.assert_close(tensor, expected[name], atol=1e-4, rtol=0, msg=name)


def test_one_small_corpus_is_learned_by_heart(start: Start, tmp_path: Path) -> None:
    training = replace(FAST, steps=60, batch_size=8, augment=False, optimizer="muon")
    trainer = start(tmp_path / "run", training)
    result = trainer.train()
    first = next(r["loss"] for r in metrics(tmp_path / "run") if "loss" in r)
    assert first > 4.0
    assert result.loss is not None
    assert result.loss < 2.5
    assert result.best_nll is not None
    assert result.best_nll < 2.5


def test_the_best_step_is_what_a_run_loads_as(
    start: Start, data: PreparedData, tmp_path: Path
) -> None:
    result = start(tmp_path / "run").train()
    session = load_checkpoint(tmp_path / "run", device="cpu")
    assert session.path.name == f"step-{result.best_step}"
    assert session.training["validation_nll"] == result.best_nll
    assert session.training["config"] == FAST.to_dict()
    report = evaluate_nll(session.model, data, "validation", max_windows=2)
    assert report.nll == pytest.approx(result.best_nll, abs=1e-5)


def test_the_running_mean_is_what_is_evaluated_and_saved(
    start: Start, data: PreparedData, tmp_path: Path
) -> None:
    trainer = start(tmp_path / "run", replace(FAST, ema=0.5))
    result = trainer.train()
    assert trainer.ema_model is not None
    saved = load_checkpoint(tmp_path / "run/step-12", device="cpu").model.state_dict()
    for name, tensor in trainer.ema_model.state_dict().items():
        assert torch.equal(tensor, saved[name])
        assert not torch.equal(tensor, trainer.model.state_dict()[name])
    report = evaluate_nll(trainer.ema_model, data, "validation", max_windows=2)
    assert result.validation_nll == pytest.approx(report.nll, abs=1e-6)


def test_time_over_is_a_clean_stop(start: Start, tmp_path: Path) -> None:
    result = start(tmp_path / "run", replace(FAST, max_minutes=1e-9)).train()
    assert (result.step, result.reason) == (1, "max_minutes")
    assert RunFolder(tmp_path / "run").latest() == tmp_path / "run/step-1"


def test_a_finished_run_resumes_to_nothing(start: Start, tmp_path: Path) -> None:
    start(tmp_path / "run").train()
    before = files(tmp_path / "run/step-12")
    assert start(tmp_path / "run").train().reason == "finished"
    assert files(tmp_path / "run/step-12") == before


def test_a_run_that_diverges_says_so_and_keeps_its_last_step(start: Start, tmp_path: Path) -> None:
    trainer = start(tmp_path / "run", replace(FAST, checkpoint_every=1, steps=5))
    with torch.no_grad():
        trainer.model.output.bias.fill_(float("nan"))
    ended: list[bool] = []
    trainer.progress.end = lambda: ended.append(True)  # type: ignore[method-assign]
    with pytest.raises(DivergenceError, match=r"diverged at step 1 .* lower learning_rate"):
        trainer.train()
    assert ended == [True]


def test_a_window_longer_than_the_context_is_refused(start: Start, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="window=30 is longer than context=29"):
        start(tmp_path / "run", replace(FAST, window=30))


def test_a_damaged_state_is_one_line(start: Start, tmp_path: Path) -> None:
    start(tmp_path / "run").train()
    path = tmp_path / "run/step-12/state.safetensors"
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(CheckpointError, match=r"state\.safetensors: damaged or cut short"):
        start(tmp_path / "run")
    path.unlink()
    with pytest.raises(CheckpointError, match="is missing"):
        start(tmp_path / "run")


def test_the_state_of_another_optimizer_does_not_fit(start: Start, tmp_path: Path) -> None:
    start(tmp_path / "run", replace(FAST, optimizer="muon")).train()
    with pytest.raises(CheckpointError, match="does not fit this run"):
        start(tmp_path / "run")


def test_no_pickle_is_written(start: Start, tmp_path: Path) -> None:
    start(tmp_path / "run").train()
    suffixes = {path.suffix for path in (tmp_path / "run").rglob("*") if path.is_file()}
    assert suffixes <= {".json", ".jsonl", ".safetensors", ""}
