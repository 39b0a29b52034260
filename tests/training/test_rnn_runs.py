"""An LSTM is trained, resumed, saved, measured and heard like any other model."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from music_transformer.checkpoint import load_checkpoint
from music_transformer.cli.main import main
from music_transformer.datasets import PreparedData
from music_transformer.errors import ConfigError
from music_transformer.evaluation.attention import require_heads
from music_transformer.evaluation.nll import evaluate_nll
from music_transformer.generation import generate
from music_transformer.generation.sampler import Window
from music_transformer.midi import read_midi
from music_transformer.model import PerformanceRNN, RNNConfig
from music_transformer.training.config import TrainingConfig
from music_transformer.training.estimate import estimate_size
from music_transformer.training.loop import Trainer
from music_transformer.training.optimizers import build_optimizers
from music_transformer.training.run_dir import RunFolder
from music_transformer.web.models import available_models

CONFIG = RNNConfig(n_layers=2, d_model=12, d_hidden=16, context=29, dropout=0.1)
FAST = TrainingConfig(
    steps=20,
    batch_size=3,
    learning_rate=1e-2,
    evaluate_every=5,
    evaluate_windows=2,
    checkpoint_every=5,
    checkpoint_minutes=None,
    log_every=5,
)
SETTINGS = [
    *("steps=6", "n_layers=1", "d_model=12", "d_hidden=16", "context=29", "batch_size=2"),
    *("evaluate_every=3", "evaluate_windows=2", "autocast=off", "threads=1"),
]


def start(
    data: PreparedData, folder: Path, attention: str, training: TrainingConfig = FAST
) -> Trainer:
    torch.manual_seed(training.seed)
    run = RunFolder(folder)
    if not run.has_run():
        run.begin({"preset": "", "training": {}})
    model = PerformanceRNN(replace(CONFIG, attention=attention))
    trainer = Trainer(model, data, training, run)
    trainer.resume()
    return trainer


@pytest.fixture(scope="module")
def run(data: PreparedData, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the preset lstm-attention, made small, as the command leaves it."""
    threads = torch.get_num_threads()
    out = tmp_path_factory.mktemp("runs") / "rnn"
    command = ["train", "--data", str(data.path), "--preset", "lstm-attention", "--out", str(out)]
    settings = [part for setting in SETTINGS for part in ("--set", setting)]
    assert main([*command, "--device", "cpu", *settings]) == 0
    torch.set_num_threads(threads)
    return out


@pytest.mark.parametrize("attention", ["none", "causal"])
def test_it_learns_and_a_resumed_run_equals_an_uninterrupted_one(
    attention: str, data: PreparedData, tmp_path: Path
) -> None:
    whole = start(data, tmp_path / "whole", attention)
    before = evaluate_nll(whole.model, data, "validation").nll
    result = whole.train()
    assert result.validation_nll is not None
    assert result.validation_nll < before - 1.0
    parts = start(data, tmp_path / "parts", attention)
    parts.stop("test")
    assert parts.train().step == 1
    torch.manual_seed(99)  # the state brings back its own
    start(data, tmp_path / "parts", attention).train()
    whole_files, parts_files = (
        {
            path.name: path.read_bytes()
            for path in (tmp_path / name / "step-20").glob("*.safetensors")
        }
        for name in ("whole", "parts")
    )
    assert len(whole_files) > 1
    assert whole_files == parts_files


def test_a_run_says_its_kind_and_loads_as_it_was_saved(run: Path) -> None:
    session = load_checkpoint(run, device="cpu")
    assert json.loads((run / "config.json").read_text())["kind"] == "rnn"
    assert isinstance(session.model, PerformanceRNN)
    assert session.config.attention == "causal"
    twin = load_checkpoint(session.save(run.parent / "saved", half=False), device="cpu")
    ids = torch.arange(7)[None]  # (1, L)
    assert torch.equal(twin.model(ids), session.model(ids))


def test_the_commands_resume_evaluate_and_continue_a_motif(
    run: Path, data: PreparedData, motifs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "--out", str(run), "--resume", "--device", "cpu"]) == 0
    assert "step 6 of 6" in capsys.readouterr().out
    checkpoint = ["--checkpoint", str(run), "--device", "cpu"]
    assert main(["evaluate", *checkpoint, "--data", str(data.path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["nll"] < 6.0
    out = tmp_path / "out.mid"
    motif = str(motifs / "c_major_scale.mid")
    more = ["--events", "40", "--context", "30"]  # one more than it was trained on
    assert main(["generate", motif, *checkpoint, *more, "--out", str(out)]) == 0
    assert len(read_midi(out)) > 0


def test_samples_past_the_context_are_those_of_full_passes_over_the_same_windows(run: Path) -> None:
    session = load_checkpoint(run, device="cpu")
    made = generate(session, events=70, context=11, temperature=0.0, seed=0)
    assert made.report.windows_reread > 5
    assert made.ids == generate(session, events=70, context=11, temperature=0.0, seed=0).ids
    window = Window(session.model, 1, context=11)
    ids = torch.tensor([[session.tokenizer.start, *made.ids]])  # (1, L)
    for place in range(40):
        logits = window.read(ids[:, place : place + 1])  # (1, V)
        with torch.no_grad():
            full = session.model(window.ids)[:, -1].double()  # (1, V)
        torch.testing.assert_close(logits, full, atol=1e-5, rtol=0)  # float32


def test_it_has_no_attention_heads_to_draw_and_says_so(
    run: Path, motifs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib", reason="needs the [plot] extra")
    out = tmp_path / "a.png"
    command = ["plot", str(motifs / "c_major_scale.mid"), "--attention", "--checkpoint", str(run)]
    assert main([*command, "--device", "cpu", "--out", str(out)]) == 2
    [line] = [text for text in capsys.readouterr().err.splitlines() if "error" in text]
    assert "the attention of a model of kind rnn cannot be drawn" in line
    assert not out.exists()


def test_the_page_offers_it_and_refuses_to_show_what_a_note_attended_to(run: Path) -> None:
    [model] = available_models([str(run)])
    assert model.kind == "performance"
    session = load_checkpoint(run, device="cpu")
    with pytest.raises(ConfigError, match="of kind rnn cannot be drawn"):
        require_heads(session)


def test_weights_of_an_lstm_are_refused_for_a_preset_of_a_transformer(
    run: Path, data: PreparedData, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["train", "--data", str(data.path), "--preset", "piano-small", "--init", str(run)]
    assert main([*command, "--out", str(tmp_path / "new"), "--device", "cpu"]) == 2
    assert "is of kind rnn, preset piano-small of kind decoder" in capsys.readouterr().err


def test_a_setting_of_the_other_kind_is_refused(
    data: PreparedData, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["train", "--data", str(data.path), "--preset", "lstm", "--set", "n_heads=2"]
    assert main([*command, "--out", str(tmp_path / "new"), "--device", "cpu"]) == 2
    assert "--set n_heads: no such setting" in capsys.readouterr().err


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_weight_decay_reaches_the_matrices_of_the_lstm_and_not_its_biases(optimizer: str) -> None:
    model = PerformanceRNN(replace(CONFIG, attention="causal"))
    config = replace(FAST, optimizer=optimizer)
    optimizers = build_optimizers(model, config, muon_dtype=torch.float32)
    decay = {
        id(parameter): group["weight_decay"]
        for optimizer_ in optimizers.values()
        for group in optimizer_.param_groups
        for parameter in group["params"]
    }
    assert len(decay) == len(list(model.parameters()))
    for name, parameter in model.named_parameters():
        matrix = parameter.dim() == 2 and not name.startswith("embedding")
        assert decay[id(parameter)] == (config.weight_decay if matrix else 0.0), name


def test_the_estimate_counts_what_an_lstm_keeps() -> None:
    sizes = [
        estimate_size(PerformanceRNN(replace(CONFIG, attention=attention)), FAST)
        for attention in ("none", "causal")
    ]
    assert [size.attention for size in sizes] == ["none", "causal"]
    assert sizes[0].memory_bytes < sizes[1].memory_bytes
    with pytest.raises(ConfigError, match="d_hidden=0"):
        replace(CONFIG, d_hidden=0)
