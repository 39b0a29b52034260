"""How far a continuation is from its primer: answers that can be counted by hand."""

import numpy as np
import pytest

from music_transformer.evaluation.seam import MEASURES, part, seam_distances
from music_transformer.notes import NoteSequence


def notes(pitches, *, every=0.5, length=0.25, velocity=64, end_time=None):
    start = np.arange(len(pitches)) * every
    return NoteSequence(
        pitch=pitches,
        velocity=np.full(len(pitches), velocity),
        start=start,
        end=start + length,
        end_time=len(pitches) * every if end_time is None else end_time,
    )


SCALE = [60, 62, 64, 65, 67, 69, 71, 72]


def test_a_primer_is_at_no_distance_from_itself():
    assert set(seam_distances(notes(SCALE), notes(SCALE)).values()) == {0.0}


def test_each_measure_moves_with_what_it_measures():
    primer = notes(SCALE)
    louder = seam_distances(primer, notes(SCALE, velocity=84))
    assert louder["velocity"] == 20
    assert sum(louder.values()) == 20
    higher = seam_distances(primer, notes([p + 12 for p in SCALE]))
    assert higher["register"] == pytest.approx(12)
    assert sum(higher.values()) == pytest.approx(12)
    twice = seam_distances(primer, notes(SCALE, every=0.25, length=0.125))
    assert twice["onset_rate"] == pytest.approx(1)
    assert twice["note_length"] == pytest.approx(1)
    assert twice["inter_onset"] == 1
    other = seam_distances(primer, notes([p + 1 for p in SCALE]))
    assert other["pitch_classes"] == pytest.approx(6 / 8)  # they share F, and one C of two
    assert other["figures"] == 0
    assert seam_distances(primer, notes(SCALE[::-1]))["figures"] == 1
    assert set(seam_distances(primer, notes(SCALE))) == set(MEASURES)


def test_a_part_counts_only_what_begins_in_it():
    one = part(notes(SCALE, length=0.8), 1.0, 2.0)
    assert one.pitch.tolist() == [64, 65]
    assert one.end.tolist() == [0.8, 1.0]
    assert one.end_time == 1.0
