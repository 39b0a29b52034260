"""What can be asked of a continuation: one frozen dataclass, validated once."""

import math
from dataclasses import dataclass

from music_transformer.errors import ConfigError
from music_transformer.generation.counterpoint import DEFAULT_PARALLELS, check_parallels
from music_transformer.generation.held import check_hold_seconds
from music_transformer.sampling import Sampling

DEFAULT_SECONDS = 30.0
LONGEST_SECONDS = 250_000.0  # a MIDI file holds 2**28 ticks, which are milliseconds
# Without these two a model of our size piles up notes that it forgets to end (docs/piano.md).
DEFAULT_HOLD_SECONDS: float | None = 2.0
DEFAULT_MAX_NOTE_SECONDS = 8.0
SHORTEST_MAX_NOTE_SECONDS = 0.1


@dataclass(frozen=True)
class Settings:
    """How long a continuation is, how it is drawn, and what of the primer is read.

    Attributes:
        seconds: the length past the primer's end; `DEFAULT_SECONDS` when `events` is not given
            either; ``inf`` goes on for ever (`stream` only).
        events: the length in new events, instead of seconds.
        temperature, top_k, top_p, min_p: see `Sampling`; None as the checkpoint says, else 1 for
            temperature, 0.95 for top_p and nothing for the others.
        hold_seconds: from this age on the end of a note grows likelier, see `held`; None or inf
            leaves it to the model. Performances only.
        max_note_seconds: a note is closed when it has lasted this long. Performances only.
        parallels: factor on the probability of a pitch that makes a parallel fifth or octave, see
            `counterpoint`; 1 leaves the model alone. Chorales only.
        seed: sample i is drawn with the generator of (seed, i).
        context: how many ids the model reads at once; None for its own context.
        primer_seconds: keep only the last part of the primer; None keeps all.
        keep_silence: keep the time before the primer's first note.

    Raises:
        ConfigError: a value outside its range, or seconds and events together.
    """

    seconds: float | None = None
    events: int | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    hold_seconds: float | None = DEFAULT_HOLD_SECONDS
    max_note_seconds: float = DEFAULT_MAX_NOTE_SECONDS
    parallels: float = DEFAULT_PARALLELS
    seed: int = 0
    context: int | None = None
    primer_seconds: float | None = None
    keep_silence: bool = False

    def __post_init__(self) -> None:
        if self.seconds is not None and self.events is not None:
            raise ConfigError(
                f"seconds={self.seconds:g} and events={self.events}; choose one of them."
            )
        if self.seconds is not None and not self.seconds >= 0:
            raise ConfigError(f"seconds={self.seconds:g}; choose 0 or more.")
        if self.seconds is not None and LONGEST_SECONDS < self.seconds < math.inf:
            raise ConfigError(
                f"seconds={self.seconds:g}; a MIDI file holds no more than {LONGEST_SECONDS:g}."
            )
        if self.events is not None and self.events < 0:
            raise ConfigError(f"events={self.events}; choose 0 or more.")
        check_hold_seconds(self.hold_seconds)
        longest = self.max_note_seconds
        if not SHORTEST_MAX_NOTE_SECONDS <= longest <= LONGEST_SECONDS:
            raise ConfigError(
                f"max_note_seconds={longest:g}; choose {SHORTEST_MAX_NOTE_SECONDS:g} or more."
            )
        check_parallels(self.parallels)
        kept = self.primer_seconds
        if kept is not None and not (kept > 0 and math.isfinite(kept)):
            raise ConfigError(f"primer_seconds={kept:g}; choose more than 0, or leave it out.")
        _ = self.sampling

    @property
    def sampling(self) -> Sampling:
        """What is asked for of how to draw; `choose_filters` makes the distribution of it."""
        return Sampling(self.temperature, self.top_k, self.top_p, self.min_p)

    @property
    def length_seconds(self) -> float | None:
        """Seconds asked for; None when events are."""
        if self.events is None and self.seconds is None:
            return DEFAULT_SECONDS
        return self.seconds

    @property
    def asked(self) -> float:
        """The length asked for, in seconds or in events."""
        seconds = self.length_seconds
        return float(self.events or 0) if seconds is None else seconds
