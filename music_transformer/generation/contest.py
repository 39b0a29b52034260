"""Which of several continuations is kept: candidates, drawn side by side, judged, drawn again."""

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from music_transformer.generation.loop import Sample
from music_transformer.generation.report import Generation, Progress

if TYPE_CHECKING:
    from music_transformer.generation.continuation import Continuation

#: Candidates of long music are compared after so much of it, and then after each section.
FIRST_SECONDS, SECTION_SECONDS = 30.0, 15.0


class Candidate(NamedTuple):
    """A sample that may go on, its music so far, and how far that is from the primer by now."""

    sample: Sample
    made: Generation
    distance: float

    @property
    def demerits(self) -> tuple[int, float]:
        """Rules it breaks, then its distance: the less the better."""
        return len(self.made.report.broken_rules), self.distance


@dataclass
class Contest:
    """Candidates for some samples; see `generate_batch`."""

    run: "Continuation"  # before anything is drawn
    count: int  # of candidates, side by side
    rounds: int = 1  # how often as many are drawn where all break more rules than before
    length: float = 0.0  # seconds of music that is compared in sections; 0: when it is whole
    progress: Progress | None = None  # called after every event

    def winners(self, samples: int) -> list[Generation]:
        """The best for each sample, with the others of its last section."""
        [root] = self.run.samples
        self._ended, self._samples = 0, samples
        results = []
        for group in self._section(0, [root.branch(number, 0) for number in range(samples)]):
            section, discarded = 0, []
            while not group[0].sample.finished:
                section += 1
                discarded += group[1:]
                best = group[0]
                [group] = self._section(section, [best.sample], broken=best.demerits[0])
            self._ended += 1
            results.append(_with_others(group, discarded))
        return results

    def _section(self, number: int, roots: list[Sample], broken: int = 0) -> list[list[Candidate]]:
        """Candidates that go on from each root, which broke so many rules; the best first."""
        begin = FIRST_SECONDS + (number - 1) * SECTION_SECONDS if number else 0.0
        until = FIRST_SECONDS + number * SECTION_SECONDS
        if until + SECTION_SECONDS > self.length:  # the last section takes what is left
            until = math.inf
        drawn: list[list[Candidate]] = [[] for _ in roots]
        each = self.count * self.rounds
        for first in range(number * each, (number + 1) * each, self.count):
            stuck = [
                n for n, group in enumerate(drawn) if all(c.demerits[0] > broken for c in group)
            ]
            if not stuck:
                break
            new = [
                roots[n].branch(roots[n].spec.number, first + j)
                for n in stuck
                for j in range(self.count)
            ]
            for place, one in enumerate(self._drawn(new, begin, until)):
                drawn[stuck[place // self.count]].append(one)
        return [sorted(group, key=lambda one: one.demerits) for group in drawn]

    def _drawn(self, samples: list[Sample], begin: float, until: float) -> list[Candidate]:
        """The samples, drawn up to a second and judged by what begins after another."""
        self.run.samples = samples
        for _ in self.run.ids(until):
            if self.progress is not None:
                self.progress(self._done(), self.run.settings.asked)
        candidates = []
        for sample, made in zip(samples, self.run.generations(), strict=True):
            known = made.report.seam_distance
            far = self.run.remoteness(made.continuation, begin) if begin else known
            candidates.append(Candidate(sample, made, math.inf if far is None else far))
        return candidates

    def _done(self) -> float:
        """How much of all samples there is; after the first section they end one after another."""
        done = self.run.done
        if not self.length or done <= FIRST_SECONDS:
            return done
        rest = self._ended * (self.length - FIRST_SECONDS) + done - FIRST_SECONDS
        return FIRST_SECONDS + rest / self._samples


def _with_others(group: list[Candidate], discarded: list[Candidate]) -> Generation:
    """The first, with the others behind it, and all that were discarded in its report."""
    best, *others = (candidate.made for candidate in group)
    reports = [one.report for one in (*(candidate.made for candidate in discarded), *others)]
    rules = sorted((report.attempt, report.broken_rules) for report in reports)
    return replace(best, report=replace(best.report, discarded=tuple(rules)), others=tuple(others))
