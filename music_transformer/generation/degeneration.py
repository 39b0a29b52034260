"""When music is stuck: rules that generated continuations break and performances hardly ever do.

| rule | broken when |
| --- | --- |
| ``empty`` | no note begins |
| ``silent`` | nothing sounds for more than 15 s |
| ``sparse`` | fewer than 5 notes begin in some 20 s |
| ``one_pitch`` | one pitch is more than 60 % of the notes of some 15 s |
| ``trill`` | two pitches are more than 90 % of the notes of some 20 s |
| ``loop`` | the same notes, 32 at most, go round for 80 notes or for 10 s, three times at least |
| ``stuck_notes`` | for over 30 s of some 60 s a note sounds that has lasted more than 8 s |

The thresholds were set by two minutes of every training performance of MAESTRO; docs/piano.md has
the rates of false alarms. Seconds are those since the end of the primer; stretches begin at every
whole second, and a shorter continuation is one stretch. A loop is one of pitches: the rhythm may
differ.
"""

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from music_transformer.notes import NoteSequence

LONGEST_SILENCE_SECONDS = 15.0
SPARSE_SECONDS, SPARSE_NOTES = 20.0, 5
ONE_PITCH_SECONDS, ONE_PITCH_SHARE = 15.0, 0.6
TRILL_SECONDS, TRILL_SHARE = 20.0, 0.9
LOOP_PERIOD, LOOP_ROUNDS, LOOP_NOTES, LOOP_SECONDS = 32, 3, 80, 10.0
LOOP_LEAST_NOTES = 24  # a loop of 10 s has these at least
STUCK_SECONDS, STUCK_AFTER_SECONDS, STUCK_FOR_SECONDS = 60.0, 8.0, 30.0
ENOUGH_NOTES = 20  # for shares of pitches to mean something

_GRID = 10  # moments per second at which stuck notes are looked for


def degeneracies(continuation: NoteSequence) -> list[str]:
    """What is wrong with music that a model got stuck in, one line each; usually none."""
    return list(broken_rules(continuation).values())


def broken_rules(continuation: NoteSequence, name: str = "the continuation") -> dict[str, str]:
    """The rules that are broken, each with a line that says how; usually none.

    Args:
        continuation: the notes that begin after the primer, whose end is 0.
        name: what the lines call it.
    """
    if continuation.end_time <= 0:
        return {}
    if not len(continuation):
        return {"empty": f"{name} has no notes"}
    lines = ((broken, rule(continuation)) for broken, rule in _RULES.items())
    return {broken: f"{name} {line}" for broken, line in lines if line is not None}


def _stretches(notes: NoteSequence, seconds: float) -> Iterator[tuple[float, int, int]]:
    """(begin in seconds, first note, last note + 1) of every stretch of so many seconds."""
    begins = np.arange(0.0, max(notes.end_time - seconds, 0.0) + 1e-9)
    firsts = np.searchsorted(notes.start, begins)
    stops = np.searchsorted(notes.start, begins + seconds)
    yield from zip(begins.tolist(), firsts.tolist(), stops.tolist(), strict=True)


def _silent(notes: NoteSequence) -> str | None:
    quiet_from = np.append(0.0, np.maximum.accumulate(notes.end))
    silence = float((np.append(notes.start, notes.end_time) - quiet_from).max())
    if silence <= LONGEST_SILENCE_SECONDS:
        return None
    return f"is silent for {silence:.1f} s"


def _sparse(notes: NoteSequence) -> str | None:
    if notes.end_time < SPARSE_SECONDS:
        return None
    begin, first, stop = min(_stretches(notes, SPARSE_SECONDS), key=lambda one: one[2] - one[1])
    count = stop - first
    if count >= SPARSE_NOTES:
        return None
    some = {0: "no note begins", 1: "one note begins"}.get(count, f"{count} notes begin")
    return f"all but stops: {some} {_span(notes, begin, SPARSE_SECONDS)}"


def _one_pitch(notes: NoteSequence) -> str | None:
    if (found := _crowded(notes, ONE_PITCH_SECONDS, 1, ONE_PITCH_SHARE)) is None:
        return None
    share, where = found
    return f"repeats one note: {share:.0%} of those {where}"


def _trill(notes: NoteSequence) -> str | None:
    if (found := _crowded(notes, TRILL_SECONDS, 2, TRILL_SHARE)) is None:
        return None
    share, where = found
    return f"is caught between two pitches: {share:.0%} of the notes {where}"


def _span(notes: NoteSequence, begin: float, seconds: float) -> str:
    return f"from its second {begin:g} to {min(begin + seconds, notes.end_time):.0f}"


def _crowded(
    notes: NoteSequence, seconds: float, pitches: int, limit: float
) -> tuple[float, str] | None:
    """The largest share of the commonest pitches, and where, if it is over the limit."""
    largest, where = 0.0, 0.0
    for begin, first, stop in _stretches(notes, seconds):
        if stop - first >= ENOUGH_NOTES:
            counts = np.sort(np.bincount(notes.pitch[first:stop]))
            share = float(counts[-pitches:].sum()) / (stop - first)
            if share > largest:
                largest, where = share, begin
    return (largest, _span(notes, where, seconds)) if largest > limit else None


def _loop(notes: NoteSequence) -> str | None:
    """The shortest period counts: 4 notes that go round are also 8 that do."""
    for period in range(1, min(LOOP_PERIOD, len(notes.pitch) // LOOP_ROUNDS) + 1):
        same = (notes.pitch[period:] == notes.pitch[:-period]).astype(np.int8)
        edges = np.flatnonzero(np.diff(np.concatenate([[0], same, [0]])))
        for first, stop in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
            length = stop - first + period
            seconds = notes.start[first + length - 1] - notes.start[first]
            long = length >= LOOP_NOTES or (seconds >= LOOP_SECONDS and length >= LOOP_LEAST_NOTES)
            if long and length >= LOOP_ROUNDS * period:
                what = "note" if period == 1 else f"{period} notes"
                return (
                    f"repeats the same {what} for {seconds:.1f} s after "
                    f"{notes.start[first]:.1f} s; a higher temperature may help"
                )
    return None


def _stuck_notes(notes: NoteSequence) -> str | None:
    stuck_from = notes.start + STUCK_AFTER_SECONDS
    stuck = stuck_from < notes.end
    if not stuck.any():
        return None
    moments = (np.arange(max(int(notes.end_time * _GRID), 1)) + 0.5) / _GRID  # (M,)
    begun = np.searchsorted(np.sort(stuck_from[stuck]), moments)
    over = np.searchsorted(np.sort(notes.end[stuck]), moments)
    longest = float(_moving_sum(begun > over, int(STUCK_SECONDS * _GRID)).max()) / _GRID
    if longest <= STUCK_FOR_SECONDS:
        return None
    return (
        f"holds notes too long: for {longest:.0f} s one sounds that has lasted "
        f"more than {STUCK_AFTER_SECONDS:g} s"
    )


def _moving_sum(values: npt.NDArray[np.bool_], width: int) -> npt.NDArray[np.int64]:
    """How many of every ``width`` successive values are true; of all, where there are fewer."""
    width = min(width, len(values))
    total = np.concatenate([[0], np.cumsum(values)])
    sums: npt.NDArray[np.int64] = total[width:] - total[:-width]
    return sums


_RULES: dict[str, Callable[[NoteSequence], str | None]] = {
    "silent": _silent,
    "sparse": _sparse,
    "one_pitch": _one_pitch,
    "trill": _trill,
    "loop": _loop,
    "stuck_notes": _stuck_notes,
}
