"""Continue a primer: `generate`, `generate_batch` and `stream`.

One loop serves all three: read the primer, then for every event draw one id per sample among those
the grammar allows, and read it. The length is asked for in seconds past the primer's end, which are
met exactly, or in events; with neither, 30 seconds. END is masked until then, which is to say
always. What still sounds at the end is closed there, and a chorale's last sixteenth gets all its
voices.

Times of the result lie on the grid of the events (10 ms, or sixteenths), the primer's too: `notes`
is what `decode` makes of the primer's ids and the new ones, so a note may sound across the join.

The same call on the same machine gives the same ids. Beside other samples a sample may, rarely,
differ from itself drawn alone, see `filters`.
"""

import math
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

from music_transformer.checkpoint import Session
from music_transformer.errors import ConfigError
from music_transformer.generation.counterpoint import DEFAULT_PARALLELS
from music_transformer.generation.filters import choose_filters
from music_transformer.generation.run import Draw, Generation, Run
from music_transformer.generation.settings import (
    DEFAULT_HOLD_SECONDS,
    DEFAULT_MAX_NOTE_SECONDS,
    Settings,
)
from music_transformer.notes import NoteSequence

#: Called with how much is done and how much is asked for, in seconds or in events.
Progress = Callable[[float, float], None]


def generate(
    session: Session,
    primer: NoteSequence | Sequence[int] | None = None,
    *,
    seconds: float | None = None,
    events: int | None = None,
    temperature: float | None = None,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
    hold_seconds: float | None = DEFAULT_HOLD_SECONDS,
    max_note_seconds: float = DEFAULT_MAX_NOTE_SECONDS,
    parallels: float = DEFAULT_PARALLELS,
    seed: int = 0,
    context: int | None = None,
    primer_seconds: float | None = None,
    keep_silence: bool = False,
    resample: int = 0,
    progress: Progress | None = None,
) -> Generation:
    """A continuation of the primer, or a piece from nothing.

    Args:
        session: what `load_checkpoint` gives.
        primer: notes, ids of the session's tokenizer, or None.
        seconds: the length past the primer's end; the default is 30.
        events: the length in events instead.
        temperature: 1 is the model's own distribution, 0 its likeliest event; None is what the
            checkpoint says, else 1.
        top_k, top_p, min_p: leave out unlikely events, see `Sampling`; None is what the checkpoint
            says, else 0.95 for top_p and nothing for the others. top_p=1 and min_p=0 keep all.
        hold_seconds: from this age on the end of a note grows likelier; None leaves it to the
            model, see `held`.
        max_note_seconds: a note is closed when it has lasted this long.
        parallels: chorales: factor on the probability of a pitch that makes a parallel fifth or
            octave, see `counterpoint`; 1 leaves the model alone.
        seed: the same seed, the same music.
        context: how many ids the model reads at once; its own context by default.
        primer_seconds: keep only the last part of the primer.
        keep_silence: keep the time before the primer's first note.
        resample: how often a continuation that degenerates (`degeneration`) is drawn again, with
            another generator; the best is kept, and the report names the others.
        progress: called after every event with how much is done and how much is asked for.

    Raises:
        ConfigError: a setting outside its range.
        MidiError: a primer without notes.
        TokenError: ids outside the vocabulary.
    """
    [generation] = generate_batch(
        session,
        primer,
        samples=1,
        seconds=seconds,
        events=events,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        hold_seconds=hold_seconds,
        max_note_seconds=max_note_seconds,
        parallels=parallels,
        seed=seed,
        context=context,
        primer_seconds=primer_seconds,
        keep_silence=keep_silence,
        resample=resample,
        progress=progress,
    )
    return generation


def generate_batch(
    session: Session,
    primer: NoteSequence | Sequence[int] | None = None,
    *,
    samples: int,
    resample: int = 0,
    progress: Progress | None = None,
    **settings: Any,
) -> list[Generation]:
    """Several continuations of one primer, drawn side by side; sample i has generator (seed, i).

    Those that degenerate are drawn again side by side, attempt j of sample i with generator
    (seed, i, j), until none does or each was drawn ``resample`` times more.

    Args:
        samples: how many.
        settings: the fields of `Settings`; they, `resample`, `progress` and the errors are as in
            `generate`.
    """
    if samples < 1:
        raise ConfigError(f"samples={samples}; choose 1 or more.")
    if resample < 0:
        raise ConfigError(f"resample={resample}; choose 0 or more.")
    how = Settings(**settings)
    if math.isinf(how.asked):
        raise ConfigError("seconds=inf never ends; use stream, and close it.")
    best = _drawn(session, primer, [Draw(how, number) for number in range(samples)], progress)
    filters = choose_filters(how.sampling, session.sampling)
    attempts = resample if filters.temperature > 0 else 0  # at 0 the next would be the same
    for attempt in range(1, attempts + 1):
        stuck = [number for number, one in enumerate(best) if one.report.degenerate]
        if not stuck:
            break
        draws = [Draw(how, number, attempt) for number in stuck]
        for number, again in zip(stuck, _drawn(session, primer, draws, progress), strict=True):
            best[number] = _better(best[number], again)
    return best


def _drawn(
    session: Session,
    primer: NoteSequence | Sequence[int] | None,
    draws: Sequence[Draw],
    progress: Progress | None,
) -> list[Generation]:
    run = Run(session, primer, draws)
    for _ in run.ids():
        if progress is not None:
            progress(run.done, run.settings.asked)
    return run.generations()


def _better(kept: Generation, again: Generation) -> Generation:
    """The one that breaks fewer rules, of equals the earlier, with the other in its report."""
    broken = [len(one.report.broken_rules) for one in (kept, again)]
    better, other = (again, kept) if broken[1] < broken[0] else (kept, again)
    discarded = {attempt: rules for one in (kept, again) for attempt, rules in one.report.discarded}
    discarded[other.report.attempt] = other.report.broken_rules
    report = replace(better.report, discarded=tuple(sorted(discarded.items())))
    return replace(better, report=report)


def stream(
    session: Session,
    primer: NoteSequence | Sequence[int] | None = None,
    *,
    seconds: float | None = None,
    events: int | None = None,
    temperature: float | None = None,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
    hold_seconds: float | None = DEFAULT_HOLD_SECONDS,
    max_note_seconds: float = DEFAULT_MAX_NOTE_SECONDS,
    parallels: float = DEFAULT_PARALLELS,
    seed: int = 0,
    context: int | None = None,
    primer_seconds: float | None = None,
    keep_silence: bool = False,
) -> Generator[int, None, None]:
    """The new ids as they are sampled, the same as `generate` gives when it draws once.

    Closing the iterator stops the work. The arguments and errors are those of `generate`; errors
    come from this call, not from the first id. ``seconds=math.inf`` goes on until it is closed.
    """
    settings = Settings(
        seconds=seconds,
        events=events,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        hold_seconds=hold_seconds,
        max_note_seconds=max_note_seconds,
        parallels=parallels,
        seed=seed,
        context=context,
        primer_seconds=primer_seconds,
        keep_silence=keep_silence,
    )
    run = Run(session, primer, [Draw(settings)])
    return _ids_of(run)


def _ids_of(run: Run) -> Generator[int, None, None]:
    with closing(run.ids()) as numbered:
        for _, event_id in numbered:
            yield event_id
