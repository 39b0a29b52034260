"""Musical statistics of notes and of chorales, and beside those of data: what an NLL does not show.

`describe` measures a performance, `describe_chorale` a grid of four voices, `average` several of
either, `beside` several against data. None needs a model or torch, so the same numbers can be read
off the data and off samples.

Times are seconds of sounding notes: the pedal is applied first (`NoteSequence.sustained`), because
generated notes have it applied already. The span measured runs from the first onset to the end of
the last note; silence before and after does not count. Statistics of repetition grow with length:
compare excerpts of the same length.

Sources: [YL] Yang and Lerch 2020, "On the evaluation of generative models in music" (counts,
ranges, pitch classes, inter-onset intervals, distances within and between sets); [WY] Wu and Yang
2020, "The Jazz Transformer on the front line" (pitch-class entropy); [D] Dong et al. 2020, "MusPy"
(polyphony rate); for part-writing any textbook of four-part harmony. Repetition, and what names no
source, is measured in our own, plain way.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from music_transformer.errors import MidiError, TokenError
from music_transformer.notes import STEPS_PER_SECOND, NoteSequence
from music_transformer.representations.chorale.grid import SIXTEENTHS_PER_BEAT, VOICE_NAMES
from music_transformer.representations.ids import Floats, Ints

Numbers = Mapping[str, "float | list[float]"]

INTER_ONSET_EDGES = (0.0, 0.01, 0.03, 0.1, 0.2, 0.4, 0.8, 1.6)  # seconds; the last bin is open
CHORD_SECONDS = 0.03  # notes that start within this of the first of them are one chord
NGRAM = 8  # notes

_FIFTH, _OCTAVE = 7, 0  # intervals modulo 12


def describe(notes: NoteSequence) -> dict[str, float | list[float]]:
    """All statistics of a performance, by name, seconds and MIDI numbers where no range is given.

    - ``notes_per_second``: from the first onset to the last end. Range (0, inf) [YL].
    - see `polyphony`, and `pitch_classes` for ``pitch_class_share`` and its entropy.
    - ``inter_onset_share``: see `inter_onset_shares`.
    - ``inter_onset_median_seconds``: between successive chords, 0 for one. Range [0, inf) [YL: the
      mean; the median, because rests are long].
    - ``longest_run_notes``: of one pitch in the order of onsets. Range [1, N]. The failure it shows
      is a model that hammers one key.
    - ``repeated_ngram_share``: see there. ``repeated_chord_ratio``: `repeat_ratio` of chords.

    Raises:
        MidiError: there are no notes.
    """
    if len(notes) == 0:
        raise MidiError("no notes to describe.")
    notes = notes.sustained()
    onset, pitch = notes.start, notes.pitch
    end = np.maximum(notes.end, onset + 1 / STEPS_PER_SECOND)  # as events have it: a step at least
    seconds = float(end.max() - onset.min())
    first_of_chord = onset[np.unique(chord_index(onset), return_index=True)[1]]
    gaps = np.diff(first_of_chord) if len(first_of_chord) > 1 else np.zeros(1)
    return {
        "notes": float(len(notes)),
        "seconds": seconds,
        "notes_per_second": len(notes) / seconds,
        **polyphony(onset, end),
        "pitch_lowest": float(pitch.min()),
        "pitch_highest": float(pitch.max()),
        "pitch_mean": float(pitch.mean()),
        **pitch_classes(pitch),
        "inter_onset_share": inter_onset_shares(onset),
        "inter_onset_median_seconds": float(np.median(gaps)),
        "note_seconds_mean": float((end - onset).mean()),
        "note_seconds_median": float(np.median(end - onset)),
        "velocity_mean": float(notes.velocity.mean()),
        "velocity_sd": float(notes.velocity.std()),
        "longest_run_notes": float(longest_run(pitch)),
        "repeated_ngram_share": repeated_ngram_share(pitch),
        "repeated_chord_ratio": repeat_ratio(chord_labels(onset, pitch)),
    }


def polyphony(onset: Floats, end: Floats) -> dict[str, float]:
    """How many notes sound at once, over time.

    - ``polyphony_mean``: notes, mean over the time in which any sounds. Range [1, 128].
    - ``polyphony_max``: notes. Range [1, N].
    - ``polyphony_share``: time with two notes or more, over the span. Range [0, 1] [D, with time in
      place of time steps].
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


def pitch_classes(pitch: Ints) -> dict[str, float | list[float]]:
    """What share of the notes is on each pitch class, and how evenly.

    - ``pitch_class_share``: C first, 12 numbers in [0, 1], sum 1 [YL].
    - ``pitch_class_entropy_bits``: range [0, log2 12 = 3.585], one class to all alike [WY: H1, here
      over the whole excerpt].
    """
    shares = np.bincount(pitch % 12, minlength=12) / len(pitch)
    some = shares[shares > 0]
    return {
        "pitch_class_share": shares.tolist(),
        "pitch_class_entropy_bits": float((some * np.log2(1 / some)).sum()),
    }


def inter_onset_shares(onset: Floats) -> list[float]:
    """Share of the gaps between successive onsets in each bin of `INTER_ONSET_EDGES` [YL, binned].

    8 numbers in [0, 1], sum 1; zeros for a single note. The first bin (under 10 ms) is notes struck
    together. A bin holds its lower edge.
    """
    gaps = np.diff(np.sort(onset))
    # Rounded to a microsecond, so that 0.41 - 0.4 falls on the edge it is meant to be at.
    bins = np.searchsorted(INTER_ONSET_EDGES, gaps.round(6), side="right") - 1
    counts = np.bincount(bins, minlength=len(INTER_ONSET_EDGES))
    shares: list[float] = (counts / max(len(gaps), 1)).tolist()
    return shares


def chord_index(onset: Floats) -> Ints:
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


def chord_labels(onset: Floats, pitch: Ints) -> list[tuple[int, ...]]:
    """The chords in order, each the ascending tuple of its distinct pitches."""
    index = chord_index(onset)
    groups = np.split(pitch, np.flatnonzero(np.diff(index)) + 1)
    return [tuple(np.unique(group).tolist()) for group in groups]


def repeat_ratio(items: Sequence[Any]) -> float:
    """Share of the items, from the second on, that equal the one before: [0, 1]; 0 for one."""
    return sum(bool(a == b) for a, b in pairwise(items)) / max(len(items) - 1, 1)


def longest_run(pitch: Ints) -> int:
    """Longest run of one pitch in the order of onsets, in notes. Range [1, N]."""
    breaks = np.flatnonzero(np.diff(pitch)) + 1
    return int(np.diff(np.concatenate([[0], breaks, [len(pitch)]])).max())


def repeated_ngram_share(pitch: Ints, n: int = NGRAM) -> float:
    """Share of the n-grams of successive pitches that occurred before. Range [0, 1).

    Notes in the order of onset, then pitch; transpositions are other n-grams. High values mean
    literal repetition; 0, that nothing comes back or that there are fewer than n notes.
    """
    if len(pitch) < n:
        return 0.0
    grams = np.lib.stride_tricks.sliding_window_view(pitch, n)  # (N-n+1, n)
    return 1 - len(np.unique(grams, axis=0)) / len(grams)


def describe_chorale(grid: ArrayLike) -> dict[str, float | list[float]]:
    """All statistics of a chorale, by name.

    - ``sixteenths``: T.
    - ``VOICE_lowest``, ``VOICE_highest``: MIDI pitch, of each voice that sounds at all.
    - ``pitch_class_share``, ``pitch_class_entropy_bits``: `pitch_classes` of the sounding cells.
    - ``silence_share``: share of cells that are silent. Range [0, 1].
    - ``crossing_share``: share of the sixteenths at which some voice lies above the next higher
      one, both sounding; a unison is no crossing. Range [0, 1].
    - see `parallels`.
    - ``repeated_beat_ratio``: share of beats, from the second on, that start on the chord of the
      beat before; held and struck again look the same on the grid. Range [0, 1].
    - ``moves_per_beat``: moves to another pitch, or to and from silence, per voice and beat. Range
      [0, 4]; 1 is plain chords in quarters.

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
    upper, lower = cells[:, :-1], cells[:, 1:]  # both (T, 3)
    crossed = (upper >= 0) & (lower >= 0) & (lower > upper)
    moved = cells[1:] != cells[:-1] if len(cells) > 1 else np.zeros(1)
    return {
        "sixteenths": float(len(cells)),
        **ranges,
        **pitch_classes(pitch),
        "silence_share": float((cells < 0).mean()),
        "crossing_share": float(crossed.any(axis=1).mean()),
        **parallels(cells),
        "repeated_beat_ratio": repeat_ratio(cells[::SIXTEENTHS_PER_BEAT].tolist()),
        "moves_per_beat": float(moved.mean() * SIXTEENTHS_PER_BEAT),
    }


def parallels(grid: Ints) -> dict[str, float]:
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


def beside(pieces: Sequence[Numbers], data: Sequence[Numbers]) -> dict[str, Any]:
    """Numbers of the pieces, mean and sd, and the same of the data under ``data``.

    To the means come ``pitch_class_distance``, to the data, and for chorales the parallels are
    those of `pooled_parallels`. Samples are like the data where the distance is as within the data.

    Raises:
        ValueError: there is nothing to compare.
    """
    sides: list[dict[str, Any]] = []
    for one in (pieces, data):
        side: dict[str, Any] = {"pieces": len(one), **average(one)}
        side["mean"]["pitch_class_distance"] = mean_pitch_class_distance(one, data)
        if "pair_motions" in one[0]:
            side["mean"] |= pooled_parallels(one)
        sides.append(side)
    return {**sides[0], "data": sides[1]}


def mean_pitch_class_distance(pieces: Sequence[Numbers], data: Sequence[Numbers]) -> float:
    """Mean of `pitch_class_distance` over all pairs of a piece and one of the data. Range [0, 1].

    Where both are the same sequence, over the pairs of different pieces (0 for a single piece).
    Source: [YL], here of total variation and as a mean.
    """
    ours, theirs = ([one["pitch_class_share"] for one in side] for side in (pieces, data))
    total = sum(pitch_class_distance(share, theirs).sum() for share in ours)
    pairs = len(theirs) * (len(theirs) - 1) if pieces is data else len(ours) * len(theirs)
    return float(total / max(pairs, 1))


def pitch_class_distance(first: ArrayLike, second: ArrayLike) -> Floats:
    """Half the summed differences of pitch-class shares (12,) and (..., 12): (...).

    In the transposition that brings them nearest, so that C major is not far from D major for its
    key. Range [0, 1]: 0 for the same shares in any key, 1 for no class in common in every key.
    """
    turned = np.stack([np.roll(first, k) for k in range(12)])  # (12, 12)
    apart = np.abs(np.asarray(second)[..., None, :] - turned).sum(axis=-1) / 2  # (..., 12)
    nearest: Floats = apart.min(axis=-1)
    return nearest


def pooled_parallels(pieces: Sequence[Numbers]) -> dict[str, float]:
    """`parallels` over the pair-motions of all pieces together.

    So a short piece with one slip does not weigh as much as a long one.
    """
    motions = np.array([one["pair_motions"] for one in pieces], np.float64)
    total = max(float(motions.sum()), 1.0)
    return {
        name: float((motions * [one[name] for one in pieces]).sum()) / total
        for name in ("parallel_fifths", "parallel_octaves")
    }
