"""What a small or a large file must not ask for, and what comes to an output meanwhile."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from music_transformer.checkpoint import save_checkpoint
from music_transformer.cli import generate as cli_generate
from music_transformer.cli.main import main
from music_transformer.errors import ConfigError
from music_transformer.files import atomic_path
from music_transformer.midi import read_midi, write_midi
from music_transformer.model import ModelConfig, MusicTransformer
from music_transformer.notes import NoteSequence
from music_transformer.render import audio
from music_transformer.representations import PerformanceTokenizer
from music_transformer.representations.chorale.grid import grid_by_pitch


def _notes(count: int, every: float = 1.0, length: float = 0.5) -> NoteSequence:
    start = np.arange(count) * every
    return NoteSequence(
        pitch=40 + np.arange(count) % 40, velocity=[80] * count, start=start, end=start + length
    )


def test_sound_of_days_is_refused_before_any_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audio, "_play", None)
    path = write_midi(_notes(40, 3500), tmp_path / "days.mid")
    line = ["render", str(path), "--out", str(tmp_path / "a.wav")]
    assert main(line) == 3
    assert "raise the limit (render --max-seconds)" in capsys.readouterr().err
    short = write_midi(_notes(2), tmp_path / "short.mid")
    line = ["render", str(short), "--out", str(tmp_path / "a.wav"), "--primer-end", "1"]
    assert main([*line, "--primer-gap", "250000"]) == 3
    assert main([*line, "--max-seconds", "1"]) == 3
    line = ["generate", str(path), "--checkpoint", "none", "--out", str(tmp_path / "a.mid")]
    assert main([*line, "--wav"]) == 3
    assert "s of sound are more than 3,600" in capsys.readouterr().err


def test_sound_in_stretches_is_that_of_one_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    notes = _notes(8, 0.917, 2.5)  # no onset between two blocks of the synthesizer
    whole = audio.synthesize(notes).samples
    monkeypatch.setattr(audio, "_STRETCH_SECONDS", 3)
    parts = audio.synthesize(notes).samples
    assert abs(len(parts) - len(whole)) <= 1
    assert np.abs(parts[:-1].astype(int) - whole[: len(parts) - 1]).max() <= 4


def test_a_rest_of_an_hour_costs_no_playing(monkeypatch: pytest.MonkeyPatch) -> None:
    played = []
    play = audio._play

    def counted(notes: NoteSequence, seconds: float, *font: object) -> np.ndarray:
        played.append(seconds)
        return play(notes, seconds, *font)

    monkeypatch.setattr(audio, "_play", counted)
    notes = NoteSequence(
        pitch=[60, 62], velocity=[80, 80], start=[0, 3400], end=[3300, 3401], end_time=3500.0
    )
    assert len(audio.synthesize(notes).samples) == round(3501.5 * 48_000)
    assert sum(played) < 200  # of 3500 seconds


def test_more_notes_than_a_picture_can_show_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_midi(_notes(11), tmp_path / "a.mid")
    line = ["plot", str(path), "--out", str(tmp_path / "a.png"), "--max-notes"]
    assert main([*line, "10"]) == 3
    assert "raise --max-notes" in capsys.readouterr().err
    assert main([*line, "11"]) == 0


def test_a_chorale_of_notes_that_sound_together_grows_with_them() -> None:
    def seconds(count: int) -> float:
        track = np.arange(count)
        notes = NoteSequence(
            pitch=track % 128,
            velocity=[80] * count,
            start=[0] * count,
            end=[9] * count,
            track=track,
        )
        begin, begun = np.arange(count) % 999, time.process_time()
        grid = grid_by_pitch(notes, begin, begin + 5000)
        assert grid[3000].tolist() == [127, 127, 0, 0]
        return time.process_time() - begun

    assert seconds(80_000) < 16 * seconds(10_000)  # 8 times the notes; 64 times were it quadratic


def test_a_file_that_comes_meanwhile_stays(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"

    def write(meanwhile: str) -> None:
        with atomic_path(path, replace=False) as temporary:
            temporary.write_text("ours")
            if meanwhile:
                path.write_text(meanwhile)

    with pytest.raises(ConfigError, match="has come meanwhile; add --force"):
        write("theirs")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["theirs"]
    path.unlink()
    write("")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["ours"]


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tmp_path.chmod(0o500)
    (path := tmp_path.parent / "ids.json").write_text("[60, 300, 188]")
    assert main(["decode", str(path), "--out", str(tmp_path / "a.mid")]) == 3
    assert str(tmp_path) in capsys.readouterr().err


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="no such signal")
def test_a_terminal_that_is_closed_leaves_no_half_file(tmp_path: Path) -> None:
    code = (
        "import signal, sys, time\nfrom music_transformer.cli import main, decode\n"
        "signal.signal(signal.SIGHUP, signal.SIG_DFL)\n"  # under nohup it is ignored
        "from music_transformer.files import atomic_path\n"
        "def run(args):\n"
        "    with atomic_path(args.out) as path:\n"
        "        path.write_text('half'); print('ready', flush=True); time.sleep(60)\n"
        "decode.run = run\nsys.exit(main.main(sys.argv[1:]))"
    )
    line = [sys.executable, "-c", code, "decode", "ids.json", "--out", str(tmp_path / "a.mid")]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(signal.SIGHUP)
        process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGHUP
    assert list(tmp_path.iterdir()) == []


def test_a_track_may_rest_for_longer_than_a_delta_holds(tmp_path: Path) -> None:
    start = np.arange(0, 40_000, 3000.00007)
    notes = NoteSequence(
        pitch=[60] * (len(start) + 1),
        velocity=[80] * (len(start) + 1),
        start=[*start, 39_000.00003],
        end=[*(start + 1), 39_003],
        track=[0] * len(start) + [1],
    )
    assert len(read_midi(write_midi(notes, tmp_path / "a.mid"))) == len(notes)


def test_a_folder_of_many_files_is_listed_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(2000):
        (tmp_path / f"{number}.mid").touch()
    write_midi(_notes(3), tmp_path / "notes.mid")
    begun = time.process_time()
    assert main(["prepare", str(tmp_path), "--out", str(tmp_path / "d"), "--jobs", "1"]) == 0
    assert time.process_time() - begun < 60
    printed = capsys.readouterr().out.splitlines()
    assert printed[-1] == "  and 1,950 more: meta.json has all of them"
    assert len(printed) < 70


def _tiny(folder: Path) -> Path:
    config = ModelConfig(n_layers=1, d_model=6, n_heads=2, d_ff=10, context=13, max_distance=7)
    return save_checkpoint(folder, MusicTransformer(config), PerformanceTokenizer(), training={})


@pytest.mark.parametrize(("flags", "code"), [([], 2), (["--force"], 0)])
def test_of_two_commands_with_one_output_one_is_whole_and_the_other_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: list[str], code: int
) -> None:
    out = tmp_path / "a.mid"
    line = ["generate", "--checkpoint", str(_tiny(tmp_path / "c")), "--device", "cpu", *flags]
    line += ["--events", "9", "--out", str(out)]
    compose = cli_generate._generate

    def slowly(*arguments: object) -> object:
        monkeypatch.setattr(cli_generate, "_generate", compose)
        made = compose(*arguments)
        assert main([*line, "--seed", "1"]) == 0  # from its beginning to its end
        return made

    monkeypatch.setattr(cli_generate, "_generate", slowly)
    assert main([*line, "--seed", "0"]) == code
    assert {path.name for path in tmp_path.iterdir()} == {"a.mid", "c"}
    both = out.read_bytes()
    assert main([*line, "--seed", "0" if flags else "1", "--force"]) == 0
    assert out.read_bytes() == both


def test_a_window_longer_than_the_data_is_trained_and_measured(tmp_path: Path) -> None:
    (tmp_path / "corpus").mkdir()
    for number in range(2):
        write_midi(_notes(3 + number), tmp_path / "corpus" / f"{number}.mid")
    data, run = str(tmp_path / "d"), str(tmp_path / "r")
    assert main(["prepare", str(tmp_path / "corpus"), "--out", data, "--jobs", "1"]) == 0
    small = "autocast=off n_layers=1 d_model=12 d_attention=12 n_heads=2 d_ff=8 max_distance=8 "
    small += "steps=1 threads=1 batch_size=2 context=300"
    settings = [word for one in small.split() for word in ("--set", one)]
    line = ["--data", data, "--device", "cpu"]
    assert main(["train", "--preset", "piano-small", "--out", run, *line, *settings]) == 0
    assert main(["evaluate", "--checkpoint", run, "--context", "200", *line]) == 0
