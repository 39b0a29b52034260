"""A continuation that degenerates is drawn again with another generator; the best is kept."""

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest

from music_transformer.checkpoint import Session
from music_transformer.errors import ConfigError
from music_transformer.generation import contest, continuation, generate, generate_batch
from music_transformer.generation.continuation import Continuation
from music_transformer.generation.loop import SampleSpec
from music_transformer.notes import NoteSequence
from music_transformer.sampling import Sampling, Settings

MakeSession = Callable[..., Session]
EVENTS = 40


def judge_by(monkeypatch: pytest.MonkeyPatch, verdicts: list[dict[str, str]]) -> list[NoteSequence]:
    """Let the continuations break the given rules, one after another; what was judged."""
    judged: list[NoteSequence] = []

    def rules(continuation: NoteSequence) -> dict[str, str]:
        judged.append(continuation)
        return verdicts[len(judged) - 1]

    monkeypatch.setattr(continuation, "broken_rules", rules)
    return judged


def test_what_is_good_is_drawn_once(
    make_session: MakeSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = make_session()
    judged = judge_by(monkeypatch, [{}, {}])
    plain = generate(session, events=EVENTS, seed=4)
    again = generate(session, events=EVENTS, seed=4, resample=3)
    assert len(judged) == 2
    assert plain.ids == again.ids
    assert again.report.attempt == 0
    assert again.report.discarded == ()


def test_the_first_good_attempt_is_kept_and_the_others_are_named(
    make_session: MakeSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = make_session()
    stuck = {"loop": "it loops", "trill": "it trills"}
    verdicts = [stuck, {"loop": "it loops"}, {}]
    judge_by(monkeypatch, [*verdicts, *verdicts, stuck])
    result = generate(session, events=EVENTS, seed=4, resample=5)
    assert result.report.attempt == 2
    assert not result.report.degenerate
    assert result.report.discarded == ((0, ("loop", "trill")), (1, ("loop",)))
    json.dumps(result.report.to_dict())
    assert result.ids == generate(session, events=EVENTS, seed=4, resample=5).ids
    first = generate(session, events=EVENTS, seed=4)
    assert first.ids != result.ids
    assert first.report.warnings[:2] == ("it loops", "it trills")


def test_of_none_that_is_good_the_best_is_kept(
    make_session: MakeSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    worse, better = {"loop": "", "trill": ""}, {"silent": ""}
    judge_by(monkeypatch, [worse, better, better, worse])
    result = generate(make_session(), events=EVENTS, resample=3)
    assert result.report.attempt == 1
    assert result.report.broken_rules == ("silent",)
    assert [attempt for attempt, _ in result.report.discarded] == [0, 2, 3]


def test_only_the_stuck_samples_are_drawn_again(
    make_session: MakeSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = make_session()
    plain = generate_batch(session, samples=3, events=EVENTS)
    judged = judge_by(monkeypatch, [{}, {"loop": ""}, {}, {}])
    again = generate_batch(session, samples=3, events=EVENTS, resample=1)
    assert len(judged) == 4
    assert [one.report.attempt for one in again] == [0, 1, 0]
    assert [one.report.sample for one in again] == [0, 1, 2]
    assert [a.ids == b.ids for a, b in zip(plain, again, strict=True)] == [True, False, True]


def test_the_likeliest_events_are_drawn_once(
    make_session: MakeSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged = judge_by(monkeypatch, [{"loop": ""}])
    generate(make_session(), events=EVENTS, temperature=0, resample=3)
    assert len(judged) == 1


def test_a_number_below_0_is_refused(make_session: MakeSession) -> None:
    with pytest.raises(ConfigError, match="resample=-1"):
        generate(make_session(), events=1, resample=-1)


def test_samples_with_other_settings_are_drawn_as_they_would_be_alone(
    make_session: MakeSession,
) -> None:
    session = make_session(double=True)
    kinds = [
        Settings(events=EVENTS, temperature=0.7),
        Settings(events=EVENTS, top_p=0.5),
        Settings(events=EVENTS, max_note_seconds=0.3, hold_seconds=0.1),
        Settings(events=EVENTS, temperature=0.7),
    ]
    together = Continuation(session, None, [SampleSpec(one) for one in kinds])
    list(together.ids())
    for one, generation in zip(kinds, together.generations(), strict=True):
        alone = Continuation(session, None, [SampleSpec(one)])
        list(alone.ids())
        assert generation.ids == alone.generations()[0].ids


def test_of_candidates_the_one_closest_to_the_motif_is_kept(
    make_session: MakeSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = make_session()
    motif = NoteSequence(pitch=[60, 64], velocity=[80] * 2, start=[0.0, 0.5], end=[0.5, 1.0])
    monkeypatch.setattr(continuation, "broken_rules", lambda notes: {})
    far = iter([3.0, 1.0, 2.0, *[4.0] * 6, 5.0, float("inf"), 0.5])
    monkeypatch.setattr(continuation, "seam_distance", lambda primer, notes, begin: next(far))
    best = generate(session, motif, events=EVENTS, candidates=3)
    assert [one.report.attempt for one in (best, *best.others)] == [1, 2, 0]
    assert best.report.discarded == ((0, ()), (2, ()))
    plain = generate_batch(session, motif, events=EVENTS, samples=2, candidates=3)
    assert [one.report.attempt for one in plain] == [0, 0]
    assert plain[0].others[0].ids == best.ids
    worst_last = generate(session, motif, events=EVENTS, candidates=3)
    assert [one.report.attempt for one in worst_last.others] == [0, 1]


def test_what_degenerates_counts_behind_what_is_far(
    make_session: MakeSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    motif = NoteSequence(pitch=[60, 64], velocity=[80] * 2, start=[0.0, 0.5], end=[0.5, 1.0])
    judge_by(monkeypatch, [{"loop": ""}, {}])
    far = iter([1.0, 9.0])
    monkeypatch.setattr(continuation, "seam_distance", lambda primer, notes, begin: next(far))
    assert generate(make_session(), motif, events=EVENTS, candidates=2).report.attempt == 1


def test_only_performances_with_a_motif_have_candidates_by_themselves(
    make_session: MakeSession,
) -> None:
    motif = NoteSequence(pitch=[60, 64], velocity=[80] * 2, start=[0.0, 0.5], end=[0.5, 1.0])
    for kind, primer, count in (
        ("performance", motif, 4),
        ("performance", None, 1),
        ("chorale", motif, 1),
    ):
        session = replace(make_session(kind), sampling=Sampling(resample=0))
        assert len(generate(session, primer, events=EVENTS).others) == count - 1


def drawn_by_section(monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, list[list[int]]]]:
    """Sections of 4 s after the first, of 6 s; where each began, and its samples' ids."""
    monkeypatch.setattr(contest, "FIRST_SECONDS", 6.0)
    monkeypatch.setattr(contest, "SECTION_SECONDS", 4.0)
    draw, seen = contest.Contest._drawn, []

    def spy(self, samples, begin, until):
        drawn = draw(self, samples, begin, until)
        seen.append((begin, [list(one.ids) for one in samples]))
        return drawn

    monkeypatch.setattr(contest.Contest, "_drawn", spy)
    return seen


def test_long_music_goes_on_from_the_best_of_each_section(
    make_session: MakeSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = make_session()
    motif = NoteSequence(pitch=[60, 64], velocity=[80] * 2, start=[0.0, 0.5], end=[0.5, 1.0])
    monkeypatch.setattr(continuation, "broken_rules", lambda notes: {})
    seen = drawn_by_section(monkeypatch)
    progress: list[float] = []
    asked = {"seconds": 17.0, "candidates": 3, "end": "cut", "seed": 1}
    best = generate(session, motif, on_progress=lambda done, _: progress.append(done), **asked)
    assert [begin for begin, _ in seen] == [0.0, 6.0, 10.0]  # the last has what is left
    for (_, before), (_, after) in pairwise(seen):
        [root] = {tuple(ids) for ids in before if all(a[: len(ids)] == ids for a in after)}
        assert len({tuple(ids) for ids in after}) > 1
        assert all(len(ids) > len(root) for ids in after)
    assert best.ids[: len(best.ids) - best.report.closing_events] in seen[-1][1]
    assert best.report.seconds == pytest.approx(17.0)
    assert best.report.events == len(best.ids) - len(best.primer_ids) - best.report.closing_events
    assert best.report.attempt in range(6, 9)
    attempts = {best.report.attempt, *(attempt for attempt, _ in best.report.discarded)}
    assert attempts < set(range(9))
    assert len(attempts) == 7  # but for the winners of the sections before
    assert progress[-1] == 17.0
    assert best.ids == generate(session, motif, **asked).ids


def test_several_long_samples_differ_and_are_each_the_one_that_comes_alone(
    make_session: MakeSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = make_session(double=True)
    motif = NoteSequence(pitch=[60, 64], velocity=[80] * 2, start=[0.0, 0.5], end=[0.5, 1.0])
    drawn_by_section(monkeypatch)
    asked = {"seconds": 12.0, "candidates": 2, "resample": 0}
    progress: list[float] = []
    first, second = generate_batch(
        session, motif, samples=2, on_progress=lambda done, _: progress.append(done), **asked
    )
    assert first.ids == generate(session, motif, **asked).ids
    assert first.ids != second.ids
    assert progress[-1] == 12.0
    assert max(progress) == 12.0


def test_a_section_is_drawn_again_where_all_of_it_breaks_more_rules_than_before(
    make_session: MakeSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = make_session()
    motif = NoteSequence(pitch=[60, 64], velocity=[80] * 2, start=[0.0, 0.5], end=[0.5, 1.0])
    seen = drawn_by_section(monkeypatch)
    one, two = {"loop": ""}, {"loop": "", "trill": ""}
    judge_by(monkeypatch, [one, two, one, two, two, two, one, one])
    best = generate(session, motif, seconds=12.0, candidates=2, resample=1)
    assert [begin for begin, _ in seen] == [0.0, 0.0, 6.0, 6.0]
    assert best.report.broken_rules == ("loop",)
    assert best.report.attempt in (6, 7)
