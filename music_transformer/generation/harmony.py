"""Compose alto, tenor and bass under a melody that is kept.

The model reads a chorale row by row, soprano first. So at each sixteenth the soprano is given, not
drawn, and the other three are drawn after it: they follow from the melody up to now and all that
was composed before; of what is still to come the model knows nothing.

Every composed voice stays inside the range it had in training. A melody that lies outside the
soprano's is read by the model transposed by the fewest semitones that bring it in, and the result
is transposed back, unless `keep_key`.
"""

import time
from collections.abc import Callable, Sequence

import numpy as np
import torch

from music_transformer.checkpoint.session import Session
from music_transformer.generation.loop import Sample, SampleSpec, draw_all
from music_transformer.generation.report import Report
from music_transformer.generation.sampler import Window, context_of
from music_transformer.model.registry import evaluating
from music_transformer.notes import NoteSequence
from music_transformer.representations.chorale.grammar import GivenCells
from music_transformer.representations.chorale.grid import N_VOICES, SILENCE, VOICE_NAMES
from music_transformer.representations.chorale.melody import (
    Melody,
    Range,
    read_melody,
    transposition_into,
    voice_ranges,
    voices_in_time,
)
from music_transformer.representations.close import is_close


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
        samples.append(Sample(spec.resolved(session), grammar))
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
