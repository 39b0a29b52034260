"""`evaluate` through `main`: what they print, and what they refuse."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from music_transformer.checkpoint import save_checkpoint
from music_transformer.cli.main import main
from music_transformer.datasets.prepared import write_prepared
from music_transformer.model import ModelConfig, MusicTransformer
from music_transformer.notes import NoteSequence
from music_transformer.representations import ChoraleTokenizer, PerformanceTokenizer, Representation

Output = pytest.CaptureFixture[str]


def chorales(folder: Path) -> Path:
    random = np.random.default_rng(3)
    pieces = [(str(t), random.integers(40, 81, 4 * t)) for t in (7, 11, 13)]
    splits = {"train": pieces, "validation": pieces[:2], "test": pieces[1:]}
    out = folder / "chorales"
    write_prepared(out, tokenizer=ChoraleTokenizer(), corpus="toy", splits=splits)
    return out


def performances(folder: Path) -> Path:
    melody = NoteSequence(
        pitch=[60, 64, 67, 72], velocity=[64] * 4, start=[0, 0.5, 1, 2], end=[0.4, 1, 2, 3]
    )
    tokenizer = PerformanceTokenizer()
    pieces = [("a", tokenizer.encode_array(melody)), ("b", tokenizer.encode_array(melody))]
    out = folder / "performances"
    write_prepared(
        out, tokenizer=tokenizer, corpus="toy", splits={"train": pieces, "validation": pieces}
    )
    return out


def checkpoint(folder: Path, tokenizer: Representation) -> Path:
    torch.manual_seed(5)
    config = ModelConfig(
        vocab_size=tokenizer.vocab_size, n_layers=1, d_model=12, n_heads=3, d_ff=20, context=14
    )
    return save_checkpoint(folder / "model", MusicTransformer(config), tokenizer, training={})


def evaluate(folder: Path, data: Path, tokenizer: Representation, *flags: str) -> int:
    model = checkpoint(folder, tokenizer)
    where = ["--checkpoint", str(model), "--data", str(data), "--device", "cpu"]
    return main(["evaluate", *where, *flags])


def test_two_checkpoints_are_compared_piece_by_piece(tmp_path: Path, capsys: Output) -> None:
    data, tokenizer = chorales(tmp_path), ChoraleTokenizer()
    torch.manual_seed(6)
    config = ModelConfig(vocab_size=132, n_layers=1, d_model=12, n_heads=3, d_ff=20, context=10)
    other = save_checkpoint(tmp_path / "other", MusicTransformer(config), tokenizer, training={})
    flags = ["--against", str(other), "--no-baselines"]
    assert evaluate(tmp_path, data, tokenizer, *flags, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["events"] for one in found["by_piece"]] == [28, 44]
    difference = found["difference"]
    assert difference["mean"] == pytest.approx(found["nll"] - found["against"]["nll"])
    assert difference["pieces"] == 2
    assert found["against"]["protocol"]["context"] == 10  # each in windows of its own
    assert evaluate(tmp_path, data, tokenizer, *flags) == 0
    assert "95 % interval" in capsys.readouterr().out
    assert evaluate(tmp_path, data, tokenizer, *flags, "--lengths", "8,16") == 2
    assert "leave --lengths out" in capsys.readouterr().err


def test_on_one_piece_both_numbers_are_printed(tmp_path: Path, capsys: Output) -> None:
    tokenizer = ChoraleTokenizer()
    piece = [("one", np.random.default_rng(3).integers(40, 81, 28))]
    data = tmp_path / "single"
    write_prepared(data, tokenizer=tokenizer, corpus="toy", splits={"validation": piece})
    flags = ["--against", str(checkpoint(tmp_path, tokenizer)), "--no-baselines"]
    assert evaluate(tmp_path, data, tokenizer, *flags) == 0
    printed = capsys.readouterr().out
    assert printed.count("nats per note") == 2
    assert printed.endswith("difference +0.0000 on one piece, which says nothing of others\n")
    assert evaluate(tmp_path, data, tokenizer, *flags, "--json") == 0
    assert json.loads(capsys.readouterr().out)["difference"] is None


def test_json_has_the_nll_its_parts_and_the_baselines(tmp_path: Path, capsys: Output) -> None:
    assert evaluate(tmp_path, chorales(tmp_path), ChoraleTokenizer(), "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert 0 < found["nll"] < 2 * math.log(132)
    assert found["events"] == 4 * (7 + 11)
    assert found["pieces"] == 2
    assert found["standard_error"] > 0
    assert list(found["by_voice"]) == ["soprano", "alto", "tenor", "bass"]
    assert list(found["baselines"])[-1] == "previous pitch of the voice and position in the beat"
    assert found["protocol"]["context"] == 14
    assert found["protocol"]["stride"] == 7


def test_quantise_measures_the_int8_model(tmp_path: Path, capsys: Output) -> None:
    found = []
    for number, flags in enumerate(([], ["--quantise"])):
        (folder := tmp_path / str(number)).mkdir()
        assert evaluate(folder, chorales(folder), ChoraleTokenizer(), "--json", *flags) == 0
        found.append(json.loads(capsys.readouterr().out)["nll"])
    assert found[0] != found[1]
    assert found[0] == pytest.approx(found[1], abs=0.1)


def test_people_get_a_table_on_stdout(tmp_path: Path, capsys: Output) -> None:
    assert evaluate(tmp_path, chorales(tmp_path), ChoraleTokenizer()) == 0
    out = capsys.readouterr().out
    assert "nats per note, validation, 72 events in 2 pieces" in out
    assert "odd sixteenths" in out
    assert "baselines, counted on train" in out


def test_baselines_can_be_left_out(tmp_path: Path, capsys: Output) -> None:
    data = performances(tmp_path)
    assert evaluate(tmp_path, data, PerformanceTokenizer(), "--no-baselines") == 0
    out = capsys.readouterr().out
    assert "nats per event" in out
    assert "baselines" not in out
    assert not (data / "baselines.json").exists()


def test_the_test_split_comes_with_a_warning(tmp_path: Path, capsys: Output) -> None:
    data = chorales(tmp_path)
    assert evaluate(tmp_path, data, ChoraleTokenizer(), "--split", "test", "--json") == 0
    captured = capsys.readouterr()
    assert "to be reported once" in captured.err
    assert json.loads(captured.out)["protocol"]["split"] == "test"
    assert evaluate(tmp_path, data, ChoraleTokenizer()) == 0
    assert "to be reported once" not in capsys.readouterr().err


def test_the_device_that_auto_chose_is_said(tmp_path: Path, capsys: Output) -> None:
    data = chorales(tmp_path)
    assert evaluate(tmp_path, data, ChoraleTokenizer(), "--device", "auto") == 0
    assert "device: c" in capsys.readouterr().err  # cpu or cuda
    assert evaluate(tmp_path, data, ChoraleTokenizer()) == 0
    assert "device:" not in capsys.readouterr().err


def test_data_of_another_tokenizer_is_refused(tmp_path: Path, capsys: Output) -> None:
    assert evaluate(tmp_path, performances(tmp_path), ChoraleTokenizer()) == 3
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "prepare the data with the tokenizer of the checkpoint" in captured.err
    assert captured.err.count("\n") == 1


def test_a_missing_checkpoint_data_or_split_is_one_line(tmp_path: Path, capsys: Output) -> None:
    data = chorales(tmp_path)
    assert main(["evaluate", "--checkpoint", str(tmp_path / "no"), "--data", str(data)]) == 3
    assert capsys.readouterr().err.count("\n") == 1
    assert evaluate(tmp_path, tmp_path / "no", ChoraleTokenizer()) == 3
    assert capsys.readouterr().err.count("\n") == 1
    assert evaluate(tmp_path, data, ChoraleTokenizer(), "--split", "dev") == 3
    assert "no split 'dev'" in capsys.readouterr().err


def test_a_context_below_one_is_a_wrong_request(tmp_path: Path, capsys: Output) -> None:
    assert evaluate(tmp_path, chorales(tmp_path), ChoraleTokenizer(), "--context", "0") == 2
    assert "context=0" in capsys.readouterr().err


def test_lengths_gives_the_nll_of_each_window_length(tmp_path: Path, capsys: Output) -> None:
    data = chorales(tmp_path)
    assert evaluate(tmp_path, data, ChoraleTokenizer(), "--lengths", "7,14,28", "--json") == 0
    result = json.loads(capsys.readouterr().out)
    assert [entry["length"] for entry in result["lengths"]] == [7, 14, 28]
    assert result["context"] == 14
    assert all(math.isfinite(entry["nll"]) for entry in result["lengths"])


def test_lengths_for_people_name_the_places(tmp_path: Path, capsys: Output) -> None:
    assert evaluate(tmp_path, chorales(tmp_path), ChoraleTokenizer(), "--lengths", "14") == 0
    assert "at places 0-13" in capsys.readouterr().out


@pytest.mark.parametrize("lengths", ["a", "", "128,", "0,7", "7;14", "1.5"])
def test_lengths_that_are_none_are_refused_with_an_example(lengths: str, capsys: Output) -> None:
    flags = ["--checkpoint", "bach", "--data", "data/jsb", "--lengths", lengths]
    assert main(["evaluate", *flags]) == 2
    error = capsys.readouterr().err
    assert f"{lengths!r}: lengths are whole numbers from 1 up" in error
    assert "such as 128,256" in error
    assert "_lengths" not in error
