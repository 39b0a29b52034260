"""How well music goes on: nine measures of how far a continuation is from its primer.

0 is no change; pianists change too. A note counts in the part that it begins in, sustained, up to
its end.
"""

import numpy as np

from music_transformer.notes import NoteSequence
from music_transformer.representations.ids import Floats

CHORD_SECONDS = 0.035  # onsets closer than this are one chord
_INTER_ONSET_EDGES = 0.035 * 2.0 ** (np.arange(1, 14) / 2)  # half octaves, 50 ms to 3.2 s
_SHORTEST = 0.01
PRIMER_SECONDS = 10.0
#: Mean distance of the true continuations, 15 s, from primers of 10 s: MAESTRO validation, one
#: place in each of the 137 performances. |log2| is of a ratio, 1 for twice or half.
MEASURES = {
    "onset_rate": 0.48,  # |log2| of notes a second
    "polyphony": 0.34,  # |log2| of the notes that sound together
    "velocity": 7.5,  # difference of means
    "register": 4.5,  # semitones between mean pitches
    "width": 2.2,  # semitones between standard deviations of pitch
    "note_length": 0.62,  # |log2| of the geometric mean length
    "pitch_classes": 0.31,  # total variation, 0 to 1, weighted by duration
    "inter_onset": 0.34,  # total variation, 0 to 1, of times between chords
    "figures": 0.91,  # share of figures of three intervals that the primer lacks, 0 to 1
}


def part(notes: NoteSequence, start: float, end: float) -> NoteSequence:
    """The notes that begin from second `start` on (now 0) and before `end`, where they are cut."""
    notes = notes.sustained()
    return notes.selected((notes.start >= start) & (notes.start < end)).sliced(start, end)


def seam_distances(primer: NoteSequence, continuation: NoteSequence) -> dict[str, float]:
    """The `MEASURES` between two parts (see `part`); NaN where either has no notes."""
    if not len(primer) or not len(continuation):
        return dict.fromkeys(MEASURES, float("nan"))
    ours, theirs = _features(primer), _features(continuation)
    far = {name: abs(ours[name] - theirs[name]) for name in ours}
    for name, shares in (("pitch_classes", _pitch_classes), ("inter_onset", _inter_onsets)):
        far[name] = float(np.abs(shares(primer) - shares(continuation)).sum()) / 2
    known = set(_figures(primer))
    figures = _figures(continuation)
    far["figures"] = 1 - sum(f in known for f in figures) / max(len(figures), 1)
    return {name: far[name] for name in MEASURES}


def seam_distance(primer: NoteSequence, continuation: NoteSequence, begin: float = 0.0) -> float:
    """Mean of the distances, each over the pianists': 1 is as far as theirs; infinite for no notes.

    Of the last `PRIMER_SECONDS` of the primer, and half as much again from second `begin` of the
    continuation on.
    """
    end = primer.end_time
    given = part(primer, max(end - PRIMER_SECONDS, 0), end + 1e-6)
    distances = seam_distances(given, part(continuation, begin, begin + 1.5 * PRIMER_SECONDS))
    shares = [distances[name] / usual for name, usual in MEASURES.items()]
    return float(np.nan_to_num(np.mean(shares), nan=np.inf))


def _features(notes: NoteSequence) -> dict[str, float]:
    length = np.maximum(notes.end - notes.start, _SHORTEST)
    edges = np.sort(np.concatenate([notes.start, notes.end]))
    begun, ended = (
        np.searchsorted(np.sort(times), edges[:-1], side="right")
        for times in (notes.start, notes.end)
    )
    covered = max(float(np.diff(edges)[begun > ended].sum()), _SHORTEST)
    return {
        "onset_rate": float(np.log2(len(notes) / max(notes.end_time, _SHORTEST))),
        "polyphony": float(np.log2(max(length.sum() / covered, 1.0))),
        "velocity": float(notes.velocity.mean()),
        "register": float(notes.pitch.mean()),
        "width": float(notes.pitch.std()),
        "note_length": float(np.log2(length).mean()),
    }


def _pitch_classes(notes: NoteSequence) -> Floats:
    weights = np.maximum(notes.end - notes.start, _SHORTEST)
    shares: Floats = np.bincount(notes.pitch % 12, weights, minlength=12) / weights.sum()
    return shares


def _inter_onsets(notes: NoteSequence) -> Floats:
    gaps = np.diff(np.sort(notes.start))
    gaps = gaps[gaps > CHORD_SECONDS]
    bins = np.bincount(np.searchsorted(_INTER_ONSET_EDGES, gaps), minlength=14)
    shares: Floats = bins / max(len(gaps), 1)
    return shares


def _figures(notes: NoteSequence) -> list[tuple[int, ...]]:
    """Three intervals in a row of the highest notes of each chord."""
    order = np.argsort(notes.start, kind="stable")
    start, pitch = notes.start[order], notes.pitch[order]
    chord = np.cumsum(np.diff(start, prepend=start[0]) > CHORD_SECONDS)
    top = np.zeros(chord[-1] + 1, dtype=np.int64)
    np.maximum.at(top, chord, pitch)
    steps = np.diff(top).tolist()
    return list(zip(steps, steps[1:], steps[2:], strict=False))
