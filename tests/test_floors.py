"""Imports go down only: every import statement of the package is read and checked.

The floors are those of the layout in the README: `notes` at the bottom, `cli` on top, two towers
that meet at `checkpoint` (music: notes, midi, representations, datasets, render;
tensors: ops, model).
Imports inside functions and under TYPE_CHECKING count: what a file knows, it depends on.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

PACKAGE = "music_transformer"
REPOSITORY = Path(__file__).resolve().parent.parent

FLOOR = {
    "errors": 0,
    "_version": 0,
    "files": 0,
    "lazy": 0,
    "limits": 0,
    "motifs": 0,
    "notes": 0,
    "timeline": 0,
    "pretty": 0,
    "processes": 0,
    "progress": 0,
    "sampling": 0,
    "midi": 1,
    "representations": 2,
    "ops": 2,
    "datasets": 3,
    "render": 3,
    "model": 3,
    "positions": 3,
    "checkpoint": 4,
    "generation": 5,
    "evaluation": 5,
    "study": 6,
    "training": 6,
    "web": 7,
    "cli": 7,
    "": 8,  # the lazy __init__ and __main__
}
MUSIC = {"notes", "timeline", "pretty", "midi", "representations", "datasets", "render"}
TENSORS = {"ops", "model"}
#: On one floor a room may import another only along these arrows.
ARROWS = {
    ("notes", "errors"),
    ("notes", "timeline"),
    ("notes", "pretty"),
    ("pretty", "timeline"),
    ("timeline", "errors"),
    ("files", "errors"),
    ("lazy", "errors"),
    ("motifs", "files"),
    ("limits", "errors"),
    ("sampling", "errors"),
    ("generation", "evaluation"),
    ("cli", "web"),
}
#: Inside model/, a module may import its own rank and those before it.
MODEL_RANK = {"config": 0, "kv_cache": 0, "transformer": 1, "chorale": 2, "seq2seq": 2}
#: Libraries that only some rooms may know. Other libraries are free.
RESERVED = {
    "torch": {"ops", "model", "checkpoint", "datasets", "generation", "evaluation", "training"}
    | {"cli", "web", "positions"},
    "mido": {"midi"},
    "pretty_midi": {"notes", "pretty"},
    "midirenderer": {"render"},
    "matplotlib": {"render", "study"},
    "argparse": {"cli"},
}


class Import(NamedTuple):
    """One imported name: where it stands, what it names, and whether it runs at import time."""

    line: int
    target: str
    eager: bool


def imports_of(source: str, module: str, *, is_package: bool) -> Iterator[Import]:
    """Yield every import of `source`, relative ones resolved against `module`."""

    def visit(node: ast.AST, eager: bool) -> Iterator[Import]:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(node.lineno, alias.name, eager)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = module.split(".")
                kept = parts[: len(parts) - node.level + (1 if is_package else 0)]
                base = ".".join([*kept, *([base] if base else [])])
            for alias in node.names:
                yield Import(node.lineno, f"{base}.{alias.name}", eager)
        for child in ast.iter_child_nodes(node):
            lazy = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or (
                isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
            )
            yield from visit(child, eager and not lazy)

    yield from visit(ast.parse(source), True)


def room_of(module: str) -> str:
    """`music_transformer.midi.read` -> `midi`; `""` for the package itself and `__main__`."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in FLOOR else ""


def complaint(module: str, target: str, eager: bool = True) -> str | None:
    """Say why `module` may not import `target`, or None."""
    room = room_of(module)
    top = target.split(".")[0]
    if top in {"scripts", "tests"}:
        return f"nothing in the package imports {top}"
    if top in RESERVED and room not in RESERVED[top]:
        return f"{top} is for {', '.join(sorted(RESERVED[top]))} only"
    if room in {"notes", "pretty"} and top == "pretty_midi" and eager:
        return "pretty_midi is imported inside the functions that convert"
    if top != PACKAGE:
        return None
    other = room_of(target)
    if other == room:
        here, there = (name.split(".")[2:3] for name in (module, target))
        rank, other_rank = (MODEL_RANK.get("".join(part)) for part in (here, there))
        if room == "model" and rank is not None and other_rank is not None and rank < other_rank:
            return f"in model/, {here[0]} comes before {there[0]}"
        return None
    if other == "":
        return "the package's own door is for its users"
    if (room in MUSIC and other in TENSORS) or (room in TENSORS and other in MUSIC):
        return "the towers of music and of tensors meet at checkpoint"
    if FLOOR[other] > FLOOR[room]:
        return f"floor {FLOOR[room]} may not import floor {FLOOR[other]}"
    if FLOOR[other] == FLOOR[room] and (room, other) not in ARROWS:
        return f"both are on floor {FLOOR[room]} and no arrow joins them"
    return None


def module_name(path: Path) -> str:
    """`music_transformer/midi/__init__.py` -> `music_transformer.midi`."""
    parts = path.relative_to(REPOSITORY).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def complaints_of(path: Path) -> list[str]:
    """Every forbidden import of one file of the package, one line each."""
    module = module_name(path)
    source = path.read_text(encoding="utf-8")
    found = imports_of(source, module, is_package=path.name == "__init__.py")
    return [
        f"{path.relative_to(REPOSITORY)}:{line}: {module} -> {target}: {reason}"
        for line, target, eager in found
        if (reason := complaint(module, target, eager)) is not None
    ]


def test_every_import_of_the_package_goes_down() -> None:
    files = sorted((REPOSITORY / PACKAGE).rglob("*.py"))
    assert files
    found = [line for path in files for line in complaints_of(path)]
    assert not found, "\n" + "\n".join(found)


def test_every_room_stands_on_a_floor() -> None:
    rooms = {
        path.stem
        for path in (REPOSITORY / PACKAGE).iterdir()
        if path.suffix == ".py" or (path / "__init__.py").is_file()
    }
    assert rooms - {"__init__", "__main__"} <= set(FLOOR)


def test_only_representations_know_which_kind_of_music_it_is() -> None:
    """Other rooms ask the representation; a question about its class or name ends in a guess."""
    question = re.compile(r"isinstance\([^)]*([Tt]okenizer|Representation)|\bkind\s*[=!]=\s*[\"']")
    found = [
        f"{path.relative_to(REPOSITORY)}:{number}: {line.strip()}"
        for path in sorted((REPOSITORY / PACKAGE).rglob("*.py"))
        if "representations" not in path.parts
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if question.search(line)
    ]
    assert not found, "\n" + "\n".join(found)


def test_nothing_imports_scripts() -> None:
    found = [
        f"{path.relative_to(REPOSITORY)}:{line} -> {target}"
        for folder in ("tests", "scripts")
        for path in (REPOSITORY / folder).rglob("*.py")
        for line, target, _ in imports_of(
            path.read_text(encoding="utf-8"), module_name(path), is_package=False
        )
        if target.split(".")[0] == "scripts"
    ]
    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("room", "statement", "reason"),
    [
        ("midi.read", "import torch", "torch is for"),
        ("render.audio", "def f():\n    import torch.nn", "torch is for"),
        ("representations.base", "from torch import Tensor", "torch is for"),
        ("midi.read", "from music_transformer.representations import base", "floor 1"),
        ("midi.read", "from ..representations import base", "floor 1"),
        ("ops.skew", "import music_transformer.notes", "towers"),
        ("model.transformer", "from music_transformer.midi import read_midi", "towers"),
        ("datasets.windows", "from music_transformer.model import ModelConfig", "towers"),
        ("evaluation.nll", "from music_transformer import generation", "no arrow"),
        ("web.server", "from music_transformer.cli import main", "no arrow"),
        ("model.config", "from .transformer import Layer", "config comes before transformer"),
        ("cli.encode", "from music_transformer import read_midi", "door"),
        ("notes", "import pretty_midi", "inside the functions"),
        ("training.loop", "import scripts.bench", "nothing in the package"),
    ],
)
def test_a_forbidden_import_is_found(room: str, statement: str, reason: str) -> None:
    module = f"{PACKAGE}.{room}"
    [found] = imports_of(statement, module, is_package=False)
    assert reason in (complaint(module, found.target, found.eager) or "")


@pytest.mark.parametrize(
    ("room", "statement"),
    [
        ("checkpoint", "from music_transformer.representations import PerformanceTokenizer"),
        ("checkpoint", "from music_transformer.model import MusicTransformer"),
        ("notes", "def f():\n    import pretty_midi"),
        ("notes", "from music_transformer.errors import MidiError"),
        ("model.transformer", "from .config import ModelConfig"),
        ("cli.main", "from music_transformer._version import __version__"),
        ("datasets.windows", "import torch"),
    ],
)
def test_an_allowed_import_passes(room: str, statement: str) -> None:
    module = f"{PACKAGE}.{room}"
    [found] = imports_of(statement, module, is_package=False)
    assert complaint(module, found.target, found.eager) is None
