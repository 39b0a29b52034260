"""The report of a sample is JSON and says what had to be done to it."""

import json

from music_transformer.generation.report import Report

REPORT = Report(0, 7, 1, 2.5, 5, 1, 1.0, 2, 0, 0, 1, 0, 0.1, 50.0, warnings=("loud",))


def test_a_report_is_json() -> None:
    values = json.loads(json.dumps(REPORT.to_dict()))
    assert values["seed"] == 7
    assert values["attempt"] == 1
    assert values["warnings"] == ["loud"]
    assert values["broken_rules"] == values["discarded"] == []
    assert "transposition" not in values  # of a melody alone
    assert not REPORT.degenerate
