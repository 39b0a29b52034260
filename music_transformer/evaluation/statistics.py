"""Musical statistics of notes and of chorales: what an NLL does not show.

`describe` measures a performance, `describe_chorale` a grid of four voices, `average` several of
either. Each metric below is a function that states its range, unit and source; none needs a model
or torch, so the same numbers can be read off the data and off samples.

Times are seconds of sounding notes: the pedal is applied first (`NoteSequence.sustained`), because
generated notes have it applied already. The span measured runs from the first onset to the end of
the last note; silence before and after does not count. Statistics of repetition grow with length:
compare excerpts of the same length.

Sources: Yang and Lerch 2020, "On the evaluation of generative models in music" (counts, ranges,
pitch classes, inter-onset intervals); Wu and Yang 2020, "The Jazz Transformer on the front line"
(pitch-class entropy); Dong et al. 2020, "MusPy" (polyphony rate); for part-writing any textbook of
four-part harmony. Repetition is measured in our own, plain way.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from music_transformer.errors import MidiError, TokenError
from music_transformer.notes import STEPS_PER_SECOND, NoteSequence
from music_transformer.representations.chorale.grid import SIXTEENTHS_PER_BEAT, VOICE_NAMES

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
Numbers = Mapping[str, "float | list[float]"]

PITCH_CLASSES = ("C", "C#", "D", "Eb", "E", "F", "F#", "G", "Ab", "A", "Bb", "B")
INTER_ONSET_EDGES = (0.0, 0.01, 0.03, 0.1, 0.2, 0.4, 0.8, 1.6)  # seconds; the last bin is open
CHORD_SECONDS = 0.03  # notes that start within this of the first of them are one chord
NGRAM = 8  # notes

_FIFTH, _OCTAVE = 7, 0  # intervals modulo 12


def describe(notes: NoteSequence) -> dict[str, float | list[float]]:
    """All statistics of a performance, by name; see the function of each for range and unit.

    Raises:
        MidiError: there are no notes.
    """
    if len(notes) == 0:
        raise MidiError("no notes to describe.")
    notes = notes.sustained()
    onset, pitch = notes.start, notes.pitch
    end = np.maximum(notes.end, onset + 1 / STEPS_PER_SECOND)  # as events have it: a step at least
    chords = chord_labels(onset, pitch)
    return {
        "notes": float(len(notes)),
        "seconds": float(end.max() - onset.min()),
        "notes_per_second": note_density(onset, end),
        **polyphony(onset, end),
        "pitch_lowest": float(pitch.min()),
        "pitch_highest": float(pitch.max()),
        "pitch_mean": float(pitch.mean()),
        "pitch_class_share": pitch_class_shares(pitch),
        "pitch_class_entropy_bits": pitch_class_entropy(pitch),
        "inter_onset_share": inter_onset_shares(onset),
        "inter_onset_median_seconds": inter_onset_median(onset),
        "note_seconds_mean": float((end - onset).mean()),
        "note_seconds_median": float(np.median(end - onset)),
        "velocity_mean": float(notes.velocity.mean()),
        "velocity_sd": float(notes.velocity.std()),
        "longest_run_notes": float(longest_run(pitch)),
        "repeated_ngram_share": repeated_ngram_share(pitch),
        "repeated_chord_ratio": repeat_ratio(chords),
    }


def note_density(onset: FloatArray, end: FloatArray) -> float:
    """Notes per second from the first onset to the last end. Range (0, inf).

    Source: Yang and Lerch 2020 (note count over time).
    """
    return len(onset) / float(end.max() - onset.min())


def polyphony(onset: FloatArray, end: FloatArray) -> dict[str, float]:
    """How many notes sound at once, over time.

    - ``polyphony_mean``: notes, mean over the time in which any sounds. Range [1, 128].
    - ``polyphony_max``: notes. Range [1, N].
    - ``polyphony_share``: time with two notes or more, over the span. Range [0, 1].
      Source: Dong et al. 2020 (polyphony rate), with time in place of time steps.
    - ``silence_share``: time in which nothing sounds, over the span. Range [0, 1].
    - ``silence_longest_seconds``: the longest such rest. Range [0, span].
    """
    moments = np.concatenate([onset, end])
    change = np.repeat([1, -1], len(onset))
    order = np.argsort(moments, kind="stable")
    sounding = np.cumsum(change[order])[:-1]  # (2N-1,): between successive moments
    seconds = np.diff(moments[order])  # (2N-1,)
    lasting = sounding[seconds > 0]
    span, silent = seconds.sum(), sounding == 0
    return {
        "polyphony_mean": float((sounding * seconds).sum() / seconds[~silent].sum()),
        "polyphony_max": float(lasting.max()),
        "polyphony_share": float(seconds[sounding >= 2].sum() / span),
        "silence_share": float(seconds[silent].sum() / span),
        "silence_longest_seconds": float(seconds[silent].max(initial=0.0)),
    }


def pitch_class_shares(pitch: IntArray) -> list[float]:
    """Share of the notes on each pitch class, C first. 12 numbers in [0, 1], sum 1.

    Source: Yang and Lerch 2020 (pitch class histogram).
    """
    shares: list[float] = (np.bincount(pitch % 12, minlength=12) / len(pitch)).tolist()
    return shares


def pitch_class_entropy(pitch: IntArray) -> float:
    """Entropy of the pitch classes in bits. Range [0, log2 12 = 3.585]: one class to all alike.

    Source: Wu and Yang 2020 (H1, here over the whole excerpt).
    """
    shares = np.array(pitch_class_shares(pitch))
    shares = shares[shares > 0]
    return float((shares * np.log2(1 / shares)).sum())


def inter_onset_shares(onset: FloatArray) -> list[float]:
    """Share of the gaps between successive onsets in each bin of `INTER_ONSET_EDGES`.

    8 numbers in [0, 1], sum 1; zeros for a single note. The first bin (under 10 ms) is notes struck
    together. A bin holds its lower edge.

    Source: Yang and Lerch 2020 (inter-onset interval), binned.
    """
    gaps = np.diff(np.sort(onset))
    # Rounded to a microsecond, so that 0.41 - 0.4 falls on the edge it is meant to be at.
    bins = np.searchsorted(INTER_ONSET_EDGES, gaps.round(6), side="right") - 1
    counts = np.bincount(bins, minlength=len(INTER_ONSET_EDGES))
    shares: list[float] = (counts / max(len(gaps), 1)).tolist()
    return shares


def inter_onset_median(onset: FloatArray) -> float:
    """Median gap in seconds between successive chords (`CHORD_SECONDS`). Range [0, inf); 0 for one.

    Source: Yang and Lerch 2020 (mean inter-onset interval; the median, because rests are long).
    """
    first_of_chord = onset[np.unique(chord_index(onset), return_index=True)[1]]
    return float(np.median(np.diff(first_of_chord))) if len(first_of_chord) > 1 else 0.0


def chord_index(onset: FloatArray) -> IntArray:
    """Number of the chord each note belongs to, (N,), from 0; `onset` ascending, in seconds.

    A chord is a note and those that start less than `CHORD_SECONDS` after it.
    """
    index = np.zeros(len(onset), dtype=np.int64)
    chord, first = 0, onset[0] if len(onset) else 0.0
    for i, moment in enumerate(onset.tolist()):
        if moment - first >= CHORD_SECONDS - 1e-6:
            chord, first = chord + 1, moment
        index[i] = chord
    return index


def chord_labels(onset: FloatArray, pitch: IntArray) -> list[tuple[int, ...]]:
    """The chords in order, each the ascending tuple of its distinct pitches."""
    index = chord_index(onset)
    groups = np.split(pitch, np.flatnonzero(np.diff(index)) + 1)
    return [tuple(np.unique(group).tolist()) for group in groups]


def repeat_ratio(items: Sequence[Any]) -> float:
    """Share of the items, from the second on, that equal the one before. Range [0, 1]; 0 for one.

    Source: our own. Over chords: how often the same chord is struck again.
    """
    repeats = sum(bool(a == b) for a, b in pairwise(items))
    return repeats / max(len(items) - 1, 1)


def longest_run(pitch: IntArray) -> int:
    """Longest run of one pitch in the order of onsets, in notes. Range [1, N].

    Source: our own; the failure it shows is a model that hammers one key.
    """
    breaks = np.flatnonzero(np.diff(pitch)) + 1
    return int(np.diff(np.concatenate([[0], breaks, [len(pitch)]])).max())


def repeated_ngram_share(pitch: IntArray, n: int = NGRAM) -> float:
    """Share of the n-grams of successive pitches that occurred before. Range [0, 1).

    Notes in the order of onset, then pitch; transpositions are other n-grams. High values mean
    literal repetition; 0, that nothing comes back or that there are fewer than n notes.

    Source: our own, after the n-gram repetition measures of text generation.
    """
    if len(pitch) < n:
        return 0.0
    grams = np.lib.stride_tricks.sliding_window_view(pitch, n)  # (N-n+1, n)
    return 1 - len(np.unique(grams, axis=0)) / len(grams)


def describe_chorale(grid: npt.ArrayLike) -> dict[str, float | list[float]]:
    """All statistics of a chorale, by name.

    - ``sixteenths``: T.
    - ``VOICE_lowest``, ``VOICE_highest``: MIDI pitch, of each voice that sounds at all.
    - ``pitch_class_share``, ``pitch_class_entropy_bits``: over sounding cells.
    - ``silence_share``: share of cells that are silent. Range [0, 1].
    - see `crossing_share`, `parallels`, `repeated_beat_ratio`, `moves_per_beat`.

    Args:
        grid: (T, 4), a row per sixteenth in the order S A T B, MIDI pitch, negative for silence.

    Raises:
        TokenError: the grid has another shape, or no note.
    """
    cells = np.asarray(grid, dtype=np.int64)
    if cells.ndim != 2 or cells.shape[1] != len(VOICE_NAMES):
        raise TokenError(f"a chorale is a grid (T, 4), not {cells.shape}.")
    pitch = cells[cells >= 0]
    if len(pitch) == 0:
        raise TokenError("no notes to describe.")
    ranges: dict[str, float | list[float]] = {}
    for name, voice in zip(VOICE_NAMES, cells.T, strict=True):
        if (voice >= 0).any():
            ranges[f"{name}_lowest"] = float(voice[voice >= 0].min())
            ranges[f"{name}_highest"] = float(voice.max())
    return {
        "sixteenths": float(len(cells)),
        **ranges,
        "pitch_class_share": pitch_class_shares(pitch),
        "pitch_class_entropy_bits": pitch_class_entropy(pitch),
        "silence_share": float((cells < 0).mean()),
        "crossing_share": crossing_share(cells),
        **parallels(cells),
        "repeated_beat_ratio": repeated_beat_ratio(cells),
        "moves_per_beat": moves_per_beat(cells),
    }


def crossing_share(grid: IntArray) -> float:
    """Share of the sixteenths at which some voice lies above the next higher one. Range [0, 1].

    Adjacent voices that both sound are compared; a unison is no crossing.
    """
    upper, lower = grid[:, :-1], grid[:, 1:]  # both (T, 3)
    crossed = (upper >= 0) & (lower >= 0) & (lower > upper)
    return float(crossed.any(axis=1).mean())


def parallels(grid: IntArray) -> dict[str, float]:
    """Parallel fifths and octaves per pair-motion: how many of the moves of two voices at once.

    A pair-motion is two voices that both move to another pitch from one sixteenth to the next. It
    is parallel when both go the same way and the interval is the same perfect one before and after,
    up to octaves (unisons count as octaves). Both shares in [0, 1]; 0 where no two voices ever move
    together. ``pair_motions`` is their number.

    Source: the rule of four-part harmony; counting per pair-motion is our own.
    """
    before, after = grid[:-1], grid[1:]  # both (T-1, 4)
    step = np.where((before >= 0) & (after >= 0), after - before, 0)  # (T-1, 4); 0: no move
    motions = fifths = octaves = 0
    for upper, lower in zip(*np.triu_indices(len(VOICE_NAMES), k=1), strict=True):
        both = (step[:, upper] != 0) & (step[:, lower] != 0)
        alike = both & (np.sign(step[:, upper]) == np.sign(step[:, lower]))
        interval = np.abs(before[:, upper] - before[:, lower]) % 12
        kept = alike & (interval == np.abs(after[:, upper] - after[:, lower]) % 12)
        motions += int(both.sum())
        fifths += int((kept & (interval == _FIFTH)).sum())
        octaves += int((kept & (interval == _OCTAVE)).sum())
    return {
        "pair_motions": float(motions),
        "parallel_fifths": fifths / max(motions, 1),
        "parallel_octaves": octaves / max(motions, 1),
    }


def repeated_beat_ratio(grid: IntArray) -> float:
    """Share of beats, from the second on, that start on the chord of the beat before. Range [0, 1].

    Held and struck again look the same on the grid. Source: our own.
    """
    return repeat_ratio(grid[::SIXTEENTHS_PER_BEAT].tolist())


def moves_per_beat(grid: IntArray) -> float:
    """Moves to another pitch, per voice and beat. Range [0, 4]; 1 is plain chords in quarters.

    To and from silence counts. Source: our own (harmonic and melodic motion in one number).
    """
    if len(grid) < 2:
        return 0.0
    return float((grid[1:] != grid[:-1]).mean() * SIXTEENTHS_PER_BEAT)


def average(descriptions: Sequence[Numbers]) -> dict[str, dict[str, float | list[float]]]:
    """``{"mean": ..., "sd": ...}`` of every number over the pieces, element by element in lists.

    A name that some pieces lack (a voice that never sounds) is averaged over those that have it.
    The sd is that of the pieces (0 for one).

    Raises:
        ValueError: there is nothing to average.
    """
    if not descriptions:
        raise ValueError("average: no descriptions.")
    names = dict.fromkeys(name for one in descriptions for name in one)
    mean: dict[str, float | list[float]] = {}
    sd: dict[str, float | list[float]] = {}
    for name in names:
        values = np.array([one[name] for one in descriptions if name in one], dtype=np.float64)
        mean[name] = values.mean(axis=0).tolist()
        sd[name] = values.std(axis=0).tolist()
    return {"mean": mean, "sd": sd}
