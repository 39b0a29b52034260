"""The listening test: a blind plan, answers read with care, statistics that find known effects."""

import itertools
import json
import random
import sys
from collections import Counter
from dataclasses import asdict
from pathlib import Path

import pytest

from music_transformer.errors import DatasetError, MusicTransformerError
from music_transformer.study.analysis import (
    Analysis,
    Answer,
    Key,
    Trial,
    analyse,
    name_clips,
    plan_trials,
    read_answers,
    read_key,
)
from music_transformer.study.build import page

stats = pytest.importorskip("scipy.stats", reason="needs the [study] extra")

SOURCES = ("relative", "plain", "rnn", "real")
PRIMERS = [f"piece-{number}.mid" for number in range(10)]


def key_of(sources: tuple[str, ...] = SOURCES, primers: list[str] = PRIMERS) -> Key:
    clips = name_clips(sources, primers, seed=0, suffix=".opus")
    return Key("study", sources, plan_trials(sources, primers, seed=0), clips, {"seed": 0})


def simulated(key: Key, quality: dict[str, float], *, listeners: int, seed: int = 0) -> Analysis:
    """Answers of listeners who hear the difference of two qualities, with noise of 1."""
    generator = random.Random(seed)
    answers = [
        Answer(f"listener {n}", trial.name, max(-2, min(2, round(heard))))
        for n in range(listeners)
        for trial in key.trials
        for heard in [quality[trial.b] - quality[trial.a] + generator.gauss(0, 1)]
    ]
    return analyse(key, answers)


# --- the plan -------------------------------------------------------------------------------------


def test_four_sources_on_ten_primers_are_the_papers_sixty_comparisons() -> None:
    trials = plan_trials(SOURCES, PRIMERS, seed=0)
    assert len(trials) == 60
    pairs = {(trial.primer, frozenset((trial.a, trial.b))) for trial in trials}
    expected = itertools.product(PRIMERS, itertools.combinations(SOURCES, 2))
    assert pairs == {(primer, frozenset(pair)) for primer, pair in expected}
    assert len({trial.name for trial in trials}) == 60


def test_each_of_a_pair_is_a_as_often_as_b_and_the_order_is_shuffled() -> None:
    trials = plan_trials(SOURCES, PRIMERS, seed=0)
    as_a = Counter((trial.a, trial.b) for trial in trials)
    assert set(as_a.values()) == {5}
    assert [trial.primer for trial in trials] != sorted(trial.primer for trial in trials)


def test_the_same_seed_gives_the_same_plan_and_another_seed_another() -> None:
    assert plan_trials(SOURCES, PRIMERS, seed=3) == plan_trials(SOURCES, PRIMERS, seed=3)
    assert plan_trials(SOURCES, PRIMERS, seed=3) != plan_trials(SOURCES, PRIMERS, seed=4)


def test_every_clip_has_a_name_of_its_own_that_tells_nothing() -> None:
    clips = name_clips(SOURCES, PRIMERS, seed=0, suffix=".opus")
    names = [clips[source][primer] for source in SOURCES for primer in PRIMERS]
    assert sorted(names) == [f"clip-{number:02}.opus" for number in range(1, 41)]
    assert names != sorted(names)


def test_the_page_tells_no_source_and_no_primer_and_fetches_nothing() -> None:
    key = key_of()
    clips = [(f"clips/{key.clips[t.a][t.primer]}", "clips/b.opus") for t in key.trials]
    html = page("a <b>&", key.trials, clips)
    for word in (*SOURCES[:3], "piece-", "http:", "https:", "//cdn", "<link", " src="):
        assert word not in html, word
    assert "<title>Listening test: a &lt;b&gt;&amp;</title>" in html
    data = html.split("const STUDY = ")[1].split(";\n")[0]
    told = json.loads(data)
    assert told["study"] == "a <b>&"
    assert "<" not in data
    assert [trial["trial"] for trial in told["trials"]] == [trial.name for trial in key.trials]
    assert all(set(trial) == {"trial", "a", "b"} for trial in told["trials"])


# --- answers --------------------------------------------------------------------------------------


def test_a_key_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "key.json"
    path.write_text(json.dumps(asdict(key_of())))
    assert read_key(path) == key_of()
    for content in ("{}", "[1]", "no json", '{"study": 1, "sources": 3}'):
        path.write_text(content)
        with pytest.raises(DatasetError, match=r"key\.json"):
            read_key(path)
    with pytest.raises(DatasetError, match="no such file"):
        read_key(tmp_path / "none.json")


def test_json_and_csv_give_the_same_answers(tmp_path: Path) -> None:
    key = key_of()
    first, second = tmp_path / "a.json", tmp_path / "a.csv"
    rows = [{"trial": "t01", "score": -2, "seconds": 9}, {"trial": "t60", "score": 1}]
    first.write_text(json.dumps({"study": "study", "listener": 'Zo"e', "answers": rows}))
    second.write_text(
        "study,listener,trial,score,seconds\n"
        '"study","Zo""e","t01","-2","9"\n"study","Zo""e","t60","1",""\n'
    )
    expected = [Answer('Zo"e', "t01", -2), Answer('Zo"e', "t60", 1)]
    assert read_answers(first, key) == read_answers(second, key) == expected


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ({"study": "other", "trial": "t01", "score": 1}, "answer 1 is of study 'other'"),
        ({"study": "study", "trial": "t99", "score": 1}, "trial 't99' is not in the key"),
        ({"study": "study", "trial": "t01", "score": 3}, "score 3; it must be -2 to 2"),
        ({"study": "study", "trial": "t01", "score": "good"}, "score 'good'"),
        ({"study": "study", "trial": "t01"}, "score None"),
        ({"study": "study", "trial": [[]]}, "is not in the key"),
        ({"study": "study", "trial": "t01", "score": float("inf")}, "score inf"),
    ],
)
def test_what_is_no_answer_is_named(row: dict[str, object], complaint: str, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"answers": [row]}))
    with pytest.raises(DatasetError, match=complaint):
        read_answers(path, key_of())
    path.write_text(json.dumps({"answers": "none"}))
    with pytest.raises(DatasetError, match="no list of answers"):
        read_answers(path, key_of())


# --- statistics -----------------------------------------------------------------------------------


def test_counts_by_hand() -> None:
    trials = (
        Trial("1", "p", "x", "y"),
        Trial("2", "q", "y", "x"),
        Trial("3", "p", "x", "z"),
        Trial("4", "p", "z", "y"),
    )
    key = Key("s", ("x", "y", "z"), trials, {}, {})
    answers = [
        Answer("l", "1", -2),  # x over y, strongly
        Answer("l", "2", 1),  # x over y
        Answer("m", "2", -1),  # y over x
        Answer("l", "3", 0),  # x, z equal
        Answer("l", "4", 2),  # y over z, strongly
        Answer("l", "4", 1),  # no, just y over z: the last counts
    ]
    analysis = analyse(key, answers)
    assert (analysis.answers, analysis.listeners) == (5, 2)
    assert analysis.wins == {"x": (2, 1, 1), "y": (2, 0, 2), "z": (0, 1, 1)}
    x_y, x_z, y_z = analysis.pairs
    assert (x_y.wins, x_y.ties, x_y.losses, x_y.counts) == (2, 0, 1, (0, 1, 0, 1, 1))
    assert (x_z.wins, x_z.ties, x_z.losses, x_z.wilcoxon_p) == (0, 1, 0, 1.0)
    assert (y_z.wins, y_z.counts) == (1, (0, 0, 0, 1, 0))
    assert analysis.degrees == 2
    assert analysis.level == pytest.approx(0.01 / 3)
    expected = stats.kruskal([2, 1, -1, 0], [-2, -1, 1, 1], [0, -1])
    assert analysis.kruskal == pytest.approx(expected.statistic)
    assert analysis.kruskal_p == pytest.approx(expected.pvalue)
    u = stats.mannwhitneyu([2, 1, -1, 0], [-2, -1, 1, 1])
    assert (x_y.mann_whitney, x_y.mann_whitney_p) == pytest.approx((u.statistic, u.pvalue))


def test_known_effects_are_found_and_no_others() -> None:
    quality = {"relative": 1.0, "plain": 0.0, "rnn": 0.0, "real": 1.0}
    analysis = simulated(key_of(), quality, listeners=6)
    assert analysis.answers == 360
    assert analysis.degrees == 3
    assert analysis.kruskal_p < 1e-10
    assert analysis.level == pytest.approx(0.01 / 6)
    found = {(pair.first, pair.second) for pair in analysis.pairs if pair.significant}
    assert found == {("relative", "plain"), ("relative", "rnn"), ("plain", "real"), ("rnn", "real")}
    for pair in analysis.pairs:
        better = quality[pair.first] - quality[pair.second]
        if better:
            assert (pair.wins > pair.losses) == (better > 0)
            assert pair.mann_whitney_p < analysis.level
    won = {source: counts[0] for source, counts in analysis.wins.items()}
    assert min(won["relative"], won["real"]) > max(won["plain"], won["rnn"])


def test_the_papers_size_of_study_finds_a_large_effect() -> None:
    """180 answers, three a pair of clips, as in the paper."""
    quality = {"relative": 1.2, "plain": 0.3, "rnn": -0.6, "real": 1.3}
    analysis = simulated(key_of(), quality, listeners=3)
    assert analysis.answers == 180
    significant = {(pair.first, pair.second): pair.significant for pair in analysis.pairs}
    assert significant["relative", "rnn"]
    assert significant["rnn", "real"]
    assert not significant["relative", "real"]


def test_without_an_effect_false_alarms_are_as_rare_as_promised() -> None:
    key, flat = key_of(), dict.fromkeys(SOURCES, 0.0)
    analyses = [simulated(key, flat, listeners=4, seed=seed) for seed in range(40)]
    alarms = sum(any(pair.significant for pair in each.pairs) for each in analyses)
    assert alarms <= 2  # expected 0.4 of 40
    assert sum(each.kruskal_p < 0.01 for each in analyses) <= 3


def test_listeners_who_hear_no_difference_at_all_are_no_error() -> None:
    key = key_of()
    analysis = analyse(key, [Answer("l", trial.name, 0) for trial in key.trials])
    assert (analysis.kruskal, analysis.kruskal_p) == (0.0, 1.0)
    assert all(pair.wilcoxon_p == pair.mann_whitney_p == 1.0 for pair in analysis.pairs)


def test_the_papers_p_belongs_to_three_degrees_of_freedom() -> None:
    assert stats.chi2.sf(63.84, 3) == pytest.approx(8.86e-14, rel=0.01)
    assert stats.chi2.sf(63.84, 2) == pytest.approx(1.37e-14, rel=0.01)


def test_a_source_nobody_heard_and_a_missing_extra_are_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    key = key_of()
    some = [t for t in key.trials if "rnn" not in (t.a, t.b)]
    with pytest.raises(DatasetError, match="no answer compares 'rnn'"):
        analyse(key, [Answer("l", trial.name, 1) for trial in some])
    monkeypatch.setitem(sys.modules, "scipy", None)
    with pytest.raises(MusicTransformerError, match=r"pip install music-transformer\[study\]"):
        analyse(key, [])
