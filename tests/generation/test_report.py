"""The report of a sample is JSON and says what had to be done to it."""

import json

from music_transformer.generation.report import Report

REPORT = Report(
    sample=0,
    seed=7,
    attempt=1,
    nll=2.5,
    events=5,
    seconds=1.0,
    notes=2,
    elapsed_seconds=0.1,
    events_per_second=50.0,
    warnings=("loud",),
)


def test_a_report_is_json() -> None:
    values = json.loads(json.dumps(REPORT.to_dict()))
    assert values["seed"] == 7
    assert values["attempt"] == 1
    assert values["warnings"] == ["loud"]
    assert values["broken_rules"] == values["discarded"] == []
    assert "transposition" not in values  # of a melody alone
    assert not REPORT.degenerate
