"""Attention told in notes: weights on ids summed by note, the window, the query."""

from pathlib import Path

import numpy as np
import pytest
import torch

from music_transformer.checkpoint import Session
from music_transformer.errors import ConfigError, MidiError
from music_transformer.evaluation.attention import note_attention
from music_transformer.model import ModelConfig, MusicTransformer
from music_transformer.model.introspection import attention_weights
from music_transformer.notes import NoteSequence, Tempos
from music_transformer.representations import ChoraleTokenizer, PerformanceTokenizer

#: C4 and E4 together, then G4: ids 388 START, VELOCITY 60 64, TIME_SHIFT, offs, 67, TIME_SHIFT.
THREE = NoteSequence(
    pitch=[60, 64, 67], velocity=[80] * 3, start=[2, 2, 2.5], end=[2.5, 2.5, 3], end_time=3
)


def session_of(
    tokenizer: PerformanceTokenizer | ChoraleTokenizer, *, context: int = 31, labels: int = 0
) -> Session:
    config = ModelConfig(
        vocab_size=tokenizer.vocab_size,
        n_layers=2,
        d_model=12,
        n_heads=3,
        d_ff=17,
        dropout=0.0,
        context=context,
        voice_labels=labels,
    )
    with torch.random.fork_rng():
        torch.manual_seed(5)
        model = MusicTransformer(config).double().eval()
    return Session(model, tokenizer, config, {}, Path("nowhere"), torch.device("cpu"))


PIANO = session_of(PerformanceTokenizer())


def test_the_weights_are_those_of_the_place_that_wrote_the_note() -> None:
    found = note_attention(PIANO, THREE, query=2, layer=0)
    ids = PerformanceTokenizer().encode(THREE, keep_silence=False)
    assert [ids[1], ids[2], ids[6]] == [60, 64, 67]
    read = torch.tensor([389, *ids[:6]])  # START, and all before the G's NOTE_ON
    row = attention_weights(PIANO.model, read, layers=[0])[0, :, -1].numpy()  # (H, 7)
    assert np.allclose(found.by_event[:, -1], row)
    assert np.allclose(found.by_note[:, 0], row[:, [1, 2, 5]].sum(1))  # velocity, on, off of the C
    assert np.allclose(found.by_note[:, 1], row[:, [3, 6]].sum(1))
    assert np.allclose(found.by_note[:, 2], 0)
    assert np.allclose(found.elsewhere, row[:, [0, 4]].sum(1))  # START and the time shift


def test_every_weight_is_counted_once() -> None:
    found = note_attention(PIANO, THREE)
    assert (found.query, found.layer, found.first_event) == (2, 1, 0)
    assert found.by_note.shape == (3, 3)
    assert np.allclose(found.by_note.sum(1) + found.elsewhere, 1)


def test_the_notes_stand_where_they_stand_in_the_file() -> None:
    notes = note_attention(PIANO, THREE).notes
    assert notes.start.tolist() == [2, 2, 2.5]
    assert notes.end.tolist() == [2.5, 2.5, 3]


def test_a_query_may_be_named_by_its_time() -> None:
    assert note_attention(PIANO, THREE, at_seconds=2.49).query == 1
    assert note_attention(PIANO, THREE, at_seconds=2.5).query == 2
    assert note_attention(PIANO, THREE, at_seconds=3.0).query == 2
    with pytest.raises(ConfigError, match=r"100 s: no note .* ends at 3\.00 s"):
        note_attention(PIANO, THREE, at_seconds=100.0)
    with pytest.raises(ConfigError, match=r"1\.9 s: no note begins"):
        note_attention(PIANO, THREE, at_seconds=1.9)


def test_what_is_out_of_the_context_gets_nothing() -> None:
    n = 40
    notes = NoteSequence(
        pitch=[60] * n, velocity=[80] * n, start=np.arange(n) / 4, end=np.arange(n) / 4 + 0.1
    )
    found = note_attention(PIANO, notes)
    assert found.by_event.shape == (3, 31, 31)
    ids = PerformanceTokenizer().encode(notes)
    assert found.first_event == len(ids) - 3 - 31 + 1  # up to the on before the last shift and off
    assert (found.by_note[:, :30] == 0).all()
    assert (found.by_note[:, 35:39] > 0).all()
    assert np.allclose(found.by_note.sum(1) + found.elsewhere, 1)


def test_a_chorales_note_collects_its_sixteenths() -> None:
    session = session_of(ChoraleTokenizer(), labels=4)
    notes = NoteSequence(
        pitch=[72, 67, 60, 48, 74],
        velocity=[80] * 5,
        start=[0, 0, 0, 0, 0.5],
        end=[0.5, 1, 1, 1, 1],
        track=[0, 1, 2, 3, 0],
        tempos=Tempos([0], [1.0]),
    )
    found = note_attention(session, notes)  # D5 at 0.5 s: two sixteenths of four voices before it
    assert found.notes.pitch.tolist() == [48, 60, 67, 72, 74]
    assert found.notes.start.tolist() == [0, 0, 0, 0, 0.5]
    row = found.by_event[:, -1]  # START and eight cells
    assert row.shape == (3, 9)
    assert np.allclose(found.by_note[:, 3], row[:, 1] + row[:, 5])
    assert np.allclose(found.by_note[:, 0], row[:, 4] + row[:, 8])
    assert np.allclose(found.elsewhere, row[:, 0])


def test_what_is_not_there_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"note 3: there are notes 0 to 2"):
        note_attention(PIANO, THREE, query=3)
    with pytest.raises(ConfigError, match=r"layer -3: the model has layers 0 to 1"):
        note_attention(PIANO, THREE, layer=-3)
    with pytest.raises(MidiError, match="no notes"):
        note_attention(PIANO, NoteSequence(pitch=[], velocity=[], start=[], end=[]))
