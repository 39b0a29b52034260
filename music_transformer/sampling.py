"""Every setting of what is drawn: its default, its limits and its words, stated here and only here.

`Sampling` is what a checkpoint may say too (``"sampling"`` in its config.json): who calls says what
they want, the checkpoint what suits it, and the field's ``otherwise`` holds where both leave it
open. `Settings` adds what only a call can say. Flags, keywords, checkpoints and the page's sliders
are derived from the fields; what a number does to a distribution is in `generation/processors.py`.

Another knob is one field here and one processor there.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Self

from music_transformer.errors import ConfigError

DEFAULT_SECONDS = 30.0
LONGEST_SECONDS = 250_000.0  # a MIDI file holds 2**28 ticks, which are milliseconds

LENGTH, DRAWN, CARE, PRIMER = "how much", "how it is drawn", "when a model gets stuck", "the primer"


def setting(kind: type, default: Any, group: str, text: str, **more: Any) -> Any:
    """A field with what is to know of it.

    Args:
        kind: float, int or bool.
        group: the heading under which its flag is listed.
        text: the flag's help.
        more: ``low``, ``high`` (inclusive), ``above`` (exclusive) and ``endless`` (inf is a value)
            limit a number, ``choose`` says so in an error; ``otherwise`` holds where nobody says
            anything; ``metavar`` is the flag's; ``slider`` (low, high, step) puts it on the page.
    """
    return field(default=default, metadata={"kind": kind, "group": group, "text": text, **more})


@dataclass(frozen=True)
class Sampling:
    """How events are drawn; None leaves it open.

    Raises:
        ConfigError: a value outside its range.
    """

    temperature: float | None = setting(
        float, None, DRAWN, "below 1 safer, above 1 wilder, 0 always the likeliest event",
        low=0, choose="0 (argmax) or more", otherwise=1.0, slider=(0.5, 1.5, 0.01),
    )  # fmt: skip
    top_k: int | None = setting(
        int, None, DRAWN, "only the K likeliest events",
        low=1, choose="1 or more, or leave it out", metavar="K",
    )  # fmt: skip
    top_p: float | None = setting(
        float, None, DRAWN, "only the likeliest events that make up P of the probability",
        above=0, high=1, choose="one above 0, up to 1 (keeps all)", otherwise=0.95, metavar="P",
        slider=(0.5, 1.0, 0.01),
    )  # fmt: skip
    min_p: float | None = setting(
        float, None, DRAWN, "only events P times as likely as the likeliest",
        low=0, high=1, choose="one from 0 (keeps all) to 1", metavar="P",
    )  # fmt: skip
    # docs/chorales.md says how it was chosen.
    parallels: float | None = setting(
        float, None, DRAWN,
        "chorales: make parallel fifths and octaves FACTOR times as probable as the model does; "
        "1 leaves them to the model, 0 forbids them",
        low=0, high=1, otherwise=0.005, metavar="FACTOR",
        choose="one from 0 (no parallel fifth or octave) to 1 (as many as the model makes)",
    )  # fmt: skip
    # Without these two a model of our size piles up notes that it forgets to end (docs/piano.md).
    hold_seconds: float | None = setting(
        float, None, CARE,
        "from this age on the end of a note grows likelier, in proportion to its age; inf leaves "
        "it to the model",
        above=0, endless=True, otherwise=2.0, metavar="S",
        choose="more than 0, or inf to leave the model alone",
    )  # fmt: skip
    max_note_seconds: float | None = setting(
        float, None, CARE, "close a note that has lasted so long",
        low=0.1, high=LONGEST_SECONDS, choose="0.1 or more", otherwise=8.0, metavar="S",
    )  # fmt: skip

    def __post_init__(self) -> None:
        for one in fields(self):
            _check(one.name, getattr(self, one.name), one.metadata)

    def or_else(self, other: "Sampling") -> Self:
        """What is said here, and what the other says of what is left open here."""
        said = other.to_dict()
        return replace(self, **{k: v for k, v in said.items() if getattr(self, k) is None})

    def resolved(self) -> Self:
        """The same with `DEFAULT_SAMPLING` for what is left open."""
        return self.or_else(DEFAULT_SAMPLING)

    def to_dict(self) -> dict[str, Any]:
        """What is said, ready for JSON."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """What a JSON object says.

        Raises:
            ConfigError: a key that is unknown, or a value that is no number or out of range.
        """
        known = {one.name: one.metadata["kind"] for one in fields(cls)}
        for name, value in values.items():
            if name not in known:
                raise ConfigError(f"{name!r} is unknown; known are {', '.join(known)}.")
            whole = isinstance(value, int) and not isinstance(value, bool)
            if not whole and (known[name] is int or not isinstance(value, float)):
                kind = "whole number" if known[name] is int else "number"
                raise ConfigError(f"{name}={value!r}; give a {kind}, or leave it out.")
        return cls(**values)


@dataclass(frozen=True)
class Settings(Sampling):
    """What can be asked of a continuation or an accompaniment.

    The length is asked for in seconds or in events past the primer's end; with neither it is
    `DEFAULT_SECONDS`, and ``inf`` goes on for ever (`stream` only). Sample i is drawn with the
    generator of (seed, i).

    Raises:
        ConfigError: a value outside its range, or seconds and events together.
    """

    seconds: float | None = setting(
        float, None, LENGTH, f"length past the end of the primer (default: {DEFAULT_SECONDS:g})",
        low=0, high=LONGEST_SECONDS, endless=True, slider=(5, 120, 5),
        choose=f"0 to {LONGEST_SECONDS:g}, what a MIDI file holds",
    )  # fmt: skip
    events: int | None = setting(
        int, None, LENGTH, "length in events instead of seconds", low=0, choose="0 or more"
    )
    seed: int = setting(int, 0, DRAWN, "another seed, another result")
    context: int | None = setting(
        int, None, DRAWN, "events the model reads at once (default: its own)"
    )
    primer_seconds: float | None = setting(
        float, None, PRIMER, "read only its last part",
        above=0, choose="more than 0, or leave it out",
    )  # fmt: skip
    keep_silence: bool = setting(bool, False, PRIMER, "keep the time before its first note")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.seconds is not None and self.events is not None:
            raise ConfigError(
                f"seconds={self.seconds:g} and events={self.events}; choose one of them."
            )

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


def settings_of(given: Mapping[str, Any]) -> Settings:
    """The settings of some keywords: fields, ``settings`` whole, or both, fields first.

    Raises:
        ConfigError: a value outside its range.
    """
    fields_given = dict(given)
    whole: Settings = fields_given.pop("settings", Settings())
    return replace(whole, **fields_given)


def _check(name: str, value: Any, known: Mapping[str, Any]) -> None:
    """Refuse a value outside the limits of its field.

    Raises:
        ConfigError: naming value and limits.
    """
    if value is None or "choose" not in known:
        return
    low, high, above = (known.get(key) for key in ("low", "high", "above"))
    within = (
        (low is None or value >= low)
        and (high is None or value <= high)
        and (above is None or value > above)
        and value < math.inf
    )
    if not within and not (known.get("endless") and value == math.inf):
        raise ConfigError(f"{name}={value:g}; choose {known['choose']}.")


#: What holds where neither the call nor the checkpoint says anything.
DEFAULT_SAMPLING = Sampling(**{one.name: one.metadata.get("otherwise") for one in fields(Sampling)})
