"""Fill cells of a chorale's grid: a bar, a voice, single notes; the others are given.

A chorale model reads row by row and knows nothing of what comes later. So of several draws of the
missing cells one is kept with a probability in proportion to how likely it makes the given cells in
and behind it (sampling importance resampling). Then blocks of them, ever smaller, are drawn again
beside what they hold, and one is kept in the same way, which leaves the model's own distribution of
the missing cells, given all others, as it is.

Source: Andrieu et al. 2010, "Particle Markov chain Monte Carlo methods" (this is the simplest
case); Huang et al. 2017, "Counterpoint by Convolution" (blocks that shrink).
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from music_transformer.checkpoint.session import Session
from music_transformer.errors import ConfigError, MidiError
from music_transformer.generation.loop import Sample, SampleSpec, draw_in_window
from music_transformer.generation.report import Generation, Progress, Report
from music_transformer.generation.sampler import context_of
from music_transformer.notes import NoteSequence
from music_transformer.representations.chorale.grammar import GivenCells
from music_transformer.representations.chorale.grid import (
    N_VOICES,
    SILENCE,
    SIXTEENTHS_PER_BEAT,
    VOICE_NAMES,
    held_notes,
    is_monophonic,
    sixteenths,
    to_sixteenths,
    voices_of,
)
from music_transformer.representations.chorale.melody import (
    read_melody,
    transposition_into,
    voice_ranges,
    voices_in_time,
)
from music_transformer.representations.ids import Ints
from music_transformer.sampling import Settings

CANDIDATES, ROUNDS = 8, 16
_AHEAD = 16  # rows of given cells that judge a draw
_SMALLEST = SIXTEENTHS_PER_BEAT  # rows of the last blocks


def fill_chorale(
    session: Session,
    notes: NoteSequence,
    gap: tuple[float, float],
    how: Settings,
    voices: Sequence[str] = (),
    progress: Progress | None = None,
) -> Generation:
    """The notes with what begins between two seconds, in some voices or all, composed anew.

    Raises:
        ConfigError: an unknown voice.
        MidiError: one voice is asked for where the file does not say which notes are whose.
    """
    for name in voices:
        if name not in VOICE_NAMES:
            raise ConfigError(f"voice {name!r}; choose of {', '.join(VOICE_NAMES)}.")
    start, end = gap
    asked = np.array([not voices or name in voices for name in VOICE_NAMES])  # (4,)
    voice = voices_of(notes)
    if voice is None and not asked.all():
        raise MidiError("its notes are not on four tracks, one a voice: fill all voices.")
    gone = (notes.start >= start - 1e-6) & (notes.start < end - 1e-6)
    gone &= True if voice is None else asked[voice]
    grid = session.tokenizer.decode_grid(session.tokenizer.encode(notes))  # (T, 4)
    assert grid is not None
    first, last = to_sixteenths(notes.tempos.quarters(np.array([start, end]))).tolist()
    grid = np.pad(grid, ((0, max(0, last - len(grid))), (0, 0)), constant_values=-1)
    missing = np.zeros(grid.shape, dtype=bool)
    missing[first:last] = asked
    if voice is not None:  # a note that began before stays
        for row, (begin, finish) in enumerate(zip(*sixteenths(notes), strict=True)):
            if not gone[row]:
                missing[begin:finish, voice[row]] = False
    started = time.perf_counter()
    filled, nll = fill_cells(session, grid, missing, how, progress=progress)
    new = _notes_of(filled, missing, notes, voice)
    kept = notes.selected(~gone)
    elapsed, events = time.perf_counter() - started, int(missing.sum())
    report = Report(
        sample=0,
        seed=how.seed,
        nll=nll,
        events=events,
        seconds=end - start,
        notes=len(new),
        elapsed_seconds=elapsed,
        events_per_second=events / elapsed,
    )
    alone = new.replaced(start=new.start - start, end=new.end - start)
    ids = np.where(filled < 0, SILENCE, filled).reshape(-1).tolist()
    return Generation(kept.with_notes(new), alone, ids, [], report)


@dataclass(frozen=True, eq=False)
class Voiced:
    """A motif as a chorale model reads it."""

    notes: NoteSequence  # the motif, or four voices made of it, a track each, in its own time
    added: NoteSequence  # the voices that were composed, on their tracks, as high as the motif is
    shift: int = 0  # semitones by which `notes` are higher than the motif
    warnings: tuple[str, ...] = ()  # what of the motif the model does not see


def in_four_voices(session: Session, motif: NoteSequence, how: Settings) -> Voiced:
    """A motif with the voices that it lacks composed; one voice alone is the soprano.

    As in `accompany` a melody outside the soprano's range is transposed into it.

    Raises:
        TokenError: as from `ChoraleTokenizer.encode`.
    """
    tokenizer, shift = session.tokenizer, 0
    grid = tokenizer.decode_grid(tokenizer.encode(motif))  # (T, 4)
    assert grid is not None
    if is_monophonic(motif.start, motif.end):
        melody, ranges = read_melody(motif), voice_ranges(session.training)
        grid = np.full(grid.shape, -1)
        grid[:, 0] = melody.cells
        shift = 0 if ranges is None else transposition_into(melody, ranges[0])
    shown = sum(len(held_notes(grid[:, voice])[0]) for voice in range(N_VOICES))
    warnings: tuple[str, ...] = ()
    if shown < len(motif):
        warnings = (
            f"on the grid of sixteenths, which is all that the model reads, the {len(motif)} notes "
            f"of the primer are {shown}: repeated ones are tied, shorter ones have no room; in the "
            "file they are as they were",
        )
    lacking: NDArray[np.bool_] = np.all(grid < 0, axis=0)  # (4,)
    if not lacking.any():
        return Voiced(motif, motif.selected(np.zeros(0, np.int64)), warnings=warnings)
    missing = np.zeros(grid.shape, dtype=bool)
    first = int(np.argmax((grid >= 0).any(axis=1)))
    missing[first // SIXTEENTHS_PER_BEAT * SIXTEENTHS_PER_BEAT :] = lacking
    filled, _ = fill_cells(
        session, np.where(grid < 0, -1, grid + shift), missing, how, (CANDIDATES, 0)
    )
    ids = np.where(filled < 0, SILENCE, filled).reshape(-1)
    four = voices_in_time(tokenizer, ids, motif)
    added = four.selected(lacking[four.track])
    added = added.replaced(pitch=np.clip(added.pitch - shift, 0, 127))
    return Voiced(four, added, shift, warnings)


def fill_cells(
    session: Session,
    grid: Ints,
    missing: NDArray[np.bool_],
    how: Settings,
    effort: tuple[int, int] = (CANDIDATES, ROUNDS),
    progress: Progress | None = None,
) -> tuple[Ints, float]:
    """The grid with its missing cells drawn, and the mean NLL of what was drawn first.

    Args:
        grid: (T, 4) pitches, -1 for silence; what is in missing cells does not count.
        missing: (T, 4) True = to be drawn.
        effort: draws of the same cells, of which one is kept, and blocks that are drawn again;
            with (1, 0) the cells are drawn from left to right, blind to what comes.
    """
    rows = np.flatnonzero(missing.any(axis=1))
    if not len(rows):
        raise MidiError("the gap holds no cell that may be filled.")
    random = np.random.default_rng(how.seed)
    cells = np.where(grid < 0, SILENCE, grid)
    span = (int(rows[0]), int(rows[-1]) + 1)
    candidates, rounds = effort
    draw = _Draws(session, candidates, random).draw
    cells, nll = draw(cells, missing, span, how, is_full=False)
    for number in range(rounds):
        size = span[1] - span[0]
        length = max(_SMALLEST, math.ceil(size * (1 - (number + 1) / rounds)))
        begin = span[0] + int(random.integers(max(1, size - length + 1)))
        free = np.zeros_like(missing)
        count = max(1, round(N_VOICES * (1 - (number + 1) / rounds)))
        free[begin : begin + length, random.permutation(N_VOICES)[:count]] = True
        free &= missing
        if free.any():
            block = (begin, min(begin + length, span[1]))
            drawing = replace(how, seed=int(random.integers(2**31)))
            cells, _ = draw(cells, free, block, drawing)
        if progress is not None:
            progress(number + 1, rounds)
    return np.where(cells == SILENCE, -1, cells), nll


@dataclass(frozen=True)
class _Draws:
    """What is drawn with: so many candidates, of which `random` chooses."""

    session: Session
    candidates: int
    random: np.random.Generator

    def draw(
        self,
        cells: Ints,
        free: NDArray[np.bool_],
        rows: tuple[int, int],
        how: Settings,
        *,
        is_full: bool = True,
    ) -> tuple[Ints, float]:
        """The cells (T, 4) with the free ones in some rows drawn, and their mean NLL.

        Args:
            is_full: what the free cells hold now is one of the candidates.
        """
        session, candidates = self.session, self.candidates
        context = context_of(session.config, how.context)
        first = max(0, rows[0] - context // 2 // N_VOICES)
        part = slice(rows[0], min(len(cells), rows[1] + _AHEAD))
        known, gap = cells[part].reshape(-1), free[part].reshape(-1)  # (N,)
        given = [None if hole else int(i) for i, hole in zip(known, gap, strict=True)]
        before = cells[first : rows[0]].reshape(-1).tolist()
        samples = []
        for number in range(candidates):
            now = known.tolist() if is_full and number == 0 else given
            grammar = GivenCells(
                now, session.tokenizer.vocab_size, voice_ranges(session.training), before=before
            )
            samples.append(Sample(SampleSpec(how, number).resolved(session), grammar))
        start = torch.tensor([[session.tokenizer.start, *before]]).expand(candidates, -1)
        place = first * N_VOICES
        for _ in draw_in_window(session, samples, start, context=context, place=place):
            pass
        nll = np.array([sample.nll for sample in samples])  # (candidates, N)
        weight = -nll[:, ~gap].sum(axis=1)
        share = np.exp(weight - weight.max())
        chosen = int(self.random.choice(candidates, p=share / share.sum()))
        result = cells.copy()
        result[part] = np.reshape(samples[chosen].drawn, (-1, N_VOICES))
        return result, float(nll[chosen][gap].mean())


def _notes_of(
    grid: Ints, missing: NDArray[np.bool_], notes: NoteSequence, voice: Ints | None
) -> NoteSequence:
    """The notes in the cells that were missing, on the tracks of their voices."""
    lines = [held_notes(line) for line in np.where(missing, grid, -1).T]
    pitch, begin, finish = (np.concatenate(columns) for columns in zip(*lines, strict=True))
    voices = np.repeat(np.arange(N_VOICES), [len(line[0]) for line in lines])

    def of_voice(values: Ints) -> Ints:
        """The most frequent value among the notes of each voice, or of all."""
        most = [
            np.bincount(values if voice is None else values[voice == number]).argmax()
            for number in range(N_VOICES)
        ]
        return np.array(most, dtype=np.int64)[voices]

    return NoteSequence(
        pitch=pitch,
        velocity=of_voice(notes.velocity),
        start=notes.tempos.at_quarters(begin / SIXTEENTHS_PER_BEAT),
        end=notes.tempos.at_quarters(finish / SIXTEENTHS_PER_BEAT),
        channel=of_voice(notes.channel),
        track=of_voice(notes.track),
    )
