"""The script that draws figures 10 and 11 still agrees with the operator: it checks itself."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("matplotlib", reason="needs the [plot] extra")

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "figures" / "skew_figures.py"


def test_both_figures_are_drawn_from_the_operator(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--out", str(tmp_path)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    names = ["skew_global.png", "skew_local.png"]
    assert done.stdout.splitlines() == [str(tmp_path / name) for name in names]
    assert all((tmp_path / name).read_bytes().startswith(b"\x89PNG") for name in names)
