"""What happened while a continuation was sampled, in numbers and in warnings."""

import dataclasses
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class GenerationReport:
    """The account of one sample.

    Attributes:
        sample: its number, from 0; with `seed` it makes the sample again.
        attempt: the attempt at it that was kept, from 0; part of what makes the sample again.
        events: new ids that were drawn.
        closing_events: ids added after them so that no note hangs or no sixteenth is cut.
        seconds: length of the continuation.
        notes: notes that begin in the continuation.
        primer_events, primer_seconds: the same of what the model was given.
        forced_events: draws where the grammar left one id.
        long_notes_closed: notes ended because they had lasted as long as a note may.
        notes_cut: notes ended because the continuation was over.
        windows_reread: how often the oldest half of the context was dropped.
        elapsed_seconds, events_per_second: of the run, all its samples together.
        broken_rules: those of `degeneration` that the continuation breaks, by name.
        discarded: of each attempt that was not kept, its number and the rules it broke.
        warnings: what a listener should know.
    """

    sample: int
    seed: int
    attempt: int
    events: int
    closing_events: int
    seconds: float
    notes: int
    primer_events: int
    primer_seconds: float
    forced_events: int
    long_notes_closed: int
    notes_cut: int
    windows_reread: int
    elapsed_seconds: float
    events_per_second: float
    warnings: tuple[str, ...] = ()
    broken_rules: tuple[str, ...] = ()
    discarded: tuple[tuple[int, tuple[str, ...]], ...] = ()

    @property
    def degenerate(self) -> bool:
        """Whether the music is stuck, by any rule."""
        return bool(self.broken_rules)

    def to_dict(self) -> dict[str, Any]:
        """The fields, ready for JSON."""
        return {
            **dataclasses.asdict(self),
            "warnings": list(self.warnings),
            "broken_rules": list(self.broken_rules),
            "discarded": [
                {"attempt": attempt, "broken_rules": list(rules)}
                for attempt, rules in self.discarded
            ],
        }
