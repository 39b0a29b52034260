"""A blind listening test in the paper's manner: which pairs are heard, and what the answers say.

Listeners hear two pieces with the same beginning and say on five points which is more musical:
-2 (A, strongly), -1, 0 (equal), 1, 2 (B, strongly). For the source behind B that number is its
*score* in the comparison, for the one behind A minus that number.

- Kruskal-Wallis H over the scores of all sources, with (sources - 1) degrees of freedom. (The paper
  prints chi2(2) = 63.84, p = 8.86e-14: the p of 3, which its four sources have.)
- Wilcoxon signed-rank of each pair of sources on the comparisons of these two, against 0; equal
  answers are left out, as usual. The level is Bonferroni's, 0.01 / pairs: 0.01 / 6 for four.
- Mann-Whitney U of each pair of sources on all their scores, against whomever.

The first and the last take scores to be independent; here every comparison gives one to each of
two sources, with opposite signs. The paper reports them; the signed-rank test is the one to trust.

Source: Huang et al. 2018, "Music Transformer", section 4.3 and appendix B.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
import random
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from music_transformer.errors import DatasetError, MusicTransformerError
from music_transformer.render.pianoroll import INK, new_figure, style_axes, style_legend

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SCORES = (-2, -1, 0, 1, 2)
LEVEL = 0.01
REAL = "real"

WON, EQUAL, LOST = "#0f4f8a", "#d5d5d0", "#c8642f"
#: From "the second, strongly" to "the first, strongly".
_POINTS = (LOST, "#e3b295", EQUAL, "#87a7c4", WON)
_ANSWERS = ("right, strongly", "right", "equal", "left", "left, strongly")


@dataclass(frozen=True)
class Trial:
    """Two clips to compare: a primer, and the sources that went on from it."""

    name: str
    primer: str
    a: str
    b: str


@dataclass(frozen=True)
class Key:
    """What listeners must not see."""

    study: str  # the name that answers carry too
    sources: tuple[str, ...]  # `REAL` too where there is real music
    trials: tuple[Trial, ...]  # in the order of the page
    clips: Mapping[str, Mapping[str, str]]  # {source: {primer: file}}
    settings: Mapping[str, Any]  # how it was made


@dataclass(frozen=True)
class Answer:
    """One comparison by one listener; above 0 is for B."""

    listener: str
    trial: str
    score: int


@dataclass(frozen=True)
class Pair:
    """Two sources against each other; numbers are for the first, every p is two-sided."""

    first: str
    second: str
    wins: int
    ties: int
    losses: int
    counts: tuple[int, ...]  # comparisons by score, -2 to 2
    wilcoxon: float  # signed-rank statistic of their own comparisons
    wilcoxon_p: float
    mann_whitney: float  # U over all scores of the two
    mann_whitney_p: float
    significant: bool  # whether `wilcoxon_p` is below the corrected level


@dataclass(frozen=True)
class Analysis:
    """What the answers say."""

    answers: int
    listeners: int
    kruskal: float  # H
    degrees: int  # sources - 1
    kruskal_p: float
    level: float  # Bonferroni's, 0.01 / pairs
    wins: Mapping[str, tuple[int, int, int]]  # of each source: won, equal, lost
    pairs: tuple[Pair, ...]  # every two sources


def plan_trials(sources: Sequence[str], primers: Sequence[str], *, seed: int) -> tuple[Trial, ...]:
    """Every two sources on every primer, shuffled; who is A is drawn, evenly for each pair."""
    generator = random.Random(f"trials {seed}")
    drawn = []
    for pair in itertools.combinations(sources, 2):
        flips = [index % 2 for index in range(len(primers))]
        generator.shuffle(flips)
        drawn += [
            (primer, *(pair if not flip else pair[::-1]))
            for primer, flip in zip(primers, flips, strict=True)
        ]
    generator.shuffle(drawn)
    width = len(str(len(drawn)))
    return tuple(Trial(f"t{n:0{width}}", *trial) for n, trial in enumerate(drawn, start=1))


def name_clips(
    sources: Sequence[str], primers: Sequence[str], *, seed: int, suffix: str
) -> dict[str, dict[str, str]]:
    """A file name for each source and primer that tells nothing of either."""
    generator = random.Random(f"clips {seed}")
    numbers = list(range(1, len(sources) * len(primers) + 1))
    generator.shuffle(numbers)
    width = len(str(len(numbers)))
    names = iter(f"clip-{number:0{width}}{suffix}" for number in numbers)
    return {source: {primer: next(names) for primer in primers} for source in sources}


def read_key(path: Path) -> Key:
    """The key of a study; DatasetError where the file is missing or no key."""
    content = _json(path)
    try:
        return Key(
            study=str(content["study"]),
            sources=tuple(content["sources"]),
            trials=tuple(Trial(**trial) for trial in content["trials"]),
            clips=content["clips"],
            settings=content["settings"],
        )
    except (KeyError, TypeError) as error:
        raise DatasetError(f"{path}: this is no key that `listening-test build` wrote.") from error


def read_answers(path: Path, key: Key) -> list[Answer]:
    """The answers in one exported file, JSON or CSV.

    Raises:
        DatasetError: the file is missing, of another study, or holds something that is no answer.
    """
    rows = _csv_rows(path) if path.suffix.lower() == ".csv" else _json_rows(path)
    known = [trial.name for trial in key.trials]
    answers = []
    for number, row in enumerate(rows, start=1):
        where = f"{path}: answer {number}"
        if row.get("study") != key.study:
            raise DatasetError(
                f"{where} is of study {row.get('study')!r}, the key of {key.study!r}."
            )
        if row.get("trial") not in known:
            raise DatasetError(f"{where}: trial {row.get('trial')!r} is not in the key.")
        try:
            score = int(row["score"])
        except (KeyError, TypeError, ValueError, OverflowError):
            score = 99
        if score not in SCORES:
            raise DatasetError(f"{where}: score {row.get('score')!r}; it must be -2 to 2.")
        answers.append(Answer(str(row.get("listener", "")), row["trial"], score))
    return answers


def analyse(key: Key, answers: Sequence[Answer]) -> Analysis:
    """Tests and counts; of several answers of a listener to one trial the last counts.

    Raises:
        DatasetError: no answers, or none for some source.
        MusicTransformerError: [study] is not installed.
    """
    stats = _scipy_stats()
    answers = list({(each.listener, each.trial): each for each in answers}.values())
    pairs: dict[tuple[str, str], list[int]] = {
        pair: [] for pair in itertools.combinations(key.sources, 2)
    }
    scores: dict[str, list[int]] = {source: [] for source in key.sources}
    trials = {trial.name: trial for trial in key.trials}
    for answer in answers:
        trial = trials[answer.trial]
        scores[trial.a].append(-answer.score)
        scores[trial.b].append(answer.score)
        if (trial.a, trial.b) in pairs:
            pairs[trial.a, trial.b].append(-answer.score)
        else:
            pairs[trial.b, trial.a].append(answer.score)
    for source, own in scores.items():
        if not own:
            raise DatasetError(f"no answer compares {source!r}: collect more.")
    level = LEVEL / len(pairs)
    statistic, p = _kruskal(stats, list(scores.values()))
    return Analysis(
        answers=len(answers),
        listeners=len({answer.listener for answer in answers}),
        kruskal=statistic,
        degrees=len(scores) - 1,
        kruskal_p=p,
        level=level,
        wins={source: _won_equal_lost(own) for source, own in scores.items()},
        pairs=tuple(_pair(stats, names, own, scores, level) for names, own in pairs.items()),
    )


def _pair(
    stats: Any,
    names: tuple[str, str],
    own: list[int],
    scores: Mapping[str, list[int]],
    level: float,
) -> Pair:
    wilcoxon, wilcoxon_p = _wilcoxon(stats, own)
    u = stats.mannwhitneyu(scores[names[0]], scores[names[1]], alternative="two-sided")
    wins, ties, losses = _won_equal_lost(own)
    return Pair(
        *names,
        wins=wins,
        ties=ties,
        losses=losses,
        counts=tuple(own.count(score) for score in SCORES),
        wilcoxon=wilcoxon,
        wilcoxon_p=wilcoxon_p,
        mann_whitney=float(u.statistic),
        mann_whitney_p=float(u.pvalue),
        significant=wilcoxon_p < level,
    )


def _kruskal(stats: Any, groups: list[list[int]]) -> tuple[float, float]:
    """H and p; 0 and 1 where all scores are equal, which scipy refuses."""
    if len({score for group in groups for score in group}) < 2:
        return 0.0, 1.0
    result = stats.kruskal(*groups)
    return float(result.statistic), float(result.pvalue)


def _wilcoxon(stats: Any, scores: list[int]) -> tuple[float, float]:
    """The signed-rank statistic and p; 0 and 1 where no answer prefers either."""
    decided = [score for score in scores if score]
    if not decided:
        return 0.0, 1.0
    with warnings.catch_warnings():  # scipy warns of ties and of few answers: see the p for both
        warnings.simplefilter("ignore")
        result = stats.wilcoxon(decided)
    return float(result.statistic), float(result.pvalue)


def _won_equal_lost(scores: list[int]) -> tuple[int, int, int]:
    wins = sum(score > 0 for score in scores)
    losses = sum(score < 0 for score in scores)
    return wins, len(scores) - wins - losses, losses


def _scipy_stats() -> Any:
    try:
        from scipy import stats
    except ImportError as error:
        raise MusicTransformerError(
            "the statistics need the [study] extra: pip install music-transformer[study]"
        ) from error
    return stats


def plot_study(analysis: Analysis) -> Figure:
    """How often each source won (the paper's figure 7), and every pair; the caller saves it."""
    figure = new_figure(12, 1.6 + 0.5 * max(len(analysis.wins), len(analysis.pairs)))
    left, right = figure.subplots(1, 2, width_ratios=[1, 1.3])
    _draw_wins(left, analysis.wins)
    _draw_pairs(right, analysis.pairs)
    return figure


def _draw_wins(axes: Axes, wins: Mapping[str, tuple[int, int, int]]) -> None:
    names = sorted(wins, key=lambda name: (wins[name][0], -wins[name][2]))
    start = [0] * len(names)
    for part, (label, color) in enumerate((("won", WON), ("equal", EQUAL), ("lost", LOST))):
        counts = [wins[name][part] for name in names]
        bars = axes.barh(names, counts, left=start, color=color, label=label, height=0.62)
        axes.bar_label(
            bars,
            [str(count) if count else "" for count in counts],
            label_type="center",
            color=INK if color == EQUAL else "white",
            fontsize=9,
        )
        start = [first + count for first, count in zip(start, counts, strict=True)]
    axes.set_xlabel("comparisons", color=INK)
    axes.legend(
        loc="lower left", bbox_to_anchor=(0, 1), ncols=3, frameon=False, fontsize=9, labelcolor=INK
    )
    style_axes(axes)


def _draw_pairs(axes: Axes, pairs: Sequence[Pair]) -> None:
    """Shares of the five answers; those for the left name lie to the left of the middle."""
    rows = range(len(pairs))[::-1]
    for row, pair in zip(rows, pairs, strict=True):
        total = max(sum(pair.counts), 1)
        shares = [count / total for count in pair.counts[::-1]]  # the first's best first
        begin = -(shares[0] + shares[1] + shares[2] / 2)
        for share, color in zip(shares, _POINTS[::-1], strict=True):
            axes.barh(row, share, left=begin, color=color, height=0.62)
            begin += share
        star = " *" if pair.significant else ""
        axes.text(-1.04, row, pair.first, ha="right", va="center", color=INK, fontsize=9)
        axes.text(1.04, row, pair.second + star, ha="left", va="center", color=INK, fontsize=9)
    axes.axvline(0, color=INK, linewidth=0.8)
    axes.set_xlim(-1, 1)
    axes.set_ylim(-0.6, len(pairs) - 0.4)
    axes.set_yticks([])
    axes.set_xticks([-1, -0.5, 0, 0.5, 1], ["100 %", "50 %", "0", "50 %", "100 %"])
    axes.set_xlabel("share of answers    (* significant after Bonferroni)", color=INK)
    from matplotlib.patches import Patch

    handles = [Patch(color=color) for color in _POINTS[::-1]]
    style = {"ncols": 5, "fontsize": 8, "handlelength": 1, "columnspacing": 1}
    place = {"loc": "lower center", "bbox_to_anchor": (0.5, 1), "borderaxespad": None}
    style_legend(axes, handles, _ANSWERS[::-1], **place, **style)
    style_axes(axes)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise DatasetError(f"{path}: {(error.strerror or str(error)).lower()}.") from error
    except UnicodeDecodeError as error:
        raise DatasetError(f"{path}: not readable as text ({error}).") from error


def _json(path: Path) -> dict[str, Any]:
    text = _text(path)
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DatasetError(f"{path}: not readable as JSON ({error}).") from error
    if not isinstance(content, dict):
        raise DatasetError(f"{path}: not a JSON object.")
    return content


def _json_rows(path: Path) -> list[dict[str, Any]]:
    content = _json(path)
    rows = content.get("answers")
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise DatasetError(f"{path}: no list of answers in it; export them from the page.")
    shared = {"study": content.get("study"), "listener": content.get("listener")}
    return [{**shared, **row} for row in rows]


def _csv_rows(path: Path) -> list[dict[str, Any]]:
    try:
        return list(csv.DictReader(io.StringIO(_text(path), newline="")))
    except csv.Error as error:
        raise DatasetError(f"{path}: not readable as CSV ({error}).") from error
