"""Controller 64 to spans of the sustain pedal.

The pedal belongs to a channel, whatever track its events stand in, and at one tick it acts before
the notes do: a key that goes up at the very moment the pedal goes down is held by it. Controller
121 (reset all controllers) lifts it, and 120 (all sound off) ends what it holds: the pedal is as if
lifted there and pressed again one tick later.

Source: "MIDI 1.0 Detailed Specification"; RP-015 for controller 121.
"""

from __future__ import annotations

import numpy as np

from music_transformer.midi.tempo import TempoMap
from music_transformer.notes import SUSTAIN, IntArray, Pedals, pedal_spans

ALL_SOUND_OFF, RESET_CONTROLLERS = 120, 121
PEDAL_CONTROLLERS = (SUSTAIN, ALL_SOUND_OFF, RESET_CONTROLLERS)


def read_pedals(
    ticks: IntArray,
    channel: IntArray,
    controller: IntArray,
    value: IntArray,
    last_tick: int,
    tempo_map: TempoMap,
) -> Pedals:
    """Spans from the events of the `PEDAL_CONTROLLERS` of all tracks, one track after the other.

    Args:
        ticks: (N,) absolute ticks, in file order.
        channel: (N,) channels.
        controller: (N,) which of the controllers.
        value: (N,) 0..127; controller 64 is down from 64 on.
        last_tick: the last note or pedal event, where a pedal that is never lifted ends.
    """
    order = np.argsort(ticks, kind="stable")
    ticks, channel, controller = ticks[order], channel[order], controller[order]
    value = np.where(controller == SUSTAIN, value[order], 0)
    cuts = np.flatnonzero(controller == ALL_SOUND_OFF)
    if len(cuts):
        again = _in_force(channel, controller, value)[cuts]
        ticks, channel, value = (
            np.append(ticks, ticks[cuts] + 1),
            np.append(channel, channel[cuts]),
            np.append(value, again),
        )
        order = np.argsort(ticks, kind="stable")
        ticks, channel, value = ticks[order], channel[order], value[order]
    seconds = tempo_map.seconds(np.append(ticks, last_tick))
    return pedal_spans(seconds[:-1], channel, value, float(seconds[-1]))


def _in_force(channel: IntArray, controller: IntArray, value: IntArray) -> IntArray:
    """(N,) the value that the pedal of each row's channel has, whatever sound was cut since."""
    held = np.zeros(len(value), np.int64)
    for number in np.unique(channel):
        rows = np.flatnonzero(channel == number)
        sets = np.where(controller[rows] != ALL_SOUND_OFF, np.arange(len(rows)), -1)
        latest = np.maximum.accumulate(sets)
        held[rows] = np.where(latest < 0, 0, value[rows][latest])
    return held


def shared_pedals(pedals: Pedals, channels: IntArray) -> Pedals:
    """One pedal for all `channels`: down while that of any channel is."""
    number = np.zeros(len(pedals), np.int64)
    one = Pedals(number, pedals.start, pedals.end)  # spans that overlap become one
    return Pedals(
        np.repeat(channels, len(one)),
        np.tile(one.start, len(channels)),
        np.tile(one.end, len(channels)),
    )
