"""`generate`: files on disk and paths on stdout, or one line on stderr and nothing."""

import json
import shutil
import wave
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mido
import numpy as np
import pytest
import torch

import music_transformer.generation
from music_transformer.checkpoint import save_checkpoint
from music_transformer.cli.main import main
from music_transformer.evaluation.memorisation import INDEX_FILE, MemorisationIndex
from music_transformer.midi import read_midi, write_midi
from music_transformer.model import ModelConfig, MusicTransformer
from music_transformer.model.quantised import quantise_linears
from music_transformer.notes import NoteSequence, Tempos
from music_transformer.render.pianoroll import plot_pianoroll
from music_transformer.representations import ChoraleTokenizer, PerformanceTokenizer
from music_transformer.sampling import Sampling

Command = Callable[..., list[str]]
CUT = ("--end", "cut")


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the checkpoints `piano` and `bach`, which have learnt nothing.

    `own-piano` and `own-bach` are the same models, with a word on how to draw from them.
    """
    folder = tmp_path_factory.mktemp("checkpoints")
    for name, tokenizer, labels in (
        ("piano", PerformanceTokenizer(), 0),
        ("bach", ChoraleTokenizer(), 4),
    ):
        with torch.random.fork_rng():
            torch.manual_seed(0)
            model = MusicTransformer(
                ModelConfig(
                    vocab_size=tokenizer.vocab_size,
                    n_layers=1,
                    d_model=16,
                    n_heads=2,
                    d_ff=16,
                    context=64,
                    voice_labels=labels,
                )
            )
        save_checkpoint(folder / name, model, tokenizer, training={})
        own = Sampling(temperature=1.6, top_k=30, top_p=1.0)
        save_checkpoint(folder / f"own-{name}", model, tokenizer, training={}, sampling=own)
    return folder


@pytest.fixture
def command(checkpoints: Path, motifs: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Give the function that makes a command line; the primer is a motif unless it is named."""
    monkeypatch.setenv("MUSIC_TRANSFORMER_CHECKPOINTS", str(checkpoints))

    def make(
        out: Path, *flags: object, primer: Path | None = motifs / "c_major_scale.mid", **more: Any
    ) -> list[str]:
        checkpoint = more.get("checkpoint", "piano")
        line = ["generate", *([] if primer is None else [primer])]
        line += ["--checkpoint", checkpoint, "--device", "cpu", "--out", out, *flags]
        return [str(part) for part in line]

    return make


@pytest.fixture
def chorale(tmp_path: Path) -> Path:
    """A four-voice primer of two beats of 0.6 s."""
    path = tmp_path / "primer" / "chorale.mid"
    path.parent.mkdir()
    write_midi(
        NoteSequence(
            pitch=[67, 62, 59, 45, 67, 62, 57, 43],
            velocity=[80] * 8,
            start=[0.0] * 4 + [0.6] * 4,
            end=[0.6] * 4 + [1.2] * 4,
            track=[0, 1, 2, 3] * 2,
            channel=[0, 1, 2, 3] * 2,
            tempos=Tempos([0.0], [0.6]),
        ),
        path,
    )
    return path


def assert_strict(path: Path) -> None:
    """Every note-on has its own note-off, none twice, and no velocity is 0."""
    for track in mido.MidiFile(path).tracks:
        sounding = set()
        for message in track:
            if message.type == "note_on":
                assert message.velocity > 0
                assert (message.channel, message.note) not in sounding
                sounding.add((message.channel, message.note))
            elif message.type == "note_off":
                sounding.remove((message.channel, message.note))
        assert not sounding


def test_it_writes_midi_sound_and_picture_and_prints_their_paths(
    command: Command, motifs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("midirenderer")
    pytest.importorskip("matplotlib")
    files = [tmp_path / "out" / f"a{suffix}" for suffix in (".mid", ".wav", ".png")]
    assert main(command(files[0], "--seconds", 2, *CUT, "--wav", "--plot")) == 0
    captured = capsys.readouterr()
    assert captured.out.splitlines() == [str(file) for file in files]
    assert files[1].read_bytes().startswith(b"RIFF")
    assert files[2].read_bytes().startswith(b"\x89PNG")
    assert sorted(files[0].parent.iterdir()) == sorted(files)
    assert_strict(files[0])
    primer, result = read_midi(motifs / "c_major_scale.mid"), read_midi(files[0])
    assert result.end_time == pytest.approx(primer.end_time + 2, abs=0.011)
    own = result.start < primer.end_time - 0.01
    assert np.array_equal(result.pitch[own], primer.pitch)


def test_the_same_command_writes_the_same_file(command: Command, tmp_path: Path) -> None:
    flags = ("--seconds", 2, "--seed", 7)
    for name in ("a.mid", "b.mid"):
        assert main(command(tmp_path / name, *flags)) == 0
    assert (tmp_path / "a.mid").read_bytes() == (tmp_path / "b.mid").read_bytes()
    assert main(command(tmp_path / "c.mid", "--seconds", 2, "--seed", 8)) == 0
    assert (tmp_path / "a.mid").read_bytes() != (tmp_path / "c.mid").read_bytes()


def test_quantise_decodes_in_int8(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quantised: list[MusicTransformer] = []

    def keep(model: MusicTransformer) -> MusicTransformer:
        quantised.append(quantise_linears(model))
        return quantised[-1]

    monkeypatch.setattr("music_transformer.model.quantised.quantise_linears", keep)
    assert main(command(tmp_path / "a.mid", "--seconds", 2, "--quantise")) == 0
    assert (tmp_path / "a.mid").is_file()
    assert len(quantised) == 1


def test_without_a_primer_it_composes_from_nothing(command: Command, tmp_path: Path) -> None:
    for checkpoint in ("piano", "bach"):
        out = tmp_path / f"{checkpoint}.mid"
        assert main(command(out, "--seconds", 3, *CUT, primer=None, checkpoint=checkpoint)) == 0
        assert read_midi(out).end_time == pytest.approx(3.0)
        assert_strict(out)


def test_a_part_is_continued_and_a_long_closing_rest_is_said(
    command: Command, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = NoteSequence(
        pitch=[60, 62, 64], velocity=[70] * 3, start=[0, 1, 2], end=[1, 2, 3], end_time=8.0
    )
    primer, out = write_midi(own, tmp_path / "rest.mid"), tmp_path / "a.mid"
    assert main(command(out, "--seconds", 1, primer=primer)) == 0
    assert "rest.mid: it ends with a rest of 5.0 s, which counts; --to -5 drops it." in (
        capsys.readouterr().err
    )
    part = ("--from", "1", "--to", "-5")
    assert main(command(out, "--seconds", 1, *CUT, *part, "--force", primer=primer)) == 0
    assert "a rest" not in capsys.readouterr().err
    written = read_midi(out)
    assert written.pitch[written.track == 0].tolist() == [62, 64]
    assert written.end_time == pytest.approx(3.0)
    assert main(command(out, "--from", "1", "--force", primer=None)) == 2


def test_a_chorale_continues_four_voices_on_their_beat(
    command: Command, chorale: Path, tmp_path: Path
) -> None:
    out = tmp_path / "a.mid"
    assert main(command(out, "--seconds", 3, *CUT, primer=chorale, checkpoint="bach")) == 0
    result = read_midi(out)
    assert result.end_time == pytest.approx(1.2 + 3.0)
    assert result.track_names[-4:] == ("soprano", "alto", "tenor", "bass")
    assert np.allclose(result.start / 0.15, np.round(result.start / 0.15), atol=0.01)
    assert_strict(out)


def test_a_continuation_of_nothing_is_the_primer(
    command: Command, motifs: Path, tmp_path: Path
) -> None:
    for flag in ("--seconds", "--events"):
        assert main(command(tmp_path / f"{flag}.mid", flag, 0)) == 0
        result = read_midi(tmp_path / f"{flag}.mid")
        assert result.pitch.tolist() == read_midi(motifs / "c_major_scale.mid").pitch.tolist()


def test_without_primer_writes_the_continuation_alone(command: Command, tmp_path: Path) -> None:
    assert main(command(tmp_path / "whole.mid", "--seconds", 2, *CUT)) == 0
    assert main(command(tmp_path / "new.mid", "--seconds", 2, *CUT, "--without-primer")) == 0
    whole, new = read_midi(tmp_path / "whole.mid"), read_midi(tmp_path / "new.mid")
    assert new.end_time == pytest.approx(2.0)
    assert new.pitch.tolist() == whole.pitch[-len(new) :].tolist()
    assert len(new) < len(whole)


def test_what_is_composed_has_the_color_of_what_is_composed(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib", reason="needs the [plot] extra")
    seams = []

    def noted(notes: NoteSequence, *, primer_end: float | None = None, **more: Any) -> Any:
        seams.append(primer_end)
        return plot_pianoroll(notes, primer_end=primer_end, **more)

    monkeypatch.setattr("music_transformer.render.pianoroll.plot_pianoroll", noted)
    line = ["--events", 9, "--plot"]
    assert main(command(tmp_path / "both.mid", *line)) == 0
    assert main(command(tmp_path / "new.mid", *line, "--without-primer")) == 0
    assert seams == [pytest.approx(2.0, abs=0.5), 0]


def test_samples_are_numbered_from_1(
    command: Command, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [tmp_path / f"a-{number}.mid" for number in (1, 2, 3)]
    assert main(command(tmp_path / "a.mid", "--events", 40, "--samples", 3)) == 0
    assert capsys.readouterr().out.splitlines() == [str(file) for file in files]
    assert sorted(tmp_path.iterdir()) == files
    assert len({file.read_bytes() for file in files}) == 3


def test_json_holds_the_files_and_the_reports(
    command: Command, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command(tmp_path / "a.mid", "--events", 40, "--json", "--seed", 3)) == 0
    [sample] = json.loads(capsys.readouterr().out)["samples"]
    assert sample["midi"] == str(tmp_path / "a.mid")
    assert sample["report"]["events"] == 40
    assert sample["report"]["seed"] == 3
    assert sample["report"]["notes"] >= 1
    assert sample["report"]["warnings"] == []


def test_what_also_stands_in_training_is_said(
    command: Command, tmp_path: Path, checkpoints: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = command(tmp_path / "a.mid", "--events", 80, "--json", "--force")
    assert main(line) == 0
    output = capsys.readouterr()
    assert json.loads(output.out)["samples"][0]["memorisation"] is None
    assert "not compared with the training data" in output.err

    path = checkpoints / "piano" / INDEX_FILE
    others = NoteSequence(
        pitch=[60, 61, 75] * 20, velocity=[80] * 60, start=range(60), end=range(1, 61)
    )
    try:
        for piece, length in ((others, 0), (None, -1)):
            if piece is None:  # the continuation itself as training data
                main(command(tmp_path / "new.mid", "--events", 80, "--without-primer", "--force"))
                piece = read_midi(tmp_path / "new.mid")
                length = len(piece)
                assert length > 15
            MemorisationIndex.build([piece], size_bytes=1000).save(path)
            capsys.readouterr()
            assert main(line) == 0
            output = capsys.readouterr()
            known = json.loads(output.out)["samples"][0]["memorisation"]
            assert (known["notes"], known["shortest"]) == (length, 15)
            said = f"{length or 'no 15'} notes in a row"
            assert said in output.err
            assert "stand in the training data" in output.err
        path.write_bytes(b"junk")
        assert main(line) == 3
        assert "no memorisation index" in capsys.readouterr().err
    finally:
        path.unlink()


def test_attempts_that_were_discarded_are_said(
    command: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    verdicts = iter([{"loop": "it loops"}, {}])
    monkeypatch.setattr(
        music_transformer.generation.continuation, "broken_rules", lambda notes: next(verdicts)
    )
    line = command(tmp_path / "a.mid", "--events", 40, "--resample", 2, "--candidates", 1, "--json")
    assert main(line) == 0
    output = capsys.readouterr()
    assert "attempt 0 was discarded (loop)" in output.err
    [sample] = json.loads(output.out)["samples"]
    assert sample["report"]["attempt"] == 1
    assert sample["report"]["discarded"] == [{"attempt": 0, "broken_rules": ["loop"]}]


def test_all_candidates_are_shown_best_first(
    command: Command, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = command(tmp_path / "a.mid", "--events", 40, "--candidates", 3, "--resample", 0, "--json")
    assert main([*line, "--show-all"]) == 0
    shown = json.loads(capsys.readouterr().out)["samples"]
    assert [Path(one["midi"]).name for one in shown] == ["a-1.mid", "a-2.mid", "a-3.mid"]
    assert {one["report"]["attempt"] for one in shown} == {0, 1, 2}
    rank = [(len(one["report"]["broken_rules"]), one["report"]["seam_distance"]) for one in shown]
    assert rank == sorted(rank)
    assert main(command(tmp_path / "b.mid", "--show-all")) == 2
    assert "say --candidates N" in capsys.readouterr().err


def test_a_file_that_exists_is_kept_unless_forced(
    command: Command, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sound = tmp_path / "a.wav"
    sound.write_bytes(b"mine")
    line = command(tmp_path / "a.mid", "--seconds", 1, "--wav", checkpoint="not looked for")
    assert main(line) == 2
    assert f"{sound}: the file exists; add --force" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [sound]
    assert sound.read_bytes() == b"mine"
    forced = command(tmp_path / "a.mid", "--seconds", 1, "--wav", "--force")
    pytest.importorskip("midirenderer")
    assert main(forced) == 0
    assert sound.read_bytes() != b"mine"


def test_a_checkpoint_says_how_it_is_drawn_from_and_a_flag_wins(
    command: Command, tmp_path: Path
) -> None:
    def made(checkpoint: str, *flags: object) -> bytes:
        out = tmp_path / "a.mid"
        line = command(out, "--events", 60, "--force", *flags, checkpoint=checkpoint)
        assert main(line) == 0
        return out.read_bytes()

    defaults = made("piano")
    assert defaults == made("piano", "--temperature", 1, "--top-p", 0.95)
    own = made("own-piano")
    assert own == made("piano", "--temperature", 1.6, "--top-k", 30, "--top-p", 1) != defaults
    flags = ("--temperature", 1, "--top-k", 391, "--top-p", 0.95)
    assert made("own-piano", *flags) == defaults


def test_a_checkpoint_that_says_nonsense_of_sampling_is_one_line(
    command: Command, checkpoints: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(checkpoints / "own-piano", broken)
    config = broken / "config.json"
    config.write_text(config.read_text().replace('"top_k": 30', '"top_q": 30'))
    assert main(command(tmp_path / "a.mid", checkpoint=str(broken))) == 3
    [line] = capsys.readouterr().err.splitlines()
    assert line.endswith(
        f"{config}: sampling: 'top_q' is unknown; known are temperature, top_k, top_p, min_p, "
        "parallels, closeness, hold_seconds, max_note_seconds, in_time, "
        "candidates, resample."
    )
    assert not (tmp_path / "a.mid").exists()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--seconds", "-1"), "seconds=-1; choose 0 to 250000"),
        (("--seconds", "inf"), "--seconds: inf"),
        (("--seconds", "3", "--events", "3"), "choose one of them"),
        (("--events", "-1"), "events=-1"),
        (("--temperature", "-1"), "temperature=-1"),
        (("--top-k", "0"), "top_k=0"),
        (("--top-p", "0"), "top_p=0"),
        (("--top-p", "1.01"), "top_p=1.01"),
        (("--min-p", "2"), "min_p=2"),
        (("--samples", "0"), "samples=0; choose 1 to 1000"),
        (("--primer-seconds", "0"), "primer_seconds=0"),
        (("--context", "1"), "context=1"),
        (("--resample", "-1"), "resample=-1"),
        (("--hold-seconds", "0"), "hold_seconds=0"),
        (("--max-note-seconds", "0"), "max_note_seconds=0"),
        (("--device", "abacus"), "device='abacus'"),
        (("--seconds", "long"), "invalid float value"),
    ],
)
def test_a_flag_outside_its_range_is_refused(
    command: Command,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    flags: tuple[str, ...],
    message: str,
) -> None:
    assert main(command(tmp_path / "a.mid", *flags)) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.out == ""
    assert list(tmp_path.iterdir()) == []


def test_flags_are_refused_before_the_checkpoint_is_looked_for(
    command: Command, tmp_path: Path
) -> None:
    assert main(command(tmp_path / "a.mid", "--seconds", -1, checkpoint="none such")) == 2


def test_out_may_not_be_the_name_of_the_sound(
    command: Command, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command(tmp_path / "a.wav", "--wav")) == 2
    assert "the name of the MIDI file" in capsys.readouterr().err


def without_notes(folder: Path) -> Path:
    path = folder / "none.mid"
    mido.MidiFile(tracks=[mido.MidiTrack()]).save(path)
    return path


def a_picture(folder: Path) -> Path:
    path = folder / "picture.mid"
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(100))
    return path


@pytest.mark.parametrize("checkpoint", ["piano", "bach"])
@pytest.mark.parametrize(
    "make", [without_notes, a_picture, lambda folder: folder, lambda folder: folder / "missing.mid"]
)
def test_a_primer_that_is_none_is_one_line_and_no_file(
    command: Command,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    make: Callable[[Path], Path],
    checkpoint: str,
) -> None:
    inputs, outputs = tmp_path / "in", tmp_path / "out"
    inputs.mkdir()
    primer = make(inputs)
    assert main(command(outputs / "a.mid", primer=primer, checkpoint=checkpoint)) == 3
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.splitlines()) == 1
    assert primer.name in captured.err
    assert list(outputs.iterdir()) == []


def test_a_checkpoint_that_is_none_is_one_line(
    command: Command, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command(tmp_path / "a.mid", checkpoint="none such")) == 3
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_command_leaves_no_file(
    command: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("music_transformer.render.audio.render_audio", interrupt)
    pytest.importorskip("midirenderer")
    assert main(command(tmp_path / "a.mid", "--events", 5, "--wav")) == 130
    monkeypatch.setattr("music_transformer.generation.continuation.generate_batch", interrupt)
    assert main(command(tmp_path / "a.mid", "--events", 5)) == 130
    assert list(tmp_path.iterdir()) == []


def test_a_missing_extra_is_named_before_the_work(
    command: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main(command(tmp_path / "a.mid", "--plot", checkpoint="none such")) == 3
    assert "pip install music-transformer[plot]" in capsys.readouterr().err


def test_help_shows_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", "--help"]) == 0
    assert "--checkpoint piano" in capsys.readouterr().out


def test_a_gap_parts_primer_and_continuation_in_the_sound_alone(
    command: Command, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("midirenderer")
    lengths = {}
    for name, flags in (("plain", []), ("gapped", ["--primer-gap", 2.5])):
        out = tmp_path / f"{name}.mid"
        assert main(command(out, "--seconds", 1, "--wav", *flags)) == 0
        with wave.open(str(out.with_suffix(".wav"))) as file:
            lengths[name] = file.getnframes() / file.getframerate()
    assert lengths["gapped"] - lengths["plain"] == pytest.approx(2.5, abs=0.1)
    assert (tmp_path / "plain.mid").read_bytes() == (tmp_path / "gapped.mid").read_bytes()
    assert main(command(tmp_path / "x.mid", "--primer-gap", 2.5)) == 2
    assert "--primer-gap is heard between a primer" in capsys.readouterr().err
