"""NoteSequence: its columns, the pedal, and the small changes of time and pitch."""

import pickle
import time
from collections.abc import Iterator
from random import Random
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from music_transformer.errors import MidiError
from music_transformer.notes import (
    KeySignatures,
    NoteSequence,
    Pedals,
    Tempos,
    TimeSignatures,
    pedal_spans,
    set_notebook_view,
    to_steps,
)
from music_transformer.render.pianoroll import piano_roll_svg

NOTES = st.lists(
    st.tuples(
        st.sampled_from([60, 61]),  # pitch
        st.integers(1, 127),  # velocity
        st.integers(0, 60),  # start, in fifths of a step, so that some share one
        st.integers(0, 60),  # length
        st.sampled_from([0, 1]),  # channel
    ),
    max_size=14,
)
SPANS = st.lists(
    st.tuples(st.sampled_from([0, 1, 2]), st.integers(0, 80), st.integers(0, 40)), max_size=6
)
UNIT = 0.002


def sequence(
    notes: list[tuple[int, int, int, int, int]], spans: list[tuple[int, int, int]]
) -> NoteSequence:
    return NoteSequence(
        pitch=[note[0] for note in notes],
        velocity=[note[1] for note in notes],
        start=[note[2] * UNIT for note in notes],
        end=[(note[2] + note[3]) * UNIT for note in notes],
        channel=[note[4] for note in notes],
        pedals=Pedals(
            [span[0] for span in spans],
            [span[1] * UNIT for span in spans],
            [(span[1] + span[2]) * UNIT for span in spans],
        ),
    )


def simple(**changes: object) -> NoteSequence:
    columns: dict[str, object] = {
        "pitch": [64, 60, 60],
        "velocity": [80, 70, 60],
        "start": [0.5, 0.5, 0.0],
        "end": [1.0, 2.0, 0.25],
    }
    return NoteSequence(**(columns | changes))  # type: ignore[arg-type]


# ---- columns ----------------------------------------------------------------------------------


def test_rows_are_sorted_by_start_then_pitch() -> None:
    notes = simple()
    assert notes.start.tolist() == [0.0, 0.5, 0.5]
    assert notes.pitch.tolist() == [60, 60, 64]
    assert notes.velocity.tolist() == [60, 70, 80]
    assert notes.channel.tolist() == notes.track.tolist() == [0, 0, 0]
    assert len(notes) == 3
    assert repr(notes) == "NoteSequence(3 notes, 0 pedals, 2.000 seconds)"


@given(NOTES, SPANS, st.randoms())
def test_the_order_of_the_rows_given_does_not_matter(
    notes: list[tuple[int, int, int, int, int]], spans: list[tuple[int, int, int]], random: Random
) -> None:
    first = sequence(notes, spans)
    random.shuffle(notes)
    assert sequence(notes, spans).equals(first)


def test_columns_are_typed_read_only_and_the_callers_stay_his() -> None:
    pitch = np.array([60, 62], np.uint8)
    notes = NoteSequence(pitch=pitch, velocity=[1, 127], start=[0, 1], end=[1, 2])
    assert notes.pitch.dtype == np.int64
    assert notes.start.dtype == np.float64
    with pytest.raises(ValueError, match="read-only"):
        notes.pitch[0] = 3
    pitch[0] = 61
    assert notes.pitch.tolist() == [60, 62]


def test_no_notes_are_a_sequence_too() -> None:
    notes = NoteSequence(pitch=[], velocity=[], start=[], end=[])
    assert (len(notes), notes.end_time) == (0, 0.0)
    assert notes.sustained().equals(notes)
    assert notes.transposed(100).equals(notes)
    assert notes.stretched(2).sliced(0, 0).equals(notes)


def test_the_end_is_the_last_of_everything() -> None:
    assert simple().end_time == 2.0
    assert simple(pedals=Pedals([3], [0.0], [5.0])).end_time == 5.0
    assert simple(end_time=9).end_time == 9.0
    assert simple(end_time=0.1).end_time == 2.0


def test_equal_means_all_columns_pedals_and_the_end() -> None:
    notes = simple()
    assert notes.equals(simple(warnings={"x": 1}, tempos=Tempos([0.0], [0.5])))
    assert not notes.equals(simple(velocity=[80, 70, 61]))
    assert not notes.equals(simple(end_time=3.0))
    assert not notes.equals(simple(pedals=Pedals([0], [0.0], [1.0])))


def test_a_sequence_can_be_sent_to_another_process() -> None:
    notes = simple(pedals=Pedals([0], [0.0], [1.0]), warnings={"stray note-off": 2})
    again = pickle.loads(pickle.dumps(notes))
    assert again.equals(notes)
    assert again.warnings == notes.warnings


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"pitch": [60, 61, 128]}, r"pitch holds 60\.\.128; it must be 0\.\.127"),
        ({"pitch": [60.0, 61.0, 62.0]}, "pitch is float64 of shape .* integers"),
        ({"pitch": [[60, 61, 62]]}, r"pitch is int64 of shape \(1, 3\)"),
        ({"velocity": [0, 1, 2]}, r"velocity holds 0\.\.2; it must be 1\.\.127"),
        ({"velocity": [1, 2]}, "velocity has 2 rows, pitch has 3"),
        ({"channel": [0, 0, 16]}, "channel holds"),
        ({"track": [0, 0, -1]}, "track holds"),
        ({"start": [-0.1, 0.0, 0.0]}, "start holds a time below 0"),
        ({"end": [1.0, 2.0, float("nan")]}, "end holds a time below 0 or not finite"),
        ({"end": ["a", "b", "c"]}, "end is <U1"),
        ({"end": [0.4, 2.0, 0.25]}, r"row 0 ends at 0\.4 s, before it starts at 0\.5 s"),
        ({"end_time": float("inf")}, "end_time is inf"),
    ],
)
def test_a_column_that_makes_no_sense_is_named(changes: dict[str, object], reason: str) -> None:
    with pytest.raises(MidiError, match=reason):
        simple(**changes)


def test_pedals_and_tempos_are_checked_too() -> None:
    with pytest.raises(MidiError, match=r"pedals\.end has 0 rows"):
        Pedals([0], [1.0])
    with pytest.raises(MidiError, match="pedals: row 0 ends"):
        Pedals([0], [1.0], [0.5])
    with pytest.raises(MidiError, match="must last some time"):
        Tempos([0.0], [0.0])


def test_pedal_spans_that_overlap_are_one_and_those_that_touch_are_two() -> None:
    pedals = Pedals([1, 0, 0, 0, 0], [0.0, 5.0, 0.0, 1.0, 2.0], [9.0, 6.0, 2.0, 1.5, 3.0])
    assert pedals.channel.tolist() == [0, 0, 0, 1]
    assert pedals.start.tolist() == [0.0, 2.0, 5.0, 0.0]
    assert pedals.end.tolist() == [2.0, 3.0, 6.0, 9.0]
    assert Pedals([0, 0], [0.0, 1.0], [3.0, 2.0]).end.tolist() == [3.0]


# ---- the pedal --------------------------------------------------------------------------------


def slow_sustained_ends(notes: NoteSequence) -> list[float]:
    """The rules, one note at a time."""

    def spans(channel: int) -> Iterator[tuple[float, float]]:
        for row in range(len(notes.pedals)):
            if notes.pedals.channel[row] == channel:
                yield notes.pedals.start[row], notes.pedals.end[row]

    ends = []
    for row in range(len(notes)):
        end = notes.end[row]
        for down, lift in spans(notes.channel[row]):
            if down <= notes.end[row] < lift:
                end = lift
        for other in range(len(notes)):
            later = to_steps(notes.start[other]) > to_steps(notes.start[row])
            if later and notes.pitch[other] == notes.pitch[row]:
                end = min(end, notes.start[other])
        ends.append(float(end))
    return ends


@given(NOTES, SPANS)
def test_sustained_agrees_with_the_rules_one_note_at_a_time(
    notes: list[tuple[int, int, int, int, int]], spans: list[tuple[int, int, int]]
) -> None:
    before = sequence(notes, spans)
    after = before.sustained()
    rows = zip(
        before.start, before.pitch, before.velocity, slow_sustained_ends(before), strict=True
    )
    assert sorted(rows) == sorted(
        zip(after.start, after.pitch, after.velocity, after.end, strict=True)
    )
    assert len(after.pedals) == 0
    assert after.end_time == before.end_time


@given(NOTES, SPANS)
def test_sustaining_twice_changes_nothing(
    notes: list[tuple[int, int, int, int, int]], spans: list[tuple[int, int, int]]
) -> None:
    once = sequence(notes, spans).sustained()
    assert once.sustained().equals(once)


def held(start: float, end: float, *, down: float, lift: float) -> float:
    """The end of one note under one pedal."""
    notes = NoteSequence(
        pitch=[60], velocity=[80], start=[start], end=[end], pedals=Pedals([0], [down], [lift])
    )
    return float(notes.sustained().end[0])


def test_a_note_held_by_the_pedal_ends_when_the_pedal_lifts() -> None:
    assert held(0.0, 0.5, down=0.2, lift=2.0) == 2.0


def test_a_key_still_held_at_the_lift_ends_at_key_up() -> None:
    assert held(0.0, 2.5, down=0.2, lift=2.0) == 2.5


def test_a_pedal_that_comes_after_the_key_up_is_too_late() -> None:
    assert held(0.0, 0.5, down=0.6, lift=2.0) == 0.5


def test_a_key_that_goes_up_as_the_pedal_goes_down_is_held() -> None:
    assert held(0.0, 0.5, down=0.5, lift=2.0) == 2.0


def test_a_note_of_no_length_is_held_too() -> None:
    assert held(0.5, 0.5, down=0.5, lift=2.0) == 2.0


def test_the_pedal_holds_to_the_next_onset_of_the_pitch_at_most() -> None:
    notes = NoteSequence(
        pitch=[60, 62, 60],
        velocity=[80, 80, 80],
        start=[0.0, 0.7, 1.0],
        end=[0.5, 0.8, 1.2],
        pedals=Pedals([0], [0.0], [2.0]),
    )
    assert notes.sustained().end.tolist() == [1.0, 2.0, 2.0]


def test_a_later_onset_cuts_a_sounding_note_whatever_its_channel() -> None:
    notes = NoteSequence(
        pitch=[60, 60], velocity=[80, 90], start=[0.0, 0.5], end=[2.0, 1.0], channel=[0, 1]
    )
    assert notes.sustained().end.tolist() == [0.5, 1.0]


def test_two_onsets_within_one_step_do_not_cut_each_other() -> None:
    notes = NoteSequence(
        pitch=[60, 60, 60], velocity=[80, 90, 99], start=[0.0, 0.004, 0.006], end=[2.0, 1.0, 3.0]
    )
    assert notes.sustained().end.tolist() == [0.006, 0.006, 3.0]


def test_the_pedal_holds_its_own_channel_only() -> None:
    notes = NoteSequence(
        pitch=[60, 61],
        velocity=[80, 80],
        start=[0.0, 0.0],
        end=[0.5, 0.5],
        channel=[0, 1],
        pedals=Pedals([1], [0.2], [2.0]),
    )
    assert notes.sustained().end.tolist() == [0.5, 2.0]


def test_the_papers_example_is_held_by_the_pedal() -> None:
    """Huang et al. 2018, appendix A.2: C, E and G struck in turn, held until 2 s, then F."""
    notes = NoteSequence(
        pitch=[60, 64, 67, 65],
        velocity=[80, 80, 80, 100],
        start=[0.0, 0.5, 1.0, 2.5],
        end=[0.4, 0.9, 1.4, 3.0],
        pedals=Pedals([0], [0.1], [2.0]),
    )
    assert notes.sustained().end.tolist() == [2.0, 2.0, 2.0, 3.0]


def test_a_long_piece_is_sustained_in_milliseconds() -> None:
    generator = np.random.default_rng(0)
    n = 25_000
    start = np.sort(generator.uniform(0, 3000, n))
    down = np.arange(0, 3000, 2.0)
    notes = NoteSequence(
        pitch=generator.integers(21, 109, n),
        velocity=generator.integers(1, 128, n),
        start=start,
        end=start + generator.uniform(0, 1, n),
        pedals=Pedals(np.zeros(len(down), np.int64), down, down + 1.8),
    )
    best = min(_seconds_to_sustain(notes) for _ in range(3))
    assert best < 0.2  # 5 ms where nothing else runs


def _seconds_to_sustain(notes: NoteSequence) -> float:
    begin = time.process_time()
    notes.sustained()
    return time.process_time() - begin


def test_pedal_spans_of_controller_values() -> None:
    pedals = pedal_spans(
        np.array([0.0, 1.0, 2.0, 3.0, 3.0, 4.0, 5.0]),
        np.array([0, 0, 0, 0, 0, 1, 0]),
        np.array([63, 64, 127, 0, 90, 64, 64]),
        6.0,
    )
    assert pedals.channel.tolist() == [0, 0, 1]
    assert pedals.start.tolist() == [1.0, 3.0, 4.0]
    assert pedals.end.tolist() == [3.0, 6.0, 6.0]


# ---- time and pitch ---------------------------------------------------------------------------


def test_steps_are_10_ms_and_halves_go_up() -> None:
    seconds = [0.0, 0.004, 0.005, 0.01499, 0.015, 0.995, 1.005]
    assert to_steps(seconds).tolist() == [0, 0, 1, 1, 2, 100, 101]


def test_stretching_moves_every_time() -> None:
    notes = simple(
        pedals=Pedals([0], [0.5], [1.5]), tempos=Tempos([0.0, 1.0], [0.5, 0.25]), end_time=3.0
    ).stretched(2.0)
    assert notes.start.tolist() == [0.0, 1.0, 1.0]
    assert notes.end.tolist() == [0.5, 4.0, 2.0]
    assert (notes.pedals.start[0], notes.pedals.end[0], notes.end_time) == (1.0, 3.0, 6.0)
    assert notes.tempos.seconds.tolist() == [0.0, 2.0]
    assert notes.tempos.seconds_per_quarter.tolist() == [1.0, 0.5]
    for factor in (0.0, -1.0, float("nan")):
        with pytest.raises(MidiError, match="factor"):
            notes.stretched(factor)


def test_transposing_moves_pitches_inside_the_keyboard() -> None:
    assert simple().transposed(-3).pitch.tolist() == [57, 57, 61]
    with pytest.raises(MidiError, match=r"pitches would be 124\.\.128 after \+64"):
        simple().transposed(64)
    with pytest.raises(MidiError, match=r"0\.\.127 exist"):
        simple().transposed(10**30)


def test_slicing_cuts_and_counts_from_the_start() -> None:
    notes = simple(
        pedals=Pedals([0, 0], [0.0, 1.5], [0.75, 1.75]),
        tempos=Tempos([0.0, 0.4, 0.8], [0.5, 0.25, 1.0]),
    ).sliced(0.6, 1.5)
    assert notes.pitch.tolist() == [60, 64]
    assert notes.start.tolist() == [0.0, 0.0]
    assert notes.end.tolist() == pytest.approx([0.9, 0.4])
    assert notes.end_time == pytest.approx(0.9)
    assert notes.pedals.start.tolist() == [0.0]
    assert notes.pedals.end.tolist() == pytest.approx([0.15])
    assert notes.tempos.seconds.tolist() == pytest.approx([0.0, 0.2])
    assert notes.tempos.seconds_per_quarter.tolist() == [0.25, 1.0]


def test_a_slice_takes_what_begins_at_its_start_and_not_what_begins_at_its_end() -> None:
    notes = simple(end=[0.5, 2.0, 0.5])
    assert notes.sliced(0.5, 3.0).velocity.tolist() == [70, 80]
    assert notes.sliced(0.0, 0.5).velocity.tolist() == [60]
    with pytest.raises(MidiError, match="not a stretch of time"):
        notes.sliced(2.0, 1.0)


def score(**changes: object) -> NoteSequence:
    return simple(
        tempos=Tempos([0.0, 1.0], [0.5, 0.6]),
        time_signatures=TimeSignatures([0.0], [3], [4]),
        key_signatures=KeySignatures([0.0, 1.0], [-2, 0], [0, 1]),
        **changes,
    )


def test_metre_and_key_go_with_the_music() -> None:
    notes = score().stretched(2.0)
    assert notes.time_signatures.seconds.tolist() == [0.0]
    assert notes.key_signatures.seconds.tolist() == [0.0, 2.0]
    assert score().transposed(3).key_signatures.sharps.tolist() == [-5, -3]  # D flat, C minor
    assert score().transposed(-12).key_signatures.sharps.tolist() == [-2, 0]
    assert not score().same_score(score().transposed(3))


def test_a_continuation_comes_on_tracks_and_channels_of_its_own() -> None:
    motif = score(
        pedals=Pedals([0], [1.5], [2.0]),
        track=[0, 0, 1],
        channel=[0, 0, 3],
        end_time=2.5,
        track_names=["left"],
    )
    new = simple(channel=[0, 0, 1], track=[0, 0, 1], pedals=Pedals([0], [0.0], [0.5]))
    both = motif.followed_by(new)
    rows = both.track < 2
    assert (
        both.selected(rows)
        .replaced(pedals=motif.pedals, end_time=0)
        .equals(motif.replaced(end_time=0))
    )
    later = both.selected(~rows)
    assert later.start.tolist() == [2.5, 3.0, 3.0]
    assert later.channel.tolist() == [2, 1, 1]
    assert later.track.tolist() == [3, 2, 2]
    assert both.pedals.channel.tolist() == [0, 1]
    assert both.pedals.start.tolist() == [1.5, 2.5]
    assert both.track_names == ("left", "", "continuation")
    assert both.end_time == 4.5
    assert both.tempos.equals(motif.tempos)


def test_the_last_tempo_and_key_before_the_join_go_on() -> None:
    voices = simple().replaced(track_names=("soprano", "alto"))
    both = score().followed_by(voices, at=0.75)
    assert both.tempos.seconds_per_quarter.tolist() == [0.5]
    assert both.key_signatures.sharps.tolist() == [-2]
    assert both.track_names == ("", "soprano", "alto")
    assert both.end_time == 2.75


# ---- other forms ------------------------------------------------------------------------------


@given(NOTES, SPANS)
def test_pretty_midi_takes_and_gives_the_same_notes(
    notes: list[tuple[int, int, int, int, int]], spans: list[tuple[int, int, int]]
) -> None:
    before = sequence(notes, [span for span in spans if span[2] > 0])
    after = NoteSequence.from_pretty_midi(before.to_pretty_midi())
    for name in ("pitch", "velocity", "start", "end"):
        assert sorted(getattr(after, name).tolist()) == sorted(getattr(before, name).tolist())
    ends = [s.sustained().end for s in (before, after)]
    if set(before.channel.tolist()) == {0, 1}:  # the instruments are the channels
        assert after.channel.tolist() == before.channel.tolist()
        assert ends[0].tolist() == ends[1].tolist()


def test_pretty_midi_takes_and_gives_the_same_score() -> None:
    before = score(track_names=["right"])
    after = NoteSequence.from_pretty_midi(before.to_pretty_midi())
    assert after.same_score(before)
    for semitones in range(12):
        moved = before.transposed(semitones)
        assert NoteSequence.from_pretty_midi(moved.to_pretty_midi()).same_score(moved)


def test_the_drums_of_pretty_midi_are_left_out() -> None:
    import pretty_midi

    midi = simple().to_pretty_midi()
    drums = pretty_midi.Instrument(program=0, is_drum=True)
    drums.notes = [pretty_midi.Note(velocity=80, pitch=36, start=0.0, end=9.0)]
    midi.instruments.insert(0, drums)
    notes = NoteSequence.from_pretty_midi(midi)
    assert notes.equals(simple())
    assert notes.tempos.seconds_per_quarter.tolist() == [0.5]


def test_a_notebook_shows_a_picture_with_every_note_and_pedal() -> None:
    notes = simple(pedals=Pedals([0], [0.0], [1.0]))
    picture = ElementTree.fromstring(piano_roll_svg(notes))
    paths = [path.get("d", "") for path in picture.iter("{http://www.w3.org/2000/svg}path")]
    assert sum(path.count("M") for path in paths) == 4
    assert "3 notes, pitches 60 to 64, 2.0 s" in piano_roll_svg(notes)
    ElementTree.fromstring(piano_roll_svg(NoteSequence(pitch=[], velocity=[], start=[], end=[])))


def test_a_notebook_shows_the_view_that_was_set() -> None:
    import music_transformer

    set_notebook_view(None)
    assert simple()._repr_html_() is None
    set_notebook_view(lambda notes: f"<b>{len(notes)}</b>")
    assert simple()._repr_html_() == "<b>3</b>"
    music_transformer._give_notes_a_view()  # as the first use of a public name does
    assert "<svg" in str(simple()._repr_html_())
