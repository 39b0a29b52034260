"""A take reads its primer once as the model does, and tells what it reads."""

from pathlib import Path
from typing import Any

import pytest

from music_transformer.checkpoint import load_checkpoint
from music_transformer.errors import MusicTransformerError
from music_transformer.evaluation.memorisation import KnownRun
from music_transformer.generation import generate
from music_transformer.notes import NoteSequence
from music_transformer.sampling import Settings
from music_transformer.web.models import ACCOMPANY, Model
from music_transformer.web.takes import DONE, STOPPED, Take, compose


@pytest.mark.parametrize("name", ["piano", "bach"])
@pytest.mark.parametrize("options", [{}, {"primer_seconds": 1.0}, {"keep_silence": True}])
def test_the_primer_is_read_as_the_settings_say(
    checkpoints: Path, name: str, options: dict[str, Any]
) -> None:
    session = load_checkpoint(str(checkpoints / name), device="cpu")
    primer = NoteSequence(
        pitch=[60, 64, 67], velocity=[64] * 3, start=[0.5, 1.5, 2.5], end=[1.5, 2.5, 3.5]
    )
    take = Take(
        Model(name, checkpoints / name, ""),
        primer,
        Settings(events=4, **options),
        "t",
        lambda _: None,
    )
    compose([take], session, lambda: None)
    wanted = generate(session, primer, events=4, **options)
    assert take.state == DONE
    assert take.read.ids == wanted.primer_ids
    assert take.ids == wanted.ids
    assert take.primer_seconds == wanted.report.primer_seconds


def test_a_take_ends_when_its_time_is_used_up(
    checkpoints: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("music_transformer.web.takes.BUDGET_SECONDS", 0)
    model = Model("piano", checkpoints / "piano", "")
    take = Take(model, None, Settings(events=4000), "t", lambda _: None)
    compose([take], load_checkpoint(str(checkpoints / "piano"), device="cpu"), lambda: None)
    assert take.state == DONE
    assert len(take.ids) < 10
    assert take.warnings[0] == "ended after 0 s of composing"


def test_a_take_says_what_also_stands_in_the_training_data(
    checkpoints: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Index:
        def longest_run(self, notes: NoteSequence) -> KnownRun:
            return KnownRun(20, 15, 1.0, 3.0)

    monkeypatch.setattr("music_transformer.web.takes.find_index", lambda path: Index())
    take = Take(Model("piano", checkpoints / "piano", ""), None, Settings(events=40), "t", print)
    compose([take], load_checkpoint(str(checkpoints / "piano"), device="cpu"), lambda: None)
    assert take.warnings[-1].startswith("20 notes in a row, 1.0 to 3.0 s after the primer")


def test_an_accompaniment_ends_when_its_time_is_used_up(
    checkpoints: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("music_transformer.web.takes.BUDGET_SECONDS", 0)
    primer = NoteSequence(pitch=[70] * 4, velocity=[64] * 4, start=range(4), end=range(1, 5))
    model = Model("bach", checkpoints / "bach", "")
    take = Take(model, primer, Settings(), "t", lambda _: None, task=ACCOMPANY)
    with pytest.raises(MusicTransformerError, match="not done after 0 s"):
        compose([take], load_checkpoint(str(checkpoints / "bach"), device="cpu"), lambda: None)


def test_takes_side_by_side_are_those_alone_and_one_that_is_stopped_stops_no_other(
    checkpoints: Path,
) -> None:
    session = load_checkpoint(str(checkpoints / "piano"), device="cpu")
    primer = NoteSequence(
        pitch=[60, 64, 67, 72], velocity=[64] * 4, start=range(4), end=range(1, 5)
    )
    model = Model("piano", checkpoints / "piano", "")
    takes = [
        Take(model, primer, Settings(events=40, seed=seed), "t", lambda _: None)
        for seed in (3, 4, 5)
    ]

    def between() -> None:
        if len(takes[1].ids) - len(takes[1].read.ids) == 10:
            takes[1].stop()

    compose(takes, session, between)
    assert [take.state for take in takes] == [DONE, STOPPED, DONE]
    for take in takes:
        alone = generate(session, primer, events=40, seed=take.settings.seed, candidates=1)
        assert take.ids[: len(take.read.ids)] == alone.primer_ids
        if take.state == DONE:
            assert take.ids == alone.ids
            broken = len(alone.report.broken_rules)
            assert take.rank == (broken, alone.report.seam_distance)
        else:
            assert take.ids == alone.ids[: len(take.ids)]
            assert len(take.ids) - len(take.read.ids) in (10, 11)
            assert take.rank is None
