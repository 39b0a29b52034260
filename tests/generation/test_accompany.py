"""The melody comes out as it went in; what is composed under it is drawn and ranked as promised."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from music_transformer.checkpoint import Session
from music_transformer.errors import ConfigError, MidiError
from music_transformer.generation import Accompaniment, accompany
from music_transformer.generation.loop import draw, sample_generator
from music_transformer.generation.processors import keep_top_k, keep_top_p
from music_transformer.midi import read_midi, write_midi
from music_transformer.notes import NoteSequence, Pedals, Tempos
from music_transformer.representations import ChoraleTokenizer
from music_transformer.representations.chorale.grid import sixteenths
from music_transformer.representations.chorale.melody import (
    JSB_RANGES,
    read_melody,
    transposition_into,
    voice_ranges,
)

MakeSession = Callable[..., Session]

SIXTEENTH = 0.15
BEAT = Tempos([0.0], [4 * SIXTEENTH])


@pytest.fixture(scope="module")
def bach(make_session: MakeSession) -> Session:
    return make_session("chorale", double=True, context=256)


def melody_of(*notes: tuple[int, float, float], tempos: Tempos = BEAT, **more: Any) -> NoteSequence:
    """Notes (pitch, start, end) in sixteenths."""
    pitch, start, end = zip(*notes, strict=True)
    return NoteSequence(
        pitch=pitch,
        velocity=[90] * len(pitch),
        start=tempos.at_quarters(np.array(start) / 4),
        end=tempos.at_quarters(np.array(end) / 4),
        tempos=tempos,
        **more,
    )


def quarters(*pitches: int) -> NoteSequence:
    """A melody in quarters."""
    return melody_of(*((pitch, 4.0 * i, 4.0 * i + 4) for i, pitch in enumerate(pitches)))


def soprano(result: Accompaniment) -> NoteSequence:
    """The notes of track 0 as a sequence of their own."""
    notes, own = result.notes, result.notes.track == 0
    return NoteSequence(
        **{name: getattr(notes, name)[own] for name in ("pitch", "velocity", "start", "end")}
        | {"pedals": notes.pedals, "tempos": notes.tempos}
    )


def grid_of(result: Accompaniment) -> np.ndarray:
    """(T, 4) of the ids, -1 for silence."""
    return ChoraleTokenizer().decode_grid(result.ids)


def full_losses(session: Session, ids: list[int], context: int) -> np.ndarray:
    """(4T,) nats of every id, each by a full pass over the window that it is predicted from."""
    read = [session.tokenizer.start, *ids]
    losses, first = [], 0
    for place, event_id in enumerate(ids):
        if place + 1 - first > context:
            first += context // 2
        window = torch.tensor([read[first : place + 1]])
        with torch.inference_mode():
            logits = session.model(window, place=torch.arange(first, place + 1))[0, -1].double()
        losses.append(-float(logits.log_softmax(-1)[event_id]))
    return np.array(losses)


# --- the melody -----------------------------------------------------------------------------------


@st.composite
def melodies(draw_from: st.DrawFn) -> NoteSequence:
    """One voice with rests, repeated notes, onsets off the grid, and one or two tempos."""
    count = draw_from(st.integers(1, 5))
    gaps = draw_from(st.lists(st.sampled_from([0, 0, 1, 2.5]), min_size=count, max_size=count))
    lengths = draw_from(
        st.lists(st.sampled_from([0.2, 0.5, 1, 1.1, 2, 2.6]), min_size=count, max_size=count)
    )
    pitches = draw_from(st.lists(st.sampled_from([62, 64, 64, 71]), min_size=count, max_size=count))
    ends = np.cumsum(np.array(gaps) + lengths)
    tempos = draw_from(
        st.sampled_from([BEAT, Tempos(), Tempos([0.0, 0.33], [0.5, 0.7]), Tempos([0.2], [1.0])])
    )
    notes = zip(pitches, ends - lengths, ends, strict=True)
    rest = draw_from(st.sampled_from([0.0, 0.37]))
    made = melody_of(*notes, tempos=tempos)
    return replace_end(made, made.end_time + rest)


def replace_end(notes: NoteSequence, end_time: float) -> NoteSequence:
    columns = {name: getattr(notes, name) for name in ("pitch", "velocity", "start", "end")}
    return NoteSequence(**columns, tempos=notes.tempos, end_time=end_time)


@given(melodies(), st.integers(0, 3))
@settings(max_examples=20)
def test_every_note_of_the_melody_is_kept_exactly(
    make_session: MakeSession, melody: NoteSequence, seed: int
) -> None:
    [result] = accompany(make_session("chorale"), melody, candidates=1, seed=seed)
    assert soprano(result).equals(replace_end(melody, 0.0))
    assert result.notes.end_time >= melody.end_time
    cells = read_melody(melody).cells
    assert np.array_equal(grid_of(result)[:, 0], cells)
    assert len(result.ids) == 4 * len(cells)


@given(melodies())
@settings(max_examples=10)
def test_the_cells_are_those_of_the_tokenizer(melody: NoteSequence) -> None:
    given = read_melody(melody)
    begin, _ = sixteenths(melody)
    assume(
        len(set(begin)) == len(melody)
    )  # of several in one it takes the highest, not the longest
    grid = ChoraleTokenizer().decode_grid(ChoraleTokenizer().encode(melody))
    assert np.array_equal(given.cells, grid[:, 0])


@given(melodies(), st.lists(st.floats(0, 50), min_size=1, max_size=5))
def test_seconds_at_quarters_are_the_inverse_of_quarters(
    melody: NoteSequence, seconds: list[float]
) -> None:
    tempos = melody.tempos
    assert tempos.at_quarters(tempos.quarters(seconds)) == pytest.approx(seconds, abs=1e-9)


def test_repeated_notes_stay_repeated_in_the_file_too(bach: Session, tmp_path: Path) -> None:
    melody = quarters(64, 64, 64, 62, 62)
    [result] = accompany(bach, melody, candidates=1)
    assert grid_of(result)[:, 0].tolist() == [64] * 12 + [62] * 8
    written = read_midi(write_midi(result.notes, tmp_path / "a.mid"))
    own = written.track == 0
    assert written.pitch[own].tolist() == [64, 64, 64, 62, 62]
    assert written.start[own] == pytest.approx(melody.start, abs=1e-9)
    assert written.end[own] == pytest.approx(melody.end, abs=1e-9)
    assert written.tempos.seconds_per_quarter == pytest.approx([4 * SIXTEENTH])
    assert written.end_time == pytest.approx(melody.end_time)


def test_the_other_voices_are_on_the_tempo_map_of_the_file(bach: Session) -> None:
    tempos = Tempos([0.0, 1.0], [0.5, 1.0])
    melody = melody_of((64, 0, 12), (65, 12, 16), tempos=tempos)
    for result in accompany(bach, melody, candidates=3):
        lower = result.notes.track > 0
        assert set(result.notes.track) == set(result.notes.channel) == {0, 1, 2, 3}
        for times in (result.notes.start[lower], result.notes.end[lower]):
            at = tempos.quarters(times) * 4
            assert at == pytest.approx(at.round(), abs=1e-9)
        again = ChoraleTokenizer().encode(result.notes)
        assert again == result.ids
        assert (result.notes.velocity == 90).all()


def test_voices_stay_in_the_ranges_of_training(bach: Session) -> None:
    flat = bach.model.output.weight.detach().clone()
    try:
        bach.model.output.weight.data.zero_()  # every pitch alike
        results = accompany(bach, quarters(64, 65), candidates=6, top_p=1)
    finally:
        bach.model.output.weight.data.copy_(flat)
    grids = np.concatenate([grid_of(result) for result in results])
    for voice in (1, 2, 3):
        sounding = grids[:, voice][grids[:, voice] >= 0]
        low, high = JSB_RANGES[voice]
        assert len(np.unique(sounding)) > 15
        assert low <= sounding.min()
        assert sounding.max() <= high


def test_silent_beats_before_the_melody_are_left_silent_unless_asked(bach: Session) -> None:
    melody = melody_of((64, 10, 12))  # the third beat's second half
    [result] = accompany(bach, melody, candidates=1)
    grid = grid_of(result)
    assert (grid[:8] == -1).all()
    assert result.report.skipped_sixteenths == 8
    assert result.report.sixteenths == 4
    assert grid[:, 0].tolist() == [-1] * 10 + [64] * 2
    [kept] = accompany(bach, melody, candidates=1, keep_silence=True)
    assert kept.report.skipped_sixteenths == 0
    assert kept.report.sixteenths == 12
    assert len(kept.ids) == len(result.ids)


def test_of_a_polyphonic_melody_the_highest_notes_are_taken(bach: Session) -> None:
    piece = melody_of((72, 0, 4), (60, 0, 8), (55, 0, 8), (64, 4, 8), (67, 5, 6), (64, 8, 12))
    [result] = accompany(bach, piece, candidates=1)
    assert grid_of(result)[:, 0].tolist() == [72] * 4 + [64, 67, 64, 64] + [64] * 4
    kept = soprano(result)
    assert kept.pitch.tolist() == [72, 64, 67, 64, 64]  # the last two: cut by the 67, and repeated
    assert (kept.start / SIXTEENTH).round(9).tolist() == [0, 4, 5, 6, 8]
    assert any("more than one note at a time" in warning for warning in result.report.warnings)


def test_a_little_legato_is_one_voice(bach: Session) -> None:
    legato = melody_of((64, 0, 4.3), (62, 4, 8.4), (60, 8, 12))
    [result] = accompany(bach, legato, candidates=1)
    assert soprano(result).equals(legato)
    assert result.report.warnings == ()


def test_notes_too_short_for_the_grid_are_kept_and_counted(bach: Session) -> None:
    trill = melody_of((64, 0, 0.3), (65, 0.3, 1), (64, 1, 4))
    [result] = accompany(bach, trill, candidates=1)
    assert soprano(result).equals(trill)
    assert grid_of(result)[:, 0].tolist() == [65, 64, 64, 64]
    assert any("1 of the 3 notes" in warning for warning in result.report.warnings)


def test_a_melody_without_a_beat_is_warned_of() -> None:
    loose = melody_of(*((64, 4 * i + 0.4, 4 * i + 3) for i in range(4)))
    assert any("do not follow" in warning for warning in read_melody(loose).warnings)


def test_the_pedal_of_the_melody_stays_with_it(bach: Session) -> None:
    pedals = Pedals(channel=[3], start=[0.1], end=[0.5])
    [result] = accompany(bach, melody_of((64, 0, 4), pedals=pedals), candidates=1)
    assert result.notes.pedals.channel.tolist() == [0]
    assert result.notes.pedals.end.tolist() == [0.5]


# --- transposition --------------------------------------------------------------------------------


def test_a_low_melody_is_read_higher_and_comes_back_where_it_was(bach: Session) -> None:
    low, high = quarters(52, 55, 52), quarters(60, 63, 60)
    below, within = (accompany(bach, melody, candidates=2, seed=4) for melody in (low, high))
    assert [result.report.transposition for result in below] == [8, 8]
    assert soprano(below[0]).equals(low)
    for a, b in zip(below, within, strict=True):
        grid_a, grid_b = grid_of(a), grid_of(b)
        assert np.array_equal(grid_a, np.where(grid_b < 0, -1, grid_b - 8))
        assert a.nll == b.nll
    assert any("8 semitones higher" in warning for warning in below[0].report.warnings)
    [kept] = accompany(bach, low, candidates=1, keep_key=True)
    assert kept.report.transposition == 0
    assert kept.report.outside_range == 12
    assert any("12 of the 12 sounding" in warning for warning in kept.report.warnings)


@pytest.mark.parametrize(
    ("pitches", "shift", "outside"),
    [
        ([60, 81], 0, 0),
        ([59, 70], 1, 0),
        ([84], -3, 0),
        ([127], -46, 0),
        ([0], 60, 0),
        ([50, 60, 60, 90], 10, 4),  # too wide: where the most lies inside
    ],
)
def test_the_transposition_is_the_smallest_that_helps(
    pitches: list[int], shift: int, outside: int
) -> None:
    melody = read_melody(quarters(*pitches))
    assert transposition_into(melody, (60, 81)) == shift
    assert melody.outside((60, 81), shift) == outside


@pytest.mark.parametrize("pitch", [0, 127])
def test_no_voice_leaves_the_pitches_of_midi(bach: Session, pitch: int) -> None:
    for result in accompany(bach, quarters(pitch, pitch), candidates=2, temperature=2, top_p=1):
        assert grid_of(result)[:, 0].tolist() == [pitch] * 8


def test_a_checkpoint_may_name_its_own_ranges(make_session: MakeSession) -> None:
    named = {"data": {"corpus": "mine", "voice_ranges": [[70, 90], [50, 51], [48, 49], [40, 41]]}}
    session = replace(make_session("chorale"), training=named)
    [result] = accompany(session, quarters(60), candidates=1)
    assert result.report.transposition == 10
    alto = grid_of(result)[:, 1]
    assert set(alto[alto >= 0]) <= {40, 41}  # as read 50 and 51
    assert voice_ranges({"data": {"corpus": "mine"}}) is None
    unknown = replace(session, training={"data": {"corpus": "mine"}})
    assert accompany(unknown, quarters(40), candidates=1)[0].report.transposition == 0


# --- drawing and ranking --------------------------------------------------------------------------


def test_the_ranking_is_the_likelihood_of_a_full_pass(bach: Session) -> None:
    results = accompany(bach, quarters(64, 65, 67), candidates=5, seed=2, temperature=1.3)
    assert [result.report.rank for result in results] == [1, 2, 3, 4, 5]
    assert sorted(result.report.sample for result in results) == [0, 1, 2, 3, 4]
    expected = []
    for result in results:
        read = torch.tensor([[bach.tokenizer.start, *result.ids[:-1]]])
        with torch.inference_mode():
            log_p = bach.model(read).log_softmax(-1)[0]  # (4T, V)
        losses = -log_p.gather(1, torch.tensor(result.ids)[:, None])[:, 0].reshape(-1, 4).numpy()
        expected.append(losses[:, 1:].mean())
        assert result.nll == pytest.approx(expected[-1], abs=1e-9)
        by_voice = [result.report.nll_by_voice[name] for name in ("alto", "tenor", "bass")]
        assert by_voice == pytest.approx(losses[:, 1:].mean(axis=0).tolist(), abs=1e-9)
        assert result.report.melody_nll == pytest.approx(losses[:, 0].mean(), abs=1e-9)
    assert expected == sorted(expected)
    assert len(set(expected)) == 5


@pytest.mark.parametrize("context", [7, 16, 31])
def test_past_the_context_the_likelihood_is_that_of_the_windows(
    bach: Session, context: int
) -> None:
    [result] = accompany(bach, quarters(64, 65, 67), candidates=1, context=context)
    losses = full_losses(bach, result.ids, context).reshape(-1, 4)
    assert result.nll == pytest.approx(losses[:, 1:].mean(), abs=1e-9)
    assert result.report.windows_reread > 0


def test_drawing_with_the_cache_is_drawing_without(bach: Session) -> None:
    results = accompany(bach, quarters(64, 67), candidates=2, seed=9, top_k=20, parallels=1.0)
    for result in results:
        generator = sample_generator(9, result.report.sample)
        ids: list[int] = []
        for place in range(32):
            if place % 4 == 0:
                ids.append(64 if place < 16 else 67)
                continue
            with torch.inference_mode():
                logits = bach.model(torch.tensor([[bach.tokenizer.start, *ids]]))[:, -1]
            allowed = torch.zeros(132, dtype=torch.bool)
            low, high = JSB_RANGES[place % 4]
            allowed[low : high + 1] = allowed[128] = True
            kept = keep_top_k(logits.masked_fill(~allowed, -torch.inf), 20)
            ids += draw(keep_top_p(kept, 0.95), [generator])
        assert ids == result.ids


def test_the_same_seed_gives_the_same_and_another_another(bach: Session) -> None:
    melody = quarters(64, 62)
    first, again = (accompany(bach, melody, candidates=3, seed=1) for _ in range(2))
    assert [result.ids for result in first] == [result.ids for result in again]
    assert all(a.notes.equals(b.notes) for a, b in zip(first, again, strict=True))
    other = accompany(bach, melody, candidates=3, seed=2)
    assert {tuple(result.ids) for result in first}.isdisjoint(tuple(r.ids) for r in other)
    more = {r.report.sample: r.ids for r in accompany(bach, melody, candidates=5, seed=1)}
    assert all(more[result.report.sample] == result.ids for result in first)


def test_temperature_0_is_the_likeliest_event_within_the_ranges(bach: Session) -> None:
    one, two = accompany(bach, quarters(64), candidates=2, temperature=0)
    assert one.ids == two.ids


def test_the_model_is_left_as_it_was_and_progress_is_told(make_session: MakeSession) -> None:
    session = make_session("chorale")
    session.model.train()
    told: list[tuple[float, float]] = []
    accompany(session, quarters(64), candidates=1, on_progress=lambda *at: told.append(at))
    assert session.model.training
    assert told == [(done, 16) for done in range(1, 17)]


# --- what is refused ------------------------------------------------------------------------------


def test_a_performance_checkpoint_does_not_accompany(make_session: MakeSession) -> None:
    with pytest.raises(ConfigError, match="does not accompany"):
        accompany(make_session("performance"), quarters(64))


def test_what_makes_no_sense_is_refused(bach: Session) -> None:
    with pytest.raises(ConfigError, match="candidates=0"):
        accompany(bach, quarters(64), candidates=0)
    with pytest.raises(ConfigError, match="temperature=-1"):
        accompany(bach, quarters(64), temperature=-1)
    with pytest.raises(MidiError, match="no notes"):
        accompany(bach, NoteSequence(pitch=[], velocity=[], start=[], end=[]))
