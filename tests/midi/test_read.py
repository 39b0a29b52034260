"""What the reader gives for files of a few bytes, and what it survives or refuses."""

import sys
from pathlib import Path

import numpy as np
import pytest

from music_transformer.errors import MidiError
from music_transformer.midi import read_midi, read_midi_bytes
from music_transformer.notes import NoteSequence

END_OF_TRACK = b"\x00\xff\x2f\x00"  # delta 0, meta event, type end-of-track, no content
NOTE = (
    b"\x00\x90\x3c\x50"  # delta 0, note-on channel 0, pitch 60, velocity 80
    b"\x60\x80\x3c\x40"  # delta 96, note-off channel 0, pitch 60, velocity 64
)


def header(tracks: int, *, midi_type: int = 1, division: bytes = b"\x00\x60") -> bytes:
    """MThd, its length, type, number of tracks, division (default: 96 ticks per quarter)."""
    return b"MThd\x00\x00\x00\x06" + bytes([0, midi_type, 0, tracks]) + division


def chunk(content: bytes, kind: bytes = b"MTrk") -> bytes:
    """A chunk: its name, the length of its content, its content."""
    return kind + len(content).to_bytes(4, "big") + content


def midi(*tracks: bytes, division: bytes = b"\x00\x60", end: bytes = END_OF_TRACK) -> bytes:
    """A file of type 1; every track gets an end-of-track."""
    return header(len(tracks), division=division) + b"".join(chunk(t + end) for t in tracks)


def read(data: bytes, *, piano_only: bool = False) -> NoteSequence:
    return read_midi_bytes(data, "x.mid", piano_only=piano_only)


def rows(notes: NoteSequence) -> list[tuple[int, float, float]]:
    return list(zip(notes.pitch.tolist(), notes.start.tolist(), notes.end.tolist(), strict=True))


def pedal_rows(notes: NoteSequence) -> list[tuple[int, float, float]]:
    pedals = notes.pedals
    return list(
        zip(pedals.channel.tolist(), pedals.start.tolist(), pedals.end.tolist(), strict=True)
    )


# ---- what is read -----------------------------------------------------------------------------


def test_a_note_has_all_its_columns() -> None:
    notes = read(
        midi(
            b"",  # an empty track
            b"\x30\x93\x40\x65"  # delta 48, note-on channel 3, pitch 64, velocity 101
            b"\x60\x83\x40\x00",  # delta 96, note-off
        )
    )
    assert rows(notes) == [(64, 0.25, 0.75)]
    assert (notes.velocity[0], notes.channel[0], notes.track[0]) == (101, 3, 0)
    assert notes.warnings == {}
    assert notes.end_time == 0.75


def test_running_status_and_velocity_zero_end_a_note() -> None:
    notes = read(
        midi(
            b"\x00\x90\x3c\x50"  # note-on 60
            b"\x60\x3c\x00"  # delta 96, running status: note-on 60 with velocity 0
            b"\x00\x40\x50"  # running status: note-on 64
            b"\x60\x40\x00"  # delta 96, note-on 64 with velocity 0
        )
    )
    assert rows(notes) == [(60, 0.0, 0.5), (64, 0.5, 1.0)]


def test_running_status_outlives_meta_events_and_sysex() -> None:
    notes = read(
        midi(
            b"\x00\x90\x3c\x50"  # note-on 60
            b"\x00\xff\x01\x02hi"  # text of two bytes
            b"\x00\xf0\x03\x41\x10\xf7"  # SysEx of three bytes
            b"\x60\x3c\x00"  # running status: end of 60
        )
    )
    assert rows(notes) == [(60, 0.0, 0.5)]


def test_a_long_delta_has_up_to_four_bytes() -> None:
    notes = read(
        midi(
            b"\x81\x40\x90\x3c\x50"  # delta 1 * 128 + 64 = 192
            b"\x80\x80\x80\x60\x80\x3c\x40"  # delta 96 in four bytes
        )
    )
    assert rows(notes) == [(60, 1.0, 1.5)]


def test_messages_of_one_data_byte_are_stepped_over() -> None:
    notes = read(
        midi(
            b"\x00\xc0\x05"  # program change
            b"\x00\xd0\x40"  # channel pressure
            b"\x00\x41"  # running status: channel pressure
            b"\x00\xe0\x00\x40"  # pitch bend
            b"\x00\xa0\x3c\x40" + NOTE  # key pressure
        )
    )
    assert rows(notes) == [(60, 0.0, 0.5)]


def test_a_closing_rest_counts() -> None:
    notes = read(midi(NOTE, end=b"\x83\x00\xff\x2f\x00"))  # delta 384, end-of-track
    assert notes.end_time == 2.5


def test_the_longest_track_ends_the_file() -> None:
    data = header(2) + chunk(NOTE + END_OF_TRACK) + chunk(b"\x83\x00\xff\x2f\x00")  # delta 384
    assert read(data).end_time == 2.0


def test_type_0_is_read() -> None:
    assert len(read(header(1, midi_type=0) + chunk(NOTE + END_OF_TRACK))) == 1


# ---- tempo ------------------------------------------------------------------------------------


def test_the_tempo_map_is_the_union_of_all_tracks() -> None:
    notes = read(
        midi(
            b"\x60\xff\x51\x03\x0f\x42\x40",  # delta 96, tempo 1,000,000 us per quarter
            b"\x00\x90\x3c\x50"  # note-on 60
            b"\x81\x40\x80\x3c\x40"  # delta 192, note-off 60
            b"\x00\xff\x51\x03\x03\xd0\x90"  # tempo 250,000
            b"\x00\x90\x3e\x50"  # note-on 62
            b"\x60\x80\x3e\x40",  # delta 96, note-off 62
        )
    )
    assert rows(notes) == [(60, 0.0, 1.5), (62, 1.5, 1.75)]
    assert notes.tempos.seconds.tolist() == [0.0, 0.5, 1.5]
    assert notes.tempos.seconds_per_quarter.tolist() == [0.5, 1.0, 0.25]


def test_tempo_0_is_ignored_with_a_warning() -> None:
    notes = read(midi(b"\x00\xff\x51\x03\x00\x00\x00" + NOTE))  # tempo 0
    assert rows(notes) == [(60, 0.0, 0.5)]
    assert notes.warnings == {"tempo 0": 1}


@pytest.mark.parametrize(
    ("frame_code", "frames_per_second"),
    [(0xE8, 24.0), (0xE7, 25.0), (0xE3, 30_000 / 1001), (0xE2, 30.0)],
)
def test_smpte_time_is_real_seconds(frame_code: int, frames_per_second: float) -> None:
    notes = read(
        midi(
            b"\x00\xff\x51\x03\x0f\x42\x40"  # a tempo, which means nothing here
            + NOTE,  # 96 ticks
            division=bytes([frame_code, 40]),  # 40 ticks per frame
        )
    )
    assert rows(notes) == [(60, 0.0, pytest.approx(96 / 40 / frames_per_second, rel=1e-15))]
    assert len(notes.tempos) == 0


# ---- pairing ----------------------------------------------------------------------------------


def test_the_first_note_of_a_pitch_ends_first() -> None:
    notes = read(
        midi(
            b"\x00\x90\x3c\x50"  # note-on 60, velocity 80
            b"\x60\x90\x3c\x51"  # delta 96, note-on 60, velocity 81
            b"\x60\x80\x3c\x40"  # delta 96, note-off 60
            b"\x60\x80\x3c\x40"  # delta 96, note-off 60
        )
    )
    assert rows(notes) == [(60, 0.0, 1.0), (60, 0.5, 1.5)]
    assert notes.velocity.tolist() == [80, 81]


def test_tracks_and_channels_are_paired_apart() -> None:
    notes = read(
        midi(
            b"\x00\x90\x3c\x50"  # note-on channel 0
            b"\x00\x91\x3c\x50"  # note-on channel 1
            b"\x30\x81\x3c\x40"  # delta 48, note-off channel 1
            b"\x30\x80\x3c\x40",  # delta 48, note-off channel 0
            b"\x00\x90\x3c\x50"  # the same pitch and channel in another track
            b"\x81\x40\x80\x3c\x40",  # delta 192, note-off
        )
    )
    assert sorted(zip(notes.track, notes.channel, notes.end, strict=True)) == [
        (0, 0, 0.5),
        (0, 1, 0.25),
        (1, 0, 1.0),
    ]


def test_a_lost_off_costs_one_note_which_ends_where_its_key_is_struck_again() -> None:
    notes = read(
        midi(
            b"\x00\x90\x3c\x50"  # note-on 60: its own off never comes
            b"\x60\x90\x3c\x50"  # delta 96, note-on 60
            b"\x60\x80\x3c\x40"  # delta 96, note-off 60
            b"\x60\x90\x3e\x50"  # delta 96, note-on 62
            b"\x60\x80\x3e\x40"  # delta 96, note-off 62
        )
    )
    assert rows(notes) == [(60, 0.0, 0.5), (60, 0.5, 1.0), (62, 1.5, 2.0)]
    assert notes.warnings == {"note never released": 1}


def test_an_off_in_another_track_of_the_channel_ends_the_note() -> None:
    notes = read(
        midi(
            b"\x00\x90\x3c\x50"  # note-on 60
            b"\x00\x90\x40\x50\x81\x40\x80\x40\x40",  # 64, for 192 ticks
            b"\x60\x80\x3c\x40",  # delta 96, note-off 60
        )
    )
    assert rows(notes) == [(60, 0.0, 0.5), (64, 0.0, 1.0)]
    assert notes.warnings == {}


@pytest.mark.parametrize("controller", [120, 123, 124, 125, 126, 127])
def test_a_channel_is_released_as_a_whole(controller: int) -> None:
    release = b"\x60\xb0" + bytes([controller]) + b"\x00"  # delta 96
    keys = b"\x00\x90\x3c\x50\x00\x91\x40\x50"  # 60 on channel 0, 64 on channel 1
    notes = read(midi(keys + b"\x81\x40\x81\x40\x40", release))  # 64 ends after 192 ticks
    assert rows(notes) == [(60, 0.0, 0.5), (64, 0.0, 1.0)]
    assert notes.warnings == {}


def test_all_sound_off_ends_what_the_pedal_holds_and_123_does_not() -> None:
    for controller, end in ((120, 1.0), (123, 1.5)):
        notes = read(
            midi(
                b"\x00\xb0\x40\x7f"
                + NOTE  # pedal down, a note of 96 ticks
                + b"\x00\x90\x40\x50"  # note-on 64 at 96
                + b"\x60\xb0"
                + bytes([controller, 0])  # delta 96
                + b"\x60\xb0\x40\x00"  # delta 96, pedal up
            )
        )
        assert rows(notes.sustained()) == [(60, 0.0, end), (64, 0.5, end)]


def test_one_pedal_works_on_all_channels_with_notes() -> None:
    data = midi(
        NOTE + b"\x00\x91\x40\x50\x60\x81\x40\x40",  # 60 on channel 0, then 64 on channel 1
        b"\x00\xb2\x40\x7f\x83\x00\xb2\x40\x00",  # channel 2: down, up at 384
    )
    notes = read(data)
    assert (len(notes.pedals), notes.warnings) == (
        0,
        {"pedal of a channel without notes ignored": 1},
    )
    notes = read_midi_bytes(data, "x.mid", one_pedal=True)
    assert pedal_rows(notes) == [(0, 0.0, 2.0), (1, 0.0, 2.0)]


def test_metre_key_and_names_are_read() -> None:
    notes = read(
        midi(
            b"\x00\xff\x03\x05Waltz"  # the name of the track of the map
            b"\x00\xff\x58\x04\x03\x02\x18\x08"  # 3/4
            b"\x00\xff\x59\x02\xfe\x00"  # B flat major
            b"\x60\xff\x58\x04\x06\x03\x18\x08"  # delta 96: 6/8
            b"\x00\xff\x58\x04\x00\x02\x18\x08",  # 0/4
            b"\x00\xff\x03\x06Gr\xc3\xb6\xc3\x9f" + NOTE,  # UTF-8
            b"\x00\xff\x03\x03Gr\xfc",  # Latin-1
        )
    )
    metre, key = notes.time_signatures, notes.key_signatures
    assert (notes.title, notes.track_names) == ("Waltz", ("Größ", "Grü"))
    assert metre.seconds.tolist() == [0.0, 0.5]
    assert (metre.numerator.tolist(), metre.denominator.tolist()) == ([3, 6], [4, 8])
    assert (key.sharps.tolist(), key.minor.tolist()) == ([-2], [0])
    assert notes.warnings == {"bad time signature": 1}


def test_late_tempo_events_are_no_rest() -> None:
    late = b"\x83\x00\xff\x51\x03\x07\xa1\x21"  # delta 384, a tempo
    notes = read(midi(NOTE + late, NOTE))
    assert (notes.end_time, len(notes.tempos)) == (0.5, 1)


def test_an_unreleased_note_without_a_later_off_ends_with_its_track() -> None:
    data = (
        header(2)
        + chunk(
            NOTE  # 60 is released at 96
            + b"\x00\x90\x3c\x50"  # note-on 60 at 96
            + b"\x60\xff\x2f\x00"  # delta 96, end-of-track at 192
        )
        + chunk(b"\x83\x00\xff\x2f\x00")  # another track ends at 384
    )
    assert rows(read(data)) == [(60, 0.0, 0.5), (60, 0.5, 1.0)]


def test_stray_offs_are_counted_and_ignored() -> None:
    notes = read(
        midi(
            b"\x00\x80\x3c\x40"  # note-off 60 before any on
            b"\x00\x90\x3c\x00"  # another, as a note-on of velocity 0
            + NOTE
            + b"\x00\x80\x3c\x40"  # one more after the note
        )
    )
    assert rows(notes) == [(60, 0.0, 0.5)]
    assert notes.warnings == {"stray note-off": 3}


def test_a_note_of_no_length_is_kept() -> None:
    notes = read(
        midi(
            b"\x60\x90\x3c\x50"  # delta 96, note-on
            b"\x00\x80\x3c\x40"  # delta 0, note-off
        )
    )
    assert rows(notes) == [(60, 0.5, 0.5)]


# ---- pedal ------------------------------------------------------------------------------------


def test_the_pedal_is_down_from_64_and_up_below() -> None:
    notes = read(
        midi(
            b"\x00\xb0\x40\x3f"  # controller 64, value 63: up
            b"\x60\xb0\x40\x40"  # delta 96, value 64: down
            b"\x60\xb0\x40\x7f"  # delta 96, value 127: still down
            b"\x60\xb0\x40\x3f"  # delta 96, value 63: up
            b"\x00\xb0\x43\x7f" + NOTE  # controller 67, the soft pedal: nothing
        )
    )
    assert pedal_rows(notes) == [(0, 0.5, 1.5)]


def test_the_pedal_of_a_channel_works_over_all_tracks() -> None:
    notes = read(
        midi(
            NOTE,
            b"\x30\xb0\x40\x7f"  # delta 48: pedal down, while the key is held
            b"\x81\x10\xb0\x40\x00",  # delta 144: pedal up at 192
        )
    )
    assert pedal_rows(notes) == [(0, 0.25, 1.0)]
    assert rows(notes.sustained()) == [(60, 0.0, 1.0)]


def test_a_pedal_never_lifted_is_down_to_the_last_note_or_pedal_event() -> None:
    pedal_last = midi(
        NOTE
        + b"\x00\xb0\x40\x7f"  # pedal down at 96
        + b"\x60\xb0\x40\x7f",  # delta 96: again down, at 192
        end=b"\x60\xff\x2f\x00",  # delta 96: end-of-track, which is no note and no pedal
    )
    assert pedal_rows(read(pedal_last)) == [(0, 0.5, 1.0)]
    note_last = midi(b"\x00\xb0\x40\x7f" + NOTE, end=b"\x60\xff\x2f\x00")  # pedal down at 0
    assert pedal_rows(read(note_last)) == [(0, 0.0, 0.5)]


def test_at_one_tick_the_pedal_acts_before_the_key() -> None:
    """The key goes up and, later in the file but at the same tick, the pedal down: it holds."""
    notes = read(
        midi(
            NOTE
            + b"\x00\xb0\x40\x7f"  # pedal down at 96, the tick of the note-off
            + b"\x60\xb0\x40\x00"  # delta 96, pedal up
        )
    )
    assert rows(notes.sustained()) == [(60, 0.0, 1.0)]


def test_pedal_events_of_one_tick_act_in_file_order_tracks_in_order() -> None:
    down, up = b"\x30\xb0\x40\x7f", b"\x30\xb0\x40\x00"  # delta 48
    assert pedal_rows(read(midi(down, up, NOTE))) == []
    assert pedal_rows(read(midi(up, down, NOTE))) == [(0, 0.25, 0.5)]


# ---- which notes ------------------------------------------------------------------------------


def test_the_drums_are_dropped_and_counted() -> None:
    notes = read(
        midi(
            b"\x00\x99\x24\x50"  # note-on channel 9: a bass drum
            b"\x00\x89\x24\x40"  # its note-off
            b"\x00\xb9\x40\x7f" + NOTE  # its pedal
        )
    )
    assert rows(notes) == [(60, 0.0, 0.5)]
    assert len(notes.pedals) == 0
    assert notes.warnings == {"drum note dropped": 1}


def test_piano_only_keeps_the_programs_0_to_7_of_the_moment() -> None:
    data = midi(
        b"\x60\xc0\x08",  # at 96 channel 0 becomes a celesta (program 8), in another track
        NOTE  # 60 at 0: piano, because nothing else was said
        + b"\x00\x90\x3e\x50\x60\x80\x3e\x40"  # 62 at 96: celesta
        + b"\x00\xc0\x07"  # at 192: clavinet, a piano to MIDI
        + b"\x00\x90\x40\x50\x60\x80\x40\x40",  # 64 at 192
    )
    assert read(data).pitch.tolist() == [60, 62, 64]
    notes = read(data, piano_only=True)
    assert notes.pitch.tolist() == [60, 64]
    assert notes.warnings == {"note of another instrument dropped": 1}


def test_piano_only_leaves_out_the_pedal_of_the_others() -> None:
    data = midi(
        NOTE + b"\x00\xb0\x40\x7f\x60\xb0\x40\x00",  # channel 0: pedal down at 96, up at 192
        b"\x00\xc1\x30"  # channel 1: strings (program 48)
        b"\x00\xb1\x40\x7f"  # pedal down at 0
        b"\x00\x91\x40\x50\x60\x81\x40\x40"  # 64 from 0 to 96
        b"\x81\x40\xb1\x40\x00",  # pedal up at 288
    )
    assert pedal_rows(read(data)) == [(0, 0.5, 1.0), (1, 0.0, 1.5)]
    assert pedal_rows(read(data, piano_only=True)) == [(0, 0.5, 1.0)]


# ---- what is survived -------------------------------------------------------------------------


def test_a_bad_key_signature_is_survived() -> None:
    notes = read(midi(b"\x00\xff\x59\x02\x0b\x00" + NOTE))  # 11 sharps
    assert (len(notes), notes.warnings) == (1, {"bad key signature": 1})


@pytest.mark.parametrize(
    "meta",
    [
        b"\x00\xff\x51\x02\x07\xa1",  # a tempo of two bytes
        b"\x00\xff\x51\x04\x07\xa1\x20\x00",  # a tempo of four
        b"\x00\xff\x58\x01\x04",  # a time signature of one byte
        b"\x00\xff\x59\x00",  # a key signature without content
        b"\x00\xff\x54\x00",  # an SMPTE offset without content
    ],
)
def test_a_malformed_meta_event_is_survived(meta: bytes) -> None:
    notes = read(midi(meta + NOTE))
    assert rows(notes) == [(60, 0.0, 0.5)]
    assert notes.warnings == {"malformed meta event": 1}


def test_unknown_meta_events_and_texts_of_any_bytes_are_no_matter() -> None:
    notes = read(
        midi(
            b"\x00\xff\x7e\x01\x00"  # an unknown type
            b"\x00\xff\x03\x04\xff\xfe\x00\x80" + NOTE  # a track name that is no UTF-8
        )
    )
    assert (len(notes), notes.warnings) == (1, {})


def test_a_data_byte_above_127_is_clipped_and_counted() -> None:
    notes = read(
        midi(
            b"\x00\x90\x3c\xc8"  # note-on 60, velocity 200
            b"\x60\x80\x3c\xff"  # note-off 60, velocity 255
            b"\x00\x90\xff\x50"  # note-on 255
            b"\x60\x80\xff\x40"  # note-off 255
        )
    )
    assert rows(notes) == [(60, 0.0, 0.5), (127, 0.5, 1.0)]
    assert notes.velocity.tolist() == [127, 80]
    assert notes.warnings == {"data byte above 127": 4}


@pytest.mark.parametrize("place", [0, 1, 2])
def test_an_unknown_chunk_is_survived_wherever_it_stands(place: int) -> None:
    chunks = [header(1), chunk(NOTE + END_OF_TRACK)]
    chunks.insert(place, chunk(b"\x01\x02\x03", kind=b"XFIH"))
    notes = read(b"".join(chunks))
    assert (rows(notes), notes.warnings) == ([(60, 0.0, 0.5)], {"unknown chunk": 1})


def test_a_riff_wrapped_file_is_read() -> None:
    data = midi(NOTE)
    info = b"LIST" + (3).to_bytes(4, "little") + b"abc\x00"  # an odd chunk and its padding
    body = b"RMID" + info + b"data" + len(data).to_bytes(4, "little") + data
    assert len(read(b"RIFF" + len(body).to_bytes(4, "little") + body)) == 1


def test_a_missing_end_of_track_is_survived() -> None:
    notes = read(midi(NOTE, end=b""))
    assert (rows(notes), notes.warnings) == ([(60, 0.0, 0.5)], {"missing end-of-track": 1})


@pytest.mark.parametrize("junk", [b"\x00\x00\x00\x00", b"\x93\xff\xfe", b"\x7f" * 9])
def test_junk_behind_a_track_without_an_end_is_survived(junk: bytes) -> None:
    """The length is right: neither an end-of-track nor the next MTrk can be reached by reading."""
    data = header(2) + chunk(NOTE) + junk + chunk(NOTE + END_OF_TRACK)
    notes = read(data)
    assert rows(notes) == [(60, 0.0, 0.5)] * 2
    assert notes.warnings == {"missing end-of-track": 1, "bytes between tracks, at byte 30": 1}


def test_bytes_after_the_end_of_a_track_or_file_are_survived() -> None:
    notes = read(midi(NOTE, end=END_OF_TRACK + b"\x00\x00") + b"\x00\x00\x00")
    assert notes.warnings == {"bytes after an end-of-track": 1, "bytes after the last chunk": 1}


def test_a_wrong_number_of_tracks_is_survived() -> None:
    track = chunk(NOTE + END_OF_TRACK)
    for announced in (1, 3):
        notes = read(header(announced) + track + track)
        assert len(notes) == 2
        assert notes.warnings == {"wrong number of tracks in the header": 1}


def test_a_system_message_is_survived() -> None:
    notes = read(
        midi(
            b"\x00\xf8"  # a clock tick
            b"\x00\xf2\x00\x00" + NOTE  # a song position
        )
    )
    assert (len(notes), notes.warnings) == (1, {"system message": 2})


def test_a_long_header_and_a_huge_length_are_survived() -> None:
    long_header = b"MThd\x00\x00\x00\x08" + b"\x00\x01\x00\x01\x00\x60" + b"\x00\x00"
    huge = b"MTrk\xff\xff\xff\xff" + NOTE + END_OF_TRACK  # 4 GiB announced, but it has an end
    notes = read(long_header + huge)
    assert (len(notes), notes.warnings) == (1, {"wrong length of a track, at byte 20": 1})


@pytest.mark.parametrize("off_by", [-9, -4, -1, 1, 4, 6, 40])
def test_a_wrong_length_is_survived_and_said(off_by: int) -> None:
    first, second = NOTE + END_OF_TRACK, NOTE + b"\x00\xff\x01\x30" + bytes(48) + END_OF_TRACK
    wrong = b"MTrk" + (len(first) + off_by).to_bytes(4, "big") + first
    notes = read(header(2) + wrong + chunk(second))
    assert rows(notes) == [(60, 0.0, 0.5)] * 2
    assert notes.warnings == {"wrong length of a track, at byte 18": 1}


def test_a_closing_rest_of_over_an_hour_is_dropped() -> None:
    notes = read(midi(NOTE, end=b"\xff\xff\xff\x7f\xff\x2f\x00"))  # delta 2**28 - 1
    assert notes.end_time == 0.5
    assert notes.warnings == {"closing rest of over an hour dropped": 1}


# ---- what is refused --------------------------------------------------------------------------


def test_a_cut_file_is_refused_with_its_place() -> None:
    whole = midi(b"", NOTE)
    # 14 header, 8 + 4 first track, 8 of the second's head, its first event is complete (4)
    with pytest.raises(
        MidiError,
        match=r"^x\.mid: track 2, byte 38: the file ends inside an event after tick 96; "
        r"restore it from its source, or leave it out\.$",
    ):
        read(whole[:41])
    with pytest.raises(MidiError, match=r"track 2, byte 38: the file ends 8 bytes before its tra"):
        read(whole[:38])


def test_a_track_that_ends_inside_an_event_is_refused() -> None:
    data = header(2) + chunk(NOTE[:-1]) + chunk(END_OF_TRACK)
    with pytest.raises(MidiError, match="track 1, byte 26: the track ends inside an event"):
        read(data)


@pytest.mark.parametrize(
    ("events", "reason"),
    [
        (b"\x00\x3c\x50", "byte 22: a data byte stands where an event should begin"),
        (b"\x80\x80\x80\x80\x00" + NOTE, "byte 22: a number is longer than four bytes"),
        (NOTE + b"\x00\xff\x01\x7fhi", "byte 30: the file ends inside an event"),
        (NOTE + b"\x00\xf0\x7fhi", "byte 30: the file ends inside an event"),
    ],
)
def test_what_cannot_be_understood_is_refused(events: bytes, reason: str) -> None:
    with pytest.raises(MidiError, match=f"track 1, {reason}"):
        read(midi(events))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "not a MIDI file"),
        (b"\x89PNG\r\n\x1a\n" + bytes(40), "not a MIDI file"),
        (b"Dear diary, today I wrote no music.", "not a MIDI file"),
        (b"RIFF\x00\x00\x00\x00RMID", "not a MIDI file"),
        (b"RIFF\x00\x00\x00\x00WAVEfmt ", "not a MIDI file"),
        (header(1)[:10], "header is cut short"),
        (header(1), "holds no track"),
        (header(1) + b"junk", "track 1 should start here"),
        (header(1, midi_type=2) + chunk(NOTE), "type 2 holds separate patterns"),
        (header(1, midi_type=7) + chunk(NOTE), "type 7 does not exist"),
        (midi(NOTE, division=b"\x00\x00"), "0 ticks per quarter"),
        (midi(NOTE, division=b"\xe7\x00"), "0 ticks per frame"),
        (midi(NOTE, division=b"\xf0\x28"), "frame rate -16 does not exist"),
        (midi(b""), "holds no notes"),
        (midi(NOTE.replace(b"\x90", b"\x99")), "no notes but drums"),
        (midi(NOTE) + bytes(2**23), "more than 8 MiB"),
    ],
)
def test_what_is_no_music_is_refused_in_one_line(data: bytes, reason: str) -> None:
    with pytest.raises(MidiError, match=f"^x.mid: .*{reason}") as caught:
        read(data)
    assert "\n" not in str(caught.value)


def test_a_file_without_a_piano_is_refused_when_only_pianos_count() -> None:
    with pytest.raises(MidiError, match="no notes of a piano"):
        read(midi(b"\x00\xc0\x28" + NOTE), piano_only=True)  # a violin


@pytest.mark.parametrize(
    "events",
    [
        NOTE + b"\xff\xff\xff\x7f" + NOTE[1:],  # a delta of 2**28 - 1 ticks between notes
        b"\xff\xff\xff\x7f" + NOTE[1:],  # before the first
        NOTE[:4] + b"\xff\xff\xff\x7f" + NOTE[5:],  # inside one
        NOTE + b"\x00\xb0\x40\x7f\xff\xff\xff\x7f\xb0\x40\x00",  # under a pedal
    ],
)
def test_over_an_hour_without_a_note_is_refused(events: bytes) -> None:
    with pytest.raises(MidiError, match="388 hours pass without a note after second"):
        read(midi(events))


def test_an_hour_without_a_note_is_allowed() -> None:
    # 3600 s = 691,200 ticks of 96 a quarter at 120 bpm = 42 * 16384 + 24 * 128 + 0
    notes = read(midi(NOTE + b"\xaa\x98\x00" + NOTE[1:]))
    assert rows(notes) == [(60, 0.0, 0.5), (60, 3600.5, 3601.0)]
    with pytest.raises(MidiError, match="hours pass"):
        read(midi(NOTE + b"\xaa\x98\x01" + NOTE[1:]))


# ---- paths ------------------------------------------------------------------------------------


def test_a_file_is_read_from_its_path(tmp_path: Path) -> None:
    path = tmp_path / "a.mid"
    path.write_bytes(midi(NOTE))
    assert read_midi(path).equals(read_midi(str(path)))


def test_missing_files_and_folders_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(MidiError, match=r"nothing\.mid: there is no such file"):
        read_midi(tmp_path / "nothing.mid")
    with pytest.raises(MidiError, match="this is a folder"):
        read_midi(tmp_path)
    with pytest.raises(MidiError, match="cannot be opened"):
        read_midi("a\x00b.mid")
    with pytest.raises(MidiError) as caught:
        read_midi(tmp_path / "two\nlines.mid")
    assert "\n" not in str(caught.value)


@pytest.mark.skipif(sys.platform == "win32", reason="there is no /dev/zero on Windows")
def test_an_endless_file_is_refused() -> None:
    with pytest.raises(MidiError, match="more than 8 MiB"):
        read_midi("/dev/zero")


def test_columns_have_the_documented_types() -> None:
    notes = read(midi(NOTE))
    for name in ("pitch", "velocity", "channel", "track"):
        assert getattr(notes, name).dtype == np.int64
    for name in ("start", "end"):
        assert getattr(notes, name).dtype == np.float64
