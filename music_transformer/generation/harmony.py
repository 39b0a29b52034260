"""Compose alto, tenor and bass under a melody that is kept.

The model reads a chorale row by row, soprano first. So at each sixteenth the soprano is given, not
drawn, and the other three are drawn after it: they follow from the melody up to now and all that
was composed before; of what is still to come the model knows nothing.

Every composed voice stays inside the range it had in training. A melody that lies outside the
soprano's is read by the model transposed by the fewest semitones that bring it in, and the result
is transposed back, unless `keep_key`.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from music_transformer.checkpoint.session import Session
from music_transformer.generation.loop import Sample, SampleSpec, draw_all
from music_transformer.generation.report import Report
from music_transformer.generation.sampler import Window, context_of
from music_transformer.model.registry import evaluating
from music_transformer.notes import NoteSequence
from music_transformer.representations.base import Limits, Primer, Representation
from music_transformer.representations.chorale.grammar import ChoraleGrammar
from music_transformer.representations.chorale.grid import N_VOICES, SILENCE, VOICE_NAMES
from music_transformer.representations.chorale.melody import (
    Melody,
    Range,
    read_melody,
    transposition_into,
)
from music_transformer.representations.close import is_close
from music_transformer.representations.ids import Ids, Mask

#: Lowest and highest pitch of each voice in the training split of JSB Chorales: for checkpoints
#: that do not say what theirs were.
JSB_RANGES: tuple[Range, ...] = ((60, 81), (52, 74), (46, 69), (36, 66))

_HIGHEST_PITCH = 127


class GivenCells(ChoraleGrammar):
    """The grammar of four voices, some cells given and the others within the range of their voice.

    Args:
        cells: the ids from the next on, row by row; None is to be drawn.
        ranges: of the voices, as the model reads them; None for all pitches.
        shift: by which the result is transposed down; no pitch leaves the keyboard of MIDI for it.
        before: ids of the rows before them.
    """

    def __init__(
        self,
        cells: Sequence[int | None],
        vocab_size: int,
        ranges: Sequence[Range] | None,
        *,
        shift: int = 0,
        before: Sequence[int] = (),
    ) -> None:
        super().__init__(vocab_size, Primer(list(before)), Limits(events=len(cells)))
        self._cells = cells
        # (4, V) True = the voice may have this id: a pitch of its range, or silence.
        self._masks = np.zeros((N_VOICES, vocab_size), dtype=bool)
        for voice, mask in enumerate(self._masks):
            low, high = (0, _HIGHEST_PITCH) if ranges is None else ranges[voice]
            mask[max(low, shift, 0) : min(high, _HIGHEST_PITCH + min(shift, 0)) + 1] = True
            mask[SILENCE] = True

    @property
    def given(self) -> int | None:
        """The next id, where it is given."""
        return self._cells[len(self._ids) - self._first]

    def mask(self, remaining: int | None = None) -> Mask:
        """(V,) bool, True = the voice may have this id."""
        mask: Mask = self._masks[len(self._ids) % N_VOICES]
        return mask


class GivenSample(Sample):
    """A sample of which some cells are given."""

    grammar: GivenCells

    def given(self) -> int | None:
        """The next id where it is given, None where it is drawn."""
        return self.grammar.given


def harmonize(
    session: Session,
    melody: NoteSequence,
    specs: Sequence[SampleSpec],
    keep_key: bool,
    progress: Callable[[float, float], None],
) -> list[tuple[NoteSequence, list[int], Report]]:
    """Notes, ids and report of each candidate, the best first; see `accompany`."""
    settings, tokenizer = specs[0].settings, session.tokenizer
    context = context_of(session.config, settings.context)
    given = read_melody(melody)
    ranges = voice_ranges(session.training)
    shift = 0 if keep_key or ranges is None else transposition_into(given, ranges[0])
    skipped = 0 if settings.keep_silence else given.leading_sixteenths
    cells = given.cells[skipped:]
    soprano = np.where(cells < 0, SILENCE, cells + shift).tolist()
    known = [cell for pitch in soprano for cell in (pitch, None, None, None)]

    started = time.perf_counter()
    samples = []
    for spec in specs:
        grammar = GivenCells(known, tokenizer.vocab_size, ranges, shift=shift)
        samples.append(GivenSample(spec.resolved(session), grammar))
    with evaluating(session.model):
        window = Window(session.model, len(samples), context=context)
        first = torch.full((len(samples), 1), tokenizer.start)  # (B, 1)
        for number, _ in draw_all(window, samples, first, tokenizer.pad):
            if number == len(samples) - 1:
                progress(samples[number].events, len(soprano) * N_VOICES)
    elapsed = time.perf_counter() - started

    by_cell = np.array([sample.nll for sample in samples])  # (B, 4 T)
    by_cell = by_cell.reshape(len(samples), -1, N_VOICES)  # (B, T, 4)
    nll = by_cell[:, :, 1:].mean(axis=(1, 2))  # (B,)
    by_voice = by_cell.mean(axis=1)  # (B, 4)
    ends = [[i for i in sample.ids[-N_VOICES:] if i != SILENCE] for sample in samples]
    closes = np.array([settings.end == "close" and is_close(chord) for chord in ends])
    outside = 0 if ranges is None else given.outside(ranges[0], shift)
    warnings = (*given.warnings, *_range_warnings(given, ranges, shift, outside))
    results = []
    for rank, number in enumerate(np.lexsort((nll, ~closes)).tolist(), start=1):
        sample = samples[number]
        ids = [SILENCE] * (skipped * N_VOICES)
        ids += [i if i == SILENCE else i - shift for i in sample.ids]
        voices = voices_in_time(tokenizer, ids, given.notes)
        notes = given.notes.with_notes(voices.selected(voices.track > 0))
        account = {**sample.account(), "nll": float(nll[number])}
        report = Report(
            **account,
            rank=rank,
            seconds=notes.end_time,
            notes=int((notes.track > 0).sum()),
            nll_by_voice=dict(zip(VOICE_NAMES[1:], by_voice[number, 1:].tolist(), strict=True)),
            melody_nll=float(by_voice[number, 0]),
            sixteenths=len(cells),
            skipped_sixteenths=skipped,
            transposition=shift,
            outside_range=outside,
            windows_reread=window.reread,
            elapsed_seconds=elapsed,
            events_per_second=by_cell.size / max(elapsed, 1e-9),
            warnings=warnings,
        )
        results.append((notes, ids, report))
    return results


def voice_ranges(training: Mapping[str, Any]) -> tuple[Range, ...] | None:
    """Lowest and highest pitch of S A T B in a checkpoint's training data; None if unknown.

    Those it names itself, under data.voice_ranges; else those of JSB Chorales, if that is its data
    or it does not say.
    """
    data = training.get("data")
    data = data if isinstance(data, Mapping) else {}
    named = data.get("voice_ranges")
    if named is not None:
        return tuple((int(low), int(high)) for low, high in named)
    return JSB_RANGES if data.get("corpus", "jsb") == "jsb" else None


def _range_warnings(
    melody: Melody, ranges: Sequence[Range] | None, shift: int, outside: int
) -> list[str]:
    if ranges is None or not (shift or outside):
        return []
    low, high = ranges[0]
    found = []
    if shift:
        direction = "higher" if shift > 0 else "lower"
        found.append(
            f"the melody lies outside the soprano's range in training ({low} to {high}): it was "
            f"read {abs(shift)} semitones {direction} and all voices were transposed back"
        )
    if outside:
        count = int((melody.cells >= 0).sum())
        found.append(
            f"{outside} of the {count} sounding sixteenths of the melody lie outside the soprano's "
            f"range in training ({low} to {high}): expect weaker harmony there"
        )
    return found


def voices_in_time(tokenizer: Representation, ids: Ids, motif: NoteSequence) -> NoteSequence:
    """The voices of a grid on the tempo map of a motif, as long and as loud as it is."""
    beats, at = tokenizer.decode(ids, seconds_per_beat=1.0), motif.tempos.at_quarters
    return beats.replaced(
        velocity=np.full(len(beats), round(float(np.median(motif.velocity)))),
        start=at(beats.start),
        end=at(beats.end),
        end_time=motif.end_time,
        tempos=motif.tempos,
    )
