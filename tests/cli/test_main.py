"""The front door of the command line: which command, which exit code, how fast."""

import os
import subprocess
import sys
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from music_transformer import __version__
from music_transformer.cli import main as front
from music_transformer.cli.main import COMMANDS, main
from music_transformer.cli.output import atomic_path, check_output, print_json, report_warnings
from music_transformer.errors import (
    CheckpointError,
    ConfigError,
    MidiError,
    MusicTransformerError,
    RenderError,
)

REPOSITORY = Path(__file__).resolve().parents[2]
Ending = Callable[[BaseException | int], int]
HEAVY = {"torch", "pretty_midi", "matplotlib"}


def run_python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a line of Python in a fresh process."""
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=120
    )


@pytest.fixture
def raising(monkeypatch: pytest.MonkeyPatch) -> Ending:
    """A command line whose `encode` raises the error given, or returns what is given."""

    def run_with(outcome: BaseException | int) -> int:
        def run(args: Namespace) -> int:
            if isinstance(outcome, BaseException):
                raise outcome
            return outcome

        module: Any = ModuleType("encode")
        module.DESCRIPTION = module.EPILOG = ""
        module.add_arguments, module.run = lambda parser: None, run
        monkeypatch.setattr(front, "_module", lambda command: module)
        return main(["encode"])

    return run_with


# --- which command --------------------------------------------------------------------------------


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    for name, line in COMMANDS.items():
        assert name in shown
        assert " ".join(line.split()) in " ".join(shown.split())


def test_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"music-transformer {__version__}\n"


def test_an_unknown_command_is_refused_with_the_nearest_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["genrate", "motif.mid"]) == 2
    assert "unknown command 'genrate'; did you mean 'generate'?" in capsys.readouterr().err


def test_no_command_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "usage:" in capsys.readouterr().err


@pytest.mark.parametrize("command", COMMANDS)
def test_each_help_shows_a_runnable_example(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, "--help"]) == 0
    assert f"\n  music-transformer {command}" in capsys.readouterr().out


def test_a_command_that_is_not_installed_leaves_the_others_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(COMMANDS, "juggle", "keep three balls in the air")
    assert main(["juggle"]) == 2
    assert "juggle: this installation has no such command" in capsys.readouterr().err
    assert main(["demo", "--help"]) == 0


def test_python_dash_m_is_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "music_transformer", "--version"], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, f"music-transformer {__version__}\n")


# --- how it ends ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("n_heads=3 is no divisor."), 2),
        (MidiError("a.mid: no notes."), 3),
        (CheckpointError("piano: not found."), 3),
        (RenderError("no font."), 3),
        (MusicTransformerError("two\nlines"), 3),
    ],
)
def test_a_users_error_is_one_line_and_an_exit_code(
    raising: Ending, error: Exception, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert raising(error) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == f"music-transformer: error: {' '.join(str(error).split())}\n"


@pytest.mark.parametrize(
    "error",
    [
        FileNotFoundError(2, "No such file or directory", "gone.mid"),
        PermissionError(13, "Permission denied", "gone.mid"),
        IsADirectoryError(21, "Is a directory", "gone.mid"),
        OSError(28, "No space left on device", "gone.mid"),
    ],
)
def test_what_the_file_system_says_is_one_line_and_exit_3(
    raising: Ending, error: OSError, capsys: pytest.CaptureFixture[str]
) -> None:
    assert raising(error) == 3
    shown = capsys.readouterr().err
    assert shown == f"music-transformer: error: gone.mid: {str(error.strerror).lower()}.\n"


@pytest.mark.parametrize("error", [ZeroDivisionError("0"), OSError(5, "Input/output error")])
def test_a_bug_shows_its_traceback_and_is_exit_1(
    raising: Ending, error: Exception, capsys: pytest.CaptureFixture[str]
) -> None:
    assert raising(error) == 1
    shown = capsys.readouterr().err
    assert "Traceback" in shown
    assert type(error).__name__ in shown


def test_an_interrupt_is_exit_130(raising: Ending, capsys: pytest.CaptureFixture[str]) -> None:
    assert raising(KeyboardInterrupt()) == 130
    assert capsys.readouterr().err == "music-transformer: error: interrupted\n"


def test_the_code_of_a_command_is_the_code_of_the_program(raising: Ending) -> None:
    assert raising(0) == 0
    assert raising(3) == 3


@pytest.mark.skipif(sys.platform == "win32", reason="pipes break differently there")
@pytest.mark.parametrize("arguments", ["encode '{file}'", "--help", "--version"])
def test_a_reader_that_leaves_early_is_no_error(arguments: str, motifs: Path) -> None:
    arguments = arguments.format(file=motifs / "fur_elise_opening.mid")
    command = f"'{sys.executable}' -m music_transformer {arguments}"
    done = subprocess.run(
        ["bash", "-c", f"{command} | true; exit ${{PIPESTATUS[0]}}"], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(sys.platform == "win32", reason="pipes break differently there")
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_leaves_after_the_first_line_is_no_error(unbuffered: str) -> None:
    command = f"'{sys.executable}' -m music_transformer generate --help"
    done = subprocess.run(
        ["bash", "-c", f"{command} | head -1; exit ${{PIPESTATUS[0]}}"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("usage: ")
    assert done.stdout.count("\n") == 1


@pytest.mark.skipif(sys.platform == "win32", reason="pipes break differently there")
def test_a_reader_of_warnings_that_leaves_is_told_by_the_code_alone() -> None:
    code = (
        "import os, sys\n"
        "from music_transformer.cli import main as front\n"
        "def warn(arguments): print('warning', file=sys.stderr, flush=True)\n"
        "front._dispatch = warn\n"
        "sys.exit(front.main([]))"
    )
    command = f'"{sys.executable}" -c "{code}" 2>&1 >/dev/null | true; exit ${{PIPESTATUS[0]}}'
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (141, "", "")


@pytest.mark.skipif(sys.platform == "win32", reason="has no SIGTERM that a process may catch")
def test_sigterm_leaves_no_temporary_file(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys\n"
        "from music_transformer.cli import main as front\n"
        "def write(arguments):\n"
        "    with front.atomic_path(sys.argv[1]):\n"
        "        os.kill(os.getpid(), signal.SIGTERM)\n"
        "from music_transformer.files import atomic_path\n"
        "front.atomic_path, front._dispatch = atomic_path, write\n"
        "sys.exit(front.main([]))"
    )
    done = run_python(code, str(tmp_path / "a.mid"))
    assert (done.returncode, done.stderr, list(tmp_path.iterdir())) == (143, "", [])


@pytest.mark.skipif(sys.platform == "win32", reason="a POSIX shell closes them")
@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ("encode '{file}' >&-", 0),
        ("encode '{file}' >&- 2>&-", 0),
        ("encode missing.mid >&- 2>&-", 3),
        ("decode - --out out.mid <&- >&-", 3),
        ("decode ids.json --out out.mid >&- 2>&- <&-", 0),
    ],
)
def test_streams_that_are_closed_lead_nowhere(
    arguments: str, code: int, motifs: Path, tmp_path: Path
) -> None:
    (tmp_path / "ids.json").write_text("[60, 188]")
    arguments = arguments.format(file=motifs / "fur_elise_opening.mid")
    done = subprocess.run(
        ["bash", "-c", f"'{sys.executable}' -m music_transformer {arguments}"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
    )
    assert (done.returncode, done.stdout, "Traceback" in done.stderr) == (code, "", False)
    assert (tmp_path / "out.mid").exists() == ("ids.json" in arguments)
    if "ids.json" in arguments:
        assert (tmp_path / "out.mid").read_bytes().startswith(b"MThd")


# --- how fast -------------------------------------------------------------------------------------

LOADED = (
    "import sys\n"
    "from music_transformer.cli.main import main\n"
    "code = main(sys.argv[1:])\n"
    f"print(sorted({HEAVY!r} & set(sys.modules)), file=sys.stderr)\n"
    "sys.exit(code)"
)


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_imports_nothing_heavy(command: str) -> None:
    done = run_python(LOADED, *command.split(), "--help")
    assert (done.returncode, done.stderr) == (0, "[]\n")


def test_encode_decode_and_render_import_nothing_heavy(motifs: Path, tmp_path: Path) -> None:
    file = str(motifs / "fur_elise_opening.mid")
    encoded = run_python(LOADED, "encode", file)
    assert (encoded.returncode, encoded.stderr) == (0, "[]\n")
    ids = tmp_path / "ids.json"
    ids.write_text(encoded.stdout)
    decoded = run_python(LOADED, "decode", str(ids), "--out", str(tmp_path / "a.mid"))
    assert (decoded.returncode, decoded.stderr) == (0, "[]\n")
    rendered = run_python(LOADED, "render", file, "--out", str(tmp_path / "a.wav"))
    assert (rendered.returncode, rendered.stderr) == (0, "[]\n")


def test_plot_imports_matplotlib_and_nothing_else_heavy(motifs: Path, tmp_path: Path) -> None:
    file, out = motifs / "fur_elise_opening.mid", tmp_path / "a.png"
    done = run_python(LOADED, "plot", str(file), "--out", str(out))
    assert (done.returncode, done.stderr) == (0, "['matplotlib']\n")


@pytest.mark.skipif(sys.platform == "win32", reason="the time of child processes is not counted")
def test_encode_answers_in_half_a_second(motifs: Path) -> None:
    """Best of five, in processor time: another program on the machine must not fail this."""
    import resource

    def seconds() -> float:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    times = []
    for _ in range(5):
        before = seconds()
        run_python(LOADED, "encode", str(motifs / "fur_elise_opening.mid"))
        times.append(seconds() - before)
    assert min(times) < 0.5


# --- what every command does with its results -----------------------------------------------------


def test_an_existing_output_needs_force(tmp_path: Path) -> None:
    out = tmp_path / "a.mid"
    assert check_output(out, force=False) == out
    out.write_bytes(b"old")
    with pytest.raises(ConfigError, match=r"a\.mid: the file exists; add --force"):
        check_output(out, force=False)
    assert check_output(out, force=True) == out
    with pytest.raises(ConfigError, match="this is a folder"):
        check_output(tmp_path, force=True)


def test_an_output_below_a_file_is_a_wrong_request(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for name in ("file/a.mid", "file/deeper/a.mid"):
        with pytest.raises(ConfigError, match=r"file is no folder; give --out another name"):
            check_output(tmp_path / name)


@pytest.mark.skipif(sys.platform == "win32", reason="has no such files")
def test_a_device_or_a_pipe_is_never_replaced_by_a_file(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.mid"
    os.mkfifo(pipe)
    link = tmp_path / "link.mid"
    link.symlink_to(os.devnull)
    for path in (pipe, link, Path(os.devnull)):
        with pytest.raises(ConfigError, match="this is no ordinary file"):
            check_output(path, force=True)


@pytest.mark.parametrize("name", ["\N{MUSICAL KEYBOARD}" * 62 + ".mid", "a" * 251 + ".mid"])
def test_a_name_as_long_as_the_system_allows_can_be_written(name: str, tmp_path: Path) -> None:
    with atomic_path(tmp_path / name) as temporary:
        temporary.write_text("all of it")
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_name_that_is_too_long_is_refused_before_the_work(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="name too long"):
        check_output(tmp_path / ("a" * 300 + ".mid"))


def test_a_full_disk_is_said_with_the_name_of_the_output(tmp_path: Path) -> None:
    out = tmp_path / "a.mid"
    with pytest.raises(OSError, match="No space") as caught, atomic_path(out):
        raise OSError(28, "No space left on device")
    assert (caught.value.filename, list(tmp_path.iterdir())) == (str(out), [])


def test_an_error_names_the_output_and_not_its_temporary_name(tmp_path: Path) -> None:
    out = tmp_path / ("a" * 300 + ".mid")
    with pytest.raises(OSError, match="name too long") as caught, atomic_path(out):
        pass
    assert caught.value.filename == str(out)


def test_a_result_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    out = tmp_path / "new" / "a.png"
    with atomic_path(out) as temporary:
        assert temporary.suffix == ".png"
        temporary.write_text("first")
        assert not out.exists()
    assert out.read_text() == "first"


def test_an_interrupted_result_leaves_what_was_there(tmp_path: Path) -> None:
    out = tmp_path / "a.png"
    out.write_text("first")

    def write_half_of_it() -> None:
        with atomic_path(out) as temporary:
            temporary.write_text("sec")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_half_of_it()
    assert out.read_text() == "first"
    assert list(out.parent.iterdir()) == [out]


def test_json_takes_numpy_numbers_and_paths(capsys: pytest.CaptureFixture[str]) -> None:
    import numpy as np

    print_json({"ids": np.array([1, 2]), "nll": np.float64(0.5), "path": Path("a.mid")})
    assert capsys.readouterr().out == '{"ids": [1, 2], "nll": 0.5, "path": "a.mid"}\n'


def test_what_was_survived_is_said_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    report_warnings("a.mid", {"stray note-off": 3, "tempo 0": 1})
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == (
        "music-transformer: warning: a.mid: stray note-off (3 times)\n"
        "music-transformer: warning: a.mid: tempo 0\n"
    )
