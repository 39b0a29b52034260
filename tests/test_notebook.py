"""The example notebook runs from top to bottom, and its cells show what they promise.

Its code cells are executed here, in order, as a notebook would: no Jupyter needed. The models are
tiny ones under the released names.
"""

import ast
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from music_transformer.checkpoint import save_checkpoint
from music_transformer.checkpoint.hub import SEARCH_VARIABLE
from music_transformer.midi import read_midi
from music_transformer.model import ModelConfig, MusicTransformer
from music_transformer.representations import ChoraleTokenizer, PerformanceTokenizer

pytest.importorskip("matplotlib", reason="needs the [plot] extra")

REPOSITORY = Path(__file__).resolve().parent.parent
NOTEBOOK = REPOSITORY / "docs" / "example.ipynb"


def code_cells() -> list[str]:
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


def shown_by(source: str, names: dict[str, Any]) -> Any:
    """Run a cell; the value of its last line where that is an expression."""
    body = ast.parse(source).body
    last = body.pop() if isinstance(body[-1], ast.Expr) else None
    exec(compile(ast.Module(body, []), "cell", "exec"), names)
    if not isinstance(last, ast.Expr):
        return None
    return eval(compile(ast.Expression(last.value), "cell", "eval"), names)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of what the notebook needs, with tiny models; the working folder is its `docs`."""
    shutil.copytree(REPOSITORY / "data" / "motifs", tmp_path / "data" / "motifs")
    sizes = {"n_layers": 1, "d_model": 8, "n_heads": 2, "d_ff": 8, "context": 64}
    for name, tokenizer in (
        ("piano", PerformanceTokenizer()),
        ("piano-fill", PerformanceTokenizer()),
        ("bach", ChoraleTokenizer()),
    ):
        config = ModelConfig(vocab_size=tokenizer.vocab_size, anchors=name == "piano-fill", **sizes)
        with torch.random.fork_rng():
            torch.manual_seed(0)
            model = MusicTransformer(config)
        save_checkpoint(tmp_path / "checkpoints" / name, model, tokenizer, training={})
    (tmp_path / "docs").mkdir()
    monkeypatch.chdir(tmp_path / "docs")
    monkeypatch.setenv(SEARCH_VARIABLE, str(tmp_path / "checkpoints"))
    return tmp_path


def test_the_example_notebook_runs_and_shows_what_it_says(folder: Path) -> None:
    names: dict[str, Any] = {}
    shown = [shown_by(cell, names) for cell in code_cells()]
    motif, symbols, continuation, compared, soft, harmonized, filled, figure, _ = shown
    assert "<svg" in motif._repr_html_()
    assert symbols[0].startswith("SET_VELOCITY")
    assert "<svg" in continuation._repr_html_()
    distances = [distance for distance, _ in compared]
    assert len(distances) == 4
    assert distances[0] == min(distances)
    assert "<svg" in soft._repr_html_()
    assert set(harmonized.track.tolist()) > {0}
    start, end = names["start"], names["end"]
    kept = (motif.start < start) | (motif.start >= end)
    beside = (filled.start < start) | (filled.start >= end)
    assert 0 < kept.sum() < len(kept)
    assert filled.start[beside].tolist() == motif.start[kept].tolist()
    assert figure._repr_png_().startswith(b"\x89PNG")
    written = read_midi(folder / "out" / "from_notebook.mid")
    assert written.end_time == pytest.approx(names["result"].notes.end_time)
    assert 10 <= written.end_time - names["result"].report.primer_seconds <= 12.5 + 1e-3


def test_notes_in_the_notebook_can_be_heard(folder: Path) -> None:
    pytest.importorskip("midirenderer", reason="needs the [audio] extra")
    motif = shown_by(code_cells()[0], {})
    assert "<audio controls" in motif._repr_html_()


def test_the_notebook_is_stored_without_results() -> None:
    """No sound and no picture goes into git, and none of what a model of MAESTRO composed."""
    for cell in json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None
