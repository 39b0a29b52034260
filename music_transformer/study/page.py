"""The page of a listening test: one HTML file that collects answers, offline.

It knows the study's name, the trials and their clips, and nothing of sources. A listener gets the
trials in an order of their own, so that those who stop early leave different ones out; the answers
stay in the browser until they are saved as JSON or CSV. The template is `page.html`.
"""

import json
from collections.abc import Sequence
from html import escape
from pathlib import Path

from music_transformer.study.analysis import Trial


def page(study: str, trials: Sequence[Trial], clips: Sequence[tuple[str, str]]) -> str:
    """The HTML of a study.

    Args:
        study: its name, which the answers carry.
        trials: of which only the names go in.
        clips: for each trial the addresses of A and B, relative to the page.
    """
    pairs = [
        {"trial": trial.name, "a": a, "b": b} for trial, (a, b) in zip(trials, clips, strict=True)
    ]
    data = json.dumps({"study": study, "trials": pairs}).replace("<", "\\u003c")
    template = Path(__file__).with_suffix(".html").read_text(encoding="utf-8")
    return template.replace("@TITLE@", escape(study)).replace("@DATA@", data)
