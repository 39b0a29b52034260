"""The folder of prepared data: what is written, what is refused, what is never destroyed."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from music_transformer.datasets import PreparedData
from music_transformer.datasets.prepared import Skipped, check_destination, write_prepared
from music_transformer.errors import ConfigError, DatasetError
from music_transformer.representations import ChoraleTokenizer, PerformanceTokenizer

PERFORMANCE = PerformanceTokenizer()


def _change(data: PreparedData, change: Callable[[dict[str, Any]], None]) -> Path:
    """Change `meta.json` of prepared data."""
    path = data.path / "meta.json"
    meta = json.loads(path.read_text())
    change(meta)
    path.write_text(json.dumps(meta))
    return data.path


def test_pieces_come_back_between_start_and_end(prepare_ids: Callable[..., PreparedData]) -> None:
    data = prepare_ids([[356, 60, 255, 188], [], [370, 61]])
    assert data.splits == ("train", "validation")
    assert [piece.tolist() for piece in data.pieces("train")] == [
        [389, 356, 60, 255, 188, 390],
        [389, 390],
        [389, 370, 61, 390],
    ]
    assert data.names("train") == ["piece-0", "piece-1", "piece-2"]
    assert data.events("train") == 6
    assert data.tokenizer == PERFORMANCE
    data.verify()


def test_ids_are_two_bytes_each_little_endian_one_piece_behind_the_other(
    prepare_ids: Callable[..., PreparedData],
) -> None:
    data = prepare_ids([[1], [258]])
    expected = b"\x85\x01" + b"\x01\x00" + b"\x86\x01" + b"\x85\x01" + b"\x02\x01" + b"\x86\x01"
    assert (data.path / "train.bin").read_bytes() == expected


def test_pieces_are_views_of_the_file_and_not_copies(
    prepare_ids: Callable[..., PreparedData],
) -> None:
    data = prepare_ids([[1, 2, 3]])
    assert isinstance(data.pieces("train")[0], np.memmap)
    with pytest.raises(ValueError, match="read-only"):
        data.pieces("train")[0][0] = 7


def test_an_empty_split_is_left_out(tmp_path: Path) -> None:
    data = write_prepared(
        tmp_path / "out",
        tokenizer=PERFORMANCE,
        corpus="one",
        splits={"train": [("a", [60])], "validation": []},
        skipped=[Skipped("b.mid", "it is empty")],
    )
    assert data.splits == ("train",)
    assert sorted(path.name for path in data.path.iterdir()) == ["meta.json", "train.bin"]
    assert data.meta["skipped"] == [{"name": "b.mid", "reason": "it is empty"}]
    with pytest.raises(DatasetError, match=r"no split 'validation'; it has train\."):
        data.pieces("validation")


def test_chorales_keep_the_range_of_every_voice_of_the_training_split(tmp_path: Path) -> None:
    data = write_prepared(
        tmp_path / "out",
        tokenizer=ChoraleTokenizer(),
        corpus="two",
        splits={
            "train": [("a", [70, 60, 128, 40]), ("b", [67, 62, 128, 128])],
            "validation": [("c", [90, 90, 90, 90])],
        },
    )
    assert data.meta["voice_ranges"] == [[67, 70], [60, 62], [0, 127], [40, 40]]


def test_the_checksum_follows_the_ids_the_boundaries_and_the_tokenizer_only(
    prepare_ids: Callable[..., PreparedData],
) -> None:
    first = prepare_ids([[60, 61]], name="first")
    assert prepare_ids([[60, 61]], name="same").checksum == first.checksum
    assert prepare_ids([[60, 62]], name="ids").checksum != first.checksum
    assert (
        prepare_ids([[60, 390, 389, 61]], name="one").checksum
        != prepare_ids([[60], [61]], name="two").checksum
    )


def test_a_name_that_is_no_text_is_kept(tmp_path: Path) -> None:
    name = b"caf\xe9.mid".decode("utf-8", "surrogateescape")
    data = write_prepared(
        tmp_path / "out", tokenizer=PERFORMANCE, corpus="c", splits={"train": [(name, [60])]}
    )
    assert data.names("train") == [name]


def test_a_folder_that_is_missing_or_something_else_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="no such folder; make it with `music-transformer prep"):
        PreparedData.open(tmp_path / "none")
    with pytest.raises(DatasetError, match=r"no meta\.json in it"):
        PreparedData.open(tmp_path)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda meta: meta.update(format=2), "format 2, this version reads 1"),
        (lambda meta: meta.pop("tokenizer"), "lacks or garbles 'tokenizer'"),
        (lambda meta: meta.pop("splits"), "lacks or garbles 'splits'"),
        (lambda meta: meta.update(tokenizer={"kind": "melody"}), "its tokenizer is unknown"),
        (lambda meta: meta["splits"]["train"].update(events=5), "another number of events"),
        (lambda meta: meta["splits"]["train"].update(file="../x.bin"), "outside the folder"),
        (lambda meta: meta["splits"]["train"]["pieces"].pop(0), "does not add up"),
        (lambda meta: meta["splits"]["train"]["pieces"][0].update(length=-1), "does not add up"),
        (lambda meta: meta["splits"]["train"]["pieces"][0].pop("length"), "garbles 'length'"),
    ],
)
def test_a_meta_file_that_does_not_fit_is_refused(
    prepare_ids: Callable[..., PreparedData], change: Callable[[dict[str, Any]], None], match: str
) -> None:
    path = _change(prepare_ids([[60], [61]]), change)
    with pytest.raises(DatasetError, match=match):
        PreparedData.open(path)


def test_a_meta_file_that_is_no_json_is_refused(prepare_ids: Callable[..., PreparedData]) -> None:
    data = prepare_ids([[60]])
    for content in (b"{", b"[]", b"\xff\x00"):
        (data.path / "meta.json").write_bytes(content)
        with pytest.raises(DatasetError, match=r"meta\.json"):
            PreparedData.open(data.path)


def test_a_file_of_ids_of_another_size_is_refused(prepare_ids: Callable[..., PreparedData]) -> None:
    data = prepare_ids([[60]])
    (data.path / "train.bin").write_bytes(b"\x00\x00")
    with pytest.raises(DatasetError, match=r"train\.bin has 2 bytes, expected 6 bytes"):
        PreparedData.open(data.path)
    (data.path / "train.bin").unlink()
    with pytest.raises(DatasetError, match=r"train\.bin is missing"):
        PreparedData.open(data.path)


def test_verify_finds_a_changed_byte(prepare_ids: Callable[..., PreparedData]) -> None:
    data = prepare_ids([[60]])
    path = data.path / "validation.bin"
    path.write_bytes(path.read_bytes().replace(b"\x3c\x00", b"\x3d\x00"))
    changed = PreparedData.open(data.path)
    with pytest.raises(DatasetError, match=r"validation\.bin has another sha256"):
        changed.verify()


def test_verify_finds_an_id_outside_the_vocabulary(
    prepare_ids: Callable[..., PreparedData],
) -> None:
    with pytest.raises(DatasetError, match="outside the vocabulary"):
        prepare_ids([[391]]).verify()


def test_an_output_that_exists_needs_force_and_is_then_replaced(
    prepare_ids: Callable[..., PreparedData],
) -> None:
    data = prepare_ids([[60]])
    with pytest.raises(ConfigError, match="exists; add --force"):
        check_destination(data.path, force=False)
    assert check_destination(data.path, force=True) == data.path
    assert prepare_ids([[62]]).pieces("train")[0].tolist() == [389, 62, 390]
    assert [path.name for path in data.path.parent.iterdir()] == [data.path.name]


def test_no_flag_deletes_what_is_not_prepared_data(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").write_bytes(b"cat")
    with pytest.raises(ConfigError, match="holds other things"):
        check_destination(tmp_path / "photos", force=True)
    with pytest.raises(ConfigError, match="this is a file"):
        check_destination(tmp_path / "photos" / "cat.jpg", force=True)
    (tmp_path / "empty").mkdir()
    assert check_destination(tmp_path / "empty", force=False) == tmp_path / "empty"


def test_a_failure_while_writing_leaves_the_old_data_in_place(
    prepare_ids: Callable[..., PreparedData],
) -> None:
    data = prepare_ids([[60]])
    with pytest.raises((OverflowError, ValueError)):
        prepare_ids([[-1]])
    assert PreparedData.open(data.path).pieces("train")[0].tolist() == [389, 60, 390]
