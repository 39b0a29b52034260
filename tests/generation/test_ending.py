"""How a continuation ends: within its time, on a chord that rings, without a new phrase."""

from collections.abc import Callable

import numpy as np
import pytest

from music_transformer.checkpoint import Session
from music_transformer.errors import ConfigError
from music_transformer.generation import generate, stream
from music_transformer.notes import NoteSequence, Tempos
from music_transformer.representations import ChoraleTokenizer, PerformanceTokenizer
from music_transformer.representations.base import Limits, Primer
from music_transformer.representations.close import closes, is_close
from music_transformer.representations.performance.vocabulary import (
    END,
    NOTE_OFF,
    NOTE_ON,
    TIME_SHIFT,
    VELOCITY,
)
from music_transformer.sampling import Settings

MakeSession = Callable[..., Session]


@pytest.mark.parametrize(
    ("pitches", "expected"),
    [
        ([48, 60], True),  # an octave
        ([48, 52, 55], True),
        ([45, 60, 64], True),  # A minor
        ([48, 64], True),  # the fifth may lack
        ([52, 55, 60], False),  # a sixth chord does not rest
        ([48, 55], False),
        ([48, 52, 55, 58], False),
        ([60], False),
        ([], False),
    ],
)
def test_music_rests_on_octaves_and_on_triads_in_root_position(
    pitches: list[int], expected: bool
) -> None:
    assert is_close(pitches) is expected


def test_the_last_chord_is_what_rings_after_the_last_onset() -> None:
    notes = NoteSequence(
        pitch=[62, 48, 52, 55], velocity=[80] * 4, start=[0, 1, 1, 1], end=[1.1, 3, 3, 3]
    )
    assert closes(notes)
    assert (
        closes(notes.selected(notes.pitch != 48).replaced(pitch=[65, 52, 57], end=[1.1, 3, 3]))
        is False
    )
    assert closes(notes.replaced(pitch=[62, 52, 55, 60]))  # inverted
    assert not closes(notes.replaced(end=[3, 3, 3, 3]))


@pytest.mark.parametrize(
    ("settings", "most"),
    [
        ({"seconds": 20}, 5.0),
        ({"seconds": 100}, 10.0),
        ({}, 7.5),
        ({"seconds": 20, "end": "cut"}, 0.0),
        ({"events": 7}, 0.0),
    ],
)
def test_an_end_takes_a_quarter_more_and_ten_seconds_at_most(
    settings: dict[str, object], most: float
) -> None:
    assert Settings(**settings).ending_seconds == most  # type: ignore[arg-type]


def test_an_unknown_end_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"end=fade; choose one of close, cut\."):
        Settings(end="fade")


@pytest.mark.parametrize("kind", ["performance", "pedal", "chorale"])
def test_an_end_begins_like_the_cut_and_keeps_its_time(
    make_session: MakeSession, kind: str
) -> None:
    session = make_session(kind)
    closed = generate(session, seconds=4, seed=1)
    cut = generate(session, seconds=4, seed=1, end="cut")
    drawn = cut.ids[: len(cut.ids) - cut.report.closing_events - 1]  # the last may be shortened
    assert closed.ids[: len(drawn)] == drawn
    assert cut.report.seconds <= 4.2
    assert 4 <= closed.report.seconds <= 5.2
    assert list(stream(session, seconds=4, seed=1)) == closed.ids
    if kind != "chorale":
        ids = closed.ids
        assert session.tokenizer.encode(session.tokenizer.decode(ids)) == ids


def test_a_chord_that_rests_rings_and_no_note_follows() -> None:
    tokenizer = PerformanceTokenizer()
    limits = Limits(seconds=1.0, ending_seconds=10.0)
    grammar = tokenizer.grammar(Primer([]), limits)
    grammar.read([VELOCITY + 16, *(NOTE_ON + p for p in (48, 52, 55)), TIME_SHIFT + 99])
    grammar.end_after(0.0, 10.0)
    assert grammar.ending == 0
    assert grammar.clip(TIME_SHIFT + 60) == TIME_SHIFT + 99  # as long a pause is the last
    grammar.advance(TIME_SHIFT + 99)
    assert grammar.rings
    mask = grammar.mask()
    assert not mask[NOTE_ON:NOTE_OFF].any()
    assert not mask[VELOCITY:].any()
    for pitch in (48, 52, 55):
        assert not grammar.finished
        grammar.advance(NOTE_OFF + pitch)
    assert grammar.finished
    assert grammar.closing() == []


def test_end_may_come_in_silence_after_a_chord_that_rests() -> None:
    grammar = PerformanceTokenizer().grammar(Primer([]), Limits(seconds=0.5, ending_seconds=9.0))
    struck = [VELOCITY + 16, NOTE_ON + 48, NOTE_ON + 60, TIME_SHIFT + 29]
    for event_id in [*struck, NOTE_OFF + 48, NOTE_OFF + 60]:
        grammar.advance(event_id)
    assert not grammar.mask()[END]  # not yet asked for
    grammar.ending_step = 20
    assert grammar.mask()[END]


def chorale_grammar(rows: list[list[int]], seconds: float) -> tuple[ChoraleTokenizer, object]:
    tokenizer = ChoraleTokenizer()
    grammar = tokenizer.grammar(
        Primer([], seconds_per_beat=0.4), Limits(seconds=seconds, ending_seconds=2.0)
    )
    for row in rows:
        for event_id in row:
            grammar.advance(event_id)
    return tokenizer, grammar


@pytest.mark.parametrize(
    ("before", "last", "may_end"),
    [
        ([71, 67, 62, 55], [72, 67, 64, 48], True),  # V-I, the leading note up
        ([72, 69, 65, 53], [72, 67, 64, 48], True),  # IV-I
        ([71, 67, 62, 50], [72, 67, 64, 48], False),  # the bass by step: later
        ([65, 67, 62, 55], [72, 67, 64, 48], False),  # the soprano leaps: later
        ([71, 67, 62, 55], [72, 67, 64, 52], False),  # a sixth chord
    ],
)
def test_a_chorale_may_end_on_a_triad_that_a_cadence_reached(
    before: list[int], last: list[int], may_end: bool
) -> None:
    tokenizer, grammar = chorale_grammar([before] * 8 + [last] * 4, seconds=1.2)
    assert bool(grammar.mask()[tokenizer.end]) is may_end  # type: ignore[attr-defined]
    tokenizer, later = chorale_grammar([before] * 12 + [last] * 4, seconds=0.1)
    assert bool(later.mask()[tokenizer.end]) is (last[-1] == 48)  # type: ignore[attr-defined]
    if may_end:
        assert later.closing() == last * 4  # type: ignore[attr-defined]


def test_a_melody_of_a_chorale_is_harmonized_before_it_goes_on(make_session: MakeSession) -> None:
    """Seven notes, two of them repeated and one too short for the grid."""
    motif = NoteSequence(
        pitch=[67, 67, 69, 71, 72, 71, 69],
        velocity=[70] * 7,
        start=[0, 0.503, 1, 1.5, 1.53, 2, 2.5],
        end=[0.5, 1, 1.5, 1.53, 2, 2.5, 3],
        tempos=Tempos([0.0], [0.5], 480),
        track_names=("right hand",),
    )
    result = generate(make_session("chorale"), motif, seconds=2)
    own = result.notes.track == 0
    assert result.notes.pitch[own].tolist() == motif.pitch.tolist()
    assert result.notes.start[own].tolist() == motif.start.tolist()
    assert result.notes.track_names == ("right hand", "soprano", "alto", "tenor", "bass")
    under = result.notes.start < 3
    assert set(result.notes.track[under].tolist()) == {0, 2, 3, 4}
    assert set(result.notes.track[~under].tolist()) == {1, 2, 3, 4}
    for track in range(1, 5):
        assert len(np.unique(result.notes.channel[result.notes.track == track])) == 1
    assert len(result.primer_ids) == 4 * 24
    soprano = result.primer_ids[::4]
    assert soprano == [67] * 8 + [69] * 4 + [72] * 4 + [71] * 4 + [69] * 4
    assert any("the 7 notes of the primer are 5" in text for text in result.report.warnings)


def test_two_voices_get_the_inner_ones_and_four_stay(make_session: MakeSession) -> None:
    session = make_session("chorale")
    two = NoteSequence(
        pitch=[72, 48, 71, 55], velocity=[70] * 4, start=[0, 0, 1, 1], end=[1, 1, 2, 2]
    )
    ids = generate(session, two, seconds=1).primer_ids
    assert (ids[::4], ids[3::4]) == ([72] * 8 + [71] * 8, [48] * 8 + [55] * 8)
    assert set(ids[1::4]) != {128}
    chord = NoteSequence(pitch=[72, 67, 64, 48], velocity=[70] * 4, start=[0] * 4, end=[1] * 4)
    result = generate(session, chord, seconds=1)
    assert result.primer_ids == [72, 67, 64, 48] * 8
    assert not [text for text in result.report.warnings if "grid" in text]
