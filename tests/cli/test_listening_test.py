"""`listening-test`: a page and a key from checkpoints, numbers and a picture from answers."""

import json
import random
from pathlib import Path

import numpy as np
import pytest
import torch

from music_transformer.checkpoint import save_checkpoint
from music_transformer.cli.main import main
from music_transformer.midi import write_midi
from music_transformer.model import ModelConfig, MusicTransformer
from music_transformer.notes import NoteSequence
from music_transformer.representations import ChoraleTokenizer, PerformanceTokenizer
from music_transformer.sampling import DEFAULT_SAMPLING, Sampling

pytest.importorskip("midirenderer", reason="needs the [audio] extra")
pytest.importorskip("scipy", reason="needs the [study] extra")


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with checkpoints `one`, `two` and `chorale`, and primers, one of them too short."""
    folder = tmp_path_factory.mktemp("study")
    for name, tokenizer in (
        ("one", PerformanceTokenizer()),
        ("two", PerformanceTokenizer()),
        ("chorale", ChoraleTokenizer()),
    ):
        with torch.random.fork_rng():
            torch.manual_seed(len(name))
            config = ModelConfig(
                vocab_size=tokenizer.vocab_size,
                n_layers=1,
                d_model=8,
                n_heads=2,
                d_ff=8,
                context=32,
            )
            save_checkpoint(
                folder / name,
                MusicTransformer(config),
                tokenizer,
                training={},
                sampling=Sampling(temperature=1.2) if name == "two" else None,
            )
    for name, count in (("a.mid", 30), ("b.MID", 30), ("short.mid", 3)):
        start = np.arange(count) / 4
        notes = NoteSequence(
            pitch=60 + np.arange(count) % 7, velocity=[70] * count, start=start, end=start + 0.2
        )
        (folder / "primers").mkdir(exist_ok=True)
        write_midi(notes, folder / "primers" / name)
    return folder


def build(study: Path, out: Path, *flags: str) -> list[str]:
    names = [str(study / "one"), str(study / "two")]
    command = ["listening-test", "build", "--checkpoints", *names, "--device", "cpu"]
    command += ["--primers", str(study / "primers"), "--out", str(out)]
    return [*command, "--primer-seconds", "1", "--events", "20", *flags]


@pytest.fixture(scope="module")
def built(study: Path) -> Path:
    """The page's folder of a study with three sources and two primers."""
    out = study / "out" / "first"
    assert main(build(study, out, "--format", "wav")) == 0
    return out


def test_build_writes_the_page_its_clips_and_the_key_apart(built: Path) -> None:
    key = json.loads((built.parent / "first.key.json").read_text())
    assert key["sources"] == ["one", "two", "real"]
    assert len(key["trials"]) == 3 * 2
    drawn = DEFAULT_SAMPLING.to_dict()
    assert key["settings"]["sampling"] == {"one": drawn, "two": {**drawn, "temperature": 1.2}}
    assert {path.name for path in built.iterdir()} == {"index.html", "clips"}
    clips = {path.name for path in (built / "clips").iterdir()}
    assert clips == {f"clip-{number}.wav" for number in range(1, 7)}
    html = (built / "index.html").read_text()
    assert all(f"clips/{clip}" in html for clip in clips)
    assert not any(f'"{word}"' in html for word in ("one", "two", "real", "a.mid", "b.MID"))
    assert all((built / "clips" / clip).read_bytes().startswith(b"RIFF") for clip in clips)


def test_a_piece_that_is_too_short_is_named_and_left_out(
    study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "x"
    assert main(build(study, out, "--format", "wav", "--limit", "2", "--no-real")) == 0
    captured = capsys.readouterr()
    assert captured.out == f"{out / 'index.html'}\n{tmp_path / 'x.key.json'}\n"
    assert main(build(study, tmp_path / "y", "--events", "5000")) == 3
    assert "short.mid is left out: 0 events after" in capsys.readouterr().err
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (["--checkpoints", "a/one", "b/one"], "each with its own name"),
        (["--checkpoints", "one", "--no-real"], "give two or more"),
        (["--events", "0"], "--events 0"),
        (["--temperature", "-1"], "temperature=-1"),
        (["--key", "OUT/key.json"], "must not lie in the folder"),
    ],
)
def test_a_study_that_makes_no_sense_is_refused_at_once(
    flags: list[str],
    complaint: str,
    study: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "x"
    flags = [flag.replace("OUT", str(out)) for flag in flags]
    assert main(build(study, out, *flags)) == 2
    assert complaint in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_models_of_different_events_and_missing_primers_are_refused(
    study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mixed = ["--checkpoints", str(study / "one"), str(study / "chorale")]
    assert main(build(study, tmp_path / "x", *mixed)) == 2
    assert "read different events" in capsys.readouterr().err
    for primers in (study / "none", study / "one"):
        assert main(build(study, tmp_path / "x", "--primers", str(primers))) == 3


def test_an_earlier_test_is_replaced_only_with_force_and_nothing_else_ever_is(
    built: Path, study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (built / "index.html").read_bytes()
    assert main(build(study, built)) == 2
    assert "--force" in capsys.readouterr().err
    assert (built / "index.html").read_bytes() == before
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.txt").write_text("years of work")
    assert main(build(study, mine, "--force")) == 2
    assert (mine / "thesis.txt").exists()
    for place in (built, built / "clips"):  # nor is a file of the user's beside ours
        (place / "notes.txt").write_text("years of work")
        assert main(build(study, built, "--force")) == 2
        assert "notes.txt: not of the listening test" in capsys.readouterr().err
        (place / "notes.txt").unlink()


def test_analyse_finds_what_the_listeners_preferred(
    built: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib", reason="needs the [plot] extra")
    key_path = built.parent / "first.key.json"
    key = json.loads(key_path.read_text())
    quality = {"one": 0.0, "two": 0.0, "real": 2.0}
    generator = random.Random(0)
    files = []
    for listener in range(8):
        answers = [
            {
                "trial": trial["name"],
                "score": max(-2, min(2, round(better + generator.gauss(0, 0.7)))),
            }
            for trial in key["trials"]
            for better in [quality[trial["b"]] - quality[trial["a"]]]
        ]
        files.append(tmp_path / f"answers-{listener}.json")
        files[-1].write_text(
            json.dumps({"study": "first", "listener": str(listener), "answers": answers})
        )
    command = ["listening-test", "analyse", *map(str, files), "--key", str(key_path)]
    picture = tmp_path / "wins.png"
    assert main([*command, "--out", str(picture)]) == 0
    shown = capsys.readouterr().out
    assert "48 answers of 8 listeners" in shown
    assert "chi2(2)" in shown
    assert shown.splitlines()[4].startswith("real")
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert main([*command, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [pair["significant"] for pair in found["pairs"]] == [False, True, True]
    assert main([*command, "--out", str(picture)]) == 2


def test_answers_of_another_study_are_one_line(
    built: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a.json"
    file.write_text('{"study": "second", "answers": [{"trial": "t1", "score": 0}]}')
    key = str(built.parent / "first.key.json")
    assert main(["listening-test", "analyse", str(file), "--key", key]) == 3
    assert "of study 'second'" in capsys.readouterr().err
    assert main(["listening-test", "analyse", str(file), "--key", str(tmp_path / "no.json")]) == 3
