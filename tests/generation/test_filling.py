"""A gap is filled: what stands beside it is kept note by note, the first note behind it on time."""

from pathlib import Path

import numpy as np
import pytest

from music_transformer import fill
from music_transformer.errors import ConfigError, MidiError
from music_transformer.midi import read_midi, write_midi
from music_transformer.notes import NoteSequence, Pedals, Tempos

from .conftest import MakeSession


def piece() -> NoteSequence:
    """Two tracks off the grid, a pedal into the gap and one out of it, an odd tempo."""
    start = np.arange(24) * 0.5003
    return NoteSequence(
        pitch=48 + np.arange(24) * 5 % 37,
        velocity=40 + np.arange(24),
        start=start,
        end=start + 0.7041,
        channel=np.arange(24) % 2,
        track=np.arange(24) % 2,
        pedals=Pedals([0, 0, 1], [3.2, 6.1, 4.5], [5.0, 9.0, 6.0]),
        tempos=Tempos([0.0, 2.0], [0.5, 0.61], 480),
        track_names=("right", "left"),
    )


@pytest.mark.parametrize("seed", range(3))
def test_all_but_the_gap_is_kept_through_the_file(
    make_session: MakeSession, tmp_path: Path, seed: int
) -> None:
    notes, (start, end) = piece(), (4.0, 7.5031)
    session = make_session(anchors=True, context=1024)
    [one] = fill(session, notes, start=start, end=end, seed=seed)
    again = read_midi(write_midi(one.notes, tmp_path / "out.mid"))
    kept = (notes.start < start) | (notes.start >= end)
    own = again.selected(again.track < 2)
    for name in ("pitch", "velocity", "start", "end"):
        assert np.abs(getattr(own, name) - getattr(notes, name)[kept]).max() < 1e-4
    assert again.tempos.seconds_per_quarter.tolist() == pytest.approx([0.5, 0.61], abs=1e-6)
    assert again.track_names == ("right", "left", "fill")
    new = again.selected(again.track == 2)
    assert len(new) == len(one.continuation) > 0
    assert start - 1e-4 < new.start.min()
    assert new.end.max() < end + 1e-4
    sounding = notes.selected(kept).sustained()
    for pitch, at in zip(new.pitch, new.start, strict=True):
        held = (sounding.pitch == pitch) & (sounding.start <= at) & (sounding.end > at + 1e-3)
        assert not held.any()
    pedals = sorted(zip(again.pedals.channel, again.pedals.start, again.pedals.end, strict=True))
    assert np.allclose(pedals, [(0, 3.2, 5.0), (0, end, 9.0)], atol=1e-4)


@pytest.mark.parametrize(("start", "end"), [(0.0, 3.0), (9.0, 12.2)], ids=["first", "last"])
def test_a_gap_may_be_at_either_end(make_session: MakeSession, start: float, end: float) -> None:
    session = make_session(anchors=True, context=1024)
    [one] = fill(session, piece(), start=start, end=end)
    assert one.report.seconds == pytest.approx(end - start)
    kept = int(((piece().start < start) | (piece().start >= end)).sum())
    assert len(one.notes) == kept + len(one.continuation)


def test_candidates_are_ranked_by_both_seams(make_session: MakeSession) -> None:
    session = make_session(anchors=True, context=1024)
    [one] = fill(session, piece(), start=4.0, end=7.0, candidates=3)
    remote = [each.report.seam_distance or 9e9 for each in (one, *one.others)]
    assert len(remote) == 3
    broken = [len(each.report.broken_rules) for each in (one, *one.others)]
    assert list(zip(broken, remote, strict=True)) == sorted(zip(broken, remote, strict=True))


def test_what_cannot_be_filled_is_refused(make_session: MakeSession) -> None:
    with pytest.raises(ConfigError, match="this checkpoint fills no gaps; take one that learned"):
        fill(make_session(), piece(), start=1.0, end=2.0)
    session = make_session(anchors=True, context=1024)
    with pytest.raises(ConfigError, match="a gap from 2 s to 1 s: choose one of at most 60 s"):
        fill(session, piece(), start=2.0, end=1.0)
    with pytest.raises(ConfigError, match="as long as the gap"):
        fill(session, piece(), start=1.0, end=2.0, seconds=3)
    with pytest.raises(MidiError, match="nothing is left beside the gap"):
        fill(session, piece(), start=0.0, end=20.0)
