"""A sampling knob is a field and a processor: flag, keyword and checkpoint follow."""

import shutil
import subprocess
import sys
from pathlib import Path

import music_transformer

FIELD = '    loud: float | None = setting(float, None, DRAWN, "a knob", low=0, high=9)\n'
PROCESSOR = '\nPROCESSORS.append(by_value("loud", lambda logits, value: logits * value))\n'
PROOF = """
import argparse
from types import SimpleNamespace
import torch
from music_transformer.cli.options import add_settings, settings_from
from music_transformer.generation.processors import process
from music_transformer.sampling import DRAWN, Sampling, Settings, settings_of

parser = argparse.ArgumentParser()
add_settings(parser, (DRAWN,))
assert settings_from(parser.parse_args(["--loud", "3"])).loud == 3
settings = settings_of({"temperature": 1}).or_else(Sampling.from_dict({"loud": 0.0}))
grammar = SimpleNamespace(ages=None, chords=None, ending=None)
sample = SimpleNamespace(
    settings=settings, grammar=grammar, steering=None, on_time=lambda: None
)
assert (process(torch.randn(1, 7), [sample]) == 0).all()
"""


def test_a_knob_is_two_files(tmp_path: Path) -> None:
    package = tmp_path / "music_transformer"
    shutil.copytree(Path(music_transformer.__file__).parent, package)
    settings, processors = package / "sampling.py", package / "generation" / "processors.py"
    before = "    temperature: float | None"
    settings.write_text(settings.read_text().replace(before, FIELD + before, 1))
    processors.write_text(processors.read_text() + PROCESSOR)
    subprocess.run([sys.executable, "-c", PROOF], cwd=tmp_path, check=True, env={"PYTHONPATH": "."})
