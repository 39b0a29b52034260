"""Whatever the bytes are: notes, or one MidiError of one line."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from music_transformer.errors import MidiError
from music_transformer.midi import read_midi_bytes

HEADER = b"MThd\x00\x00\x00\x06\x00\x01\x00\x01\x00\x60"
TRACK = (
    b"\x00\xff\x51\x03\x07\xa1\x20"  # tempo
    b"\x00\xff\x59\x02\x00\x00"  # key signature
    b"\x00\xb0\x40\x7f"  # pedal down
    b"\x00\xf0\x03\x01\x02\xf7"  # SysEx
    b"\x00\xc0\x00"  # program
    b"\x00\x90\x3c\x50"  # note-on 60
    b"\x60\x3c\x00"  # its end, by running status
    b"\x81\x00\x99\x24\x50"  # a drum, after a delta of two bytes
    b"\x00\x90\x40\x50"  # note-on 64
    b"\x60\x80\x40\x40"  # note-off 64
    b"\x00\xb0\x40\x00"  # pedal up
    b"\x00\xff\x2f\x00"  # end of track
)
VALID = HEADER + b"MTrk" + len(TRACK).to_bytes(4, "big") + TRACK


def check(data: bytes) -> None:
    try:
        notes = read_midi_bytes(data, "x.mid")
    except MidiError as error:
        message = str(error)
    else:
        assert len(notes) > 0
        assert notes.sustained().end.max() <= notes.end_time
        return
    assert message.startswith("x.mid: ")
    assert "\n" not in message


def test_the_valid_file_is_valid() -> None:
    assert read_midi_bytes(VALID, "x.mid").warnings == {"drum note dropped": 1}


@given(st.binary(max_size=300))
def test_any_bytes(data: bytes) -> None:
    check(data)


@settings(max_examples=500)
@given(st.binary(max_size=200), st.integers(0, 2**16 - 1))
def test_any_track(content: bytes, division: int) -> None:
    head = HEADER[:12] + division.to_bytes(2, "big")
    check(head + b"MTrk" + len(content).to_bytes(4, "big") + content)


@settings(max_examples=500)
@given(
    st.lists(st.tuples(st.integers(0, len(VALID) - 1), st.integers(0, 255)), max_size=4),
    st.integers(0, len(VALID)),
)
@example([(18, 255)], len(VALID))  # a track of 4 GiB
@example([(4, 255)], len(VALID))  # a header of 4 GiB
def test_a_valid_file_with_some_bytes_changed_and_cut(
    changes: list[tuple[int, int]], cut: int
) -> None:
    data = bytearray(VALID)
    for place, byte in changes:
        data[place] = byte
    check(bytes(data))
    check(bytes(data[:cut]))


@given(st.integers(0, len(VALID)), st.integers(0, len(VALID)), st.binary(max_size=5))
def test_a_valid_file_with_a_part_replaced(start: int, end: int, other: bytes) -> None:
    check(VALID[:start] + other + VALID[end:])


@pytest.mark.parametrize("cut", range(len(VALID)))
def test_a_file_cut_anywhere_is_refused(cut: int) -> None:
    with pytest.raises(MidiError):
        read_midi_bytes(VALID[:cut], "x.mid")


@pytest.mark.parametrize(
    "fill",
    [
        lambda random: random.randbytes(2**20),
        lambda random: HEADER + random.randbytes(2**20),
        lambda random: HEADER + b"MTrk\x7f\xff\xff\xff" + random.randbytes(2**20),
        lambda random: HEADER + b"MTrk\x00\x00\x00\x00" * 2**16,
        lambda random: HEADER + b"MTrk\x00\x0f\x00\x00" + b"\x00\xff\x51\x03\x00\x00\x01" * 2**17,
    ],
)
def test_a_megabyte_of_anything_ends_soon(fill: Callable[[random.Random], bytes]) -> None:
    check(fill(random.Random(0)))


@pytest.mark.corpus
def test_the_motifs_with_bytes_changed(corpora: Path) -> None:
    generator = random.Random(1)
    for path in sorted((corpora / "motifs").glob("*.mid")):
        whole = path.read_bytes()
        for _ in range(40):
            data = bytearray(whole)
            for _ in range(generator.randint(1, 5)):
                data[generator.randrange(len(data))] = generator.randrange(256)
            check(bytes(data))
