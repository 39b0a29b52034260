"""Bar lines, and the places in a file that a user may name."""

import pytest

from music_transformer.errors import ConfigError, MidiError
from music_transformer.midi import bar_lines, part_of
from music_transformer.midi.bars import seconds_of
from music_transformer.notes import KeySignatures, NoteSequence, Tempos, TimeSignatures


def waltz(**changes: object) -> NoteSequence:
    """Nine quarters in 3/4: a second each in the first bar, then half a second; then 2/4."""
    columns: dict[str, object] = {
        "pitch": list(range(60, 69)),
        "velocity": [64] * 9,
        "start": [0, 1, 2, 3, 3.5, 4, 4.5, 5, 5.5],
        "end": [1, 2, 3, 3.5, 4, 4.5, 5, 5.5, 6],
        "tempos": Tempos([0.0, 3.0], [1.0, 0.5], 480),
        "time_signatures": TimeSignatures([0.0, 4.5], [3, 2], [4, 4]),
        "key_signatures": KeySignatures([0.0, 3.0], [-2, 1], [0, 0]),
    }
    return NoteSequence(**(columns | changes))  # type: ignore[arg-type]


def test_bars_follow_metre_and_tempo_up_to_the_end() -> None:
    assert bar_lines(waltz()).tolist() == pytest.approx([0.0, 3.0, 4.5, 5.5])
    assert bar_lines(waltz(end_time=6.5)).tolist() == pytest.approx([0.0, 3.0, 4.5, 5.5, 6.5])
    assert len(bar_lines(waltz(time_signatures=TimeSignatures()))) == 0
    assert len(bar_lines(waltz(tempos=Tempos()))) == 0


def test_a_damaged_tempo_makes_no_bars() -> None:
    assert len(bar_lines(waltz(tempos=Tempos([0.0], [1e-6])))) == 0


@pytest.mark.parametrize(
    ("text", "second"),
    [("1.5", 1.5), ("0", 0.0), ("-2", 4.0), ("bar:1", 0.0), ("bar:2", 3.0), ("bar:5", 6.0)],
)
def test_places_are_seconds_bars_or_seconds_from_the_end(text: str, second: float) -> None:
    assert seconds_of(text, waltz()) == pytest.approx(second)


def test_without_a_metre_bars_are_those_of_common_time() -> None:
    notes = waltz(time_signatures=TimeSignatures())
    assert seconds_of("bar:2", notes) == pytest.approx(3.5)


@pytest.mark.parametrize(
    "text", ["6.5", "-7", "nan", "inf", "1e308", "bar:0", "bar:6", "bar:x", "bar:-1", "soon", ""]
)
def test_a_place_outside_the_notes_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        seconds_of(text, waltz())
    with pytest.raises(ConfigError, match="no beat"):
        seconds_of("bar:1", waltz(tempos=Tempos()))


def test_a_part_keeps_tempo_key_and_bar_lines() -> None:
    part = part_of(waltz(), "1", "bar:4")
    assert part.pitch.tolist() == list(range(61, 68))
    assert part.tempos.seconds.tolist() == [0.0, 2.0]
    assert part.key_signatures.sharps.tolist() == [-2, 1]
    assert bar_lines(part).tolist() == pytest.approx([2.0, 3.5, 4.5])
    assert bar_lines(part_of(waltz(), "bar:2", None)).tolist() == pytest.approx([0.0, 1.5, 2.5])
    assert bar_lines(part_of(waltz(), "4", None)).tolist() == pytest.approx([0.5, 1.5])
    assert len(bar_lines(waltz().sliced(3.5, 4.0))) == 0
    assert part_of(waltz(), None, None).equals(waltz())


def test_an_empty_part_is_refused() -> None:
    with pytest.raises(ConfigError, match="choose a later --to"):
        part_of(waltz(), "3", "2")
    with pytest.raises(MidiError, match="no note sounds"):
        part_of(waltz(end_time=9), "7", None)
