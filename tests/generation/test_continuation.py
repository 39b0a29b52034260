"""Generate, generate_batch and stream: lengths, seeds, primers and what the report says."""

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from music_transformer.checkpoint import Session
from music_transformer.errors import CheckpointError, ConfigError, MidiError, TokenError
from music_transformer.generation import generate, generate_batch, stream, stream_notes
from music_transformer.midi import read_midi, write_midi
from music_transformer.notes import KeySignatures, NoteSequence, Pedals, Tempos, TimeSignatures
from music_transformer.representations import ChoraleTokenizer, PerformanceTokenizer
from music_transformer.representations.performance.vocabulary import TIME_SHIFT, VELOCITY

MakeSession = Callable[..., Session]

CONTEXT = 31


def without_closing_rest(ids: list[int]) -> list[int]:
    while ids and TIME_SHIFT <= ids[-1] < VELOCITY:
        ids = ids[:-1]
    return ids


def motif() -> NoteSequence:
    """Four notes, the last two together, then half a second of silence: 2 s in all."""
    return NoteSequence(
        pitch=[60, 64, 67, 72],
        velocity=[80, 80, 100, 100],
        start=[0.0, 0.5, 1.0, 1.0],
        end=[0.5, 1.0, 1.5, 1.5],
        end_time=2.0,
    )


def chorale(seconds_per_beat: float = 0.6) -> NoteSequence:
    """Two beats in four tracks."""
    return NoteSequence(
        pitch=[67, 62, 59, 45, 67, 62, 57, 43],
        velocity=[80] * 8,
        start=[0.0] * 4 + [seconds_per_beat] * 4,
        end=[seconds_per_beat] * 4 + [2 * seconds_per_beat] * 4,
        track=[0, 1, 2, 3] * 2,
        tempos=Tempos([0.0], [seconds_per_beat]),
    )


def primer_ids(session: Session, length: int) -> list[int]:
    """Ids of a piece that this session composed, cut to length."""
    return generate(session, events=length, seed=99).ids[:length] if length else []


@pytest.mark.parametrize("kind", ["performance", "pedal", "chorale"])
@pytest.mark.parametrize("primer", [0, 1, CONTEXT - 1, CONTEXT, CONTEXT + 1, 5 * CONTEXT])
@pytest.mark.parametrize("events", [0, 1, 7, 100])
def test_primers_and_continuations_of_any_number_of_events(
    make_session: MakeSession, kind: str, primer: int, events: int
) -> None:
    session = make_session(kind)
    ids = primer_ids(session, primer)
    result = generate(session, ids, events=events, seed=3)
    assert result.primer_ids == ids == result.ids[:primer]
    assert result.report.events == events
    assert len(result.ids) == primer + events + result.report.closing_events
    assert result.report.primer_events == primer
    if kind == "chorale":
        assert len(result.ids) % 4 == 0
        assert max(result.ids, default=0) <= 128
    else:
        tokenizer = session.tokenizer
        assert tokenizer.encode(tokenizer.decode(result.ids)) == without_closing_rest(result.ids)


@pytest.mark.parametrize("kind", ["performance", "pedal"])
@pytest.mark.parametrize("seconds", [0.01, 0.5, 3.0])
@pytest.mark.parametrize("with_primer", [True, False])
def test_a_performance_ends_exactly_after_the_seconds_asked_for(
    make_session: MakeSession, kind: str, seconds: float, with_primer: bool
) -> None:
    primer = motif() if with_primer else None
    result = generate(make_session(kind), primer, seconds=seconds, end="cut")
    primer_seconds = 2.0 if with_primer else 0.0
    assert result.notes.end_time == pytest.approx(primer_seconds + seconds, abs=1e-9)
    assert result.continuation.end_time == pytest.approx(seconds, abs=1e-9)
    assert result.report.seconds == pytest.approx(seconds)
    assert result.report.primer_seconds == primer_seconds


def test_the_default_length_is_30_seconds(make_session: MakeSession) -> None:
    assert generate(make_session("chorale"), end="cut").report.seconds == 30.0


@pytest.mark.parametrize(
    ("primer", "sixteenth"), [(chorale(0.6), 0.15), (chorale(0.4), 0.1), (None, 0.1875)]
)
def test_a_chorale_is_counted_in_sixteenths_of_the_primers_beat(
    make_session: MakeSession, primer: NoteSequence | None, sixteenth: float
) -> None:
    result = generate(make_session("chorale"), primer, seconds=1.4, end="cut")
    sixteenths = math.ceil(1.4 / sixteenth - 1e-6)
    assert result.report.events == 4 * sixteenths
    primer_end = 0.0 if primer is None else primer.end_time
    assert result.notes.end_time == pytest.approx(primer_end + sixteenths * sixteenth)
    if primer is not None:
        assert result.primer_ids == [67, 62, 59, 45] * 4 + [67, 62, 57, 43] * 4
        assert result.report.primer_seconds == pytest.approx(primer_end)


def test_the_primer_is_kept_as_the_beginning(make_session: MakeSession) -> None:
    result = generate(make_session(), motif(), events=40)
    tokenizer = PerformanceTokenizer()
    rest = TIME_SHIFT + 50 - 1
    assert result.primer_ids == [*tokenizer.encode(motif()), rest]
    own = result.notes.start < 2.0
    assert np.array_equal(result.notes.pitch[own], motif().pitch)
    assert np.array_equal(result.notes.end[own], motif().end)


@pytest.mark.parametrize("kind", ["performance", "pedal", "chorale"])
def test_the_file_that_comes_out_begins_with_the_users_own(
    make_session: MakeSession, motifs: Path, tmp_path: Path, kind: str
) -> None:
    """Off the grid, under a pedal, on two tracks in 3/4: all of it is there again, and goes on."""
    waltz = NoteSequence(
        pitch=[60, 64, 67],
        velocity=[81, 80, 33],
        start=[1.0, 1.5031, 2.0],
        end=[1.5, 2.0047, 3.4],
        channel=[0, 2, 0],
        track=[0, 1, 0],
        pedals=Pedals([0], [1.0123], [1.9]),
        end_time=3.5,
        tempos=Tempos([0.0, 1.0], [0.5, 0.6], 480),
        time_signatures=TimeSignatures([1.0], [3], [4]),
        key_signatures=KeySignatures([0.0], [-2], [0]),
        track_names=("right", "left"),
        title="Waltz",
    )
    for name in ["waltz", *sorted(path.name for path in motifs.glob("*.mid"))]:
        own = waltz if name == "waltz" else read_midi(motifs / name)
        result = generate(make_session(kind), own, events=24)
        again = read_midi(write_midi(result.notes, tmp_path / "out.mid"))
        base = max(len(own.track_names), int(own.track.max()) + 1)
        of_own = again.selected(again.track < base)
        assert [of_own.pitch.tolist(), of_own.velocity.tolist()] == [
            own.pitch.tolist(),
            own.velocity.tolist(),
        ]
        assert np.abs(of_own.start - own.start).max() < 1e-4
        assert np.abs(of_own.end - own.end).max() < 1e-4
        assert again.title == own.title
        assert again.track_names[:base] == (*own.track_names, *[""] * base)[:base]
        names = ("soprano", "alto", "tenor", "bass") if kind == "chorale" else ("continuation",)
        assert again.track_names[base:] == names
        assert again.tempos.equals(own.tempos.until(result.report.primer_seconds))
        assert again.time_signatures.equals(own.time_signatures)
        assert again.key_signatures.equals(own.key_signatures)
        if kind == "performance":
            ids = without_closing_rest(result.ids)
            assert make_session(kind).tokenizer.encode(again, keep_silence=False) == ids


def test_the_continuation_holds_the_notes_after_the_primer(make_session: MakeSession) -> None:
    result = generate(make_session(), motif(), events=200)
    new = result.notes.start >= 2.0
    assert result.report.notes == len(result.continuation) == new.sum()
    assert np.array_equal(result.continuation.pitch, result.notes.pitch[new])
    assert np.array_equal(result.continuation.velocity, result.notes.velocity[new])
    assert np.allclose(result.continuation.start, result.notes.start[new] - 2.0, atol=1e-9)


def test_a_note_of_the_primer_may_sound_on(make_session: MakeSession) -> None:
    tokenizer = PerformanceTokenizer()
    held = tokenizer.encode(motif())[:-2]  # without the NOTE_OFFs of the last two
    result = generate(make_session(), held, events=0)
    assert result.ids[len(held) :] == [128 + 67, 128 + 72]
    assert result.report.notes_cut == 2
    assert result.report.closing_events == 2


@pytest.mark.parametrize("kind", ["performance", "pedal", "chorale"])
def test_the_same_seed_gives_the_same_ids_and_another_seed_others(
    make_session: MakeSession, kind: str
) -> None:
    session = make_session(kind)
    first, again = (generate(session, events=80, seed=4).ids for _ in range(2))
    assert first == again
    assert generate(session, events=80, seed=5).ids != first


@pytest.mark.parametrize("kind", ["performance", "chorale"])
def test_a_sample_does_not_depend_on_how_many_are_drawn(
    make_session: MakeSession, kind: str
) -> None:
    session = make_session(kind, double=True)  # where the last bit does not decide
    one = generate_batch(session, samples=1, events=90)
    three = generate_batch(session, samples=3, events=90)
    assert one[0].ids == three[0].ids
    assert len({tuple(sample.ids) for sample in three}) == 3
    assert [sample.report.sample for sample in three] == [0, 1, 2]


def test_samples_of_different_lengths_end_where_they_would_alone(make_session: MakeSession) -> None:
    session = make_session(double=True)
    primer = motif()
    three = generate_batch(session, primer, samples=3, seconds=2.0, seed=1)
    two = generate_batch(session, primer, samples=2, seconds=2.0, seed=1)
    assert len({len(sample.ids) for sample in three}) > 1
    assert [sample.ids for sample in two] == [sample.ids for sample in three[:2]]


@pytest.mark.parametrize("asked", [{"events": 60}, {"seconds": 1.0}, {"events": 0}])
def test_a_stream_is_what_generate_gives(
    make_session: MakeSession, asked: dict[str, float]
) -> None:
    session = make_session()
    result = generate(session, motif(), seed=2, **asked)  # type: ignore[arg-type]
    streamed = list(stream(session, motif(), seed=2, **asked))  # type: ignore[arg-type]
    assert result.primer_ids + streamed == result.ids


@pytest.mark.parametrize("kind", ["performance", "chorale"])
def test_notes_stream_as_soon_as_their_ends_are_certain(
    make_session: MakeSession, kind: str
) -> None:
    session = make_session(kind)
    whole = generate(session, motif(), seconds=4.0, seed=1, end="cut").continuation
    wanted = sorted(zip(whole.end, whole.pitch, whole.start, whole.velocity, strict=True))
    notes = stream_notes(session, motif(), seconds=4.0, seed=1, end="cut")
    given = list(notes)
    assert [(end, pitch, start, loud) for start, end, pitch, loud in given] == wanted
    assert [note.end for note in given] == sorted(note.end for note in given)
    endless = stream_notes(session, motif(), seconds=math.inf, seed=1)
    ends = [next(endless).end for _ in range(5)]  # it composes no longer than that
    endless.close()
    assert ends == sorted(ends)


def test_closing_a_stream_stops_the_work(make_session: MakeSession) -> None:
    session = make_session(dropout=0.1)
    session.model.train()
    calls = []
    hook = session.model.register_forward_hook(lambda *_: calls.append(1))
    ids = stream(session, seconds=math.inf)
    assert [next(ids) for _ in range(5)]
    assert not session.model.training
    ids.close()
    assert len(calls) == 5
    assert session.model.training
    assert list(ids) == []
    hook.remove()


def test_a_stream_reports_errors_when_it_is_called(make_session: MakeSession) -> None:
    with pytest.raises(ConfigError, match="seconds=-1"):
        stream(make_session(), seconds=-1)


def test_temperature_0_is_the_likeliest_event_whatever_the_seed(make_session: MakeSession) -> None:
    session = make_session()
    results = [generate(session, events=30, temperature=0, seed=seed).ids for seed in (1, 2)]
    assert results[0] == results[1] == generate(session, events=30, top_k=1, seed=3).ids


def test_every_setting_of_the_context_works(make_session: MakeSession) -> None:
    session = make_session(max_distance=7)
    for context in (2, 7, 31, 62):
        result = generate(session, events=100, context=context)
        reread = 0
        length = 0
        for _ in range(100):  # START and all ids but the last are read
            length += 1
            if length > context:
                length -= context // 2
                reread += 1
        assert result.report.windows_reread == reread


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"seconds": 3, "events": 3}, "seconds=3 and events=3; choose one"),
        ({"seconds": -0.5}, "seconds=-0.5"),
        ({"seconds": math.nan}, "seconds=nan"),
        ({"seconds": 1e18}, r"seconds=1e\+18; choose 0 to 250000, what a MIDI file holds"),
        ({"seconds": math.inf}, "never ends"),
        ({"events": -1}, "events=-1"),
        ({"temperature": -1.0}, "temperature=-1"),
        ({"top_p": 0.0}, "top_p=0"),
        ({"context": 1}, "context=1"),
        ({"primer_seconds": 0.0}, "primer_seconds=0"),
    ],
)
def test_a_setting_outside_its_range_is_refused(
    make_session: MakeSession, settings: dict[str, float], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        generate(make_session(), **settings)  # type: ignore[arg-type]


def test_no_samples_are_refused(make_session: MakeSession) -> None:
    with pytest.raises(ConfigError, match="samples=0"):
        generate_batch(make_session(), samples=0)


def test_primers_that_are_none_are_refused(make_session: MakeSession) -> None:
    nothing = NoteSequence(pitch=[], velocity=[], start=[], end=[])
    for kind in ("performance", "chorale"):
        with pytest.raises(MidiError, match="the primer has no notes"):
            generate(make_session(kind), nothing)
    with pytest.raises(TokenError, match="id 391 at position 2"):
        generate(make_session(), [356, 60, 391])
    with pytest.raises(TokenError, match="id 132"):
        generate(make_session("chorale"), [132])


def test_damaged_weights_are_refused(make_session: MakeSession) -> None:
    session = make_session()
    with torch.no_grad():
        session.model.output.bias.fill_(math.nan)
    with pytest.raises(CheckpointError, match="not finite"):
        generate(session, events=3)


def test_progress_goes_from_little_to_all(make_session: MakeSession) -> None:
    told: list[tuple[float, float]] = []
    generate_batch(
        make_session(), samples=2, seconds=1.0, on_progress=lambda *args: told.append(args)
    )
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert told[-1] == (1.0, 1.0)


def test_a_stuck_model_is_reported(make_session: MakeSession) -> None:
    session = make_session("chorale")
    with torch.no_grad():
        session.model.output.weight.zero_()
        session.model.output.bias.zero_()
        session.model.output.bias[128] = 50.0  # silence
    silent = generate(session, events=64)
    assert silent.report.warnings == ("the continuation has no notes",)


@given(seed=st.integers(0, 2**32), seconds=st.floats(0.01, 2.0))
@settings(max_examples=15)
def test_no_length_is_missed(make_session: MakeSession, seed: int, seconds: float) -> None:
    how = {"seconds": seconds, "seed": seed, "temperature": 1.5, "end": "cut"}
    result = generate(make_session("pedal"), motif(), **how)
    steps = math.floor(seconds * 100 + 0.5 + 1e-6)
    assert result.notes.end_time == pytest.approx(2.0 + steps / 100, abs=1e-9)
    assert result.notes.velocity.min() > 0
    assert (result.notes.end > result.notes.start).all()


def test_the_chorale_tokenizer_and_labels_go_on_from_a_cut(make_session: MakeSession) -> None:
    session = make_session("chorale", double=True, context=400)
    piece = ChoraleTokenizer().encode_grid(np.full((40, 4), 60))
    places = []
    hook = session.model.register_forward_pre_hook(
        lambda _, __, kwargs: places.append(kwargs["place"].tolist()), with_kwargs=True
    )
    generate(session, piece, events=4, primer_seconds=1.5)  # 8 sixteenths of 0.1875 s
    hook.remove()
    assert places[0] == list(range(128, 128 + 33))
    assert [last for *_, last in places[1:]] == [161, 162, 163]
