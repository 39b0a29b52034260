"""Each policy of the performance events, by example and by property, against slow loops."""

import importlib.util
import json
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from music_transformer.errors import ConfigError, TokenError
from music_transformer.midi.read import read_midi
from music_transformer.midi.write import write_midi
from music_transformer.notes import NoteSequence, Pedals
from music_transformer.representations import PerformanceTokenizer

_spec = importlib.util.spec_from_file_location(
    "performance_reference", Path(__file__).with_name("reference.py")
)
reference = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(reference)

GOLDEN = json.loads((Path(__file__).parent.parent / "golden" / "tokenizers.json").read_text())
SUSTAIN, EVENTS = PerformanceTokenizer(), PerformanceTokenizer(pedal="events")
BOTH = pytest.mark.parametrize("tokenizer", [SUSTAIN, EVENTS], ids=["sustain", "events"])


def sequence(*rows, pedals=()):
    """Notes from rows (pitch, start, end, velocity = 66, channel = 0) in seconds."""
    rows = [(*row, 66, 0)[:5] if len(row) < 4 else (*row, 0)[:5] for row in rows]
    pitch, start, end, velocity, channel = zip(*rows, strict=True) if rows else [()] * 5
    spans = list(pedals)
    return NoteSequence(
        pitch=pitch,
        velocity=velocity,
        start=start,
        end=end,
        channel=channel,
        pedals=Pedals(
            channel=[c for c, _, _ in spans],
            start=[s for _, s, _ in spans],
            end=[e for _, _, e in spans],
        ),
    )


def in_steps(notes):
    """The notes as the reference has them."""
    return [
        reference.Note(pitch, reference.to_step(start), reference.to_step(end), velocity)
        for pitch, start, end, velocity in zip(
            notes.pitch.tolist(),
            notes.start.tolist(),
            notes.end.tolist(),
            notes.velocity.tolist(),
            strict=True,
        )
    ]


def pedal_steps(notes):
    """The steps at which the pedal of any channel goes down and up."""
    spans = zip(notes.pedals.start.tolist(), notes.pedals.end.tolist(), strict=True)
    return [(reference.to_step(s), reference.to_step(e)) for s, e in reference.union(list(spans))]


# Few pitches, and times on and off the grid of steps, so that notes meet in every way.
times = st.one_of(
    st.floats(0, 0.2),
    st.integers(0, 60).map(lambda k: k / 100),
    st.integers(0, 60).map(lambda k: k / 100 + 0.005),
    st.floats(0, 9),
)
rows = st.tuples(
    st.one_of(st.integers(59, 62), st.integers(3, 124)),
    times,
    st.one_of(st.floats(0, 0.03), times),
    st.integers(1, 127),
    st.integers(0, 1),
).map(lambda r: (r[0], r[1], r[1] + r[2], r[3], r[4]))
spans = st.tuples(st.integers(0, 1), times, times).map(lambda r: (r[0], r[1], r[1] + r[2]))


@st.composite
def sequences(draw, pedal=True):
    """Note sequences; the pedal spans of one channel do not overlap, as in a file."""
    drawn = draw(st.lists(rows, max_size=25))
    pedals, until = [], {0: -1.0, 1: -1.0}
    for channel, start, end in sorted(draw(st.lists(spans, max_size=6)) if pedal else []):
        if start >= until[channel]:
            pedals.append((channel, start, end))
            until[channel] = end
    return sequence(*drawn, pedals=pedals)


def any_ids(tokenizer):
    """Any ids of the vocabulary, often the few that meet each other."""
    few = st.sampled_from([60, 60, 61, 188, 188, 189, 256, 257, 355, 360, 380, 388, 389, 390])
    few = few | st.integers(391, tokenizer.vocab_size - 1) if tokenizer is EVENTS else few
    return st.lists(few, max_size=40) | st.lists(
        st.integers(0, tokenizer.vocab_size - 1), max_size=40
    )


def test_the_papers_example_gives_the_papers_ids():
    notes = sequence(
        (60, 0.0, 0.2, 80),
        (64, 0.5, 0.7, 80),
        (67, 1.0, 1.2, 80),
        (65, 2.5, 3.0, 100),
        pedals=[(0, 0.0, 2.0)],
    )
    ids = [376, 60, 305, 64, 305, 67, 355, 188, 192, 195, 305, 381, 65, 305, 193]
    assert SUSTAIN.encode(notes) == ids == GOLDEN["paper_a2"]["ids"]
    assert SUSTAIN.symbols(ids) == GOLDEN["paper_a2"]["symbols"]


def test_decoding_the_papers_example_gives_notes_at_bin_centres():
    notes = SUSTAIN.decode(GOLDEN["paper_a2"]["ids"])
    assert notes.equals(
        sequence((60, 0.0, 2.0, 82), (64, 0.5, 2.0, 82), (67, 1.0, 2.0, 82), (65, 2.5, 3.0, 102))
    )


@pytest.mark.parametrize("name", ["c_major_scale.mid", "fur_elise_opening.mid"])
def test_the_motifs_give_the_ids_that_another_reader_and_loops_gave(motifs, name):
    golden = json.loads((Path(__file__).parent.parent / "golden" / "motif_ids.json").read_text())
    assert SUSTAIN.encode(read_midi(motifs / name)) == golden[name]


# --- encode: one sentence of the policies each


def test_notes_off_ascending_come_before_notes_on_ascending_within_a_step():
    notes = sequence((64, 0, 1), (60, 0, 1), (62, 1, 2), (59, 1, 2))
    assert SUSTAIN.encode(notes) == [372, 60, 64, 355, 188, 192, 59, 62, 355, 187, 190]


def test_set_velocity_comes_before_the_first_note_and_where_the_bin_changes_only():
    notes = sequence((60, 0, 1, 66), (61, 0, 1, 64), (62, 0, 1, 68), (63, 0, 1, 71), (64, 0, 1, 3))
    assert SUSTAIN.encode(notes)[:8] == [372, 60, 61, 373, 62, 63, 356, 64]


def test_a_rest_is_hundreds_then_what_is_left():
    assert SUSTAIN.encode(sequence((60, 2.5, 4.5))) == [355, 355, 305, 372, 60, 355, 355, 188]


def test_leading_silence_is_kept_unless_asked_otherwise():
    notes = sequence((60, 2.5, 4.5))
    assert SUSTAIN.encode(notes, keep_silence=False) == [372, 60, 355, 355, 188]


def test_steps_round_absolute_time_so_nothing_drifts():
    notes = sequence(*((60, k * 0.0149, k * 0.0149 + 0.001) for k in range(1001)))
    assert SUSTAIN.duration_seconds(SUSTAIN.encode(notes)) == pytest.approx(14.91)


def test_a_note_shorter_than_a_step_lasts_one_step():
    assert SUSTAIN.encode(sequence((60, 0.101, 0.102))) == [265, 372, 60, 256, 188]


def test_two_onsets_of_a_pitch_in_one_step_are_one_note_the_louder_and_the_longer():
    notes = sequence((60, 0.100, 0.5, 20), (60, 0.104, 0.3, 90))
    assert SUSTAIN.encode(notes) == [265, 356 + 22, 60, 295, 188]


def test_a_later_onset_of_a_pitch_cuts_the_sounding_note_whatever_its_channel():
    notes = sequence((60, 0, 1, 66, 0), (60, 0.5, 0.8, 66, 1))
    assert SUSTAIN.encode(notes) == [372, 60, 305, 188, 60, 285, 188]


def test_a_note_stretched_to_one_step_ends_before_the_next_onset_of_its_pitch():
    notes = sequence((60, 0.100, 0.101), (60, 0.110, 0.2))
    assert SUSTAIN.encode(notes) == [265, 372, 60, 256, 188, 60, 264, 188]


def test_no_time_shift_follows_the_last_event():
    notes = NoteSequence(pitch=[60], velocity=[66], start=[0.0], end=[1.0], end_time=9.0)
    assert SUSTAIN.encode(notes) == [372, 60, 355, 188]


@BOTH
def test_no_notes_are_no_ids_and_no_ids_are_no_notes(tokenizer):
    assert tokenizer.encode(sequence()) == []
    assert len(tokenizer.decode([])) == 0


def test_a_closing_rest_is_no_reason_for_a_pedal_event_or_a_shift():
    notes = NoteSequence(
        pitch=[60],
        velocity=[66],
        start=[0],
        end=[1],
        pedals=Pedals(channel=[0], start=[0.5], end=[2]),
        end_time=9,
    )
    assert EVENTS.encode(notes) == [372, 60, 305, 391, 305, 188, 355, 392]


def test_leading_silence_before_pedal_and_note_is_dropped_when_asked():
    notes = sequence((60, 2.5, 4.5), pedals=[(0, 1, 3)])
    assert EVENTS.encode(notes, keep_silence=False)[:3] == [391, 372, 60]
    assert EVENTS.encode_array(notes, keep_silence=False).dtype == np.uint16


def test_the_pedal_is_applied_unless_it_is_kept_as_events():
    notes = sequence((60, 0, 0.5), pedals=[(0, 0.2, 1.0)])
    assert SUSTAIN.encode(notes) == [372, 60, 355, 188]
    assert EVENTS.encode(notes) == [372, 60, 275, 391, 285, 188, 305, 392]


def test_pedal_events_come_before_notes_lift_first():
    notes = sequence((60, 0, 1), (61, 1, 2), pedals=[(0, 0, 1), (0, 1, 2)])
    assert EVENTS.encode(notes) == [391, 372, 60, 355, 392, 391, 188, 61, 355, 392, 189]


def test_a_press_and_lift_within_one_step_are_dropped():
    assert EVENTS.encode(sequence((60, 0, 0.1), pedals=[(0, 0.02, 0.024)])) == [372, 60, 265, 188]


def test_the_pedal_is_down_while_that_of_any_channel_is():
    notes = sequence((60, 0, 0.1), pedals=[(0, 0.2, 0.5), (1, 0.4, 0.9), (0, 0.6, 0.7)])
    assert EVENTS.encode(notes)[3:] == [188, 265, 391, 325, 392]


def test_times_past_eleven_days_are_refused_not_gigabytes():
    with pytest.raises(TokenError, match="ends at 1000000000 s, expected at most 1000000"):
        SUSTAIN.encode(sequence((60, 0, 1), (60, 1e9 - 1, 1e9)))


def test_an_unknown_pedal_mode_is_refused():
    with pytest.raises(ConfigError, match="pedal='half' is unknown"):
        PerformanceTokenizer(pedal="half")


# --- decode: any ids


def test_an_orphan_off_is_ignored():
    assert SUSTAIN.decode([188, 60, 256, 188, 256, 188]).equals(SUSTAIN.decode([60, 256, 188, 256]))


def test_an_on_of_a_sounding_pitch_ends_the_first():
    notes = SUSTAIN.decode([60, 305, 60, 305, 188])
    assert (notes.start.tolist(), notes.end.tolist()) == ([0, 0.5], [0.5, 1])


def test_what_still_sounds_ends_at_the_last_time():
    notes = SUSTAIN.decode([60, 305, 61, 305])
    assert notes.end.tolist() == [1, 1]
    assert notes.end_time == 1


def test_before_any_set_velocity_the_velocity_is_66():
    assert SUSTAIN.decode([60, 356, 61, 387, 62, 256]).velocity.tolist() == [66, 2, 126]


def test_a_note_of_no_length_lasts_one_step():
    notes = SUSTAIN.decode([305, 60, 188])
    assert (notes.start.tolist(), notes.end.tolist(), notes.end_time) == ([0.5], [0.51], 0.51)


def test_pad_start_and_end_are_skipped_wherever_they_stand():
    ids = GOLDEN["paper_a2"]["ids"]
    strewn = [389, *(j for i in ids for j in (i, 388, 390, 389)), 390]
    assert SUSTAIN.decode(strewn).equals(SUSTAIN.decode(ids))


def test_a_closing_rest_counts_in_the_end_time():
    assert SUSTAIN.decode([60, 305, 188, 355]).end_time == 1.5
    assert SUSTAIN.duration_seconds([389, 60, 305, 188, 355, 390]) == 1.5


def test_decoding_pedal_events_gives_pedal_spans():
    notes = EVENTS.decode([392, 391, 60, 305, 391, 188, 305, 392, 391, 305])
    assert notes.pedals.start.tolist() == [0, 1]
    assert notes.pedals.end.tolist() == [1, 1.5]
    assert notes.end.tolist() == [0.5]


def test_the_pedal_ids_are_unknown_without_pedal_events():
    with pytest.raises(TokenError, match="id 391 at position 0"):
        SUSTAIN.decode([391])


# --- properties


@given(sequences())
def test_encode_agrees_with_the_slow_reference(notes):
    assert SUSTAIN.encode(notes) == reference.encode(in_steps(notes.sustained()))


@given(sequences())
def test_encode_with_pedal_events_agrees_with_the_slow_reference(notes):
    assert EVENTS.encode(notes) == reference.encode(in_steps(notes), pedal_steps(notes))


@BOTH
@given(data=st.data())
@settings(max_examples=200)
def test_any_known_ids_decode_as_the_slow_reference_says(tokenizer, data):
    ids = data.draw(any_ids(tokenizer))
    notes = tokenizer.decode(ids)
    expected, pedals, last = reference.decode(ids)
    assert sorted(in_steps(notes)) == sorted(expected)
    assert pedal_steps(notes) == pedals
    assert notes.end_time == max([last, *(n.end for n in expected)]) / 100


@BOTH
@given(data=st.data())
def test_encode_of_decode_of_canonical_ids_is_the_ids(tokenizer, data):
    ids = tokenizer.encode(data.draw(sequences()))
    assert tokenizer.encode(tokenizer.decode(ids)) == ids
    assert tokenizer.encode(tokenizer.decode(np.array(ids, dtype=np.uint16))) == ids


@BOTH
@given(data=st.data())
def test_any_ids_become_canonical_after_decoding_once(tokenizer, data):
    ids = tokenizer.encode(tokenizer.decode(data.draw(any_ids(tokenizer))))
    assert tokenizer.encode(tokenizer.decode(ids)) == ids


@BOTH
@given(data=st.data())
@settings(max_examples=50)
def test_canonical_ids_survive_a_file(tokenizer, tmp_path_factory, data):
    notes = data.draw(sequences())
    if not len(notes):
        return
    ids = tokenizer.encode(notes)
    path = tmp_path_factory.mktemp("file") / "notes.mid"
    write_midi(tokenizer.decode(ids), path)
    assert tokenizer.encode(read_midi(path)) == ids


@BOTH
@given(data=st.data())
def test_each_note_on_gets_its_note_off_and_never_while_the_pitch_sounds(tokenizer, data):
    sounding = set()
    for i in tokenizer.encode(data.draw(sequences())):
        if i < 128:
            assert i not in sounding
            sounding.add(i)
        elif i < 256:
            sounding.remove(i - 128)
    assert not sounding


@given(st.data())
def test_decoded_notes_are_playable(data):
    """Time never runs back, no note is without length, no pitch overlaps itself."""
    notes = SUSTAIN.decode(data.draw(any_ids(SUSTAIN)))
    assert (np.diff(notes.start) >= 0).all()
    assert (notes.end > notes.start).all()
    assert (notes.end <= notes.end_time).all()
    assert (notes.velocity > 0).all()
    for pitch in set(notes.pitch.tolist()):
        mine = notes.pitch == pitch
        assert (notes.start[mine][1:] >= notes.end[mine][:-1]).all()


@BOTH
@given(data=st.data(), semitones=st.integers(-3, 3))
def test_transposing_commutes_with_encoding(tokenizer, data, semitones):
    notes = data.draw(sequences())
    ids = tokenizer.encode(notes)
    expected = [i + semitones if i < 256 else i for i in ids]
    assert tokenizer.encode(notes.transposed(semitones)) == expected


@given(sequences())
def test_the_duration_of_the_ids_is_the_last_end_rounded_to_steps(notes):
    ends = [n.end for n in reference.playable(in_steps(notes.sustained()))]
    assert SUSTAIN.duration_seconds(SUSTAIN.encode(notes)) == max(ends, default=0) / 100


@given(sequences())
def test_the_array_and_the_list_hold_the_same_ids(notes):
    array = EVENTS.encode_array(notes)
    assert array.dtype == np.uint16
    assert array.tolist() == EVENTS.encode(notes)


# --- speed: generous bounds, an order of magnitude above what is measured


def test_a_hundred_thousand_notes_encode_and_ninety_thousand_ids_decode_in_a_blink():
    generator = np.random.default_rng(0)
    start = np.sort(generator.uniform(0, 10_000, 100_000))
    notes = NoteSequence(
        pitch=generator.integers(21, 109, 100_000),
        velocity=generator.integers(1, 128, 100_000),
        start=start,
        end=start + 0.3,
    )
    begin = time.process_time()
    ids = SUSTAIN.encode_array(notes)
    assert time.process_time() - begin < 0.5
    begin = time.process_time()
    SUSTAIN.decode(ids[:90_000])
    assert time.process_time() - begin < 0.1
