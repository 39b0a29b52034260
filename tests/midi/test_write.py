"""Files that are written: read back by our reader, by mido and by pretty_midi."""

import os
from collections import Counter, defaultdict
from pathlib import Path

import mido
import numpy as np
import pretty_midi
import pytest
from hypothesis import given
from hypothesis import strategies as st

from music_transformer.errors import ConfigError, MidiError
from music_transformer.midi import read_midi, write_midi
from music_transformer.notes import KeySignatures, NoteSequence, Pedals, Tempos, TimeSignatures
from music_transformer.representations import PerformanceTokenizer

CHANNELS = [channel for channel in range(16) if channel != 9]


@st.composite
def sequences(draw: st.DrawFn, *, scale: float = 100.0) -> NoteSequence:
    """Notes and pedals on a grid of 1 / scale seconds that a MIDI file can hold.

    No note of a track, channel and pitch lies inside another: MIDI could not tell their ends apart.
    """
    wanted = draw(
        st.lists(
            st.tuples(
                st.integers(0, 2),  # track
                st.sampled_from(CHANNELS[:2]),
                st.sampled_from([0, 60, 61, 127]),  # pitch
                st.integers(0, 400),  # start
                st.integers(0, 300),  # length
                st.integers(1, 127),  # velocity
            ),
            max_size=12,
        )
    )
    last: dict[tuple[int, int, int], tuple[int, int]] = {}
    kept = []
    for track, channel, pitch, start, length, velocity in sorted(
        wanted, key=lambda note: (note[3], note[4])
    ):
        end = start + length
        _, last_end = last.get((track, channel, pitch), (0, 0))
        if end < last_end or (length == 0 and start < last_end):
            continue
        last[track, channel, pitch] = (start, end)
        kept.append((track, channel, pitch, start / scale, end / scale, velocity))
    spans = draw(
        st.lists(
            st.tuples(
                st.sampled_from(sorted({note[1] for note in kept}) or [0]),
                st.integers(0, 400),
                st.integers(1, 300),
            ),
            max_size=4,
        )
    )
    columns = list(zip(*kept, strict=True)) or [()] * 6
    track_column, channel_column, pitch_column, starts, ends, velocities = columns
    return NoteSequence(
        pitch=pitch_column,
        velocity=velocities,
        start=starts,
        end=ends,
        channel=channel_column,
        track=track_column,
        pedals=Pedals(
            [channel for channel, _, _ in spans],
            [start / scale for _, start, _ in spans],
            [(start + length) / scale for _, start, length in spans],
        ),
        end_time=draw(st.integers(0, 1000)) / scale,
    )


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One file for all examples of this module."""
    return tmp_path_factory.mktemp("write") / "x.mid"


def some_notes(**changes: object) -> NoteSequence:
    columns: dict[str, object] = {
        "pitch": [60, 64],
        "velocity": [80, 90],
        "start": [0.0, 0.5],
        "end": [0.5, 1.25],
    }
    return NoteSequence(**(columns | changes))  # type: ignore[arg-type]


@given(sequences())
def test_reading_what_was_written_changes_nothing_on_the_grid(
    path: Path, notes: NoteSequence
) -> None:
    write_midi(notes, path)
    if len(notes) == 0:
        with pytest.raises(MidiError, match="no notes"):
            read_midi(path)
        return
    again = read_midi(path)
    assert again.equals(notes)
    assert again.warnings == {}


@given(sequences(scale=317.0))
def test_off_the_grid_times_move_by_a_tenth_of_a_millisecond_at_most(
    path: Path, notes: NoteSequence
) -> None:
    if len(notes) == 0:
        return
    ids = PerformanceTokenizer().encode(notes)
    again = read_midi(write_midi(notes, path))
    for name in ("pitch", "velocity", "channel", "track"):
        assert Counter(getattr(again, name).tolist()) == Counter(getattr(notes, name).tolist())
    for name in ("start", "end"):
        ours, theirs = np.sort(getattr(notes, name)), np.sort(getattr(again, name))
        assert np.abs(ours - theirs).max() <= 0.0001 + 1e-8
    assert abs(again.end_time - notes.end_time) <= 0.0001 + 1e-8
    assert PerformanceTokenizer().encode(again) == ids


@given(sequences())
def test_the_file_is_sound_to_a_strict_reader(path: Path, notes: NoteSequence) -> None:
    """Every on has its off, none has velocity 0, and at one tick offs precede ons of their key."""
    write_midi(notes, path)
    n_ons = 0
    for track in mido.MidiFile(path).tracks:
        tick = 0
        sounding: dict[tuple[int, int], int] = defaultdict(int)
        for message in track:
            tick += message.time
            if message.type == "note_on":
                assert message.velocity > 0
                sounding[message.channel, message.note] += 1
                n_ons += 1
            elif message.type == "note_off":
                sounding[message.channel, message.note] -= 1
                assert sounding[message.channel, message.note] >= 0
        assert not any(sounding.values())
        assert track[-1].type == "end_of_track"
        assert tick == round(notes.end_time * 1000)
    assert n_ons == len(notes)


def test_a_repeated_note_is_released_before_it_is_struck_again(tmp_path: Path) -> None:
    notes = some_notes(pitch=[60, 60])
    track = mido.MidiFile(write_midi(notes, tmp_path / "a.mid")).tracks[1]
    kinds = [message.type for message in track if not message.is_meta]
    assert kinds == ["note_on", "note_off", "note_on", "note_off"]


def test_the_map_has_a_track_to_itself_and_every_track_its_name(tmp_path: Path) -> None:
    notes = some_notes(
        track=[0, 2],
        title="Lied",
        track_names=["Sopran", "Größe", "バス"],
        tempos=Tempos([0.0, 0.5], [0.5, 1.0]),
        time_signatures=TimeSignatures([0.0], [3], [4]),
        key_signatures=KeySignatures([0.0, 0.5], [-2, 4], [0, 1]),
    )
    path = write_midi(notes, tmp_path / "a.mid")
    map_track, *tracks = mido.MidiFile(path, charset="utf-8").tracks
    assert [(m.type, m.time) for m in map_track] == [
        ("track_name", 0),
        ("set_tempo", 0),
        ("time_signature", 0),
        ("key_signature", 0),
        ("set_tempo", 480),
        ("key_signature", 0),
        ("end_of_track", 360),
    ]
    assert [m.key for m in map_track if m.type == "key_signature"] == ["Bb", "C#m"]
    assert [track.name for track in tracks] == ["Sopran", "Größe", "バス"]
    assert not any(m.is_meta for t in tracks for m in t[1:-1])
    again = read_midi(path)
    assert again.equals(notes)
    assert again.same_score(notes)
    assert read_midi(write_midi(again, path)).same_score(notes)


@pytest.mark.parametrize("sharps", range(-7, 8))
def test_every_key_is_written(tmp_path: Path, sharps: int) -> None:
    keys = KeySignatures([0.0, 0.5], [sharps, sharps], [0, 1])
    again = read_midi(write_midi(some_notes(key_signatures=keys), tmp_path / "a.mid"))
    assert again.key_signatures.equals(keys)


def test_what_was_read_stays_as_it_is_beside_a_continuation_on_the_10_ms_grid(
    tmp_path: Path,
) -> None:
    """96 ticks a quarter cannot hold 10 ms at this tempo; a multiple of them can."""
    file = mido.MidiFile(ticks_per_beat=96)
    file.tracks.append(mido.MidiTrack([mido.MetaMessage("set_tempo", tempo=617_143)]))
    events = [
        mido.Message(kind, note=60 + tick % 7, time=tick % 96)
        for tick in range(7)
        for kind in ("note_on", "note_off")
    ]
    file.tracks.append(mido.MidiTrack(events))
    file.save(tmp_path / "motif.mid")
    motif = read_midi(tmp_path / "motif.mid")
    new = NoteSequence(pitch=[72], velocity=[66], start=[0.01], end=[0.13])
    joined = motif.followed_by(new)
    again = read_midi(write_midi(joined, tmp_path / "out.mid"))
    assert again.start[:-1].tolist() == motif.start.tolist()
    assert again.end[:-1].tolist() == motif.end.tolist()
    assert again.tempos.equals(motif.tempos)
    assert again.track_names == ("", "continuation")
    assert abs(again.start[-1] - joined.start[-1]) <= 1e-4
    assert PerformanceTokenizer().encode(again) == PerformanceTokenizer().encode(joined)


def test_a_tempo_after_the_end_is_left_out(tmp_path: Path) -> None:
    notes = some_notes(tempos=Tempos([0.0, 100.0], [0.5, 0.6]))
    assert len(read_midi(write_midi(notes, tmp_path / "a.mid")).tempos) == 1


def test_a_tempo_map_is_kept_where_it_fits(tmp_path: Path) -> None:
    path = tmp_path / "a.mid"
    tempos = Tempos([0.0, 1.5], [0.75, 0.5])
    notes = some_notes(start=[0.0, 0.1875], end=[0.1875, 2.0], tempos=tempos)
    again = read_midi(write_midi(notes, path))
    assert again.equals(notes)
    assert again.tempos.seconds.tolist() == [0.0, 1.5]
    assert again.tempos.seconds_per_quarter.tolist() == [0.75, 0.5]
    tempo_events = [m.tempo for m in mido.MidiFile(path).tracks[0] if m.type == "set_tempo"]
    assert tempo_events == [750_000, 500_000]


def test_a_tempo_map_gives_way_to_the_10_ms_grid(tmp_path: Path) -> None:
    notes = some_notes(start=[0.01, 0.02], end=[0.03, 0.05], tempos=Tempos([0.0], [0.123457]))
    assert read_midi(write_midi(notes, tmp_path / "a.mid")).equals(notes)


def test_a_tempo_that_no_event_can_hold_gives_way_to_milliseconds(tmp_path: Path) -> None:
    for tempos in (Tempos([0.0], [20.0]), Tempos([0.0], [1e-9])):
        notes = some_notes(tempos=tempos, end=[0.5, 1.2504])
        again = read_midi(write_midi(notes, tmp_path / "a.mid"))
        assert again.end.tolist() == pytest.approx([0.5, 1.2504], abs=0.0001)


def test_an_existing_file_is_kept_unless_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "a.mid"
    path.write_bytes(b"mine")
    with pytest.raises(ConfigError, match="the file exists"):
        write_midi(some_notes(), path, overwrite=False)
    assert path.read_bytes() == b"mine"
    write_midi(some_notes(), path)
    assert len(read_midi(path)) == 2
    assert os.listdir(tmp_path) == ["a.mid"]


def test_a_failing_write_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.mid"
    path.write_bytes(b"mine")

    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(mido.MidiFile, "save", fail)
    with pytest.raises(MidiError, match=r"a\.mid: cannot be written \(No space left on device\)"):
        write_midi(some_notes(), path)
    assert os.listdir(tmp_path) == ["a.mid"]
    assert path.read_bytes() == b"mine"


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.mid"
    with pytest.raises(MidiError, match="65536 tracks do not fit"):
        write_midi(some_notes(track=[0, 65_535]), path)
    for late in ({"end_time": 1e6}, {"end": [0.5, 1e17]}, {"end_time": 1e300}):
        with pytest.raises(MidiError, match="hours pass without a note"):
            write_midi(some_notes(**late), path)
    with pytest.raises(MidiError, match="played by drums"):
        write_midi(some_notes(channel=[0, 9]), path)
    with pytest.raises(MidiError, match="cannot be written"):
        write_midi(some_notes(), tmp_path)
    assert os.listdir(tmp_path) == []


@given(sequences())
def test_pretty_midi_reads_the_same_notes(path: Path, notes: NoteSequence) -> None:
    """pretty_midi ends all notes of a pitch at the first off and drops those of no length."""
    apart = notes.sustained()
    long = apart.end > apart.start
    single = NoteSequence(
        pitch=apart.pitch[long],
        velocity=apart.velocity[long],
        start=apart.start[long],
        end=apart.end[long],
    )
    key = single.pitch * 10**6 + np.round(single.start * 1000).astype(int)
    if len(single) == 0 or len(set(key.tolist())) < len(single):
        return
    theirs = pretty_midi.PrettyMIDI(str(write_midi(single, path)))
    rows = sorted(
        (note.pitch, note.velocity, round(note.start, 6), round(note.end, 6))
        for instrument in theirs.instruments
        for note in instrument.notes
    )
    assert rows == sorted(
        zip(
            single.pitch.tolist(),
            single.velocity.tolist(),
            single.start.round(6).tolist(),
            single.end.round(6).tolist(),
            strict=True,
        )
    )


# ---- our reader against mido ------------------------------------------------------------------


def read_with_mido(path: Path) -> list[tuple[int, int, int, int, float, float]]:
    """Track, channel, pitch, velocity, start, end: slowly, one message after the other."""
    file = mido.MidiFile(path)
    tempos = [(0, 500_000)]
    for track in file.tracks:
        tick = 0
        for message in track:
            tick += message.time
            if message.type == "set_tempo":
                tempos.append((tick, message.tempo))
    tempos.sort(key=lambda change: change[0])

    def seconds(tick: int) -> float:
        units, now, tempo = 0, 0, 500_000
        for change, next_tempo in tempos:
            if change > tick:
                break
            units += (change - now) * tempo
            now, tempo = change, next_tempo
        return (units + (tick - now) * tempo) / (1e6 * file.ticks_per_beat)

    notes = []
    is_map_apart = all(message.is_meta for message in file.tracks[0]) and len(file.tracks) > 1
    for index, track in enumerate(file.tracks[is_map_apart:]):
        tick = 0
        open_notes: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
        for message in track:
            tick += message.time
            if message.type not in ("note_on", "note_off"):
                continue
            key = (message.channel, message.note)
            if message.type == "note_on" and message.velocity > 0:
                open_notes[key].append((tick, message.velocity))
            elif open_notes[key]:
                start, velocity = open_notes[key].pop(0)
                notes.append((index, *key, velocity, seconds(start), seconds(tick)))
        assert not any(open_notes.values())
    return sorted(notes)


def our_rows(notes: NoteSequence) -> list[tuple[int, int, int, int, float, float]]:
    columns = (notes.track, notes.channel, notes.pitch, notes.velocity, notes.start, notes.end)
    return sorted(zip(*(column.tolist() for column in columns), strict=True))


@given(sequences())
def test_mido_reads_the_same_notes(path: Path, notes: NoteSequence) -> None:
    write_midi(notes, path)
    assert read_with_mido(path) == our_rows(notes)


@pytest.mark.corpus
def test_mido_reads_the_same_notes_of_the_motifs(corpora: Path, tmp_path: Path) -> None:
    paths = sorted((corpora / "motifs").glob("*.mid"))
    assert paths
    for path in paths:
        notes = read_midi(path)
        assert read_with_mido(path) == our_rows(notes)
        assert read_midi(write_midi(notes, tmp_path / path.name)).equals(notes)


def test_a_beat_too_slow_for_midi_is_said_and_no_time_moves(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    notes = NoteSequence(
        pitch=[60], velocity=[64], start=[0.5], end=[21.0], tempos=Tempos([0.0], [20.0], 480)
    )
    again = read_midi(write_midi(notes, tmp_path / "slow.mid"))
    assert (again.start.tolist(), again.end.tolist()) == ([0.5], [21.0])
    [record] = caplog.records
    assert "slow.mid: a quarter of 20 s is slower than a MIDI tempo" in record.getMessage()
