"""Four voices on sixteenths: grids, files with and without voices, tempo maps."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from music_transformer.errors import TokenError
from music_transformer.midi.read import read_midi
from music_transformer.midi.write import write_midi
from music_transformer.notes import NoteSequence, Tempos
from music_transformer.representations import ChoraleTokenizer
from music_transformer.representations.chorale.grid import grid_by_pitch as by_pitch
from music_transformer.representations.chorale.grid import sixteenths

GOLDEN = json.loads((Path(__file__).parent.parent / "golden" / "tokenizers.json").read_text())
CHORALE = ChoraleTokenizer()
S = 128  # silence

cells = st.one_of(st.integers(57, 62), st.integers(0, 127), st.just(-1))
grids = st.lists(st.lists(cells, min_size=4, max_size=4), min_size=1, max_size=13)
full_grids = st.lists(
    st.lists(st.integers(36, 81) | st.integers(59, 61), min_size=4, max_size=4),
    min_size=1,
    max_size=13,
)


def sequence(*rows, tempos=None):
    """Notes from rows (pitch, start, end, track = 0, channel = 0) in seconds."""
    rows = [(*row, 0, 0)[:5] if len(row) < 4 else (*row, 0)[:5] for row in rows]
    pitch, start, end, track, channel = zip(*rows, strict=True)
    return NoteSequence(
        pitch=pitch,
        velocity=[64] * len(rows),
        start=start,
        end=end,
        track=track,
        channel=channel,
        tempos=tempos,
    )


def test_the_papers_example_of_bwv_428_reads_the_grid_row_by_row():
    grid = [[67, 62, 59, 45]] * 2 + [[67, 62, 57, 43]] * 2
    assert CHORALE.encode_grid(grid) == GOLDEN["paper_a1"]["ids"]


def test_equal_neighbours_are_one_held_note_on_the_track_of_their_voice():
    notes = CHORALE.decode(GOLDEN["paper_a1"]["ids"], seconds_per_beat=1.0)
    columns = (notes.track, notes.pitch, notes.start, notes.end)
    assert sorted(zip(*(c.tolist() for c in columns), strict=True)) == [
        (0, 67, 0.0, 1.0),
        (1, 62, 0.0, 1.0),
        (2, 57, 0.5, 1.0),
        (2, 59, 0.0, 0.5),
        (3, 43, 0.5, 1.0),
        (3, 45, 0.0, 0.5),
    ]


def test_a_sixteenth_lasts_a_quarter_of_a_beat_at_80_a_minute():
    notes = CHORALE.decode([67, 62, 59, 45])
    assert notes.end.tolist() == [0.1875] * 4
    assert notes.tempos.seconds_per_quarter.tolist() == [0.75]
    assert CHORALE.duration_seconds([67, 62, 59, 45] * 4) == 0.75


def test_minus_one_is_silence_both_ways():
    ids = CHORALE.encode_grid([[-1, 62, -1, 45]])
    assert ids == [S, 62, S, 45]
    assert CHORALE.decode_grid(ids).tolist() == [[-1, 62, -1, 45]]


def test_a_row_that_is_not_full_is_completed_with_silence():
    assert CHORALE.decode_grid([67, 62, 59, 45, 67, 62]).tolist() == [
        [67, 62, 59, 45],
        [67, 62, -1, -1],
    ]


def test_pad_start_and_end_are_skipped():
    assert CHORALE.decode_grid([130, 67, 62, 59, 45, 131, 129, 129]).tolist() == [[67, 62, 59, 45]]


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        ([[67, 62, 59]], r"shape \(1, 3\), expected \(T, 4\)"),
        ([67, 62, 59, 45], r"shape \(4,\)"),
        ([[67, 62, 59, 45], [67, 200, 59, 45]], "holds 200 at sixteenth 1, alto"),
        ([[67, 62, 59, -2]], "holds -2 at sixteenth 0, bass"),
        ([[67, 62, 59.5, 45]], "holds 59.5 at sixteenth 0, tenor"),
        ([[67, 62, float("nan"), 45]], "holds nan at sixteenth 0, tenor"),
    ],
)
def test_a_grid_of_another_shape_or_with_no_pitch_is_refused(grid, message):
    with pytest.raises(TokenError, match=message):
        CHORALE.encode_grid(grid)


@given(grids)
def test_grids_survive_encoding(grid):
    assert CHORALE.decode_grid(CHORALE.encode_grid(grid)).tolist() == grid


@given(full_grids)
def test_full_grids_survive_notes(grid):
    ids = CHORALE.encode_grid(grid)
    assert CHORALE.encode(CHORALE.decode(ids)) == ids


@given(full_grids, st.sampled_from([0.75, 0.5, 60 / 84, 60 / 97, 1 / 3]))
@settings(max_examples=40)
def test_full_grids_survive_a_file_at_any_tempo(tmp_path_factory, grid, seconds_per_beat):
    path = tmp_path_factory.mktemp("file") / "chorale.mid"
    ids = CHORALE.encode_grid(grid)
    write_midi(CHORALE.decode(ids, seconds_per_beat=seconds_per_beat), path)
    notes = read_midi(path)
    assert CHORALE.encode(notes) == ids
    assert CHORALE.seconds_per_beat(notes) == pytest.approx(seconds_per_beat, abs=1e-6)


@given(st.lists(st.integers(0, 131), max_size=40))
def test_what_encode_returns_survives_decoding(ids):
    notes = CHORALE.decode(ids)
    if not len(notes):
        return
    canonical = CHORALE.encode(notes)
    assert CHORALE.encode(CHORALE.decode(canonical)) == canonical


@given(st.lists(st.integers(0, 131), max_size=40))
def test_any_known_ids_decode_to_voices_that_never_overlap(ids):
    notes = CHORALE.decode(ids)
    assert (notes.end > notes.start).all()
    for voice in range(4):
        mine = notes.track == voice
        assert (notes.start[mine][1:] >= notes.end[mine][:-1]).all()


def test_four_tracks_are_the_voices_even_where_they_cross():
    notes = sequence((60, 0, 1, 0), (72, 0, 1, 1), (55, 0, 1, 2), (48, 0, 1, 5))
    assert CHORALE.encode(notes)[:4] == [60, 72, 55, 48]


def test_four_channels_of_one_track_are_the_voices():
    rows = [(60, 0, 1, 0, 0), (72, 0, 1, 0, 1), (55, 0, 1, 0, 2), (48, 0, 1, 0, 3)]
    assert CHORALE.encode(sequence(*rows))[:4] == [60, 72, 55, 48]


def test_four_tracks_of_which_one_plays_chords_are_voiced_by_pitch():
    notes = sequence((60, 0, 1, 0), (72, 0, 1, 1), (55, 0, 1, 2), (48, 0, 1, 3), (36, 0, 1, 3))
    assert CHORALE.encode(notes)[:4] == [72, 60, 48, 36]


@pytest.mark.parametrize(
    ("pitches", "row"),
    [
        ([60], [60, S, S, S]),
        ([60, 48], [60, S, S, 48]),
        ([60, 48, 55], [60, 55, S, 48]),
        ([60, 48, 55, 72], [72, 60, 55, 48]),
        ([60, 48, 55, 72, 64, 79], [79, 72, 55, 48]),
    ],
)
def test_without_voices_the_highest_is_the_soprano_and_the_lowest_the_bass(pitches, row):
    notes = sequence(*((pitch, 0.0, 0.125) for pitch in pitches))
    assert CHORALE.encode(notes) == row


def test_a_pitch_that_two_tracks_play_is_two_voices():
    notes = sequence((60, 0, 0.125, 0), (60, 0, 0.125, 1), (48, 0, 0.125, 1))
    assert CHORALE.encode(notes) == [60, 60, S, 48]


def test_notes_without_a_tempo_are_read_at_120_beats_a_minute():
    assert CHORALE.encode(sequence((60, 0.0, 0.5), (48, 0.0, 0.5))) == [60, S, S, 48] * 4


def test_notes_are_quantised_on_their_own_tempo_map():
    tempos = Tempos(seconds=[0.0, 2.0], seconds_per_quarter=[1.0, 0.5])
    notes = sequence((60, 0.0, 2.0), (62, 2.0, 2.5), tempos=tempos)
    assert CHORALE.encode(notes)[::4] == [60] * 8 + [62] * 4


def test_before_the_first_tempo_a_beat_is_half_a_second():
    tempos = Tempos(seconds=[1.0], seconds_per_quarter=[1.0])
    notes = sequence((60, 0.0, 1.0), (62, 1.0, 2.0), tempos=tempos)
    assert CHORALE.encode(notes)[::4] == [60] * 8 + [62] * 4


def test_the_beat_of_notes_is_the_tempo_longest_in_force():
    tempos = Tempos(seconds=[0.0, 1.0, 9.0], seconds_per_quarter=[0.5, 0.75, 2.0])
    notes = sequence((60, 0.0, 10.0), tempos=tempos)
    assert CHORALE.seconds_per_beat(notes) == 0.75
    assert CHORALE.seconds_per_beat(sequence((60, 0.0, 10.0))) == 0.5


def test_notes_off_the_grid_go_to_the_nearest_sixteenth_and_last_one_at_least():
    notes = sequence((60, 0.05, 0.27), (62, 0.26, 0.27))
    assert CHORALE.encode(notes)[::4] == [60, 60, 62]


def test_legato_that_overlaps_a_little_is_still_one_voice():
    voices = [(72, 0), (65, 1), (57, 2), (48, 3)]
    rows = [(p + 2 * k, k * 0.5, k * 0.5 + 0.55, t) for p, t in voices for k in range(2)]
    assert CHORALE.encode(sequence(*rows))[:32] == [72, 65, 57, 48] * 4 + [74, 67, 59, 50] * 4


def test_leading_silence_is_kept_unless_asked_otherwise():
    notes = sequence((60, 0.25, 0.375))
    assert CHORALE.encode(notes) == [S] * 8 + [60, S, S, S]
    assert CHORALE.encode(notes, keep_silence=False) == [60, S, S, S]
    assert CHORALE.encode_array(notes).tolist() == CHORALE.encode(notes)


def test_nothing_to_encode_is_an_error():
    with pytest.raises(TokenError, match="no note to encode"):
        CHORALE.encode(CHORALE.decode([S] * 8))


def test_hours_of_silence_are_refused():
    with pytest.raises(TokenError, match="beats, more than 25000"):
        CHORALE.encode(sequence((60, 1e6, 1e6 + 1)))


def test_a_beat_of_no_length_is_refused():
    with pytest.raises(TokenError, match="seconds_per_beat=0 is no beat"):
        CHORALE.decode([60], seconds_per_beat=0)


def test_names_are_pitches_and_silence():
    assert CHORALE.symbols([67, 128, 129, 130, 131]) == [
        "PITCH 67",
        "SILENCE",
        "PAD",
        "START",
        "END",
    ]


@pytest.mark.corpus
def test_every_chorale_of_the_corpus_survives_notes(corpora):
    pieces = json.loads((corpora / "jsb" / "Jsb16thSeparated.json").read_text())
    for split in pieces.values():
        for piece in split:
            ids = CHORALE.encode_grid(np.array(piece))
            assert CHORALE.encode(CHORALE.decode(ids)) == ids


def test_every_key_held_for_hours_is_read_in_little_time_and_memory():
    rows = [(i % 128, 0, 12_000, 0, i // 128) for i in range(15 * 128)]
    ids = CHORALE.encode(sequence(*rows))
    assert ids == [127, 127, 0, 0] * 96_000


@given(
    st.lists(
        st.tuples(
            st.integers(60, 64),
            st.integers(0, 9),
            st.integers(1, 9),
            st.integers(0, 2),
            st.integers(0, 1),
        ),
        min_size=1,
        max_size=17,
    )
)
def test_voices_found_by_pitch_are_those_of_each_sixteenth_alone(notes):
    """Against the slow, obvious way: what sounds in a sixteenth, as a set, from high to low."""
    rows = [
        (pitch, begin / 8, (begin + length) / 8, track, channel)
        for pitch, begin, length, track, channel in notes
    ]
    found = sequence(*rows)
    begin, finish = sixteenths(found)
    keys = list(zip(found.pitch, found.track, found.channel, begin, finish, strict=True))
    for step, row in enumerate(by_pitch(found, begin, finish).tolist()):
        sounding = {(p, t, c) for p, t, c, first, after in keys if first <= step < after}
        high = sorted((int(pitch) for pitch, _, _ in sounding), reverse=True)
        expected = [high[0] if high else -1, -1, -1, high[-1] if len(high) > 1 else -1]
        expected[1] = high[1] if len(high) > 2 else -1
        expected[2] = high[-2] if len(high) > 3 else -1
        assert row == expected
