"""Checkpoints: what is saved loads, and whatever is broken is one line."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from music_transformer.checkpoint import Session, hub, load_checkpoint, save_checkpoint
from music_transformer.checkpoint import format as checkpoint_format
from music_transformer.checkpoint.hub import find_checkpoint, select_device
from music_transformer.errors import CheckpointError, ConfigError
from music_transformer.model import ModelConfig, MusicTransformer
from music_transformer.representations import ChoraleTokenizer, PerformanceTokenizer
from music_transformer.sampling import Sampling

CONFIG = ModelConfig(n_layers=1, d_model=6, n_heads=2, d_ff=10, context=13, max_distance=7)


@pytest.fixture
def model() -> MusicTransformer:
    torch.manual_seed(0)
    return MusicTransformer(CONFIG)


@pytest.fixture
def folder(model: MusicTransformer, tmp_path: Path) -> Path:
    training = {"step": 3, "data": {"corpus": "maestro"}, "validation_nll": 2.5}
    return save_checkpoint(tmp_path / "saved", model, PerformanceTokenizer(), training=training)


def edit(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_a_saved_model_loads_as_it_was(folder: Path, model: MusicTransformer) -> None:
    session = load_checkpoint(folder, device="cpu")
    assert session.config == CONFIG
    assert session.tokenizer.to_config() == PerformanceTokenizer().to_config()
    assert session.training["step"] == 3
    assert not session.model.training
    for name, tensor in model.state_dict().items():
        assert torch.equal(session.model.state_dict()[name], tensor)


def test_what_a_checkpoint_says_of_sampling_is_saved_loaded_and_saved_again(
    model: MusicTransformer, tmp_path: Path
) -> None:
    said = Sampling(temperature=1.05, top_p=1.0)
    folder = save_checkpoint(
        tmp_path / "said", model, PerformanceTokenizer(), training={}, sampling=said
    )
    session = load_checkpoint(folder, device="cpu")
    assert session.sampling == said
    again = session.save(tmp_path / "again")
    assert load_checkpoint(again, device="cpu").sampling == said
    config = json.loads((again / "config.json").read_text())
    assert list(config) == ["format", "kind", "model", "tokenizer", "sampling", "training"]
    assert (config["format"], config["sampling"]) == (1, {"temperature": 1.05, "top_p": 1.0})


def test_a_checkpoint_need_not_say_anything_of_sampling(folder: Path, tmp_path: Path) -> None:
    session = load_checkpoint(folder, device="cpu")
    assert session.sampling == Sampling()
    assert "sampling" not in json.loads((folder / "config.json").read_text())
    session.save(tmp_path / "again")
    assert "sampling" not in json.loads((tmp_path / "again" / "config.json").read_text())


@pytest.mark.parametrize(
    ("sampling", "complaint"),
    [
        (
            {"seed": 1},
            "sampling: 'seed' is unknown; known are temperature, top_k, top_p, min_p, "
            "parallels, closeness, hold_seconds, max_note_seconds, in_time, candidates, resample.",
        ),
        ({"top_p": 1.5}, "sampling: top_p=1.5; choose one above 0, up to 1 (keeps all)."),
        ({"top_k": "5"}, "sampling: top_k='5'; give a whole number, or leave it out."),
        (None, "'sampling' is no object; restore it from its source."),
        ([1.05], "'sampling' is no object; restore it from its source."),
    ],
)
def test_sampling_that_makes_no_sense_is_one_line(
    folder: Path, sampling: Any, complaint: str
) -> None:
    edit(folder, sampling=sampling)
    with pytest.raises(CheckpointError) as caught:
        load_checkpoint(folder)
    assert str(caught.value) == f"{folder / 'config.json'}: {complaint}"


def test_half_precision_loads_into_float32(model: MusicTransformer, tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "half", model, PerformanceTokenizer(), training={}, half=True)
    stored = load_file(tmp_path / "half/model.safetensors")
    assert {tensor.dtype for tensor in stored.values()} == {torch.float16}
    session = load_checkpoint(tmp_path / "half", device="cpu")
    for name, tensor in model.state_dict().items():
        assert session.model.state_dict()[name].dtype == torch.float32
        assert torch.equal(session.model.state_dict()[name], tensor.half().float())


def test_a_session_saves_itself_and_keeps_the_readme(folder: Path, tmp_path: Path) -> None:
    session = load_checkpoint(folder, device="cpu")
    session.save(tmp_path / "copy")
    readme = tmp_path / "copy/README.md"
    assert "CC BY-NC-SA 4.0" in readme.read_text()
    readme.write_text("mine")
    session.save(tmp_path / "copy")
    assert readme.read_text() == "mine"
    names = {path.name for path in (tmp_path / "copy").iterdir()}
    assert names == {"model.safetensors", "config.json", "README.md"}
    assert {path.name for path in tmp_path.iterdir()} == {"saved", "copy"}


def test_loading_leaves_the_global_generator_alone(folder: Path) -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    load_checkpoint(folder, device="cpu")
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.skipif(os.name == "nt", reason="permissions of POSIX")
def test_the_weights_are_readable_like_any_new_file(folder: Path) -> None:
    (folder / "plain").write_text("")
    modes = {path.name: path.stat().st_mode for path in folder.iterdir()}
    assert modes["model.safetensors"] == modes["plain"]


def test_a_failed_save_leaves_the_old_checkpoint_and_nothing_else(
    folder: Path, model: MusicTransformer, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = (folder / "model.safetensors").read_bytes()

    def full(path: Path, tensors: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint_format, "write_tensors", full)
    with pytest.raises(CheckpointError, match=r"cannot be written: .*No space left"):
        save_checkpoint(folder, model, PerformanceTokenizer(), training={})
    assert (folder / "model.safetensors").read_bytes() == before
    assert [path.name for path in folder.parent.iterdir()] == ["saved"]


def test_a_folder_that_is_no_checkpoint_is_not_replaced(
    model: MusicTransformer, tmp_path: Path
) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis/chapter.txt").write_text("years of work")
    with pytest.raises(CheckpointError, match="holds something that is no checkpoint"):
        save_checkpoint(tmp_path / "thesis", model, PerformanceTokenizer(), training={})
    assert (tmp_path / "thesis/chapter.txt").read_text() == "years of work"


def test_a_name_is_looked_up_in_four_places_in_order(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = load_checkpoint(folder, device="cpu")
    (tmp_path / "here").mkdir()
    (tmp_path / "checkout").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("MUSIC_TRANSFORMER_CHECKPOINTS", str(tmp_path / "shelf"))
    monkeypatch.setattr(hub, "checkout", lambda: tmp_path / "checkout")
    places = [
        tmp_path / "checkout/checkpoints/tiny",
        tmp_path / "here/checkpoints/tiny",
        tmp_path / "shelf/tiny",
        tmp_path / "here/tiny",
    ]
    for place in places:  # from the last place to the first: each hides those before it
        session.save(place)
        assert find_checkpoint("tiny").resolve() == place.resolve()


def test_an_unknown_name_names_all_four_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MUSIC_TRANSFORMER_CHECKPOINTS", str(tmp_path))
    with pytest.raises(CheckpointError) as caught:
        load_checkpoint("nowhere")
    for place in ("path nowhere", "$MUSIC_TRANSFORMER_CHECKPOINTS", "./checkpoints", "checkout"):
        assert place in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_released_name_that_is_not_here_comes_with_the_command_that_fetches_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MUSIC_TRANSFORMER_CHECKPOINTS", raising=False)
    monkeypatch.setattr("music_transformer.checkpoint.hub.checkout", lambda: None)
    with pytest.raises(CheckpointError, match="download piano --out checkpoints/piano` fetches"):
        load_checkpoint("piano")


def test_a_file_and_an_ordinary_folder_are_no_checkpoints(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="is a file; a checkpoint is the folder"):
        load_checkpoint(folder / "model.safetensors")
    (tmp_path / "empty").mkdir()
    with pytest.raises(CheckpointError, match="is no checkpoint: it has neither"):
        load_checkpoint(tmp_path / "empty")


def test_a_run_loads_as_its_best_step_else_its_latest(folder: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    session = load_checkpoint(folder, device="cpu")
    run.mkdir()
    (run / "config.json").write_text("{}")
    with pytest.raises(CheckpointError, match="before its first saved step"):
        load_checkpoint(run)
    for step in (1, 2):
        session.save(run / f"step-{step}")
    (run / "latest").write_text("step-2\n")
    assert load_checkpoint(run).path == run / "step-2"
    (run / "best").write_text("step-1\n")
    assert load_checkpoint(run).path == run / "step-1"


@pytest.mark.parametrize("kept", [0, 5, 100, -10])
def test_cut_weights_are_one_line(folder: Path, kept: int) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(CheckpointError, match="damaged or cut short") as caught:
        load_checkpoint(folder)
    assert "\n" not in str(caught.value)


@pytest.fixture
def sharded(model: MusicTransformer, tmp_path: Path) -> Path:
    return save_checkpoint(
        tmp_path / "sharded",
        model,
        PerformanceTokenizer(),
        training={"step": 3},
        half=True,
        max_file_bytes=6000,
    )


def test_weights_in_several_files_load_as_those_in_one(
    sharded: Path, model: MusicTransformer, tmp_path: Path
) -> None:
    shards = sorted(sharded.glob("*.safetensors"))
    assert [path.name for path in shards] == [
        "model-00001-of-00003.safetensors",
        "model-00002-of-00003.safetensors",
        "model-00003-of-00003.safetensors",
    ]
    assert all(path.stat().st_size <= 6000 for path in shards)
    index = json.loads((sharded / "model.safetensors.index.json").read_text())
    stored = {name: load_file(sharded / place)[name] for name, place in index["weight_map"].items()}
    assert index["metadata"]["total_size"] == sum(tensor.nbytes for tensor in stored.values())
    save_checkpoint(tmp_path / "one", model, PerformanceTokenizer(), training={}, half=True)
    assert find_checkpoint(sharded) == sharded
    one = load_checkpoint(tmp_path / "one", device="cpu").model.state_dict()
    several = load_checkpoint(sharded, device="cpu").model.state_dict()
    assert list(one) == list(several)
    assert all(torch.equal(one[name], several[name]) for name in one)


def test_saving_over_weights_in_several_files_leaves_none_of_them(
    sharded: Path, model: MusicTransformer
) -> None:
    (sharded / "notes.txt").write_text("mine")
    load_checkpoint(sharded, device="cpu").save(sharded)
    names = {path.name for path in sharded.iterdir()}
    assert names == {"model.safetensors", "config.json", "README.md", "notes.txt"}
    load_checkpoint(sharded, device="cpu").save(sharded, max_file_bytes=6000)
    assert not (sharded / "model.safetensors").exists()
    load_checkpoint(sharded, device="cpu")


def test_weights_that_fit_one_file_stay_in_one(folder: Path) -> None:
    load_checkpoint(folder, device="cpu").save(folder, max_file_bytes=15 << 20)
    assert (folder / "model.safetensors").is_file()
    assert not (folder / "model.safetensors.index.json").exists()


def test_a_weight_larger_than_a_file_may_be_is_refused(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"max_file_bytes=3,000: \S+ alone takes [\d,]+; allow"):
        load_checkpoint(folder, device="cpu").save(folder, max_file_bytes=3000)
    load_checkpoint(folder, device="cpu")


def test_a_missing_or_cut_or_foreign_file_of_several_is_named(sharded: Path) -> None:
    path = sharded / "model-00002-of-00003.safetensors"
    whole = path.read_bytes()
    path.write_bytes(whole[:-10])
    with pytest.raises(CheckpointError, match=r"model-00002-of-00003\.safetensors: damaged or cut"):
        load_checkpoint(sharded)
    save_file({"other": torch.zeros(2)}, path)
    with pytest.raises(CheckpointError, match=r"00002-of-00003\S+: the weight \S+ is missing"):
        load_checkpoint(sharded)
    path.unlink()
    with pytest.raises(
        CheckpointError, match=r"model-00002-of-00003\.safetensors is missing; .* not complete"
    ):
        load_checkpoint(sharded)


@pytest.mark.parametrize(
    "index",
    [{}, {"weight_map": []}, {"weight_map": {"a": "../../secret"}}, {"weight_map": {"a": 1}}],
)
def test_an_index_that_names_no_weights_is_refused(sharded: Path, index: dict[str, Any]) -> None:
    (sharded / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(CheckpointError, match=r"index\.json: no map from weights to files"):
        load_checkpoint(sharded)


def test_missing_files_are_named(folder: Path) -> None:
    (folder / "config.json").rename(folder / "aside")
    with pytest.raises(CheckpointError, match=r"config\.json is missing"):
        load_checkpoint(folder)
    (folder / "aside").rename(folder / "config.json")
    (folder / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"no model\.safetensors in it"):
        load_checkpoint(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"drop": "output.bias"}, "the weight output.bias is missing"),
        ({"add": "output.extra"}, "the weight output.extra is unknown"),
        ({"reshape": "output.bias"}, r"output.bias is \(390,\), the config asks for \(391,\)"),
    ],
)
def test_weights_that_do_not_fit_are_named(
    folder: Path, change: dict[str, str], message: str
) -> None:
    weights = load_file(folder / "model.safetensors")
    if "drop" in change:
        del weights[change["drop"]]
    elif "add" in change:
        weights[change["add"]] = torch.zeros(2)
    else:
        weights[change["reshape"]] = weights[change["reshape"]][:-1].clone()
    save_file(weights, folder / "model.safetensors")
    with pytest.raises(CheckpointError, match=message):
        load_checkpoint(folder)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": 9}, "format 9, this version reads 1"),
        ({"kind": "choir"}, "kind 'choir' is unknown; known: decoder"),
        ({"model": {"n_layer": 3}}, "config.json: model: .*n_layer"),
        ({"model": {"n_layers": 0}}, "config.json: model: n_layers"),
        ({"model": 3}, "'model' is no object"),
        ({"tokenizer": {"kind": "words"}}, "config.json: tokenizer: "),
        ({"tokenizer": ChoraleTokenizer().to_config()}, "vocab_size=391, its tokenizer 132"),
    ],
)
def test_a_config_that_makes_no_sense_is_one_line(
    folder: Path, changes: dict[str, Any], message: str
) -> None:
    edit(folder, **changes)
    with pytest.raises(CheckpointError, match=message):
        load_checkpoint(folder)


@pytest.mark.parametrize("text", ["", "{", "[]", "\ufffd"])
def test_a_config_that_is_no_json_object_is_one_line(folder: Path, text: str) -> None:
    (folder / "config.json").write_text(text, encoding="utf-8")
    with pytest.raises(CheckpointError, match=r"config\.json: not"):
        load_checkpoint(folder)


def test_a_device_is_chosen_by_name() -> None:
    assert select_device("cpu").type == "cpu"
    assert select_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")
    with pytest.raises(ConfigError, match="device='gpu' is not known"):
        select_device("gpu")
    with pytest.raises(ConfigError, match="not supported"):
        select_device("meta")
    if not torch.cuda.is_available():
        with pytest.raises(ConfigError, match="0 CUDA devices here"):
            select_device("cuda")


def test_a_session_is_frozen(folder: Path) -> None:
    session: Session = load_checkpoint(folder, device="cpu")
    with pytest.raises(AttributeError):
        session.path = folder  # type: ignore[misc]


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"kind": [1]}, r"kind \[1\] is unknown"),
        ({"training": 3}, "'training' is no object"),
        ({"model": {**CONFIG.to_dict(), "n_layers": 10**12}}, "weights for n_layers=1000000000000"),
        ({"model": {**CONFIG.to_dict(), "d_ff": 10**12}}, "the config asks for"),
    ],
)
def test_a_wild_config_is_refused_before_anything_is_built(
    folder: Path, changes: dict[str, Any], named: str
) -> None:
    edit(folder, **changes)
    with pytest.raises(CheckpointError, match=named):
        load_checkpoint(folder, device="cpu")


def test_json_nested_without_end_is_one_line(folder: Path) -> None:
    (folder / "config.json").write_text("[" * 100_000)
    with pytest.raises(CheckpointError, match="not readable as JSON"):
        load_checkpoint(folder, device="cpu")


def test_weights_that_are_no_floating_point_numbers_are_refused(folder: Path) -> None:
    path = folder / "model.safetensors"
    weights = load_file(path)
    weights["norm.weight"] = weights["norm.weight"].to(torch.int8)
    save_file(weights, path)
    with pytest.raises(CheckpointError, match=r"norm\.weight is torch\.int8"):
        load_checkpoint(folder, device="cpu")


def test_a_pointer_that_is_no_text_leaves_the_other_one(folder: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    folder.rename(run / "step-1")
    (run / "best").write_bytes(b"\xff\xfe\x00")
    (run / "latest").write_text("step-1")
    assert find_checkpoint(run) == run / "step-1"
