"""The report of a sample is JSON and says what had to be done to it."""

import json

from music_transformer.generation.report import GenerationReport
from music_transformer.generation.run import _long_notes
from music_transformer.generation.settings import Settings

REPORT = GenerationReport(0, 7, 1, 5, 1, 1.0, 2, 0, 0.0, 0, 0, 1, 0, 0.1, 50.0, ("loud",))


def test_a_report_is_json() -> None:
    values = json.loads(json.dumps(REPORT.to_dict()))
    assert values["seed"] == 7
    assert values["attempt"] == 1
    assert values["warnings"] == ["loud"]
    assert values["broken_rules"] == values["discarded"] == []
    assert not REPORT.degenerate


def test_notes_that_had_to_be_closed_are_a_warning() -> None:
    assert _long_notes(0, Settings()) == []
    assert _long_notes(1, Settings()) == ["1 note had to be closed after 8 s"]
    assert _long_notes(3, Settings(max_note_seconds=7.5)) == [
        "3 notes had to be closed after 7.5 s"
    ]
