"""Every setting of what is drawn: its default, its limits and its words, stated here and only here.

Flags, keywords, checkpoints and the page's sliders are derived from the fields. What a number does
to a distribution is in `generation/processors.py`: another knob is one field here, one processor
there.
"""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from numbers import Integral, Real
from typing import Any, Self

from music_transformer.errors import ConfigError

DEFAULT_SECONDS = 30.0
MOST_CANDIDATES = 64
LONGEST_SECONDS = 250_000.0  # a MIDI file holds 2**28 ticks, which are milliseconds
MOST_EVENTS = 1_000_000  # hours of music, days of composing
MOST_SAMPLES = 1000  # files of one command

MOST_ENDING, MOST_ENDING_SECONDS = 0.25, 10.0  # of the length asked for: what an end may take

LENGTH, DRAWN, CARE, PRIMER = "how much", "how it is drawn", "when a model gets stuck", "the primer"
ENDING = "how it ends"
CHOICE, WISH = "which is kept", "what is asked for (performances)"

ASKED_FOR = ("key", "low", "high", "pace", "loudness", "voices")
CALM, BOLD = (0.9, 0.9), (1.1, 0.98)  # temperature, top-p
LOUDNESS = {"pp": 36, "p": 48, "mp": 60, "mf": 72, "f": 88, "ff": 104}  # mean velocity
ENDS = ("close", "cut")
#: Semitones above the tonic; of minor both sevenths.
SCALES = {"major": (0, 2, 4, 5, 7, 9, 11), "minor": (0, 2, 3, 5, 7, 8, 10, 11)}
_KINDS = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}
_TYPES = {int: Integral, float: Real, str: str, bool: bool}
_LETTERS = {"C": 0, "D": 2, "E": 4, "F": 5, "G": 7, "A": 9, "B": 11}
_ACCIDENTALS = {"": 0, "#": 1, "b": -1}


def read_pitch(text: str) -> int:
    """The MIDI pitch of a name such as F#3 (C4 is 60), or of its number; else ConfigError."""
    named = re.fullmatch(r"([A-Ga-g])([#b]?)(-?\d)", text)
    if named:
        letter, accidental, octave = named.groups()
        pitch = _LETTERS[letter.upper()] + _ACCIDENTALS[accidental] + 12 * (int(octave) + 1)
    else:
        pitch = int(text) if re.fullmatch(r"\d{1,3}", text) else -1
    if not 0 <= pitch <= 127:
        raise ConfigError("a note such as C3 or F#5, from C-1 to G9, or its number, 0 to 127.")
    return pitch


def read_key(text: str) -> tuple[int, str]:
    """Tonic, 0 to 11, and mode, major or minor, of a key such as "F# minor"; else ConfigError."""
    named = re.fullmatch(r"([A-Ga-g])([#b]?)\s*(major|maj|minor|min|m)?", text.strip())
    if named is None:
        raise ConfigError("a key such as 'F# minor' or 'Bb major', motif, or none.")
    letter, accidental, mode = named.groups()
    tonic = (_LETTERS[letter.upper()] + _ACCIDENTALS[accidental]) % 12
    return tonic, "minor" if mode in ("minor", "min", "m") else "major"


def _one_of(text: str, known: Iterable[str]) -> None:
    if text not in known:
        raise ConfigError(f"one of {', '.join(known)}.")


def setting(kind: type, default: Any, group: str, text: str, **more: Any) -> Any:
    """A field with what is to know of it.

    Args:
        kind: float, int, str or bool.
        group: the heading under which its flag is listed.
        text: the flag's help.
        more: ``low`` or ``above`` (exclusive), ``high`` and ``endless`` (inf is a value, too) limit
            a number; ``choose`` says them in an error; ``read`` checks a text; ``otherwise`` holds
            where nobody says anything; ``metavar`` is the flag's; ``slider`` (low, high, step) puts
            it on the page.
    """
    return field(default=default, metadata={"kind": kind, "group": group, "text": text, **more})


@dataclass(frozen=True)
class Sampling:
    """How events are drawn; None leaves it open.

    Who calls says what they want, a checkpoint (``"sampling"`` in its config.json) what suits it,
    and the field's ``otherwise`` holds where both leave it open. ConfigError for a value outside
    its range.
    """

    temperature: float | None = setting(
        float, None, DRAWN, "below 1 safer, above 1 wilder, 0 always the likeliest event",
        low=0, high=5, choose="0 (argmax) to 5", otherwise=1.0, slider=(0.5, 1.5, 0.01),
    )  # fmt: skip
    top_k: int | None = setting(
        int, None, DRAWN, "only the K likeliest events",
        low=1, high=1000, choose="1 or more, up to 1000, or leave it out", metavar="K",
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
    # docs/piano.md says what it gives, and why not more.
    closeness: float | None = setting(
        float, None, DRAWN,
        "performances: how strongly pace, polyphony, register and loudness are drawn back to the "
        "motif's; 0 leaves the model alone",
        low=0, high=4, otherwise=1.0, slider=(0, 2, 0.1),
    )  # fmt: skip
    hold_seconds: float | None = setting(
        float, None, CARE,
        "from this age on the end of a note grows likelier, in proportion to its age (default: "
        "what the checkpoint says, else left to the model, as inf does)",
        above=0, high=LONGEST_SECONDS, endless=True, metavar="S",
        choose=f"more than 0, up to {LONGEST_SECONDS:g}, or inf to leave the model alone",
    )  # fmt: skip
    max_note_seconds: float | None = setting(
        float, None, CARE, "close a note that has lasted so long",
        low=0.1, high=LONGEST_SECONDS, otherwise=20.0, metavar="S",
    )  # fmt: skip
    # docs/accompaniment.md says what it gives.
    in_time: float | None = setting(
        float, None, DRAWN,
        "a piano to a melody in strict time: by how many nats moving to a half beat, or to a note "
        "of the melody, is likelier than the model has it; 0 leaves the model alone",
        low=0, high=10, otherwise=1.0, metavar="NATS",
    )  # fmt: skip
    # docs/piano.md says what both give.
    candidates: int | None = setting(
        int, None, CHOICE,
        "draw N continuations side by side for each sample and keep the one that stays closest to "
        "the motif; of a performance (else 1)",
        low=1, high=MOST_CANDIDATES, otherwise=4, metavar="N",
    )  # fmt: skip
    resample: int | None = setting(
        int, None, CHOICE, "draw again what degenerates, up to N times",
        low=0, high=1000, otherwise=2, metavar="N",
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
        """What a JSON object says; ConfigError for an unknown key, or a value that will not do."""
        known = {one.name: one.metadata["kind"] for one in fields(cls)}
        for name, value in values.items():
            if name not in known:
                raise ConfigError(f"{name!r} is unknown; known are {', '.join(known)}.")
            if value is None:  # here what is left open is left out
                raise ConfigError(f"{name}=None; give {_KINDS[known[name]]}, or leave it out.")
        return cls(**values)


@dataclass(frozen=True)
class Settings(Sampling):
    """What only a call can say of a continuation or an accompaniment.

    The length is in seconds or in events past the primer's end; with neither it is
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
        int, None, LENGTH, "length in events instead of seconds", low=0, high=MOST_EVENTS
    )
    # docs/piano.md and docs/chorales.md say how often it succeeds.
    end: str = setting(
        str, "close", ENDING,
        "close: past the length in seconds, by a quarter and 10 s at most, the music comes to an "
        "end; cut: it stops there",
        read=lambda text: _one_of(text, ENDS), metavar="{close,cut}",
    )  # fmt: skip
    seed: int = setting(
        int, 0, DRAWN, "another seed, another result", low=-(2**63), high=2**63 - 1,
        choose="a whole number of 64 bits",
    )  # fmt: skip
    context: int | None = setting(
        int, None, DRAWN, "events the model reads at once (default: its own)",
        low=2, high=MOST_EVENTS,
    )  # fmt: skip
    primer_seconds: float | None = setting(
        float, None, PRIMER, "read only its last part",
        above=0, high=LONGEST_SECONDS,
        choose=f"more than 0, up to {LONGEST_SECONDS:g}, or leave it out",
    )  # fmt: skip
    keep_silence: bool = setting(bool, False, PRIMER, "keep the time before its first note")

    key: str | None = setting(
        str, None, WISH, "a key such as 'F# minor', or motif: notes outside it become rare",
        read=lambda text: text in ("motif", "none") or read_key(text),
    )  # fmt: skip
    low: str | None = setting(str, None, WISH, "the lowest note, such as C3", read=read_pitch)
    high: str | None = setting(str, None, WISH, "the highest note, such as C6", read=read_pitch)
    pace: float | None = setting(
        float, None, WISH, "notes a second, in those of the motif: 0.5 is half as many",
        low=0.25, high=4, choose="0.25 to 4 times that of the motif", metavar="FACTOR",
    )  # fmt: skip
    loudness: str | None = setting(
        str, None, WISH, f"one of {', '.join(LOUDNESS)}", read=lambda text: _one_of(text, LOUDNESS)
    )
    voices: int | None = setting(
        int, None, WISH, "notes that sound at a time, at most", low=1, high=88, metavar="N"
    )  # fmt: skip
    calm: bool = setting(
        bool, False, WISH,
        f"temperature {CALM[0]:g} and top-p {CALM[1]:g}, where they are not given",
    )  # fmt: skip
    bold: bool = setting(
        bool, False, WISH,
        f"temperature {BOLD[0]:g} and top-p {BOLD[1]:g}, where they are not given",
    )  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.low and self.high and read_pitch(self.low) > read_pitch(self.high):
            raise ConfigError(f"low={self.low} is above high={self.high}; exchange them.")
        if self.calm and self.bold:
            raise ConfigError("calm and bold; choose one of them.")
        if self.seconds is not None and self.events is not None:
            raise ConfigError(
                f"seconds={self.seconds:g} and events={self.events}; choose one of them."
            )

    @property
    def mood(self) -> Sampling:
        """What `calm` and `bold` stand for."""
        if not (self.calm or self.bold):
            return Sampling()
        temperature, top_p = CALM if self.calm else BOLD
        return Sampling(temperature=temperature, top_p=top_p)

    @property
    def length_seconds(self) -> float | None:
        """Seconds asked for; None when events are."""
        if self.events is None and self.seconds is None:
            return DEFAULT_SECONDS
        return self.seconds

    @property
    def ending_seconds(self) -> float:
        """What an end may take past the seconds asked for; 0 where music is cut, or never ends."""
        seconds = self.length_seconds
        if self.end == "cut" or seconds is None or math.isinf(seconds):
            return 0.0
        return min(MOST_ENDING * seconds, MOST_ENDING_SECONDS)

    @property
    def asked(self) -> float:
        """The length asked for, in seconds or in events."""
        seconds = self.length_seconds
        return float(self.events or 0) if seconds is None else seconds


def settings_of(given: Mapping[str, Any]) -> Settings:
    """The settings of some keywords: fields, ``settings`` whole, or both, fields first."""
    fields_given = dict(given)
    whole: Settings = fields_given.pop("settings", Settings())
    return replace(whole, **fields_given)


def check_count(name: str, count: int) -> None:
    """Refuse, with ConfigError, a number of samples outside 1 to `MOST_SAMPLES`."""
    if not 1 <= count <= MOST_SAMPLES:
        raise ConfigError(f"{name}={count}; choose 1 to {MOST_SAMPLES}.")


def _check(name: str, value: Any, known: Mapping[str, Any]) -> None:
    """Refuse a value of another kind, or outside the limits of its field."""
    if value is None:
        return
    kind = known["kind"]
    if not isinstance(value, _TYPES[kind]) or (isinstance(value, bool) and kind is not bool):
        raise ConfigError(f"{name}={value!r:.40}; give {_KINDS[kind]}, or leave it out.")
    if kind is str:
        try:
            known["read"](value)
        except ConfigError as error:
            raise ConfigError(f"{name}={value}; choose {error}") from None
    elif kind is not bool:
        above = known.get("above")
        low, high = known.get("low", above), known["high"]
        endless = known.get("endless") and value == math.inf
        if not ((low <= value <= high and value != above) or endless):
            choice = known.get("choose", f"{low:,.10g} to {high:,.10g}")
            shown = f"{value:g}" if isinstance(value, float) else str(value)[:40]
            raise ConfigError(f"{name}={shown}; choose {choice}.")


#: What holds where neither the call nor the checkpoint says anything.
DEFAULT_SAMPLING = Sampling(**{one.name: one.metadata.get("otherwise") for one in fields(Sampling)})
