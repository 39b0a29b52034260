"""Every script says what it does, and finds everything that it imports."""

import runpy
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
RUNNABLE = [path for path in sorted(SCRIPTS.rglob("*.py")) if "__main__" in path.read_text("utf-8")]


@pytest.mark.parametrize("script", RUNNABLE, ids=lambda path: path.stem)
def test_a_script_has_help(
    script: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [str(script), "--help"])
    monkeypatch.syspath_prepend(str(script.parent))
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(script), run_name="__main__")
    assert ended.value.code == 0
    assert "usage:" in capsys.readouterr().out
