"""What depends on the kind of music, behind one abstract class.

A `Representation` says how notes become ids and back, which id may come next, what a primer is, how
a piece is cropped and transposed for training, how a split is measured and which counts a model has
to beat. Data, training, evaluation, generation and the page ask it, and never which kind it is; a
new kind is one module and one line of `registry`. An answer that is missing is an error when the
kind is registered.
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


@dataclass(frozen=True)
class Primer:
    """The ids to continue, START not among them.

    `begin` and `end` are the seconds between which they lie in the notes they were read from; where
    they are equal, `read_primer` counts the end from the ids.
    """

    ids: list[int]
    first_place: int = 0  # index of the first id in its piece; the START before it has this place
    seconds_per_beat: float = DEFAULT_SECONDS_PER_BEAT  # the last, where time is counted in beats
    begin: float = 0.0
    end: float = 0.0


@dataclass(frozen=True)
class Limits:
    """How long a continuation is to be: seconds or events, None for open; and its longest note.

    It may take `ending_seconds` more to come to an end; with 0 it is cut.
    """

    seconds: float | None = None
    events: int | None = None
    ending_seconds: float = 0.0
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

    Attributes:
        wanted: how many events are asked for, None where time decides or nothing does.
        long_notes_closed: notes that were ended because they had lasted as long as a note may.
        notes_cut: notes that `closing` ended.
        rings: whether no note begins any more.
    """

    wanted: int | None = None
    rings: bool = False
    long_notes_closed: int = 0
    notes_cut: int = 0

    @property
    @abstractmethod
    def finished(self) -> bool:
        """Whether the end asked for, in time, is reached."""

    @property
    @abstractmethod
    def seconds(self) -> float:
        """The time since the primer."""

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
    """Music of one kind as ids. Instances are frozen, hashable and cheap.

    Attributes:
        kind: its name in ``config.json`` and ``meta.json``.
        pad, start, end: the ids of PAD, START and END.
        crop_step: crops begin, and music ends, at a multiple of so many ids: 1 is anywhere.
        voices: names of the voices of a grid, in the order of its columns; () for other music.
        has_melody: whether a piece is a melody, which the model is given, and events to it.
        keeps_silence: whether the rest before the first note is part of a prepared piece.
        stretches: factors of time that training draws from; () where time is not changed.
        opens_plain: whether `plain_crop` and `gapped_crop` are there.
        has_seam: whether the measures of `evaluation.seam` say how well its music goes on.
        accompanied: names of the tracks that `accompany` writes; () where nothing is accompanied.
    """

    kind: ClassVar[str]
    pad: ClassVar[int]
    start: ClassVar[int]
    end: ClassVar[int]
    crop_step: ClassVar[int]
    voices: ClassVar[tuple[str, ...]] = ()
    has_melody: ClassVar[bool] = False
    keeps_silence: ClassVar[bool] = False
    stretches: ClassVar[tuple[float, ...]] = ()
    opens_plain: ClassVar[bool] = False
    has_seam: ClassVar[bool] = False
    accompanied: ClassVar[tuple[str, ...]] = ()

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

        `seconds_per_beat` is for kinds that count time in beats.

        Raises:
            TokenError: an id outside the vocabulary, named with its position.
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
        """The note of each id, and the first id of each note.

        Raises:
            TokenError: an id outside the vocabulary.
        """

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
        """A crop that is a piece of its own and opens as a user's motif does; see `opens_plain`.

        Returns:
            At most `length` ids from START on, and how many of its events are the opening.
        """
        raise NotImplementedError

    def gapped_crop(
        self, piece: IdArray, place: int, length: int, factor: float, random: np.random.Generator
    ) -> tuple[IdArray, int]:
        """A crop with its later part told before it, to learn in-filling; see `opens_plain`.

        Returns:
            At most `length` ids, and how many of them are told.
        """
        raise NotImplementedError

    @abstractmethod
    def transpositions(self, events: IdArray, meta: Mapping[str, Any]) -> list[int]:
        """The semitones by which a piece may be moved for training, 0 always.

        Args:
            events: (N,) without START and END.
            meta: of the prepared data, what `describe_training` gave among it.
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
        """Groups of events, by their index in the piece, whose mean loss is reported.

        Named as the `voices`, each of them, and as fields of `evaluation.NllReport`.
        """
        return {}

    @abstractmethod
    def baselines(self, train: Sequence[IdArray], pieces: Sequence[IdArray]) -> dict[str, float]:
        """What counts on `train` reach on `pieces`, nats per event by name, weakest first.

        Args:
            train, pieces: each START ... END.

        Raises:
            DatasetError: one of them holds no events.
        """

    # Generation

    def read_primer(
        self,
        primer: NoteSequence | Sequence[int] | None,
        *,
        last_seconds: float | None = None,
        keep_silence: bool = False,
    ) -> Primer:
        """The ids of a primer in the form the model reads: notes, ids, or nothing.

        - The primer lasts to its last event: a closing rest counts.
        - A note that sounds at a cut begins there; a note of given ids that has no end yet stays
          open to the model.
        - Leading silence goes, the cut part's too, unless `keep_silence`.
        - PAD, START and END among given ids are skipped.
        - `last_seconds` keeps only so much of its end.

        Raises:
            MidiError: notes without a note, in all or in the part kept.
            TokenError: ids outside the vocabulary.
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
    ) -> Primer:
        """`read_primer` of something."""

    @abstractmethod
    def grammar(self, primer: Primer, limits: Limits) -> Grammar:
        """The grammar of one sample, the primer read."""

    def continuation(self, primer: Primer, new: Sequence[int]) -> NoteSequence:
        """The notes of new ids alone, in the state in which the primer leaves them."""
        return self.decode(new, seconds_per_beat=primer.seconds_per_beat)

    def split_opening(
        self, notes: NoteSequence, *, seconds: float, events: int
    ) -> tuple[list[int], list[int]]:
        """The ids of the first `seconds` of a piece, and the `events` ids after them.

        Counted from the first note. A rest that goes on past the cut is parted in two. A grid is
        cut between its steps, and its events are rounded up to whole steps.

        Raises:
            MidiError: the piece has no notes, or fewer events than asked for.
            ConfigError: no length to speak of.
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
        """The ids without PAD, START and END.

        Raises:
            TokenError: an id outside the vocabulary, named with its position.
        """
        special = {self.pad, self.start, self.end}
        return [i for i in check_ids(ids, self.vocab_size).tolist() if i not in special]


def note_index(owner: list[int], onsets: list[tuple[int, int, int, int]]) -> NoteIndex:
    """The index of notes that were numbered as they came.

    `owner` is the number of the note that each id is part of, -1 for none; `onsets` time, pitch and
    voice of each note, and the index of its first id.
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
