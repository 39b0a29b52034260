"""The JSON of the JSB Chorales: read to the letter, refused when it is another file."""

import json
from pathlib import Path

import numpy as np
import pytest

from music_transformer.datasets.corpora import prepare_jsb, read_jsb
from music_transformer.errors import ConfigError, DatasetError


def test_chorales_are_read_split_by_split(jsb_file: Path) -> None:
    grids = read_jsb(jsb_file)
    assert {split: [grid.shape for grid in pieces] for split, pieces in grids.items()} == {
        "train": [(4, 4), (8, 4)],
        "validation": [(4, 4)],
        "test": [(4, 4)],
    }
    assert grids["train"][1][1].tolist() == [72, 64, 55, -1]


def test_prepared_chorales_are_the_raster_scan_with_silence_and_the_corpus_split(
    jsb_file: Path, tmp_path: Path
) -> None:
    data = prepare_jsb(jsb_file, tmp_path / "out")
    assert data.pieces("train")[0].tolist() == [
        *[130, 67, 62, 59, 45, 67, 62, 59, 45],
        *[67, 62, 57, 43, 69, 64, 57, 43, 131],
    ]
    assert data.pieces("validation")[0][:6].tolist() == [130, 128, 128, 128, 128, 128]
    assert data.meta["voice_ranges"] == [[67, 72], [62, 64], [55, 59], [43, 48]]
    assert data.corpus == "jsb"
    data.verify()


def test_a_folder_is_searched_for_the_file_of_the_corpus(jsb_file: Path, tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"Jsb16thSeparated\.json: no such file"):
        prepare_jsb(tmp_path, tmp_path / "out")
    jsb_file.rename(tmp_path / "Jsb16thSeparated.json")
    assert len(prepare_jsb(tmp_path, tmp_path / "out").pieces("train")) == 2


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"{", "not a JSON file"),
        (b"MThd\x00\x00\xff", "not a JSON file"),
        (b"[" * 100_000, "not a JSON file"),
        (b"[]", "no JSON object with train, valid and test"),
        (b'{"train": [], "valid": []}', "no JSON object with train, valid and test"),
        (json.dumps({"train": [], "valid": [], "test": []}).encode(), "train holds no list"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, content: bytes, match: str) -> None:
    path = tmp_path / "other.json"
    path.write_bytes(content)
    with pytest.raises(DatasetError, match=match):
        read_jsb(path)


@pytest.mark.parametrize(
    "piece",
    [
        [[60, 55, 48]],
        [[60, 55, 48, 36], [60, 55, 48]],
        [[60.5, 55, 48, 36]],
        [[60, 55, 48, None]],
        [[60, 55, 48, 128]],
        [[60, 55, 48, -2]],
        [],
        7,
    ],
)
def test_a_piece_that_is_no_list_of_four_pitches_is_refused_by_its_place(
    tmp_path: Path, piece: object
) -> None:
    good = [[[60, 55, 48, 36]]]
    path = tmp_path / "other.json"
    path.write_text(json.dumps({"train": good, "valid": [*good, piece], "test": good}))
    with pytest.raises(DatasetError, match=r"valid\[1\]"):
        read_jsb(path)


def test_an_existing_output_is_refused_before_anything_is_read(
    jsb_file: Path, tmp_path: Path
) -> None:
    prepare_jsb(jsb_file, tmp_path / "out")
    with pytest.raises(ConfigError, match="exists"):
        prepare_jsb(tmp_path / "none", tmp_path / "out")


@pytest.mark.corpus
def test_the_corpus_has_the_pieces_notes_and_ranges_that_are_known_of_it(
    corpora: Path, tmp_path: Path
) -> None:
    data = prepare_jsb(corpora / "jsb", tmp_path / "jsb")
    assert [len(data.pieces(split)) for split in data.splits] == [229, 76, 77]
    assert [data.events(split) for split in data.splits] == [220_912, 73_632, 75_600]
    assert data.meta["voice_ranges"] == [[60, 81], [52, 74], [46, 69], [36, 66]]
    lengths = [len(piece) - 2 for split in data.splits for piece in data.pieces(split)]
    assert (min(lengths), max(lengths)) == (400, 2560)
    assert not np.any(np.array(lengths) % 16)
