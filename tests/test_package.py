"""The package's door: its public names, lazily imported."""

import inspect
import os
import subprocess
import sys
from pathlib import Path

import pytest

import music_transformer

REPOSITORY = Path(__file__).resolve().parent.parent
HEAVY = ("torch", "pretty_midi", "matplotlib", "mido", "numpy")


def test_importing_the_package_imports_nothing_heavy() -> None:
    code = f"import sys, music_transformer; print([m for m in {HEAVY} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_reading_encoding_and_decoding_never_import_torch_pretty_midi_or_matplotlib() -> None:
    code = (
        "import sys\n"
        "from music_transformer import ChoraleTokenizer, NoteSequence, PerformanceTokenizer\n"
        "from music_transformer import read_midi, write_midi\n"
        "notes = NoteSequence(pitch=[60], velocity=[64], start=[0.0], end=[1.0])\n"
        "PerformanceTokenizer().decode(PerformanceTokenizer().encode(notes))\n"
        "print([m for m in ('torch', 'pretty_midi', 'matplotlib') if m in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("name", music_transformer.__all__)
def test_a_public_name_is_what_its_room_calls_so(name: str) -> None:
    value = getattr(music_transformer, name)
    assert value.__name__.rpartition(".")[2] == name
    home = value.__name__ if inspect.ismodule(value) else value.__module__
    assert home.startswith("music_transformer.")


def test_dir_lists_the_public_names_before_they_are_used() -> None:
    assert set(music_transformer.__all__) <= set(dir(music_transformer))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'compose'"):
        _ = music_transformer.compose


def test_an_installed_package_has_motifs_and_every_file_it_needs(tmp_path: Path) -> None:
    lib = tmp_path / "lib"
    places = ["egg_info", f"--egg-base={tmp_path}", "build", f"--build-base={tmp_path / 'b'}"]
    subprocess.run(
        [sys.executable, "setup.py", "--quiet", *places, f"--build-lib={lib}"],
        cwd=REPOSITORY,
        check=True,
        capture_output=True,
    )
    package = "music_transformer"
    ours = {
        path.relative_to(REPOSITORY)
        for path in (REPOSITORY / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    built = {path.relative_to(lib) for path in lib.rglob("*") if path.is_file()}
    assert ours - built == set()
    code = "from music_transformer.motifs import find_motifs as f; print(*f().values(), sep='\\n')"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(lib)},
        capture_output=True,
        text=True,
        check=True,
    )
    motifs = [Path(line) for line in done.stdout.splitlines()]
    assert {path.parent for path in motifs} == {lib / package / "assets" / "motifs"}
    assert {path.name for path in motifs} == {
        path.name for path in (REPOSITORY / "data" / "motifs").glob("*.mid")
    }


def test_the_version_is_stated_once_and_repeated_truly() -> None:
    version = music_transformer.__version__
    assert f"\nversion: {version}\n" in (REPOSITORY / "CITATION.cff").read_text(encoding="utf-8")
    changes = (REPOSITORY / "CHANGELOG.md").read_text(encoding="utf-8")
    assert changes.split("## ")[1].startswith(version)
