"""A performance kept near its motif, or near what a musician asks for.

Feedback as in a thermostat: `Steering` compares the last seconds (`Course`) with a target and tilts
the logits against the difference. It also rules out notes: out of range, out of key (softly), or
more than the voices. Source: our own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch

from music_transformer.errors import ConfigError
from music_transformer.notes import STEPS_PER_SECOND
from music_transformer.representations.performance.vocabulary import (
    DEFAULT_VELOCITY_BIN,
    MAX_SHIFT,
    N_EVENTS,
    N_PITCHES,
    NOTE_OFF,
    NOTE_ON,
    TIME_SHIFT,
    VELOCITIES_PER_BIN,
    VELOCITY,
    time_of,
)
from music_transformer.sampling import ASKED_FOR, LOUDNESS, SCALES, Settings, read_key, read_pitch

if TYPE_CHECKING:
    from torch import Tensor

    from music_transformer.generation.loop import Sample

    Floats = npt.NDArray[np.float64]

MEMORY_SECONDS = 5.0  # events this old count 1/e
CLOSE_SECONDS = 15.0  # closeness is whole so long, then halves in as much time again
ASKED = 2.0  # the strength with which a pace or loudness that was asked for is held
OUTSIDE_KEY = 0.03  # the odds of a note outside the key are multiplied by this
LET_GO = math.e  # and those of the end of a note, where no more voices are free
ENOUGH_NOTES, ENOUGH_SECONDS = 4, 1.0  # a motif shorter than that has no pace

_PITCH = np.arange(N_PITCHES)
_SECONDS = np.arange(1, MAX_SHIFT + 1) / STEPS_PER_SECOND
_BIN = np.arange(N_EVENTS - VELOCITY)
# Correlation with the tonic's profile names the key. Source: Krumhansl 1990, "Cognitive Foundations
# of Musical Pitch".
_PROFILES = {
    "major": (6.35, 2.23, 3.48, 2.33, 4.38, 4.09, 2.52, 5.19, 2.39, 3.66, 2.29, 2.88),
    "minor": (6.33, 2.68, 3.52, 5.38, 2.60, 3.53, 2.54, 4.75, 3.98, 2.69, 3.34, 3.17),
}


@dataclass(frozen=True)
class Target:
    """What the last seconds should be like."""

    pace: float  # notes a second
    polyphony: float  # notes at a time, while any sounds
    register: float  # mean pitch
    loudness: float  # mean velocity bin, 0 to 31


_NEUTRAL = Target(pace=8.0, polyphony=3.0, register=62.0, loudness=16.0)


class Course:
    """What the last seconds of some ids were like; older ones count exponentially less."""

    def __init__(self, memory_seconds: float = MEMORY_SECONDS) -> None:
        self._memory = memory_seconds * STEPS_PER_SECOND
        self._bin = DEFAULT_VELOCITY_BIN
        self._sounding: set[int] = set()
        self._sound = self._covered = self._notes = self._pitch = self._loud = 0.0

    def settle(self, on: Target) -> None:
        """Count all before as if it had been like this."""
        self._notes = on.pace * self._memory / STEPS_PER_SECOND
        self._covered, self._sound = self._memory, self._memory * on.polyphony
        self._pitch, self._loud = self._notes * on.register, self._notes * on.loudness

    def follow(self, ids: Iterable[int]) -> None:
        """Read more ids."""
        for event_id in ids:
            if event_id < NOTE_OFF:
                self._sounding.add(event_id - NOTE_ON)
                self._notes += 1
                self._pitch += event_id - NOTE_ON
                self._loud += self._bin
            elif event_id < TIME_SHIFT:
                self._sounding.discard(event_id - NOTE_OFF)
            elif event_id < VELOCITY:
                self._pass(event_id - TIME_SHIFT + 1)
            elif event_id < N_EVENTS:
                self._bin = event_id - VELOCITY

    def _pass(self, steps: int) -> None:
        kept = math.exp(-steps / self._memory)
        new = self._memory * (1 - kept) if self._sounding else 0.0
        self._covered = self._covered * kept + new
        self._sound = self._sound * kept + new * len(self._sounding)
        self._notes, self._pitch = self._notes * kept, self._pitch * kept
        self._loud *= kept

    @property
    def now(self) -> Target:
        """What they are like."""
        notes = max(self._notes, 1e-6)
        return Target(
            pace=notes * STEPS_PER_SECOND / self._memory,
            polyphony=max(self._sound / max(self._covered, 1e-6), 1e-6),
            register=self._pitch / notes,
            loudness=self._loud / notes,
        )


def target_of(ids: Sequence[int]) -> Target | None:
    """What a motif is like on the whole; None for one too short to say."""
    steps = time_of(ids)
    notes = sum(i < NOTE_OFF for i in ids)
    if notes < ENOUGH_NOTES or steps < ENOUGH_SECONDS * STEPS_PER_SECOND:
        return None
    endless = Course(memory_seconds=1e6)
    endless.follow(ids)
    return replace(endless.now, pace=notes * STEPS_PER_SECOND / steps)


def key_of(ids: Sequence[int]) -> tuple[int, str]:
    """Tonic, 0 to 11, and mode of some notes, by how often each pitch class begins."""
    counts = np.bincount([i % 12 for i in ids if i < NOTE_OFF], minlength=12)
    fits = {
        (tonic, mode): float(np.nan_to_num(np.corrcoef(np.roll(profile, tonic), counts)[0, 1]))
        for mode, profile in _PROFILES.items()
        for tonic in range(12)
    }
    return max(fits, key=lambda key: fits[key])


class Steering:
    """What one sample is held to, and its course so far.

    Args:
        settings: with nothing left open.
        motif: the primer's ids.

    Raises:
        ConfigError: what is asked for needs a motif.
    """

    def __init__(self, settings: Settings, motif: Sequence[int]) -> None:
        known = target_of(motif)
        for name, value, needed in (
            ("pace", settings.pace, known is not None),
            ("key", settings.key if settings.key == "motif" else None, bool(motif)),
        ):
            if value is not None and not needed:
                raise ConfigError(
                    f"{name}={value} follows a motif, and there is none, or one of less than "
                    f"{ENOUGH_NOTES} notes or {ENOUGH_SECONDS:g} s; leave it out."
                )
        before = known or _NEUTRAL
        self._course = Course()
        self._course.follow(motif)
        self._course.settle(before)
        self._read = len(motif)
        self._target = replace(before, pace=before.pace * (settings.pace or 1))
        if settings.loudness is not None:
            loudness = LOUDNESS[settings.loudness] / VELOCITIES_PER_BIN
            self._target = replace(self._target, loudness=loudness)
        self._close = (settings.closeness or 0.0) if known is not None else 0.0
        self._asked_pace, self._asked_loudness = settings.pace, settings.loudness
        self._voices = settings.voices or N_PITCHES
        self._notes = _note_bias(settings, motif)

    def apply(self, logits: Tensor, sample: Sample) -> None:
        """Change the logits (V,) of the sample's next id in place."""
        self._course.follow(sample.ids[self._read :])
        self._read = len(sample.ids)
        ages = sample.grammar.ages
        self._constrain(logits, 0 if ages is None else int((ages >= 0).sum()))
        now, target = self._course.now, self._target
        # A piece goes its own way in time: held to its motif for minutes, a model turns in circles.
        close = self._close * 0.5 ** max(0.0, sample.grammar.seconds / CLOSE_SECONDS - 1)
        pace = close if self._asked_pace is None else ASKED
        pace *= _clipped(math.log(target.pace / now.pace))
        waits = 0.5 + np.minimum(_SECONDS * target.pace, 3.0)  # (100,)
        logits[TIME_SHIFT:VELOCITY] -= torch.from_numpy(pace * waits)
        thick = close * _clipped(math.log(now.polyphony / target.polyphony))
        logits[NOTE_OFF:TIME_SHIFT] += thick
        high = close * _clipped((target.register - now.register) / 12)
        _tilt(logits[NOTE_ON:NOTE_OFF], high * np.clip((_PITCH - target.register) / 12, -2, 2))
        loud = ASKED * (close if self._asked_loudness is None else 1.0)
        loud *= _clipped((target.loudness - now.loudness) / 4)
        _tilt(logits[VELOCITY:N_EVENTS], loud * np.clip((_BIN - target.loudness) / 4, -2, 2))

    def _constrain(self, logits: Tensor, sounding: int) -> None:
        """Rule out notes, unless nothing else may come."""
        before, notes = logits.clone(), logits[NOTE_ON:NOTE_OFF]
        possible = bool(notes.isfinite().any())  # not so before the first velocity
        full = sounding >= self._voices
        if full:
            notes.fill_(-math.inf)
            logits[NOTE_OFF:TIME_SHIFT] += LET_GO
        else:
            notes += torch.from_numpy(self._notes)
        if full or (possible and not notes.isfinite().any()):
            logits[VELOCITY:N_EVENTS] = -math.inf  # a velocity is followed by its note
        if not logits.isfinite().any():
            logits.copy_(before)


def steering_of(settings: Settings, motif: Sequence[int], *, performance: bool) -> Steering | None:
    """The steering of one sample, None where nothing is asked for.

    Raises:
        ConfigError: of other music than performances, or without the motif that it needs.
    """
    asked = [name for name in ASKED_FOR if getattr(settings, name) is not None]
    if not performance:
        if asked:
            raise ConfigError(f"{', '.join(asked)}: for models of performances; leave it out.")
        return None
    return Steering(settings, motif) if asked or settings.closeness else None


def steer(logits: Tensor, samples: Sequence[Sample]) -> Tensor:
    """The logits (A, V) with each row steered by its sample's `Steering`, if it has one."""
    result = logits.clone()
    for row, sample in enumerate(samples):
        if sample.steering is not None:
            sample.steering.apply(result[row], sample)
    return result


def _note_bias(settings: Settings, motif: Sequence[int]) -> Floats:
    """(128,) what is added to the logit of each NOTE_ON: for its key, and -inf out of range."""
    bias = np.zeros(N_PITCHES)
    if settings.key is not None and settings.key != "none":
        tonic, mode = key_of(motif) if settings.key == "motif" else read_key(settings.key)
        bias[~np.isin((_PITCH - tonic) % 12, SCALES[mode])] = math.log(OUTSIDE_KEY)
    low, high = (settings.low or "0", settings.high or "127")
    bias[(read_pitch(low) > _PITCH) | (read_pitch(high) < _PITCH)] = -math.inf
    return bias


def _tilt(logits: Tensor, tilt: Floats) -> None:
    """Add to the logits of a group in place; the group stays as probable as it was."""
    whole = logits.logsumexp(0)
    if not bool(whole.isfinite()):
        return
    logits += torch.from_numpy(tilt)
    logits += whole - logits.logsumexp(0)


def _clipped(value: float) -> float:
    return min(max(value, -1.0), 1.0)
