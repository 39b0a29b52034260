"""Controller 64 to spans of the sustain pedal.

The pedal belongs to a channel, whatever track its events stand in, and at one tick it acts before
the notes do: a key that goes up at the very moment the pedal goes down is held by it.
"""

from __future__ import annotations

import numpy as np

from music_transformer.midi.tempo import TempoMap
from music_transformer.notes import IntArray, Pedals, pedal_spans


def read_pedals(
    ticks: IntArray, channel: IntArray, value: IntArray, last_tick: int, tempo_map: TempoMap
) -> Pedals:
    """Spans from the events of controller 64 of all tracks, one track after the other.

    Args:
        ticks: (N,) absolute ticks, in file order.
        channel: (N,) channels.
        value: (N,) 0..127; down from 64 on.
        last_tick: the last note or pedal event, where a pedal that is never lifted ends.
    """
    order = np.argsort(ticks, kind="stable")
    seconds = tempo_map.seconds(np.append(ticks[order], last_tick))
    return pedal_spans(seconds[:-1], channel[order], value[order], float(seconds[-1]))
