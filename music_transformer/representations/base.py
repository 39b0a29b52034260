"""What depends on the kind of music, behind one abstract class.

All other rooms ask a `Representation`, and never which kind it is; a new kind is one module that
registers it. An answer that is missing is an error there.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from music_transformer.errors import ConfigError, MidiError
from music_transformer.notes import NoteSequence
from music_transformer.representations.ids import IdArray, Ids, Ints, Mask, check_ids

DEFAULT_SECONDS_PER_BEAT = 0.75  # 80 beats a minute, for music without a tempo of its own
LONGEST_NOTE_SECONDS = 20.0
LONGEST_CLOSING_REST_SECONDS = 3600.0

REPRESENTATIONS: dict[str, type[Representation]] = {}  # by kind, each registered by its module


@dataclass(frozen=True)
class Primer:
    """The ids to continue, without START, from second `begin` to `end` of what they are read from.

    Where these are equal, `read_primer` counts the end from the ids.
    """

    ids: list[int]
    first_place: int = 0  # index of the first id in its piece; the START before it has this place
    seconds_per_beat: float = DEFAULT_SECONDS_PER_BEAT  # the last, where time is counted in beats
    begin: float = 0.0
    end: float = 0.0


@dataclass(frozen=True)
class Limits:
    """How long a continuation is to be, None for open, and its longest note."""

    seconds: float | None = None
    events: int | None = None
    ending_seconds: float = 0.0  # more that it may take to come to an end; with 0 it is cut
    note_seconds: float = LONGEST_NOTE_SECONDS


class NoteIndex(NamedTuple):
    """Ids and the rows of ``decode(ids)``."""

    note: Ints  # (N,) the row that each id is part of, -1 for none
    onset: Ints  # (M,) the index of the id with which each row begins


class Grammar(ABC):
    """What may come next in one sample, so that whatever is drawn is valid and canonical.

        while more is wanted:
            id = grammar.clip(draw(logits where grammar.mask()))
            grammar.advance(id)
        ids += grammar.closing()

    No state is a dead end: the mask always allows an id, whatever the primer was.
    """

    wanted: int | None = None  # events; None where time decides or nothing does
    rings: bool = False  # no note begins any more
    long_notes_closed: int = 0  # because they had lasted as long as a note may
    notes_cut: int = 0  # that `closing` ended

    @property
    @abstractmethod
    def finished(self) -> bool:
        """Whether the end asked for, in time, is reached."""

    @property
    @abstractmethod
    def seconds(self) -> float:
        """Since the primer."""

    def read(self, ids: Iterable[int]) -> None:
        """Follow the ids of a primer."""
        for event_id in ids:
            self.advance(event_id)

    @abstractmethod
    def mask(self, remaining: int | None = None) -> Mask:
        """(V,) bool, True = may come next of the `remaining` events; valid until the next call."""

    @abstractmethod
    def clip(self, event_id: int) -> int:
        """The id itself, or the nearest that stays within the limits of time."""

    @abstractmethod
    def advance(self, event_id: int) -> None:
        """Follow one id, drawn or of the primer."""

    @property
    def given(self) -> int | None:
        """The next id, where it is not to be drawn."""
        return None

    @property
    def ending(self) -> float | None:
        """How much of the time for coming to an end is over, 0 to 1; None before it."""
        return None

    @abstractmethod
    def closing(self) -> list[int]:
        """The ids that end what still sounds, followed too."""

    @property
    def ages(self) -> Ints | None:
        """(128,) steps of 10 ms that each pitch has sounded, -1 for silence; None: notes just end.

        Where it is given, NOTE_OFF and TIME_SHIFT have the ids of the performance vocabulary.
        """
        return None

    @property
    def chords(self) -> tuple[list[int], list[int]] | None:
        """Ids of the last whole chord, by voice, and those of the next up to now; None without."""
        return None


class Representation(ABC):
    """Music of one kind as ids. Instances are frozen, hashable and cheap."""

    kind: ClassVar[str]  # its name in config.json and meta.json
    pad: ClassVar[int]
    start: ClassVar[int]
    end: ClassVar[int]
    crop_step: ClassVar[int]  # crops begin, and music ends, at a multiple of so many ids
    voices: ClassVar[tuple[str, ...]] = ()  # of a grid, in the order of its columns
    has_melody: ClassVar[bool] = False  # a piece is a melody, which the model is given, and events
    keeps_silence: ClassVar[bool] = False  # the rest before the first note is part of a piece
    stretches: ClassVar[tuple[float, ...]] = ()  # factors of time that training draws from
    opens_plain: ClassVar[bool] = False  # `plain_crop` and `gapped_crop` are there
    has_seam: ClassVar[bool] = False  # `evaluation.seam` says how well its music goes on
    accompanied: ClassVar[tuple[str, ...]] = ()  # names of the tracks that `accompany` writes

    @property
    @abstractmethod
    def vocab_size(self) -> int:
        """V, the number of ids, PAD, START and END among them."""

    @abstractmethod
    def to_config(self) -> dict[str, Any]:
        """What `representation_from_config` needs to make an equal one."""

    def events_config(self) -> dict[str, Any]:
        """The same for its events alone: another kind where `has_melody`."""
        return self.to_config()

    # Notes and ids

    def encode(self, notes: NoteSequence, *, keep_silence: bool = True) -> list[int]:
        """`encode_array` as a list."""
        ids: list[int] = self.encode_array(notes, keep_silence=keep_silence).tolist()
        return ids

    @abstractmethod
    def encode_array(self, notes: NoteSequence, *, keep_silence: bool = True) -> NDArray[np.uint16]:
        """The canonical ids of the notes (N,), with the time before the first note or without."""

    @abstractmethod
    def decode(
        self, ids: Ids, *, seconds_per_beat: float = DEFAULT_SECONDS_PER_BEAT
    ) -> NoteSequence:
        """The notes of any sequence of known ids; PAD, START and END are skipped.

        `seconds_per_beat` is for kinds that count time in beats. Raises TokenError at an id outside
        the vocabulary, named with its position, as all that read ids do.
        """

    def decode_grid(self, ids: Ids) -> Ints | None:
        """(T, n) pitches of the n `voices`, -1 for silence; None where there are no voices."""
        return None

    @abstractmethod
    def symbols(self, ids: Ids) -> list[str]:
        """The name of each id's event."""

    @abstractmethod
    def duration_seconds(
        self, ids: Ids, *, seconds_per_beat: float = DEFAULT_SECONDS_PER_BEAT
    ) -> float:
        """How long the ids last."""

    def seconds_per_beat(self, notes: NoteSequence) -> float:
        """The beat of the notes, as `decode` takes it."""
        return DEFAULT_SECONDS_PER_BEAT

    @abstractmethod
    def note_of_event(self, ids: Ids) -> NoteIndex:
        """The note of each id, and the first id of each note."""

    # Training and evaluation

    def crop(self, piece: IdArray, place: int, length: int, factor: float) -> IdArray:
        """At most `length` ids of a piece, START ... END, from `place` on, for training.

        The piece is played `factor` times as long; 1 where there are no `stretches`.
        """
        assert factor == 1, factor
        return piece[place : place + length]

    def plain_crop(
        self, piece: IdArray, place: int, length: int, factor: float, random: np.random.Generator
    ) -> tuple[IdArray, int]:
        """At most `length` ids from START on, a piece of its own that opens as a user's motif does;
        and how many of its events are the opening. See `opens_plain`.
        """
        raise NotImplementedError

    def gapped_crop(
        self, piece: IdArray, place: int, length: int, factor: float, random: np.random.Generator
    ) -> tuple[IdArray, int]:
        """At most `length` ids, a crop with its later part told before it, to learn in-filling; and
        how many of them are told. See `opens_plain`.
        """
        raise NotImplementedError

    @abstractmethod
    def transpositions(self, events: IdArray, meta: Mapping[str, Any]) -> list[int]:
        """The semitones by which events (N,), a piece, may be moved for training, 0 always.

        `meta` is that of the prepared data, what `describe_training` gave among it.
        """

    @abstractmethod
    def transposed(self, ids: IdArray, semitones: int) -> IdArray:
        """The ids with every pitch moved; the caller keeps pitches inside 0..127."""

    def describe_training(self, pieces: Sequence[IdArray]) -> dict[str, Any]:
        """What prepared data keep about the events of their training pieces, as JSON values."""
        return {}

    @abstractmethod
    def evaluation_stride(self, context: int) -> int:
        """How far one window of an evaluation lies behind the next, in events."""

    def loss_groups(self, place: Ints) -> dict[str, Mask]:
        """Groups of events, by their index in the piece, whose mean loss is reported: the `voices`,
        and fields of `evaluation.NllReport`.
        """
        return {}

    @abstractmethod
    def baselines(self, train: Sequence[IdArray], pieces: Sequence[IdArray]) -> dict[str, float]:
        """What counts on `train` reach on `pieces`, nats per event by name, weakest first.

        Pieces are START ... END. Raises DatasetError where there are no events.
        """

    # Generation

    def read_primer(
        self,
        primer: NoteSequence | Sequence[int] | None,
        *,
        last_seconds: float | None = None,
        keep_silence: bool = False,
    ) -> Primer:
        """The ids of a primer (notes, ids, or nothing) in the form the model reads.

        A closing rest counts; leading silence goes unless `keep_silence`; `last_seconds` keeps only
        so much of its end. A note that sounds at that cut begins there; a note of given ids that
        has no end yet stays open to the model.

        Raises:
            MidiError: notes without a note, in all or in the part kept.
            ConfigError: music of this kind is not continued.
        """
        if primer is None:
            return Primer([])
        if isinstance(primer, NoteSequence) and not len(primer):
            raise MidiError("the primer has no notes: give one that has, or leave it out.")
        found = self._read_primer(primer, last_seconds, keep_silence)
        if found.end == found.begin:  # it said nothing of time
            seconds = self.duration_seconds(found.ids, seconds_per_beat=found.seconds_per_beat)
            found = replace(found, end=found.begin + seconds)
        return found

    @abstractmethod
    def _read_primer(
        self, primer: NoteSequence | Sequence[int], last_seconds: float | None, keep_silence: bool
    ) -> Primer: ...

    @abstractmethod
    def grammar(self, primer: Primer, limits: Limits) -> Grammar:
        """The grammar of one sample, the primer read."""

    def continuation(self, primer: Primer, new: Sequence[int]) -> NoteSequence:
        """The notes of new ids alone, in the state in which the primer leaves them."""
        return self.decode(new, seconds_per_beat=primer.seconds_per_beat)

    def split_opening(
        self, notes: NoteSequence, *, seconds: float, events: int
    ) -> tuple[list[int], list[int]]:
        """The ids of the first `seconds` of a piece, from its first note, and `events` ids after.

        A rest that goes on past the cut is parted in two. A grid is cut between its steps, and its
        events are rounded up to whole steps. Raises MidiError where the piece has too few.
        """
        if not (seconds > 0 and math.isfinite(seconds) and events > 0):
            raise ConfigError(
                f"an opening of {seconds:g} s and {events} events: choose more than 0."
            )
        if not len(notes):
            raise MidiError("no notes in it.")
        events += -events % self.crop_step
        opening, after = self._split_at(self.encode(notes, keep_silence=False), seconds)
        if len(after) < events:
            raise MidiError(
                f"{len(after)} events after its first {seconds:g} s, {events} are needed: take a "
                "longer piece, or ask for less."
            )
        return opening, after[:events]

    @abstractmethod
    def _split_at(self, ids: list[int], seconds: float) -> tuple[list[int], list[int]]:
        """The ids of the first seconds, and the rest."""

    def events_of(self, ids: Ids) -> list[int]:
        """The ids without PAD, START and END."""
        special = {self.pad, self.start, self.end}
        return [i for i in check_ids(ids, self.vocab_size).tolist() if i not in special]


def note_index(owner: list[int], onsets: list[tuple[int, int, int, int]]) -> NoteIndex:
    """The index of notes that were numbered as they came: `owner` is the number of each id's note,
    -1 for none; `onsets` time, pitch and voice of each note, and the index of its first id.
    """
    order = sorted(range(len(onsets)), key=lambda number: onsets[number][:3])
    row = np.empty(len(onsets) + 1, dtype=np.int64)
    row[order] = np.arange(len(onsets))  # the rows of a NoteSequence are sorted
    row[-1] = -1
    first = np.array([onsets[number][3] for number in order], dtype=np.int64)
    return NoteIndex(row[np.array(owner, dtype=np.int64)], first)


def check_closing_rest(seconds: float) -> None:
    """Raise MidiError where a primer ends with a rest that nobody meant."""
    if seconds > LONGEST_CLOSING_REST_SECONDS:
        raise MidiError(f"the primer ends with a rest of {seconds:.0f} s: cut the silence.")


def no_note_in(seconds: float) -> MidiError:
    """The error of a primer whose part to keep is silent."""
    return MidiError(
        f"the last {seconds:g} s of the primer have no note: keep more of it (--primer-seconds)."
    )


def register(representation: type[Representation]) -> None:
    """Make a kind known to all rooms; TypeError if it leaves a question open."""
    constants = ("kind", "pad", "start", "end", "crop_step")
    missing = sorted(representation.__abstractmethods__)
    missing += [name for name in constants if not hasattr(representation, name)]
    if missing:
        raise TypeError(f"{representation.__name__} does not define {', '.join(missing)}.")
    REPRESENTATIONS[representation.kind] = representation


def representation_from_config(config: Mapping[str, Any]) -> Representation:
    """The representation whose `to_config` gave the mapping: what checkpoints and data keep."""
    settings = dict(config)
    kind = settings.pop("kind", None)
    if kind not in REPRESENTATIONS:
        raise ConfigError(
            f"tokenizer kind={kind!r} is unknown; try one of {sorted(REPRESENTATIONS)}."
        )
    known = REPRESENTATIONS[kind]().to_config().keys() - {"kind"}
    unknown = sorted(settings.keys() - known)
    if unknown:
        raise ConfigError(
            f"the {kind} tokenizer does not know {unknown[0]!r}; it knows {sorted(known)}."
        )
    return REPRESENTATIONS[kind](**settings)
