"""How much of a continuation stands in the training data, by the pitch intervals of its notes.

A run of notes stands there where each of its n-grams of intervals is in a Bloom filter of those of
all training pieces; docs/piano.md says what that can tell. The file is safetensors: ``bits`` (M,)
uint8, bit b of the filter is bit b % 8 of byte b // 8, and numbers as metadata.

Source: Bloom 1970, "Space/time trade-offs in hash coding with allowable errors". The measure is our
own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from music_transformer.errors import CheckpointError, DatasetError
from music_transformer.files import atomic_path
from music_transformer.notes import STEPS_PER_SECOND, NoteSequence
from music_transformer.representations.ids import Ints, Mask

INDEX_FILE = "memorisation.safetensors"
FORMAT = "1"
NGRAM_INTERVALS = 12
LEAST_HITS = 3  # by chance less than one in a million places
COMMON_INTERVALS = 2  # a scale has two sizes of interval, a trill one, a chromatic run one
SIZE_BYTES = 5_000_000
TOGETHER_SECONDS = 0.02

Hashes = npt.NDArray[np.uint64]

_INTERVAL_ZERO = 128  # intervals are -127..127; added, they are positive


@dataclass(frozen=True)
class KnownRun:
    """The longest run of notes that also stands in training."""

    notes: int  # 0 where none is as long as the index can tell
    shortest: int  # notes of the shortest run that it can tell
    start: float = 0.0  # seconds, the onset of its first note
    end: float = 0.0  # that of its last

    def __str__(self) -> str:
        if not self.notes:
            return (
                f"no {self.shortest} notes in a row also stand in the training data (scales and "
                "trills aside)"
            )
        return (
            f"{self.notes} notes in a row, {self.start:.1f} to {self.end:.1f} s after the primer, "
            "also stand in the training data (in this key or another)"
        )


@dataclass(frozen=True, eq=False)
class MemorisationIndex:
    """Which n-grams of intervals stand in the training data."""

    bits: npt.NDArray[np.uint8]  # (M,)
    n: int  # intervals in an n-gram
    hashes: int  # places for each
    grams: int  # how many different ones were entered
    data: str  # checksum of the prepared data they are from

    @classmethod
    def build(
        cls,
        pieces: Iterable[NoteSequence],
        *,
        n: int = NGRAM_INTERVALS,
        size_bytes: int = SIZE_BYTES,
        data: str = "",
    ) -> MemorisationIndex:
        """The index of some pieces, with as many places per n-gram as give the fewest errors.

        Raises:
            DatasetError: no piece is as long as an n-gram.
        """
        every = [_hashes(intervals(notes), n) for notes in pieces]
        grams = np.unique(np.concatenate([np.empty(0, np.uint64), *every]))
        if not len(grams):
            raise DatasetError(f"no piece has more than {n} notes: there is nothing to index.")
        hashes = max(1, round(8 * size_bytes / len(grams) * math.log(2)))
        index = cls(np.zeros(size_bytes, np.uint8), n, hashes, len(grams), data)
        for place in index._places(grams):  # (N,) each
            byte, bit = np.divmod(place, np.uint64(8))
            np.bitwise_or.at(index.bits, byte, np.left_shift(1, bit).astype(np.uint8))
        return index

    @classmethod
    def load(cls, path: Path) -> MemorisationIndex:
        """The index in a file; CheckpointError where it is no such file, or of a later format."""
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(path, framework="numpy") as file:
                about = file.metadata() or {}
                if about.get("format") != FORMAT:
                    raise CheckpointError(
                        f"{path}: memorisation index of format {about.get('format')}, expected "
                        f"{FORMAT}; restore it, or delete it to go without."
                    )
                return cls(
                    file.get_tensor("bits"),
                    n=int(about["n"]),
                    hashes=int(about["hashes"]),
                    grams=int(about["grams"]),
                    data=about["data"],
                )
        except (SafetensorError, OSError, KeyError, ValueError) as error:
            raise CheckpointError(
                f"{path}: no memorisation index ({error}); restore it, or delete it to go without."
            ) from error

    def save(self, path: Path) -> None:
        """Write the file."""
        from safetensors.numpy import save

        about = {name: str(getattr(self, name)) for name in ("n", "hashes", "grams", "data")}
        with atomic_path(path) as temporary:
            temporary.write_bytes(save({"bits": self.bits}, metadata={"format": FORMAT, **about}))

    @property
    def shortest_run(self) -> int:
        """Notes of the shortest run that can be told."""
        return self.n + LEAST_HITS

    @property
    def false_alarm_rate(self) -> float:
        """Expected share of unknown n-grams that seem known."""
        return float(np.unpackbits(self.bits).sum() / (8 * len(self.bits))) ** self.hashes

    def known(self, steps: Ints) -> Mask:
        """For each n-gram of intervals (N,), whether it stands in training: (N - n + 1,)."""
        found = np.ones(max(len(steps) - self.n + 1, 0), dtype=bool)
        for place in self._places(_hashes(steps, self.n)):
            byte, bit = np.divmod(place, np.uint64(8))
            found &= np.right_shift(self.bits[byte], bit.astype(np.uint8)) & 1 == 1
        return found

    def longest_run(self, notes: NoteSequence) -> KnownRun:
        """The longest run of these notes in training."""
        order = _order(notes)
        steps = np.diff(notes.pitch[order])
        known = self.known(steps) & ~_common(steps, self.n)
        edges = np.flatnonzero(np.diff(np.concatenate([[0], known.astype(np.int8), [0]])))
        first, stop = edges[::2], edges[1::2]
        if not len(first) or (stop - first).max() < LEAST_HITS:
            return KnownRun(0, self.shortest_run)
        longest = int(np.argmax(stop - first))
        begin, last = int(first[longest]), int(stop[longest]) - 1 + self.n
        onset = notes.start[order]
        span = float(onset[begin]), float(onset[last])
        return KnownRun(last - begin + 1, self.shortest_run, *span)

    def _places(self, grams: Hashes) -> Iterable[Hashes]:
        """The bits of each n-gram: as many arrays (N,) as there are hashes."""
        step = _mix(grams) | np.uint64(1)
        for i in range(self.hashes):
            yield (grams + np.uint64(i) * step) % np.uint64(8 * len(self.bits))


def find_index(checkpoint: Path) -> MemorisationIndex | None:
    """The index beside the weights of a checkpoint, as `load` reads it; None without one."""
    path = checkpoint / INDEX_FILE
    return MemorisationIndex.load(path) if path.is_file() else None


def intervals(notes: NoteSequence) -> Ints:
    """The pitch intervals from note to note, (N - 1,), chords from the bottom up."""
    steps: Ints = np.diff(notes.pitch[_order(notes)])
    return steps


def _order(notes: NoteSequence) -> Ints:
    """(N,) the notes by onset, those struck together by pitch."""
    by_onset = np.argsort(notes.start, kind="stable")
    moment = np.round(notes.start[by_onset] * STEPS_PER_SECOND)
    apart = np.diff(moment) > TOGETHER_SECONDS * STEPS_PER_SECOND
    chord = np.concatenate([[0], np.cumsum(apart)])[: len(moment)]  # (N,)
    order: Ints = by_onset[np.lexsort((notes.pitch[by_onset], chord))]
    return order


def _common(steps: Ints, n: int) -> Mask:
    """(N - n + 1,) whether an n-gram has `COMMON_INTERVALS` sizes of interval or fewer."""
    if len(steps) < n:
        return np.zeros(0, dtype=bool)
    sizes = np.sort(np.lib.stride_tricks.sliding_window_view(np.abs(steps), n), axis=1)
    common: Mask = (np.diff(sizes, axis=1) > 0).sum(axis=1) < COMMON_INTERVALS
    return common


def _hashes(steps: Ints, n: int) -> Hashes:
    """(N - n + 1,) a hash of every n successive intervals; none where there are fewer."""
    count = max(len(steps) - n + 1, 0)
    codes = (steps + _INTERVAL_ZERO).astype(np.uint64)
    found = np.zeros(count, np.uint64)
    for offset in range(n):
        found = _mix(found ^ codes[offset : offset + count])
    return found


def _mix(values: Hashes) -> Hashes:
    """Splitmix64 (Steele, Lea and Flood 2014): each bit depends on every bit of the value."""
    z = values + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
