"""What belongs together: note-ons and note-offs of keys, presses and lifts of the sustain pedal.

A key is one pitch of one channel of one track. Its notes are released in the order in which they
were struck. Where an off is missing, the key never falls silent again; from there on a note that is
struck again while it sounds ends there, so that one lost off costs one note.

The pedal (controller 64) belongs to a channel, whatever track its events stand in, and at one tick
it acts before the notes do: a key that goes up at the very moment the pedal goes down is held by
it. Controller 121 (reset all controllers) lifts it, and 120 (all sound off) ends what it holds: the
pedal is as if lifted there and pressed again one tick later.

Source: "MIDI 1.0 Detailed Specification"; RP-015 for controller 121.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from music_transformer.midi.tempo import TempoMap
from music_transformer.notes import SUSTAIN, BoolArray, IntArray, Pedals, pedal_spans


class Pairs(NamedTuple):
    """`pair`'s answer: rows of the N onsets and of what ends them, and what did not fit."""

    onsets: IntArray  # (N,)
    ends: IntArray  # (N,) the off, or the next on of the key; -1 where nothing comes
    strays: IntArray  # offs of a key that does not sound: ignored
    unreleased: BoolArray  # (N,) in the part of a key where an off is missing
    n_unreleased: int  # how many offs are missing


def pair(key: IntArray, is_on: BoolArray, ends_silent: BoolArray | None = None) -> Pairs:
    """Match the note-ons with the note-offs of (E,) events, in the order in which they act.

    `key` is equal for equal track, channel and pitch. Keys that something else silences in the end
    (`ends_silent`) lack no off: what still sounds there has no end here.
    """
    small = key.astype(np.int16) if key.max(initial=0) < 2**15 else key  # int16 sorts much faster
    order = np.argsort(small, kind="stable")
    key, is_on = key[order], is_on[order]
    opens = np.ones(len(key), bool)  # the first event of each key
    opens[1:] = key[1:] != key[:-1]
    group = np.cumsum(opens) - 1  # (E,) 0 for the lowest key that occurs, and so on
    is_stray = ~is_on & _finds_nothing(group, np.flatnonzero(opens), is_on)
    is_tail = np.zeros(len(key), bool)
    missing = int(is_on.sum()) - int((~is_on & ~is_stray).sum())
    if missing:
        level, is_tail = _after_last_silence(group, np.flatnonzero(opens), is_on, is_stray)
        if ends_silent is not None:
            is_tail &= ~ends_silent[order]
        missing = int(level[np.append(opens[1:], True) & is_tail].sum())

    ons, offs = np.flatnonzero(is_on), np.flatnonzero(~is_on & ~is_stray)
    groups = np.arange(int(opens.sum()) + 1)
    first_on = np.searchsorted(group[ons], groups)
    first_off = np.searchsorted(group[offs], groups)
    own = group[ons]
    match = first_off[own] + np.arange(len(ons)) - first_on[own]
    off = np.append(offs, -1)[np.where(match < first_off[own + 1], match, -1)]
    in_tail = is_tail[ons]
    following = np.where(np.append(opens[1:], True), -1, np.arange(1, len(key) + 1))
    off = np.where(in_tail, following[ons], off)
    ends = np.where(off < 0, -1, order[off])
    return Pairs(order[ons], ends, order[is_stray], in_tail, missing)


def _after_last_silence(
    group: IntArray, first: IntArray, is_on: BoolArray, is_stray: BoolArray
) -> tuple[IntArray, BoolArray]:
    """(E,) how many notes of its key sound after each event, and whether it is silent no more."""
    change = np.where(is_on, 1, np.where(is_stray, 0, -1))
    total = np.cumsum(change)
    level = total - (total[first] - change[first])[group]
    row = np.arange(len(group))
    last = np.maximum.reduceat(np.where(level == 0, row, -1), first)  # (G,)
    return level, row > last[group]


def _finds_nothing(group: IntArray, first: IntArray, is_on: BoolArray) -> BoolArray:
    """(E,) True where an event takes the number of notes that sound of its key below zero.

    `group` (E,) is the number of each event's key, rising; `first` (G,) the row where each begins.
    Sum +1 and -1; wherever the sum reaches a new low, a note was missing. A slope makes every group
    begin lower than all that came before, so that one running minimum serves them all.
    """
    change = np.where(is_on, 1, -1)
    total = np.cumsum(change)
    floor = -group * (2 * len(group) + 2)  # (E,) what counts as no note in this group
    level = total - (total[first] - change[first])[group] + floor
    low = np.minimum.accumulate(np.minimum(level, floor))
    before = np.empty_like(low)
    before[1:] = low[:-1]
    before[first] = floor[first]
    below: BoolArray = low < before
    return below


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
    """Spans from the (N,) events of the `PEDAL_CONTROLLERS`, one track after the other.

    A pedal that is never lifted ends at `last_tick`, of the last note or pedal event.
    """
    order = np.argsort(ticks, kind="stable")
    ticks, channel, controller = ticks[order], channel[order], controller[order]
    value = np.where(controller == SUSTAIN, value[order], 0)
    cuts = np.flatnonzero(controller == ALL_SOUND_OFF)
    if len(cuts):
        value = np.append(value, _in_force(channel, controller, value)[cuts])
        ticks, channel = np.append(ticks, ticks[cuts] + 1), np.append(channel, channel[cuts])
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
