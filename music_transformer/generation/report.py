"""What happened while a sample was drawn, in numbers and in warnings."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from music_transformer.notes import NoteSequence

#: Called with how much is done and how much is asked for, in seconds or in events.
Progress = Callable[[float, float], None]


@dataclass(frozen=True, kw_only=True)
class Report:
    """The account of one sample; None where a number has no meaning for its task."""

    sample: int  # from 0; with seed and attempt it makes the sample again
    seed: int
    attempt: int = 0  # the one that was kept, from 0
    nll: float  # mean over the drawn events under the model alone, nats per event
    events: int  # new ids that were drawn (or given: a soprano's)
    closing_events: int = 0  # ids added so that no note hangs and no sixteenth is cut
    seconds: float  # of the continuation; of a piano's accompaniment until its last sound
    notes: int  # that begin in the continuation, or of the accompaniment
    forced_events: int = 0  # draws where the grammar left one id
    long_notes_closed: int = 0  # that had lasted as long as a note may
    notes_cut: int = 0  # ended because the music was over
    windows_reread: int = 0  # how often the oldest half of the context was dropped
    elapsed_seconds: float  # of all samples together, as the next
    events_per_second: float
    rank: int | None = None  # of an accompaniment; 1 is the best of those drawn beside it
    primer_events: int = 0  # what a continuation was given
    primer_seconds: float = 0.0
    melody_notes: int | None = None  # that a piano kept
    shortened: int | None = None  # notes of the piano that gave way to them
    nll_by_voice: dict[str, float] | None = None  # alto, tenor and bass
    melody_nll: float | None = None  # of the given soprano
    sixteenths: int | None = None  # composed
    skipped_sixteenths: int | None = None  # silent ones before the melody, left silent
    transposition: int | None = None  # semitones by which the model read the melody higher
    outside_range: int | None = None  # sixteenths of the melody, as read, outside the soprano's
    warnings: tuple[str, ...] = ()  # what a listener should know
    broken_rules: tuple[str, ...] = ()  # those of `degeneration`, by name
    seam_distance: float | None = None  # from the primer, see `evaluation.seam`
    #: Of each attempt that was not kept, in any section: its number and the rules it broke.
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
    """One sample."""

    notes: NoteSequence  # the primer and its continuation, under the primer's map
    continuation: NoteSequence  # the notes that begin after the primer, whose end is 0 here
    ids: list[int]  # all events as the model read them (a harmonized motif may be transposed)
    primer_ids: list[int]  # what the model was given
    report: Report
    #: Candidates that were not kept, the best first; of long music those of the last section.
    others: "tuple[Generation, ...]" = ()
