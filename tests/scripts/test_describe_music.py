"""Statistics: every number by hand on music small enough to count."""

import math
import subprocess
import sys

import numpy as np
import pytest
from describe_music import (
    average,
    chord_labels,
    describe,
    describe_chorale,
    inter_onset_shares,
    longest_run,
    parallels,
    polyphony,
    repeat_ratio,
    repeated_ngram_share,
)

from music_transformer.errors import MidiError, TokenError
from music_transformer.notes import NoteSequence, Pedals


def three_notes() -> NoteSequence:
    """C4 and E4 together for 1 s, silence to 3 s, C5 for 1 s."""
    return NoteSequence(
        pitch=[60, 64, 72], velocity=[40, 60, 80], start=[1.0, 1.0, 3.0], end=[2.0, 2.0, 4.0]
    )


def test_the_numbers_of_three_notes() -> None:
    found = describe(three_notes())
    assert found["notes"] == 3
    assert found["seconds"] == 3.0
    assert found["notes_per_second"] == 1.0
    assert found["polyphony_mean"] == 1.5  # 3 note-seconds in 2 s of sound
    assert found["polyphony_max"] == 2
    assert found["polyphony_share"] == pytest.approx(1 / 3)
    assert found["silence_share"] == pytest.approx(1 / 3)
    assert found["silence_longest_seconds"] == 1.0
    assert (found["pitch_lowest"], found["pitch_highest"]) == (60, 72)
    assert found["pitch_mean"] == pytest.approx(196 / 3)
    assert found["pitch_class_share"] == pytest.approx([2 / 3, 0, 0, 0, 1 / 3, *[0] * 7])
    two_to_one = 2 / 3 * math.log2(3 / 2) + 1 / 3 * math.log2(3)
    assert found["pitch_class_entropy_bits"] == pytest.approx(two_to_one)
    assert found["inter_onset_share"] == [0.5, 0, 0, 0, 0, 0, 0, 0.5]
    assert found["inter_onset_median_seconds"] == 2.0
    assert found["velocity_mean"] == 60
    assert found["velocity_sd"] == pytest.approx(math.sqrt(800 / 3))
    assert found["longest_run_notes"] == 1
    assert found["repeated_ngram_share"] == 0
    assert found["repeated_chord_ratio"] == 0


def test_a_single_note_has_all_numbers() -> None:
    found = describe(NoteSequence(pitch=[60], velocity=[64], start=[0.0], end=[0.5]))
    assert found["notes_per_second"] == 2.0
    assert found["inter_onset_median_seconds"] == 0.0
    assert found["pitch_class_entropy_bits"] == 0.0
    assert all(np.isfinite(np.ravel(value)).all() for value in found.values())


def test_the_pedal_counts_as_sound() -> None:
    pressed = NoteSequence(
        pitch=[60, 64],
        velocity=[64, 64],
        start=[0.0, 1.0],
        end=[0.5, 1.5],
        pedals=Pedals(channel=[0], start=[0.0], end=[2.0]),
    )
    assert describe(pressed)["silence_share"] == 0
    assert describe(pressed)["polyphony_max"] == 2
    assert describe(pressed) == describe(pressed.sustained())


def test_no_notes_are_refused() -> None:
    with pytest.raises(MidiError, match="no notes to describe"):
        describe(NoteSequence(pitch=[], velocity=[], start=[], end=[]))


def test_a_note_that_ends_where_the_next_starts_is_not_polyphony() -> None:
    found = polyphony(np.array([0.0, 1.0]), np.array([1.0, 2.0]))
    assert found["polyphony_max"] == 1
    assert found["silence_share"] == 0


def test_an_inter_onset_bin_holds_its_lower_edge() -> None:
    onset = np.array([0.0, 0.01, 0.41, 0.41])  # gaps 0.01, 0.4, 0
    assert inter_onset_shares(onset) == pytest.approx([1 / 3, 1 / 3, 0, 0, 0, 1 / 3, 0, 0])


def test_notes_within_a_chord_are_one_chord_whatever_their_order() -> None:
    onset = np.array([0.0, 0.02, 0.03, 0.5, 0.51])
    pitch = np.array([64, 60, 60, 64, 60])
    assert chord_labels(onset, pitch) == [(60, 64), (60,), (60, 64)]


def test_a_repeated_chord_is_one_that_equals_the_one_before() -> None:
    assert repeat_ratio([(60,), (60,), (62,), (60,)]) == pytest.approx(1 / 3)
    assert repeat_ratio([(60,)]) == 0


def test_the_longest_run_of_a_pitch() -> None:
    assert longest_run(np.array([60, 62, 62, 62, 60, 60])) == 3
    assert longest_run(np.array([60])) == 1


def test_the_share_of_repeated_ngrams() -> None:
    # 2-grams: ab bc ca ab bc; 3 distinct of 5
    assert repeated_ngram_share(np.array([1, 2, 3, 1, 2, 3]), 2) == pytest.approx(2 / 5)
    assert repeated_ngram_share(np.array([1, 2, 3]), 5) == 0


def test_the_numbers_of_a_small_chorale() -> None:
    grid = np.array([[72, 67, 60, 48]] * 4 + [[74, 67, -1, 76]] * 4)
    found = describe_chorale(grid)
    assert found["sixteenths"] == 8
    assert (found["soprano_lowest"], found["soprano_highest"]) == (72, 74)
    assert (found["tenor_lowest"], found["tenor_highest"]) == (60, 60)
    assert (found["bass_lowest"], found["bass_highest"]) == (48, 76)
    assert found["silence_share"] == pytest.approx(1 / 8)
    assert found["crossing_share"] == 0  # the tenor is silent where the bass is high
    assert found["repeated_beat_ratio"] == 0
    assert found["moves_per_beat"] == pytest.approx(3 / 28 * 4)  # 3 of 7 x 4 changes
    assert found["pair_motions"] == 1  # soprano and bass


def test_a_bass_above_the_tenor_is_a_crossing_and_a_unison_is_none() -> None:
    crossed = describe_chorale([[72, 67, 60, 62], [72, 67, 60, 60], [72, 67, 60, 48]])
    assert crossed["crossing_share"] == pytest.approx(1 / 3)


def test_parallel_fifths_and_octaves_are_counted_per_pair_that_moves() -> None:
    # Soprano and bass: an octave kept, both up. Tenor and bass: a fifth kept. Soprano and tenor:
    # a fourth. The alto rests: three pairs move.
    found = parallels(np.array([[60, 65, 55, 48], [62, 65, 57, 50]]))
    assert found["pair_motions"] == 3
    assert found["parallel_fifths"] == pytest.approx(1 / 3)
    assert found["parallel_octaves"] == pytest.approx(1 / 3)


def test_fifths_in_contrary_motion_are_not_parallel() -> None:
    # G4 over C4, then B4 over E3: a fifth, then a fifth and an octave, the voices moving apart.
    found = parallels(np.array([[67, -1, -1, 60], [71, -1, -1, 52]]))
    assert found["pair_motions"] == 1
    assert found["parallel_fifths"] == 0


def test_to_and_from_silence_is_no_pair_motion() -> None:
    found = parallels(np.array([[67, -1, -1, 60], [-1, -1, -1, 62], [69, -1, -1, 64]]))
    assert found == {"pair_motions": 0.0, "parallel_fifths": 0.0, "parallel_octaves": 0.0}


@pytest.mark.parametrize("grid", [[[60, 60, 60]], [60, 60, 60, 60], [[-1, -1, -1, -1]]])
def test_what_is_no_chorale_is_refused(grid: list[object]) -> None:
    with pytest.raises(TokenError):
        describe_chorale(grid)


def test_averages_are_element_by_element_over_the_pieces_that_have_a_number() -> None:
    found = average([{"a": 1.0, "b": [0.0, 2.0]}, {"a": 3.0, "b": [1.0, 2.0], "c": 5.0}])
    assert found["mean"] == {"a": 2.0, "b": [0.5, 2.0], "c": 5.0}
    assert found["sd"] == {"a": 1.0, "b": [0.5, 0.0], "c": 0.0}
    with pytest.raises(ValueError, match="no descriptions"):
        average([])


def test_statistics_and_baselines_need_no_torch() -> None:
    code = (
        "import sys, music_transformer.evaluation, music_transformer.evaluation.baselines;"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_notes_of_no_length_count_as_a_step_each() -> None:
    found = describe(NoteSequence(pitch=[60, 64], velocity=[40, 40], start=[1, 1], end=[1, 1]))
    assert found["seconds"] == pytest.approx(0.01)
    assert found["notes_per_second"] == pytest.approx(200)
    assert (found["polyphony_mean"], found["silence_share"]) == (pytest.approx(2), 0)
