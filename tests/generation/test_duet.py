"""Piano to a melody: the melody comes out as it went in, whatever the model plays."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from music_transformer.checkpoint import Session
from music_transformer.datasets.pairs import cut_segment
from music_transformer.errors import ConfigError, MidiError
from music_transformer.generation import accompany
from music_transformer.model import AccompanimentConfig, AccompanimentTransformer
from music_transformer.notes import NoteSequence, Tempos
from music_transformer.representations import AccompanimentTokenizer, PerformanceTokenizer
from music_transformer.representations.accompaniment.skyline import read_tune
from music_transformer.representations.accompaniment.tokenizer import N_MELODY_IDS
from music_transformer.representations.performance.primer import later_part
from music_transformer.representations.performance.vocabulary import (
    NOTE_OFF,
    START,
    TIME_SHIFT,
    VELOCITY,
)

TOKENIZER = AccompanimentTokenizer()


@pytest.fixture(scope="module")
def session() -> Session:
    """A model that has learned nothing, whose windows are short in events and in seconds."""
    config = AccompanimentConfig(
        n_layers=1,
        d_model=16,
        n_heads=2,
        d_ff=16,
        n_encoder_layers=1,
        d_encoder=8,
        d_encoder_ff=8,
        d_cross=8,
        dropout=0.0,
        context=48,
        source_context=30,
    )
    with torch.random.fork_rng():
        torch.manual_seed(4)
        model = AccompanimentTransformer(config).eval()
    return Session(model, TOKENIZER, config, {}, Path("nowhere"), torch.device("cpu"))


def tune(seconds: float, *, begin: float = 0.0) -> NoteSequence:
    """Notes of 0.45 s every half second, off the grid of the events by some milliseconds."""
    start = begin + np.arange(int(seconds * 2)) * 0.5037
    return NoteSequence(
        pitch=60 + np.arange(len(start)) * 5 % 13,
        velocity=40 + np.arange(len(start)) % 50,
        start=start,
        end=start + 0.4513,
    )


def columns(notes: NoteSequence, rows: Any) -> list[list[float]]:
    return [getattr(notes, name)[rows].tolist() for name in ("pitch", "velocity", "start", "end")]


@pytest.mark.parametrize("seconds", [3.0, 12.0])
def test_every_note_of_the_melody_is_kept_and_the_piano_ends_with_it(
    session: Session, seconds: float
) -> None:
    melody = tune(seconds)
    [duet] = accompany(session, melody, candidates=1, seed=2)
    is_melody = duet.notes.track == 0
    assert columns(duet.notes, is_melody) == columns(melody, slice(None))
    assert (~is_melody).sum() == duet.report.to_dict()["notes"] > 0
    assert set(duet.notes.channel[~is_melody].tolist()) == {1}
    assert duet.notes.end.max() <= melody.end.max() + 1.02
    assert (duet.report.windows_reread > 0) == (seconds > 3)  # the windows show 3 s


def test_the_piano_strikes_no_key_that_the_melody_holds_and_lets_go_of_those_it_strikes(
    session: Session,
) -> None:
    melody = tune(6.0)
    [duet] = accompany(session, melody, candidates=1, seed=5, temperature=1.3, top_p=1)
    piano = duet.notes.track == 1
    for pitch, start, end in zip(melody.pitch, melody.start, melody.end, strict=True):
        same = piano & (duet.notes.pitch == pitch)
        overlap = (duet.notes.start[same] < end) & (duet.notes.end[same] > start)
        assert not overlap.any()


def test_the_piano_begins_with_the_melody_or_at_second_0(session: Session) -> None:
    melody = tune(2.0, begin=7.0)
    [late] = accompany(session, melody, candidates=1)
    assert late.notes.start.min() == 7.0
    [early] = accompany(session, melody, candidates=1, keep_silence=True)
    assert early.notes.start.min() < 7.0


def test_the_same_seed_gives_the_same_music_and_candidates_are_ranked(session: Session) -> None:
    ranked = accompany(session, tune(2.0), candidates=3, seed=1)
    assert [each.report.rank for each in ranked] == [1, 2, 3]
    assert sorted(each.report.sample for each in ranked) == [0, 1, 2]
    assert [each.nll for each in ranked] == sorted(each.nll for each in ranked)
    first = next(each for each in ranked if each.report.sample == 0)
    [alone] = accompany(session, tune(2.0), candidates=1, seed=1)
    assert alone.ids == first.ids


def test_what_the_model_reads_is_the_segment_it_would_learn_from(session: Session) -> None:
    """Windows that moved on: START, notes struck before they end, and the melody from there."""
    seen: list[tuple[list[int], list[int]]] = []
    model = session.model
    hooks = [
        model.encoder.register_forward_pre_hook(
            lambda _m, args: seen.append((args[0][0].tolist(), []))
        ),
        model.input.register_forward_pre_hook(
            lambda _m, args: seen[-1][1].extend(args[0][0].tolist())
        ),
    ]
    melody = tune(9.0)
    try:
        accompany(session, melody, candidates=1, seed=3)
    finally:
        for hook in hooks:
            hook.remove()
    assert len(seen) > 2
    for source, ids in seen:
        assert ids[0] == START
        assert ids.count(START) == 1
        assert len(source) <= 30
        sounding: set[int] = set()
        for event_id in ids[1:]:
            if event_id < NOTE_OFF:
                sounding.add(event_id)
            elif event_id < TIME_SHIFT:
                assert event_id - NOTE_OFF in sounding
                sounding.remove(event_id - NOTE_OFF)
    silence = NoteSequence(pitch=[], velocity=[], start=[], end=[])
    whole = (cut_segment(silence, melody, 0, 300)[0] % N_MELODY_IDS).tolist()
    assert seen[0][0] == whole


def test_the_later_part_of_events_is_a_segment_of_its_own() -> None:
    ids = [
        VELOCITY + 20, 60, TIME_SHIFT + 9, VELOCITY + 10, 64, TIME_SHIFT + 4,
        NOTE_OFF + 60, 67, TIME_SHIFT + 1, NOTE_OFF + 64, NOTE_OFF + 67,
    ]  # fmt: skip
    part, begin = later_part(TOKENIZER, ids, events=4, steps=0)
    assert begin == 15
    assert part == [
        START, VELOCITY + 10, 64, 67, TIME_SHIFT + 1, NOTE_OFF + 64, NOTE_OFF + 67
    ]  # fmt: skip
    part, begin = later_part(TOKENIZER, ids, events=1, steps=5)
    assert begin == 10
    assert part[:4] == [START, VELOCITY + 20, 60, VELOCITY + 10]
    assert later_part(TOKENIZER, ids, events=99, steps=99)[1] == 17  # as late as time passes
    notes = PerformanceTokenizer().decode(part[1:])
    assert notes.start.tolist() == [0.0, 0.0, 0.05]
    assert notes.velocity.tolist() == [82, 42, 42]


def test_of_several_notes_at_a_time_the_highest_are_the_melody_with_a_warning(
    session: Session,
) -> None:
    chords = NoteSequence(
        pitch=[60, 64, 72, 59, 62, 74],
        velocity=[70] * 6,
        start=[0.0] * 3 + [1.0] * 3,
        end=[1.0] * 3 + [2.0] * 3,
    )
    [duet] = accompany(session, chords, candidates=1)
    assert duet.notes.pitch[duet.notes.track == 0].tolist() == [72, 74]
    assert "2 notes from 6" in duet.report.warnings[0]


def test_without_a_melody_it_says_so(session: Session) -> None:
    with pytest.raises(MidiError, match="no notes"):
        accompany(session, NoteSequence(pitch=[], velocity=[], start=[], end=[]))
    low = NoteSequence(pitch=[30, 34], velocity=[70] * 2, start=[0.0, 0.0], end=[1.0, 1.0])
    with pytest.raises(MidiError, match="none of them is a melody"):
        accompany(session, low)
    alone = NoteSequence(pitch=[30], velocity=[70], start=[0.0], end=[1.0])
    assert len(read_tune(alone)[0]) == 1


def test_settings_outside_their_range_are_refused(session: Session) -> None:
    for settings, message in (
        ({"candidates": 0}, "candidates=0"),
        ({"temperature": -1.0}, "temperature=-1"),
        ({"context": 1}, "context=1"),
    ):
        with pytest.raises(ConfigError, match=message):
            accompany(session, tune(1.0), **settings)  # type: ignore[arg-type]


def test_a_context_of_two_events_still_comes_to_an_end(session: Session) -> None:
    [duet] = accompany(session, tune(1.0), candidates=1, context=2)
    assert (duet.notes.track == 0).sum() == 2


def test_a_melody_in_strict_time_is_kept_time_with(session: Session) -> None:
    beat = 0.5037
    melody = tune(6.0).replaced(tempos=Tempos([0.0], [beat], 480))

    def share(melody: NoteSequence, **settings: Any) -> float:
        [one] = accompany(session, melody, candidates=1, seed=1, **settings)
        piano = one.notes.selected(one.notes.track == 1)
        return float(np.mean(np.abs((piano.start + beat / 4) % (beat / 2) - beat / 4) <= 0.05))

    assert share(melody, in_time=8) > max(0.9, share(melody, in_time=0))
    free = melody.replaced(start=melody.start + np.arange(len(melody)) % 3 * 0.045)
    assert share(free, in_time=8) == share(free, in_time=0)  # it keeps none itself
