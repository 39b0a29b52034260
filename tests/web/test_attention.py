"""The note that was clicked is found, and heard are notes of the take."""

from pathlib import Path

import pytest

from music_transformer.checkpoint import Session, load_checkpoint
from music_transformer.errors import ConfigError
from music_transformer.generation.continuation import Continuation
from music_transformer.generation.loop import SampleSpec
from music_transformer.representations import Primer
from music_transformer.representations.chorale.grid import SILENCE
from music_transformer.representations.performance.vocabulary import (
    NOTE_OFF,
    NOTE_ON,
    TIME_SHIFT,
    VELOCITY,
)
from music_transformer.sampling import Settings
from music_transformer.web.models import Model
from music_transformer.web.studio import attention_of_note
from music_transformer.web.takes import Take, rows_of

PIANO = [
    *(VELOCITY + 20, NOTE_ON + 64, NOTE_ON + 60, NOTE_OFF + 60, NOTE_ON + 60, TIME_SHIFT + 49),
    *(NOTE_OFF + 64, NOTE_OFF + 60, VELOCITY + 7, NOTE_ON + 60, TIME_SHIFT + 9, NOTE_ON + 67),
]
CHORALE = [72, 67, 64, SILENCE, 72, 69, 64, 48, 71, 69]


def take_of(session: Session, ids: list[int], seconds_per_beat: float = 0.75) -> Take:
    take = Take(Model("m", Path(), ""), None, Settings(), "t", lambda _: None)
    take.ids, take.read = ids, Primer([], seconds_per_beat=seconds_per_beat)
    take._continuation = Continuation(session, None, [SampleSpec(Settings())])
    take._continuation.primer = take.read
    return take


def session_of(checkpoints: Path, name: str) -> Session:
    return load_checkpoint(str(checkpoints / name), device="cpu")


@pytest.mark.parametrize(("name", "ids"), [("piano", PIANO), ("bach", CHORALE)])
def test_every_note_that_is_told_is_found_and_hears_notes_that_are_told(
    checkpoints: Path, name: str, ids: list[int]
) -> None:
    """In a beat whose sixteenths have more decimals than are told."""
    session = session_of(checkpoints, name)
    take = take_of(session, ids, 0.612345)
    told = [(start, pitch, track) for start, _, pitch, _, track in rows_of(take.decoded())]
    for start, pitch, track in told:
        answer = attention_of_note(session, take, start=start, pitch=pitch, track=track)
        heard = [tuple(note) for note in answer["notes"]]
        assert set(heard) <= set(told)
        assert all(begin <= start for begin, _, _ in heard)


def test_the_past_begins_where_the_context_does(checkpoints: Path) -> None:
    """Every cell is a note of its own; of the 79 before the last, 61 are in the context."""
    ids = [70 - 10 * voice + sixteenth % 2 for sixteenth in range(20) for voice in range(4)]
    session = session_of(checkpoints, "bach")
    take = take_of(session, ids, 0.5)
    answer = attention_of_note(session, take, start=19 * 0.125, pitch=41, track=3)
    assert answer["from_seconds"] == 4 * 0.125
    assert len(answer["notes"]) == 61
    assert answer["notes"][:2] == [[0.5, 40, 3], [0.5, 50, 2]]


def test_all_that_the_model_heard_of_a_note_is_that_notes(checkpoints: Path) -> None:
    """Before the last note of the piano are three: what is not theirs is START's and time's."""
    session = session_of(checkpoints, "piano")
    take = take_of(session, PIANO)
    answer = attention_of_note(session, take, start=0.6, pitch=67, track=0)
    assert answer["notes"] == [[0.0, 60, 0], [0.0, 64, 0], [0.5, 60, 0]]
    assert (answer["layers"], answer["heads"], answer["from_seconds"]) == (2, 3, 0.0)
    for layer in range(2):
        for head in range(3):
            of_head = [row[2:] for row in answer["weights"] if row[:2] == [layer, head]]
            assert [note for note, _ in of_head] == [0, 1, 2]
            assert 0 < sum(weight for _, weight in of_head) < 1


def test_a_note_that_is_not_there_is_refused(checkpoints: Path) -> None:
    session = session_of(checkpoints, "bach")
    take = take_of(session, CHORALE)
    with pytest.raises(ConfigError, match="no such note"):
        attention_of_note(session, take, start=0.0, pitch=72, track=1)
