"""Files that other programs read wrongly: each stands for a kind. Their bytes are ours (CC0)."""

from pathlib import Path

import pytest

from music_transformer.errors import MidiError
from music_transformer.midi import check_writable, read_midi, write_midi
from music_transformer.notes import NoteSequence, to_steps
from music_transformer.representations import PerformanceTokenizer

CASES = Path(__file__).parent / "cases"


def steps(notes: NoteSequence) -> list[list[int]]:
    """[start, end, pitch, velocity] as they are encoded, times in steps of 10 ms."""
    heard = PerformanceTokenizer().decode(PerformanceTokenizer().encode(notes))
    columns = (to_steps(heard.start), to_steps(heard.end), heard.pitch)
    return [list(row) for row in zip(*(column.tolist() for column in columns), strict=True)]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("01_reset_controllers", [[10, 80, 60], [100, 120, 64], [150, 170, 67]]),
        ("02_all_notes_off", [[0, 70, 60], [20, 70, 64], [100, 120, 67]]),
        ("02b_all_notes_off_under_pedal", [[0, 90, 60], [40, 90, 64], [100, 120, 67]]),
        (
            "07_one_lost_note_off",
            [[0, 100, 60], *([100 * i, 100 * i + 10, 60] for i in range(1, 5))],
        ),
        ("19_pedal_on_three_channels", [[0, 90, 60], [200, 210, 62]]),
        ("23_bytes_between_tracks", [[0, 50, 60], [50, 100, 62]]),
    ],
)
def test_the_notes_are_those_that_a_player_plays(
    name: str, expected: list[list[int]], tmp_path: Path
) -> None:
    notes = read_midi(CASES / f"{name}.mid")
    assert steps(notes) == expected
    assert steps(read_midi(write_midi(notes, tmp_path / "again.mid"))) == expected


def test_bytes_between_tracks_are_said_with_their_place() -> None:
    warnings = read_midi(CASES / "23_bytes_between_tracks.mid").warnings
    assert warnings == {"bytes between tracks, at byte 42": 1}


def test_a_pedal_of_a_channel_without_notes_makes_no_event() -> None:
    tokenizer = PerformanceTokenizer(pedal="events")
    symbols = tokenizer.symbols(
        tokenizer.encode(read_midi(CASES / "19_pedal_on_three_channels.mid"))
    )
    assert [symbol for symbol in symbols if symbol.startswith("PEDAL")] == ["PEDAL_ON", "PEDAL_OFF"]
    assert symbols.index("TIME_SHIFT 5") < symbols.index("PEDAL_ON")


def test_a_waltz_stays_one_with_a_continuation(tmp_path: Path) -> None:
    waltz = read_midi(CASES / "08_waltz_time_signature.mid")
    new = NoteSequence(pitch=[60], velocity=[64], start=[0.03], end=[0.5])
    again = read_midi(write_midi(waltz.followed_by(new), tmp_path / "a.mid"))
    assert again.tempos.seconds_per_quarter.tolist() == [0.6]
    assert (again.time_signatures.numerator[0], again.time_signatures.denominator[0]) == (3, 4)
    assert again.key_signatures.sharps.tolist() == [-2]
    assert again.start[: len(waltz)].tolist() == waltz.start.tolist()


def test_tempo_events_after_the_last_note_are_no_rest() -> None:
    notes = read_midi(CASES / "25_half_hour_of_tempos_after.mid")
    assert (notes.end_time, len(notes.tempos)) == (1.0, 1)


def test_a_tempo_later_than_the_end_can_be_written_again(tmp_path: Path) -> None:
    notes = read_midi(CASES / "late_tempo.mid")
    assert read_midi(write_midi(notes, tmp_path / "a.mid")).equals(notes)


def test_what_could_not_be_read_again_is_refused_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(MidiError, match=r"unreadable_again\.mid: .* hours pass without a note"):
        read_midi(CASES / "unreadable_again.mid")
    gap = NoteSequence(pitch=[60, 60], velocity=[64, 64], start=[0, 3602], end=[1, 3603])
    with pytest.raises(MidiError, match=r"^motif\.mid: 1 hours pass without a note after second 1"):
        check_writable(gap, "motif.mid")
    with pytest.raises(MidiError, match="hours pass"):
        write_midi(gap, tmp_path / "a.mid")


@pytest.mark.parametrize("name", ["hour", "gaps36"])
def test_long_silences_are_read_and_written(name: str, tmp_path: Path) -> None:
    notes = read_midi(CASES / f"{name}.mid")
    assert read_midi(write_midi(notes, tmp_path / "a.mid")).equals(notes)
