"""The documents are true: commands parse, links lead somewhere, a figure stands in one place."""

import argparse
import dataclasses
import json
import re
import runpy
import shlex
import sys
from pathlib import Path

import pytest

import music_transformer
from music_transformer.cli import main as front
from music_transformer.render.pianoroll import MOST_INCHES
from music_transformer.sampling import MOST_SAMPLES, Settings

REPOSITORY = Path(__file__).resolve().parent.parent
GUIDES = ("*.md", "docs/*.md", "scripts/**/*.md", "checkpoints/**/*.md", "data/motifs/*.md")
DOCUMENTS = sorted(
    path.relative_to(REPOSITORY).as_posix() for guide in GUIDES for path in REPOSITORY.glob(guide)
)


def text_of(document: str) -> str:
    return (REPOSITORY / document).read_text(encoding="utf-8")


def commands() -> list[tuple[str, str]]:
    """Document and command of every line of a code block that runs something of ours."""
    found = []
    for document in DOCUMENTS:
        for block in text_of(document).split("```")[1::2]:
            for line in block.replace("\\\n", " ").splitlines():
                for part in re.split(r"\||&&", line):
                    found.append((document, part.split(" #")[0].strip()))
    return [(document, part) for document, part in found if _ours(part) is not None]


def _ours(command: str) -> list[str] | None:
    """The arguments after the program, the script's name first where it is one; None: not ours."""
    words = shlex.split(command) if "'" not in command.replace("\\'", "") else command.split()
    if words[:1] == ["music-transformer"]:
        return words[1:]
    if "music_transformer" in words and "-m" in words:
        return words[words.index("music_transformer") + 1 :]
    if words[:1] in (["python"], ["make"]) and len(words) > 1 and words[1] != "-m":
        return words[1:]
    return None


class _ParsedError(BaseException):  # no error that a script would report
    """The arguments of a script were understood."""


@pytest.mark.parametrize(("document", "command"), commands())
def test_every_command_in_the_documents_is_understood(
    document: str, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = _ours(command)
    assert arguments is not None
    if command.startswith("make "):
        targets = re.findall(r"^([a-z]+):", text_of("Makefile"), re.MULTILINE)
        assert set(arguments) - {word for word in arguments if "=" in word} <= set(targets)
    elif arguments[0].endswith(".py"):
        script = REPOSITORY / arguments[0]
        parse = argparse.ArgumentParser.parse_args

        def parse_only(self: argparse.ArgumentParser, args: list[str] | None = None) -> None:
            parse(self, args)
            raise _ParsedError

        monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse_only)
        monkeypatch.setattr(sys, "argv", arguments)
        monkeypatch.syspath_prepend(str(script.parent))
        with pytest.raises(_ParsedError):
            runpy.run_path(str(script), run_name="__main__")
    else:
        front._parser(arguments[0]).parse_args(arguments)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_link_and_every_script_named_is_there(document: str) -> None:
    text = text_of(document)
    folder = (REPOSITORY / document).parent
    missing = [
        target
        for target in re.findall(r"\]\(([^)\s]+)\)", text)
        if not target.startswith("http") and not _leads_somewhere(folder, document, target)
    ]
    scripts = set(re.findall(r"\bscripts/[\w/]+\.py", text))
    missing += sorted(name for name in scripts if not (REPOSITORY / name).is_file())
    assert missing == []


def _leads_somewhere(folder: Path, document: str, target: str) -> bool:
    name, _, anchor = target.partition("#")
    path = folder / name if name else REPOSITORY / document
    if not path.exists() or not anchor:
        return path.exists()
    headings = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return anchor in {_anchor(heading) for heading in headings}


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


@pytest.mark.parametrize("document", DOCUMENTS)
def test_prose_is_wrapped_and_no_gap_is_left_to_fill(document: str) -> None:
    prose = "".join(text_of(document).split("```")[::2]).splitlines()
    generated = document.startswith("checkpoints/")
    long = [line for line in prose if len(line) > 100 and not line.startswith(("|", "!", "<img"))]
    assert [line for line in long if " " in line.strip("- ") and not generated] == []
    assert [line for line in prose if "TBD" in line] == []


def test_the_figures_of_the_released_models_stand_in_one_document() -> None:
    guides = [name for name in DOCUMENTS if not name.startswith("checkpoints/")]
    for folder in sorted((REPOSITORY / "checkpoints").glob("*/config.json")):
        released = json.loads(folder.read_text(encoding="utf-8"))["training"]["released"]
        figure = f"{released['validation']['nll']:.4f}"
        assert [name for name in guides if figure in text_of(name)] == ["README.md"], figure


def test_the_page_of_the_api_has_every_public_name_and_every_setting() -> None:
    page = text_of("docs/api.md")
    names, settings = (
        re.findall(r"^\| `(\w+)", part, re.MULTILINE) for part in page.split("## What")
    )
    assert sorted(names) == sorted(music_transformer.__all__)
    rows = [f"| `{one.name}` | {one.metadata['text']} |" for one in dataclasses.fields(Settings)]
    assert settings == [one.name for one in dataclasses.fields(Settings)]
    assert [row for row in rows if row not in page] == []


def test_the_page_of_limits_has_those_of_every_number() -> None:
    page = text_of("docs/limits.md").replace(",", "")
    for one in dataclasses.fields(Settings):
        known = one.metadata
        if known["kind"] not in (int, float) or one.name == "seed":
            continue
        low = f"above {known['above']:g}" if "above" in known else f"{known['low']:.10g}"
        assert f"| `{one.name}` | {low} | {known['high']:.10g}" in page
    assert f"{MOST_SAMPLES} samples" in page
    assert f"{MOST_INCHES:g} inches {150 * MOST_INCHES:g} pixels" in page
