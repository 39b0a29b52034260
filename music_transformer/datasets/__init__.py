"""Corpora and folders of MIDI files -> prepared ids -> windows a model learns from."""

from music_transformer.datasets.prepared import PreparedData

__all__ = ["PreparedData"]
