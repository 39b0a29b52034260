"""What a musician asks for is what comes, and nothing changes where it is there already."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from music_transformer.checkpoint import Session
from music_transformer.errors import ConfigError
from music_transformer.generation import generate
from music_transformer.generation.steering import Steering, key_of, target_of
from music_transformer.notes import NoteSequence
from music_transformer.representations import PerformanceTokenizer
from music_transformer.representations.performance.vocabulary import TIME_SHIFT
from music_transformer.sampling import Settings, read_key, read_pitch

MakeSession = Callable[..., Session]


def motif(seconds: float = 4.0, lowered: int = 0) -> NoteSequence:
    """A scale of C major, four notes a second, one at a time."""
    start = np.arange(0, seconds, 0.25)
    pitch = [(60, 62, 64, 65, 67, 69, 71, 72)[i % 8] - lowered for i in range(len(start))]
    return NoteSequence(pitch=pitch, velocity=[60] * len(start), start=start, end=start + 0.2)


def made(
    make_session: MakeSession, seconds: float = 10.0, lowered: int = 0, **settings: Any
) -> NoteSequence:
    return generate(
        make_session(), motif(lowered=lowered), seconds=seconds, seed=3, **settings
    ).continuation


def most_at_a_time(notes: NoteSequence) -> int:
    return max(int(((notes.start <= at) & (notes.end > at)).sum()) for at in notes.start)


def test_a_motif_is_known_by_its_notes() -> None:
    target = target_of(PerformanceTokenizer().encode(motif()))
    assert target is not None
    assert target.pace == pytest.approx(4, rel=0.05)
    assert target.polyphony == pytest.approx(1)
    assert target.register == pytest.approx(66.25)
    assert target.loudness == 15
    assert key_of(PerformanceTokenizer().encode(motif())) == (0, "major")
    assert target_of(PerformanceTokenizer().encode(motif(seconds=0.5))) is None


def test_no_note_is_out_of_the_range(make_session: MakeSession) -> None:
    notes = made(make_session, low="C4", high="E4")
    assert len(notes) > 5
    assert set(notes.pitch.tolist()) <= {60, 61, 62, 63, 64}


def test_no_more_voices_than_asked_for_and_the_music_goes_on(make_session: MakeSession) -> None:
    notes = made(make_session, voices=2)
    assert most_at_a_time(notes) == 2 < most_at_a_time(made(make_session))
    assert notes.start.max() > 8


def test_most_notes_are_in_the_key(make_session: MakeSession) -> None:
    def share(notes: NoteSequence) -> float:
        return float(np.isin(notes.pitch % 12, [6, 8, 9, 11, 1, 2, 4, 5]).mean())

    assert share(made(make_session)) < 0.8
    assert share(made(make_session, key="F# minor")) > 0.9
    assert share(made(make_session, key="none")) == share(made(make_session))


def test_pace_and_loudness_come_near_what_is_asked_for(make_session: MakeSession) -> None:
    slow, fast = (len(made(make_session, 20, pace=pace)) for pace in (0.5, 2))
    assert slow < 20 * 4 < fast
    soft, loud = (made(make_session, 20, loudness=mark).velocity.mean() for mark in ("pp", "ff"))
    assert soft < 60 < loud


def test_closeness_draws_back_to_the_motif_and_0_leaves_the_model_alone(
    make_session: MakeSession,
) -> None:
    free, same, close = (made(make_session, 20, 24, closeness=c) for c in (None, 0, 3))
    assert np.array_equal(free.pitch, same.pitch)
    wanted, *both = (
        np.array([len(notes), notes.velocity.mean(), notes.pitch.mean()])
        for notes in (motif(20, lowered=24), free, close)
    )
    assert (abs(both[1] - wanted) < abs(both[0] - wanted)).all()


def test_closeness_halves_every_fifteen_seconds_after_the_first() -> None:
    ids = PerformanceTokenizer().encode(motif(20))
    slow = [*ids, *[TIME_SHIFT + 99] * 9]  # nothing comes for nine seconds: far from the pace

    def pull(seconds: float) -> float:
        steering = Steering(Settings(closeness=1.0), ids)
        sample: Any = SimpleNamespace(ids=slow, grammar=SimpleNamespace(ages=None, seconds=seconds))
        logits = torch.zeros(391, dtype=torch.float64)
        steering.apply(logits, sample)
        return float(logits[TIME_SHIFT])

    assert pull(0) == pull(15) != 0
    assert pull(30) == pytest.approx(pull(15) / 2)
    assert pull(60) == pytest.approx(pull(15) / 8)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"low": "C6", "high": "C3"}, "low=C6 is above high=C3"),
        ({"low": "H3"}, "low=H3; choose a note such as C3"),
        ({"high": "128"}, "high=128; choose a note"),
        ({"key": "H minor"}, "key=H minor; choose a key such as"),
        ({"loudness": "loud"}, "loudness=loud; choose one of pp"),
        ({"pace": 9}, "pace=9; choose 0.25 to 4"),
        ({"voices": 0}, "voices=0; choose 1"),
        ({"calm": True, "bold": True}, "calm and bold; choose one"),
        ({"pace": 2}, "pace=2 follows a motif, and there is none"),
        ({"key": "motif"}, "key=motif follows a motif, and there is none"),
    ],
)
def test_the_impossible_is_refused_in_one_line(
    make_session: MakeSession, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        generate(make_session(), None, events=5, **settings)
    assert "\n" not in str(caught.value)


def test_a_chorale_is_not_steered(make_session: MakeSession) -> None:
    with pytest.raises(ConfigError, match="low, voices: for models of performances"):
        generate(make_session("chorale"), None, events=5, low="C3", voices=2)


def test_names_of_keys_and_notes() -> None:
    assert [read_pitch(name) for name in ("C4", "f#3", "Bb-1", "60")] == [60, 54, 10, 60]
    assert [read_key(name) for name in ("F# minor", "Bb", "am", "C major")] == [
        (6, "minor"),
        (10, "major"),
        (9, "minor"),
        (0, "major"),
    ]


def test_calm_and_bold_are_temperature_and_top_p() -> None:
    assert Settings(calm=True).mood.temperature == 0.9
    assert Settings(bold=True, top_p=0.5).or_else(Settings(bold=True).mood).top_p == 0.5
