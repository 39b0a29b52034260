"""Compose alto, tenor and bass under a melody that is kept (`duet` has the piano's part).

The model reads a chorale row by row, soprano first. So at each sixteenth the soprano is given, not
drawn, and the other three are drawn after it: what they hear is the melody up to now and all that
was composed before; of what is still to come the model knows nothing. Several candidates are drawn
side by side and ranked by their likelihood: the mean negative log-likelihood of the composed cells
under the model itself, before any filter, in nats per note as `evaluate` counts it.

Every composed voice stays inside the range it had in training. A melody that lies outside the
soprano's is read by the model transposed by the fewest semitones that bring it in, and the result
is transposed back, unless `keep_key`.

Reading is that of `sampler`: a cache, and the oldest half dropped when the context is full.
"""

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from music_transformer.checkpoint import Session
from music_transformer.errors import ConfigError
from music_transformer.generation.counterpoint import (
    DEFAULT_PARALLELS,
    check_parallels,
    discourage_parallels,
)
from music_transformer.generation.duet import DuetReport, play_to
from music_transformer.generation.filters import (
    Filters,
    choose_filters,
    draw,
    sample_generator,
)
from music_transformer.generation.sampler import Window, context_of
from music_transformer.model.decoder import evaluating
from music_transformer.notes import NoteSequence
from music_transformer.representations import AccompanimentTokenizer, ChoraleTokenizer
from music_transformer.representations.chorale.grid import N_VOICES, SILENCE, VOICE_NAMES
from music_transformer.representations.chorale.melody import (
    Melody,
    Range,
    read_melody,
    transposition_into,
)
from music_transformer.sampling import Sampling

DEFAULT_CANDIDATES = 8
#: Lowest and highest pitch of each voice in the training split of JSB Chorales: for checkpoints
#: that do not say what theirs were.
JSB_RANGES: tuple[Range, ...] = ((60, 81), (52, 74), (46, 69), (36, 66))

_HIGHEST_PITCH = 127

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
#: Called with the events done and the events in all.
Progress = Callable[[float, float], None]


@dataclass(frozen=True)
class AccompanimentReport:
    """The account of one candidate.

    Attributes:
        rank: 1 is the likeliest.
        candidate: its number, from 0; with `seed` it makes the candidate again.
        nll: mean over the composed cells, nats per note.
        nll_by_voice: the same of alto, tenor and bass.
        melody_nll: how surprising the model found the given notes, nats per note.
        sixteenths: that were composed.
        skipped_sixteenths: silent ones before the melody, left silent.
        transposition: semitones by which the model read the melody higher than it is.
        outside_range: sixteenths of the melody outside the soprano's range, as the model read it.
        windows_reread: how often the oldest half of the context was dropped.
        elapsed_seconds, events_per_second: of all candidates together.
        warnings: what a listener should know.
    """

    rank: int
    candidate: int
    seed: int
    nll: float
    nll_by_voice: dict[str, float]
    melody_nll: float
    sixteenths: int
    skipped_sixteenths: int
    transposition: int
    outside_range: int
    windows_reread: int
    elapsed_seconds: float
    events_per_second: float
    warnings: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The fields, ready for JSON."""
        return {**dataclasses.asdict(self), "warnings": list(self.warnings)}


@dataclass(frozen=True)
class Accompaniment:
    """One candidate.

    Attributes:
        notes: the melody's own notes on track 0, alto, tenor and bass on tracks 1 to 3; of a piano
            model what it plays on track 1.
        ids: the whole grid at the pitch of the melody, from second 0 on, four ids a sixteenth; of a
            piano model its events from the first note of the melody on.
        nll: mean over the composed cells, nats per note, or over the events; lower is likelier.
        report: numbers and warnings.
    """

    notes: NoteSequence
    ids: list[int]
    nll: float
    report: AccompanimentReport | DuetReport


def accompany(
    session: Session,
    melody: NoteSequence,
    *,
    candidates: int = DEFAULT_CANDIDATES,
    temperature: float | None = None,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
    parallels: float = DEFAULT_PARALLELS,
    seed: int = 0,
    context: int | None = None,
    keep_key: bool = False,
    keep_silence: bool = False,
    progress: Progress | None = None,
) -> list[Accompaniment]:
    """Candidates of what goes with the melody, the likeliest first: voices, or a piano.

    Args:
        session: a chorale model, for alto, tenor and bass; or a model of piano accompaniments, see
            `duet`.
        melody: one voice; of more the highest notes are taken, see `melody`.
        candidates: how many to draw; candidate i has generator (seed, i).
        temperature: 1 is the model's own distribution, 0 its likeliest event; None is what the
            checkpoint says, else 1.
        top_k, top_p, min_p: leave out unlikely events, see `Sampling`; None is what the checkpoint
            says, else 0.95 for top_p and nothing for the others. top_p=1 and min_p=0 keep all.
        parallels: factor on the probability of a pitch that makes a parallel fifth or octave with
            a voice above it, see `counterpoint`; 1 leaves the model alone. It is no part of `nll`.
            Chorales only.
        seed: the same seed, the same music.
        context: how many ids the model reads at once; its own context by default.
        keep_key: read the melody where it is, even outside the soprano's range. Chorales only; a
            piano always does.
        keep_silence: compose during the silence before the melody too.
        progress: called after every event with how much is done and how much there is.

    Raises:
        ConfigError: a setting outside its range, or a model that accompanies nothing.
        MidiError: a melody without notes.
        TokenError: a melody too long for a grid.
    """
    tokenizer = session.tokenizer
    if not isinstance(tokenizer, AccompanimentTokenizer | ChoraleTokenizer):
        raise ConfigError(
            f"{session.path}: this checkpoint does not accompany, it continues "
            f"{tokenizer.kind}s; take one of chorales, such as bach, or of accompaniments, "
            "such as piano-accompaniment."
        )
    if candidates < 1:
        raise ConfigError(f"candidates={candidates}; choose 1 or more.")
    filters = choose_filters(Sampling(temperature, top_k, top_p, min_p), session.sampling)
    check_parallels(parallels)
    if isinstance(tokenizer, AccompanimentTokenizer):
        duets = play_to(
            session,
            melody,
            candidates=candidates,
            filters=filters,
            seed=seed,
            context=context,
            keep_silence=keep_silence,
            progress=progress,
        )
        return [Accompaniment(duet.notes, duet.ids, duet.report.nll, duet.report) for duet in duets]
    window_ids = context_of(session.config, context)
    given = read_melody(melody)
    ranges = voice_ranges(session.training)
    shift = 0 if keep_key or ranges is None else transposition_into(given, ranges[0])
    skipped = 0 if keep_silence else given.leading_sixteenths
    cells = given.cells[skipped:]

    started = time.perf_counter()
    with evaluating(session.model):
        composed = _compose(
            session,
            np.where(cells < 0, SILENCE, cells + shift),
            masks=_masks(tokenizer.vocab_size, ranges, shift),
            filters=filters,
            parallels=parallels,
            generators=[sample_generator(seed, number) for number in range(candidates)],
            context=window_ids,
            progress=progress,
        )
    elapsed = time.perf_counter() - started

    by_cell = composed.nll.reshape(candidates, -1, N_VOICES)  # (B, T, 4)
    nll = by_cell[:, :, 1:].mean(axis=(1, 2))  # (B,)
    by_voice = by_cell.mean(axis=1)  # (B, 4)
    outside = 0 if ranges is None else given.outside(ranges[0], shift)
    warnings = (*given.warnings, *_range_warnings(given, ranges, shift, outside))
    results = []
    for rank, number in enumerate(np.argsort(nll, kind="stable").tolist(), start=1):
        ids = composed.ids[number]
        ids = np.where(ids == SILENCE, SILENCE, ids - shift)
        whole = [SILENCE] * (skipped * N_VOICES) + ids.tolist()
        report = AccompanimentReport(
            rank=rank,
            candidate=number,
            seed=seed,
            nll=float(nll[number]),
            nll_by_voice=dict(zip(VOICE_NAMES[1:], by_voice[number, 1:].tolist(), strict=True)),
            melody_nll=float(by_voice[number, 0]),
            sixteenths=len(cells),
            skipped_sixteenths=skipped,
            transposition=shift,
            outside_range=outside,
            windows_reread=composed.reread,
            elapsed_seconds=elapsed,
            events_per_second=composed.ids.size / max(elapsed, 1e-9),
            warnings=warnings,
        )
        notes = _with_lower_voices(given.notes, tokenizer, whole)
        results.append(Accompaniment(notes, whole, report.nll, report))
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


@dataclass(frozen=True)
class _Composed:
    """What was drawn: ids and negative log-likelihoods, both (B, 4T)."""

    ids: Ints
    nll: Floats
    reread: int


def _compose(
    session: Session,
    soprano: Ints,
    *,
    masks: Tensor,
    filters: Filters,
    parallels: float,
    generators: Sequence[torch.Generator],
    context: int,
    progress: Progress | None,
) -> _Composed:
    """Draw the three lower voices under the ids of the soprano (T,), one row a generator."""
    batch, length = len(generators), len(soprano) * N_VOICES
    ids = np.empty((batch, length), dtype=np.int64)
    nll = np.empty((batch, length))
    window = Window(session.model, batch, context=context)
    read = torch.full((batch, 1), session.tokenizer.start)  # (B, 1)
    for place in range(length):
        logits = window.read(read)  # (B, V)
        sixteenth, voice = divmod(place, N_VOICES)
        if voice == 0:
            taken = [int(soprano[sixteenth])] * batch
        else:
            allowed = logits.masked_fill(~masks[voice], -torch.inf)  # (B, V)
            if sixteenth > 0:
                begun = place - voice  # of this sixteenth
                before, drawn = ids[:, begun - N_VOICES : begun], ids[:, begun:place]
                allowed = discourage_parallels(allowed, before, drawn, [parallels] * batch)
            taken = draw(filters(allowed), generators)
        read = torch.tensor(taken)[:, None]  # (B, 1)
        ids[:, place] = taken
        nll[:, place] = -logits.log_softmax(dim=-1).gather(1, read)[:, 0].numpy()
        if progress is not None:
            progress(place + 1, length)
    return _Composed(ids, nll, window.reread)


def _masks(vocab_size: int, ranges: Sequence[Range] | None, shift: int) -> Tensor:
    """(4, V) bool, True = the voice may have this id: a pitch of its range, or silence.

    A pitch that transposing back would take off the keyboard of MIDI is left out.
    """
    masks = torch.zeros(N_VOICES, vocab_size, dtype=torch.bool)
    for voice, mask in enumerate(masks):
        low, high = (0, _HIGHEST_PITCH) if ranges is None else ranges[voice]
        mask[max(low, shift, 0) : min(high, _HIGHEST_PITCH + min(shift, 0)) + 1] = True
        mask[SILENCE] = True
    return masks


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


def _with_lower_voices(
    melody: NoteSequence, tokenizer: ChoraleTokenizer, ids: list[int]
) -> NoteSequence:
    """The melody's notes and, on the tempo map of their file, the lower voices of a grid."""
    grid = tokenizer.decode(ids, seconds_per_beat=1.0)  # its seconds are beats
    lower = grid.track > 0
    count = int(lower.sum())
    level = round(float(np.median(melody.velocity)))
    voice = grid.track[lower]
    return NoteSequence(
        pitch=np.append(melody.pitch, grid.pitch[lower]),
        velocity=np.append(melody.velocity, np.full(count, level)),
        start=np.append(melody.start, melody.tempos.at_quarters(grid.start[lower])),
        end=np.append(melody.end, melody.tempos.at_quarters(grid.end[lower])),
        channel=np.append(melody.channel, voice),
        track=np.append(melody.track, voice),
        pedals=melody.pedals,
        end_time=melody.end_time,
        tempos=melody.tempos,
    )
