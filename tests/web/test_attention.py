"""Which events are part of which note."""

import math
from pathlib import Path

from music_transformer.generation import Settings
from music_transformer.generation.primer import Primer
from music_transformer.tokenizers.chorale import SILENCE
from music_transformer.tokenizers.vocabulary import NOTE_OFF, NOTE_ON, TIME_SHIFT, VELOCITY
from music_transformer.web.attention import Onset, onsets_of
from music_transformer.web.models import Model
from music_transformer.web.takes import Take


def take_of(ids: list[int], seconds_per_beat: float = 0.75) -> Take:
    take = Take(Model("m", Path(), "", 8), None, Settings(), "t", lambda _: None)
    take.ids, take.read = ids, Primer([], seconds_per_beat=seconds_per_beat)
    return take


def test_velocity_on_and_off_are_part_of_a_note_and_time_is_part_of_none() -> None:
    ids = [
        *(VELOCITY + 20, NOTE_ON + 60, NOTE_ON + 64, TIME_SHIFT + 49),
        *(NOTE_OFF + 60, NOTE_ON + 60, TIME_SHIFT + 9, NOTE_OFF + 60, NOTE_OFF + 64, NOTE_OFF + 7),
    ]
    onsets, owner = onsets_of(take_of(ids), chorale=False)
    assert onsets == [Onset(1, 0.0, 60, 0), Onset(2, 0.0, 64, 0), Onset(5, 0.5, 60, 0)]
    assert owner == [0, 0, 1, -1, 0, 2, -1, 2, 1, -1]


def test_the_sixteenths_of_a_held_pitch_are_one_note_of_its_voice() -> None:
    ids = [72, 67, 64, SILENCE, 72, 69, 64, 48, 71, 69]
    onsets, owner = onsets_of(take_of(ids, 0.5), chorale=True)
    assert [(o.index, o.pitch, o.track) for o in onsets] == [
        *((0, 72, 0), (1, 67, 1), (2, 64, 2)),
        *((5, 69, 1), (7, 48, 3), (8, 71, 0)),
    ]
    assert math.isclose(onsets[-1].start, 0.25)
    assert owner == [0, 1, 2, -1, 0, 3, 2, 4, 5, 3]
