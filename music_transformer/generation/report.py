"""What happened while a sample was drawn, in numbers and in warnings."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from music_transformer.notes import NoteSequence

#: Called with how much is done and how much is asked for, in seconds or in events.
Progress = Callable[[float, float], None]


@dataclass(frozen=True)
class Report:
    """The account of one sample; None where a number has no meaning for its task.

    Attributes:
        sample: its number, from 0; with `seed` and `attempt` it makes the sample again.
        attempt: the attempt at it that was kept, from 0.
        rank: 1 is the best of those drawn beside it; accompaniments are ranked.
        nll: mean over the drawn events under the model alone, nats per event.
        events: new ids that were drawn (or given: a soprano's).
        closing_events: ids added after them so that no note hangs or no sixteenth is cut.
        seconds: length of the continuation; of a piano's accompaniment until its last sound.
        notes: that begin in the continuation, or of the accompaniment.
        forced_events: draws where the grammar left one id.
        long_notes_closed: notes ended because they had lasted as long as a note may.
        notes_cut: notes ended because the music was over.
        windows_reread: how often the oldest half of the context was dropped.
        elapsed_seconds, events_per_second: of all samples together.
        primer_events, primer_seconds: of what a continuation was given; else 0.
        melody_notes: that were kept; shortened: notes that gave way to them. A piano's.
        nll_by_voice, melody_nll: of alto, tenor and bass; of the given soprano.
        sixteenths, skipped_sixteenths: composed; silent ones before the melody, left silent.
        transposition: semitones by which the model read the melody higher than it is.
        outside_range: sixteenths of the melody outside the soprano's range, as the model read it.
        warnings: what a listener should know.
        broken_rules: those of `degeneration` that the music breaks, by name.
        seam_distance: of a continuation from its primer, as `evaluation.seam` measures it.
        discarded: of each attempt that was not kept, in any section of long music, its number and
            the rules it broke.
    """

    sample: int
    seed: int
    attempt: int
    nll: float
    events: int
    closing_events: int
    seconds: float
    notes: int
    forced_events: int
    long_notes_closed: int
    notes_cut: int
    windows_reread: int
    elapsed_seconds: float
    events_per_second: float
    rank: int | None = None
    primer_events: int = 0
    primer_seconds: float = 0.0
    melody_notes: int | None = None
    shortened: int | None = None
    nll_by_voice: dict[str, float] | None = None
    melody_nll: float | None = None
    sixteenths: int | None = None
    skipped_sixteenths: int | None = None
    transposition: int | None = None
    outside_range: int | None = None
    warnings: tuple[str, ...] = ()
    broken_rules: tuple[str, ...] = ()
    seam_distance: float | None = None
    discarded: tuple[tuple[int, tuple[str, ...]], ...] = ()

    @property
    def degenerate(self) -> bool:
        """Whether the music is stuck, by any rule."""
        return bool(self.broken_rules)

    def to_dict(self) -> dict[str, Any]:
        """What has a meaning, ready for JSON."""
        known = {name: value for name, value in asdict(self).items() if value is not None}
        return {
            **known,
            "warnings": list(self.warnings),
            "broken_rules": list(self.broken_rules),
            "discarded": [
                {"attempt": attempt, "broken_rules": list(rules)}
                for attempt, rules in self.discarded
            ],
        }


@dataclass(frozen=True)
class Generation:
    """One sample.

    Attributes:
        notes: the primer and its continuation, under the primer's map.
        continuation: the notes that begin after the primer, whose end is 0 here.
        ids: all events, those of the primer first, as the model read them: a chorale's motif that
            was harmonized may be transposed there.
        primer_ids: what the model was given.
        report: numbers and warnings.
        others: the candidates that were not kept, the best first; of long music those of the last
            section.
    """

    notes: NoteSequence
    continuation: NoteSequence
    ids: list[int]
    primer_ids: list[int]
    report: Report
    others: "tuple[Generation, ...]" = ()
