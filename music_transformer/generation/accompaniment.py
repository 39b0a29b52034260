"""Accompany a melody that is kept: by alto, tenor and bass, or by a piano (`duet`).

Candidates that end on a triad or octaves come first (not so with ``end="cut"``), then the likelier:
by the mean negative log-likelihood of what was composed, under the model before any processor.

A chorale model reads row by row, soprano first: of the melody still to come it knows nothing. Every
composed voice stays inside the range it had in training; a melody outside the soprano's is read
transposed by the fewest semitones that bring it in, and the result transposed back.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from music_transformer.checkpoint.session import Session
from music_transformer.errors import ConfigError
from music_transformer.generation.duet import play_to
from music_transformer.generation.loop import Sample, SampleSpec, draw_in_window
from music_transformer.generation.report import Progress, Report
from music_transformer.generation.sampler import context_of
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
from music_transformer.sampling import check_count, settings_of

DEFAULT_CANDIDATES = 8


@dataclass(frozen=True)
class Accompaniment:
    """One candidate.

    Attributes:
        notes: the melody's own on track 0, alto, tenor and bass, or the piano, on those after it.
        ids: the whole grid at the pitch of the melody, from second 0 on; of a piano model its
            events from the first note of the melody on.
    """

    notes: NoteSequence
    ids: list[int]
    report: Report

    @property
    def nll(self) -> float:
        """Mean over the composed cells, nats per note, or over the events; lower is likelier."""
        return self.report.nll


def accompany(
    session: Session,
    melody: NoteSequence,
    *,
    candidates: int = DEFAULT_CANDIDATES,
    keep_key: bool = False,
    on_progress: Progress | None = None,
    **settings: Any,
) -> list[Accompaniment]:
    """Candidates of what goes with the melody, the best first: voices, or a piano.

    Args:
        session: a chorale model, for alto, tenor and bass; or a model of piano accompaniments.
        melody: one voice; of more the highest notes are taken, see `melody`.
        candidates: how many to draw; candidate i has generator (seed, i).
        keep_key: read the melody where it is, even outside the soprano's range, as a piano does.
        on_progress: called after every event with how much is done and how much there is.
        settings: as in `generate`, but for the length, which is the melody's; `keep_silence`
            composes during the silence before the melody too.

    Raises:
        ConfigError: a setting outside its range, or a model that accompanies nothing.
        MidiError: a melody without notes.
        TokenError: a melody too long for a grid.
    """
    tasks = {"chorale": _harmonize, "accompaniment": play_to}
    kind = session.tokenizer.kind
    if kind not in tasks:
        raise ConfigError(
            f"{session.path}: this checkpoint does not accompany, it continues "
            f"{kind}s; take one of chorales, such as bach, or of accompaniments, "
            "such as piano-accompaniment."
        )
    check_count("candidates", candidates)
    how = settings_of(settings)
    for name in ("seconds", "events"):
        if getattr(how, name) is not None:
            raise ConfigError(f"{name}: an accompaniment is as long as its melody; leave it out.")
    specs = [SampleSpec(how, number) for number in range(candidates)]
    progress = on_progress or (lambda done, total: None)
    results = tasks[kind](session, melody, specs, keep_key, progress)
    names = session.tokenizer.accompanied
    return [
        Accompaniment(notes.replaced(track_names=names), ids, report)
        for notes, ids, report in results
    ]


def _harmonize(
    session: Session,
    melody: NoteSequence,
    specs: Sequence[SampleSpec],
    keep_key: bool,
    progress: Progress,
) -> list[tuple[NoteSequence, list[int], Report]]:
    """Notes, ids and report of each candidate of four voices, the best first."""
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
    first = torch.full((len(samples), 1), tokenizer.start)  # (B, 1)
    for number, _ in draw_in_window(session, samples, first, context=context):
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
        report = Report(
            **{**sample.account(), "nll": float(nll[number])},
            rank=rank,
            seconds=notes.end_time,
            notes=int((notes.track > 0).sum()),
            nll_by_voice=dict(zip(VOICE_NAMES[1:], by_voice[number, 1:].tolist(), strict=True)),
            melody_nll=float(by_voice[number, 0]),
            sixteenths=len(cells),
            skipped_sixteenths=skipped,
            transposition=shift,
            outside_range=outside,
            elapsed_seconds=elapsed,
            events_per_second=by_cell.size / max(elapsed, 1e-9),
            warnings=warnings,
        )
        results.append((notes, ids, report))
    return results


def _range_warnings(
    melody: Melody, ranges: Sequence[Range] | None, shift: int, outside: int
) -> list[str]:
    if ranges is None:
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
