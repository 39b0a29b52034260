"""Cells of a chorale are filled: what is given stays, and what follows is taken into account."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from music_transformer import fill
from music_transformer.errors import ConfigError, MidiError
from music_transformer.generation.cells import fill_cells
from music_transformer.notes import NoteSequence
from music_transformer.representations import ChoraleTokenizer
from music_transformer.sampling import Settings

from .conftest import MakeSession

GRID = np.array([[72, 67, 60, 48], [72, 67, 60, 48], [74, 65, 62, 46], [71, 67, 62, 43]] * 12)


def test_given_cells_stay_and_missing_ones_are_in_range(make_session: MakeSession) -> None:
    missing = np.zeros(GRID.shape, dtype=bool)
    missing[9:21, 1:3] = True
    missing[30, 0] = True
    filled, nll = fill_cells(make_session("chorale"), GRID, missing, Settings(seed=3), (3, 4))
    assert (filled[~missing] == GRID[~missing]).all()
    assert nll > 0
    alto = filled[9:21, 1]
    assert (((alto >= 52) & (alto <= 74)) | (alto == -1)).all()
    again, _ = fill_cells(make_session("chorale"), GRID, missing, Settings(seed=3), (3, 4))
    assert (again == filled).all()


def test_what_comes_later_decides(make_session: MakeSession) -> None:
    """A model for which a pitch is followed by itself, four ids on: the gap is filled with it."""
    session = make_session("chorale")

    class Holds(torch.nn.Module):
        config = session.config
        training = False

        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(1))
            self.read = torch.zeros(0)

        def forward(self, ids: torch.Tensor, *, place: object, cache: Any) -> torch.Tensor:
            self.read = ids if cache.length == 0 else torch.cat([self.read, ids], 1)
            cache.length = self.read.shape[1]
            logits = torch.zeros(*self.read.shape, 132)
            now = self.read[:, -4]  # the voice whose turn comes
            logits[:, -1].scatter_(1, now[:, None], 3.0)
            return logits[:, -ids.shape[1] :]

        def new_cache(self, batch: int, *, capacity: int) -> object:
            return session.model.new_cache(batch, capacity=capacity)

    held = replace(session, model=Holds())
    grid = np.full((20, 4), 60)
    grid[8:] = 62  # after the gap all hold another pitch
    missing = np.zeros(grid.shape, dtype=bool)
    missing[7] = True
    counts = {"blind": 0, "ahead": 0}
    for seed in range(8):
        for name, number in (("blind", 1), ("ahead", 24)):
            filled, _ = fill_cells(held, grid, missing, Settings(seed=seed), (number, 0))
            counts[name] += int((filled[7] == 62).sum())
    assert counts["ahead"] > counts["blind"] + 3


def chorale() -> NoteSequence:
    notes = ChoraleTokenizer().decode(ChoraleTokenizer().encode_grid(GRID), seconds_per_beat=0.5)
    return notes.replaced(velocity=60 + notes.track)


def test_one_voice_of_a_file_is_composed_on_its_own_track(make_session: MakeSession) -> None:
    session, notes = make_session("chorale"), chorale()
    [one] = fill(session, notes, start=1.0, end=2.5, voices=["tenor"])
    gone = (notes.track == 2) & (notes.start >= 1.0) & (notes.start < 2.5)
    kept = notes.selected(~gone)
    rows = {
        tuple(row) for row in zip(one.notes.pitch, one.notes.start, one.notes.track, strict=True)
    }
    assert rows >= {tuple(row) for row in zip(kept.pitch, kept.start, kept.track, strict=True)}
    new = one.notes.selected((one.notes.track == 2) & (one.notes.start >= 1.0))
    assert set(new.velocity.tolist()) == {62}
    assert len(one.continuation) == len(one.notes) - len(kept)
    assert one.report.events <= 12


def test_what_cannot_be_filled_is_refused(make_session: MakeSession) -> None:
    session = make_session("chorale")
    with pytest.raises(ConfigError, match="voice 'altos'; choose of soprano, alto, tenor, bass"):
        fill(session, chorale(), start=0.0, end=1.0, voices=["altos"])
    one_track = np.zeros(len(chorale()), dtype=np.int64)
    notes = chorale().replaced(track=one_track, channel=one_track)
    with pytest.raises(MidiError, match="not on four tracks, one a voice: fill all voices"):
        fill(session, notes, start=0.0, end=1.0, voices=["alto"])
    with pytest.raises(ConfigError, match="voices: this music has none"):
        fill(make_session(anchors=True), chorale(), start=0.0, end=1.0, voices=["alto"])
