"""Learning to accompany: ten pairs by heart, a run as a command, a decoder put in place."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from music_transformer.checkpoint import load_checkpoint, save_checkpoint
from music_transformer.cli.main import main
from music_transformer.datasets import PreparedData
from music_transformer.datasets.pairs import cut_segment
from music_transformer.datasets.prepared import Melodies, write_prepared
from music_transformer.datasets.windows import Window, collate
from music_transformer.model import (
    AccompanimentConfig,
    AccompanimentTransformer,
    ModelConfig,
    MusicTransformer,
)
from music_transformer.notes import NoteSequence
from music_transformer.representations import AccompanimentTokenizer, PerformanceTokenizer
from music_transformer.representations.performance.vocabulary import END, PAD, START

TOKENIZER = AccompanimentTokenizer()
SIZES = {
    "n_layers": 1,
    "d_model": 32,
    "n_heads": 2,
    "d_ff": 64,
    "n_encoder_layers": 1,
    "d_encoder": 32,
    "d_encoder_ff": 64,
    "d_cross": 32,
}


def melody_and_rest(number: int, beats: int = 5) -> tuple[NoteSequence, NoteSequence]:
    """A random tune, and random low notes to it: nothing but the tune tells which."""
    random = np.random.default_rng(number)
    start = np.arange(beats) * 0.4
    tune = NoteSequence(
        pitch=random.integers(65, 80, beats), velocity=[80] * beats, start=start, end=start + 0.4
    )
    rest = NoteSequence(
        pitch=random.integers(36, 55, beats),
        velocity=random.integers(30, 90, beats),
        start=start,
        end=start + 0.2,
    )
    return tune, rest


def write_data(folder: Path, pieces: int, beats: int = 20) -> PreparedData:
    sides = [melody_and_rest(number, beats) for number in range(pieces)]

    def named(side: int) -> dict[str, list[tuple[str, Any]]]:
        ids = [(f"p{i}", PerformanceTokenizer().encode_array(s[side])) for i, s in enumerate(sides)]
        return {"train": ids, "validation": ids[:3]}

    return write_prepared(
        folder,
        tokenizer=TOKENIZER,
        corpus="made up",
        splits=named(1),
        melodies=Melodies("skyline", named(0)),
    )


def test_it_learns_ten_pairs_by_heart_and_plays_each_to_its_melody() -> None:
    pairs = []
    for number in range(10):
        tune, rest = melody_and_rest(number)
        source, events = cut_segment(rest, tune, 0, 200)
        ids = torch.tensor([START, *events.tolist(), END])
        pairs.append(
            Window(
                source=torch.from_numpy(source.astype(np.int64)),
                ids=ids[:-1],
                targets=ids[1:],
                place=torch.arange(len(ids) - 1),
                piece=number,
            )
        )
    batch = collate(pairs, pad=PAD)
    torch.manual_seed(0)
    config = AccompanimentConfig(**SIZES, dropout=0.0, context=64)  # type: ignore[arg-type]
    model = AccompanimentTransformer(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-3, weight_decay=0.0)
    steps = 250
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        logits = model(batch.ids, **batch.given())
        loss = F.cross_entropy(logits.flatten(0, 1), batch.targets.flatten(), ignore_index=PAD)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        if float(loss.detach()) < 0.01:
            break
    assert float(loss.detach()) < 0.1
    model.eval()
    with torch.no_grad():
        for pair in pairs:
            cache, played = model.new_cache(1), [START]
            logits = model(torch.tensor([[START]]), source=pair.source[None], cache=cache)
            while played[-1] != END and len(played) <= len(pair.targets):
                played.append(int(logits[0, -1].argmax()))
                if played[-1] != END:
                    logits = model(torch.tensor([played[-1:]]), cache=cache)
            assert played[1:] == pair.targets.tolist()


def test_a_run_trains_is_resumed_and_gives_a_checkpoint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, run = write_data(tmp_path / "data", 4), tmp_path / "run"
    settings = {**SIZES, "context": 40, "batch_size": 2, "evaluate_every": 2, "autocast": "off"}
    line = ["train", "--data", str(data.path), "--out", str(run), "--json", "--device", "cpu"]
    for key, value in {**settings, "steps": 4, "warmup": 0, "threads": 1}.items():
        line += ["--set", f"{key}={value}"]
    whole = [*line, "--preset", "accompaniment"]
    assert main(whole) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["step"] == 4
    assert result["validation_nll"] > 0
    weights = load_checkpoint(run, "cpu").model.state_dict()
    for pointer in ("best", "latest"):
        (run / pointer).write_text("step-2\n")
    again = ["train", "--out", str(run), "--resume", "--device", "cpu"]
    assert main(again) == 0
    resumed = load_checkpoint(run / "step-4", "cpu")
    assert isinstance(resumed.model, AccompanimentTransformer)
    assert resumed.tokenizer == TOKENIZER
    if (run / "best").read_text() == "step-4\n":
        for name, tensor in resumed.model.state_dict().items():
            assert torch.equal(tensor, weights[name]), name


def test_a_decoder_trained_alone_is_put_in_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = write_data(tmp_path / "data", 3)
    torch.manual_seed(1)
    config = ModelConfig(n_layers=1, d_model=32, n_heads=2, d_ff=64, max_distance=16, context=40)
    decoder = MusicTransformer(config)
    piano = save_checkpoint(tmp_path / "piano", decoder, PerformanceTokenizer(), training={})
    line = ["train", "--data", str(data.path), "--preset", "accompaniment", "--init", str(piano)]
    line += ["--out", str(tmp_path / "run"), "--device", "cpu"]
    small = {**SIZES, "context": 40, "max_distance": 16, "steps": 1, "batch_size": 1}
    for key, value in {**small, "learning_rate": 1e-9, "threads": 1, "autocast": "off"}.items():
        line += ["--set", f"{key}={value}"]
    assert main(line) == 0
    assert "weights copied" in capsys.readouterr().err
    model = load_checkpoint(tmp_path / "run", "cpu").model
    for name, tensor in decoder.state_dict().items():
        torch.testing.assert_close(model.state_dict()[name], tensor, atol=1e-6, rtol=0)
    line[line.index("--out") + 1] = str(tmp_path / "other")
    assert main([*line, "--set", "d_model=16"]) == 2
    assert "no matrix of its layers fits" in capsys.readouterr().err


def test_evaluate_says_what_the_right_melody_is_worth(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = write_data(tmp_path / "data", 4)
    torch.manual_seed(2)
    config = AccompanimentConfig(**SIZES, context=40)  # type: ignore[arg-type]
    model = AccompanimentTransformer(config)
    with torch.no_grad():
        for layer in model.layers:
            layer.get_parameter("melody_attention.out.weight").normal_(std=0.5)
    folder = save_checkpoint(tmp_path / "model", model, TOKENIZER, training={})
    line = ["evaluate", "--checkpoint", str(folder), "--data", str(data.path), "--device", "cpu"]
    assert main([*line, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["pieces"] == 3
    assert found["difference"] == pytest.approx(found["nll_shuffled"] - found["nll"])
    low, high = found["interval"]
    assert low <= found["difference"] <= high
    assert found["difference"] != 0
    assert main(line) == 0
    assert "the right melody is worth" in capsys.readouterr().out
    chorales = ["generate", "--checkpoint", str(folder), "--out", str(tmp_path / "a.mid")]
    assert main(chorales) == 2
    assert "accompany" in capsys.readouterr().err


def test_events_that_tell_the_time_are_not_hidden(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = write_data(tmp_path / "data", 4)
    line = ["train", "--data", str(data.path), "--out", str(tmp_path / "run"), "--device", "cpu"]
    for key, value in {**SIZES, "context": 40, "token_dropout": 0.1, "threads": 1}.items():
        line += ["--set", f"{key}={value}"]
    assert main([*line, "--preset", "accompaniment"]) == 2
    assert "use token_dropout=0" in capsys.readouterr().err
