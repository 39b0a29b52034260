"""Windows of ids: random crops to learn from, and consecutive ones to measure with.

The target of an input id is the id that follows it, and PAD where nothing is to be learned or
counted. `place` is the index of the input id in its piece, START being 0.

Training windows depend on nothing but (seed, step, rank): every step can be made again, in any
order, so a resumed run sees what an uninterrupted one would have. Row r of rank k in batches of B
is row k B + r of one batch of all ranks together: two devices see what one with twice the batch
sees. Evaluation windows are fixed; every event is the target of exactly one of them.
"""

import itertools
import multiprocessing
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import (
    BrokenExecutor,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
)
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from music_transformer.datasets.prepared import PreparedData
from music_transformer.errors import ConfigError, DatasetError
from music_transformer.processes import follow_parent
from music_transformer.representations.accompaniment.tokenizer import PAD as MELODY_PAD

Ids = npt.NDArray[np.integer[Any]]

START_SHARE = 1 / 8  # of the training windows begin with the piece itself


@dataclass(frozen=True, eq=False)
class Batch:
    """Input ids, what each should predict, and where in its piece each stands: (B, L) int64."""

    ids: Tensor
    targets: Tensor
    place: Tensor
    source: Tensor | None = None  # (B, S) what a piece was written to, for models that are told

    def to(self, device: torch.device | str) -> "Batch":
        """The same batch on another device; a GPU fetches it while it computes."""
        is_cuda = torch.device(device).type == "cuda"

        def moved(tensor: Tensor) -> Tensor:  # from pinned memory nobody need wait for the copy
            return (tensor.pin_memory() if is_cuda else tensor).to(device, non_blocking=is_cuda)

        source = None if self.source is None else moved(self.source)
        return Batch(moved(self.ids), moved(self.targets), moved(self.place), source)

    def __reduce__(self) -> tuple[Callable[..., "Batch"], tuple[Any, ...]]:
        """Between processes a batch goes as arrays: torch would share memory that must be kept."""
        source = None if self.source is None else self.source.numpy()
        return _unpacked, (self.ids.numpy(), self.targets.numpy(), self.place.numpy(), source)

    def given(self) -> dict[str, Tensor]:
        """What a model is told beside the ids: its keyword arguments."""
        given = {"place": self.place}
        return given if self.source is None else {**given, "source": self.source}


def _unpacked(*arrays: Any) -> Batch:
    return Batch(*(None if array is None else torch.from_numpy(array) for array in arrays))  # type: ignore[arg-type]


@dataclass(frozen=True, eq=False)
class Window:
    """One window of one piece: ids, targets and place (L,) int64, and the index of the piece."""

    ids: Tensor
    targets: Tensor
    place: Tensor
    piece: int
    source: Tensor | None = None  # (S,) the melody of a segment with accompaniment


class TrainingWindows:
    """Random crops of the training split, augmented.

    A piece is drawn in proportion to its length and a crop of `length` inputs anywhere in it, from
    a multiple of the representation's `crop_step` on; one window in eight begins with START. What
    is shorter is padded. END is a target: a model has to learn to end.

    Args:
        data: prepared data with a training split.
        length: L, input ids of a window.
        batch_size: B, windows of a batch on this rank.
        augment: transpose, and change the tempo, as the representation does.
        plain, gaps: shares of the windows that open plain (`Representation.plain_crop`), and that
            are told what comes after a gap (`gapped_crop`). What is plain or told is read and not
            learned: its targets are PAD. Only performances have such.
    """

    def __init__(
        self,
        data: PreparedData,
        *,
        length: int,
        batch_size: int,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
        augment: bool = True,
        plain: float = 0.0,
        gaps: float = 0.0,
    ) -> None:
        for name, value in {"length": length, "batch_size": batch_size}.items():
            if value < 1:
                raise ConfigError(f"{name}={value}: a window and a batch hold at least one.")
        if not 0 <= rank < world_size:
            raise ConfigError(f"rank={rank} is not one of {world_size} processes, 0 the first.")
        for name, share in {"plain": plain, "gaps": gaps}.items():
            if share and not data.tokenizer.opens_plain:
                raise ConfigError(
                    f"{name}={share:g}: only performances open plain or have gaps, and {data.path} "
                    f"holds {data.tokenizer.kind} ids; use {name}=0."
                )
        if plain + gaps > 1:
            raise ConfigError(f"plain={plain:g} and gaps={gaps:g} are more than all windows.")
        self.length, self.batch_size, self.seed = length, batch_size, seed
        self.rank, self.world_size = rank, world_size
        self.augment, self.plain, self.gaps = augment, plain, gaps
        self.tokenizer = data.tokenizer
        self._data_path = data.path
        self._open(data)
        self._transpositions = self._allowed_transpositions(data) if augment else None

    @property
    def events_per_epoch(self) -> int:
        """Targets in the training split: every event and every END once."""
        return int(self._ends[-1])

    @property
    def joint_batch_size(self) -> int:
        """Windows in one batch of all ranks together."""
        return self.batch_size * self.world_size

    @property
    def events_per_step(self) -> int:
        """Targets in one batch of all ranks together, padding included."""
        return self.joint_batch_size * self.length

    def batch(self, step: int) -> Batch:
        """The batch of a step on this rank."""
        ids = np.full((self.batch_size, self.length), self.tokenizer.pad, dtype=np.int64)
        targets = ids.copy()
        place = np.zeros((self.batch_size, 1), dtype=np.int64)
        for row in range(self.batch_size):
            crop, place[row], known = self._crop(step, self.rank * self.batch_size + row)
            ids[row, : len(crop) - 1] = crop[:-1]
            targets[row, known : len(crop) - 1] = crop[1 + known :]
        place = place + np.arange(self.length)  # (B, L)
        return Batch(torch.from_numpy(ids), torch.from_numpy(targets), torch.from_numpy(place))

    def prefetch(
        self, first_step: int = 0, *, ahead: int = 2, workers: int = 0
    ) -> Generator[Batch, None, None]:
        """The batches from `first_step` on, without end, made ahead while others are used.

        Each of `workers` processes, or with 0 a thread of this one, has `ahead` batches ready or in
        the making. To be closed, or the processes stay until the generator is forgotten. Raises
        DatasetError where a worker died.
        """
        steps = itertools.count(first_step)
        waiting: deque[Future[Batch]] = deque()
        make: Callable[[int], Batch] = self.batch
        if workers:
            spawn = multiprocessing.get_context("spawn")  # alike on every system
            pool: Executor = ProcessPoolExecutor(workers, spawn, _start_worker, (self,))
            make = _batch_of_worker
        else:
            pool = ThreadPoolExecutor(1, thread_name_prefix="windows")
        try:
            while True:
                while len(waiting) <= ahead * max(1, workers):
                    waiting.append(pool.submit(make, next(steps)))
                yield waiting.popleft().result()
        except BrokenExecutor as error:
            raise DatasetError(
                f"{self._data_path}: a process that makes windows of it died ({error}); take fewer "
                "workers, or workers=0."
            ) from error
        finally:
            pool.shutdown(cancel_futures=True)

    def __reduce__(self) -> tuple[Callable[..., "TrainingWindows"], tuple[Any, ...]]:
        """What another process needs to open the same windows: no ids, but where they are."""
        names = ("length", "batch_size", "seed", "rank", "world_size", "augment", "plain", "gaps")
        settings = {name: getattr(self, name) for name in names}
        return _reopened, (type(self), self._data_path, settings)

    def _open(self, data: PreparedData) -> None:
        """Views of the training split: plain ones, for a np.memmap wraps every result again."""
        self._pieces = [np.asarray(piece) for piece in data.pieces("train")]
        self._ends = np.cumsum([len(piece) - 1 for piece in self._pieces])  # targets so far

    def _allowed_transpositions(self, data: PreparedData) -> list[list[int]]:
        """For each training piece."""
        return [self.tokenizer.transpositions(piece[1:-1], data.meta) for piece in self._pieces]

    def _crop(self, step: int, row: int) -> tuple[Ids, int, int]:
        """At most L + 1 ids of one piece, augmented; the place of the first; how many are told."""
        random = np.random.default_rng((self.seed, step, row))
        index = int(np.searchsorted(self._ends, random.integers(self._ends[-1]), side="right"))
        piece = self._pieces[index]
        # A window of the end is as likely as the end is long, so END is seen as often as it comes.
        place, last = int(random.integers(len(piece) - 1)), max(0, len(piece) - 1 - self.length)
        whole = self.tokenizer.crop_step
        place, last = place // whole * whole, -(-last // whole) * whole
        place = min(place, last)
        if random.random() < START_SHARE:
            place = 0
        kind = random.random() if self.plain + self.gaps > 0 else 1.0
        semitones, factor = 0, 1.0
        if self._transpositions is not None:
            semitones = int(random.choice(self._transpositions[index]))
            if self.tokenizer.stretches:
                factor = float(random.choice(self.tokenizer.stretches))
        known, length = 0, self.length + 1
        if kind < self.plain:
            crop, known = self.tokenizer.plain_crop(piece, place, length, factor, random)
            place = 0
        elif kind < self.plain + self.gaps:
            crop, known = self.tokenizer.gapped_crop(piece, place, length, factor, random)
        else:
            crop = self.tokenizer.crop(piece, place, length, factor)
        return self.tokenizer.transposed(crop, semitones), place, known


def _reopened(
    kind: type[TrainingWindows], path: Path, settings: Mapping[str, Any]
) -> TrainingWindows:
    return kind(PreparedData.open(path), **settings)


#: The windows of a worker process; none anywhere else.
_windows_of_worker: TrainingWindows | None = None


def _start_worker(windows: TrainingWindows) -> None:
    """Make this process a worker of one thread."""
    global _windows_of_worker
    _windows_of_worker = windows
    torch.set_num_threads(1)
    follow_parent()


def _batch_of_worker(step: int) -> Batch:
    assert _windows_of_worker is not None
    return _windows_of_worker.batch(step)


def evaluation_windows(
    data: PreparedData, split: str, length: int, stride: int | None = None
) -> Iterator[Window]:
    """Windows over all pieces of a split, in order; see `piece_windows`."""
    pad = data.tokenizer.pad
    for index, piece in enumerate(data.pieces(split)):
        yield from piece_windows(piece, length, stride, pad=pad, index=index)


def piece_windows(
    piece: Ids, length: int, stride: int | None = None, *, pad: int, index: int = 0
) -> Iterator[Window]:
    """Windows that together have every event of a piece as a target exactly once.

    The first counts all of its targets; a later one, `stride` further on, only those that no
    earlier one counted: at least ``length - stride`` ids of context stand before each. START is
    an input and never a target; END is neither.

    Args:
        piece: (N,) ids, START ... END.
        length: L, most input ids of a window.
        stride: 1..length; default `length`: windows that do not overlap.
        pad: id that marks a target as not counted.
    """
    stride = length if stride is None else stride
    if not 1 <= stride <= length:
        raise ConfigError(f"stride={stride} is not in 1..{length}, the length of a window.")
    n_events = len(piece) - 2
    counted = 0
    for begin in itertools.count(0, stride):
        if counted >= n_events:
            return
        end = min(begin + length, n_events)
        targets = np.full(end - begin, pad, dtype=np.int64)
        targets[counted - begin :] = piece[counted + 1 : end + 1]
        counted = end
        yield Window(
            ids=torch.from_numpy(piece[begin:end].astype(np.int64)),
            targets=torch.from_numpy(targets),
            place=torch.arange(begin, end),
            piece=index,
        )


def collate(windows: Sequence[Window], *, pad: int, width: int | None = None) -> Batch:
    """Windows, all with a source or none, as one batch as wide as the longest, or as `width`.

    They are padded at their end, where no real id sees it; sources with the PAD of melodies.
    """
    length = max(len(window.ids) for window in windows) if width is None else width
    ids = torch.full((len(windows), length), pad, dtype=torch.int64)
    targets = ids.clone()
    first = torch.tensor([[int(window.place[0])] for window in windows])  # (B, 1)
    for row, window in enumerate(windows):
        ids[row, : len(window.ids)] = window.ids
        targets[row, : len(window.ids)] = window.targets
    sources = [window.source for window in windows if window.source is not None]
    source = pad_sequence(sources, batch_first=True, padding_value=MELODY_PAD) if sources else None
    return Batch(ids, targets, first + torch.arange(length), source)
