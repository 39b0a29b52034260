"""Loudness: the standard's own signals, the gates, the gain."""

import math

import numpy as np
import pytest

from music_transformer.render.audio import PEAK_DBFS, TARGET_LUFS, gain, integrated_loudness

RATE = 48_000


def sine(dbfs: float, seconds: float, *, hertz: float = 997.0, rate: int = RATE) -> np.ndarray:
    """(N, 2) int16, the same in both channels."""
    time = np.arange(round(seconds * rate)) / rate
    wave = 10 ** (dbfs / 20) * 32767 * np.sin(2 * np.pi * hertz * time)
    return np.rint(wave).astype(np.int16)[:, None].repeat(2, axis=1)


@pytest.mark.parametrize("dbfs", [0.0, -23.0, -36.0])
@pytest.mark.parametrize("rate", [24_000, 44_100, 48_000])
def test_a_sine_of_997_hz_in_both_channels_has_the_loudness_of_its_peak(
    dbfs: float, rate: int
) -> None:
    assert integrated_loudness(sine(dbfs, 5.3, rate=rate), rate) == pytest.approx(dbfs, abs=0.05)


def test_one_channel_has_three_decibels_less() -> None:
    assert integrated_loudness(sine(-20, 3)[:, :1], RATE) == pytest.approx(-23.01, abs=0.05)


def test_the_ear_hears_less_of_the_bass_and_more_of_the_treble() -> None:
    """Values of the standard's filters, read off its two tables of coefficients at 48 kHz."""
    assert integrated_loudness(sine(-20, 3, hertz=40), RATE) < -25
    assert integrated_loudness(sine(-20, 3, hertz=8000), RATE) == pytest.approx(-16.69, abs=0.1)


def test_silence_and_what_is_far_softer_than_the_rest_do_not_count() -> None:
    """Cases 3 and 4 of EBU Tech 3341: -36, -23, -36 and -72, -36, -23, -36, -72 make -23."""
    three = [sine(-36, 10), sine(-23, 60), sine(-36, 10)]
    five = [sine(-72, 10), *three, sine(-72, 10)]
    for parts in (three, five, [*three, np.zeros((10 * RATE, 2), np.int16)]):
        assert integrated_loudness(np.concatenate(parts), RATE) == pytest.approx(-23, abs=0.1)


def test_no_sound_is_infinitely_soft_and_left_alone() -> None:
    for samples in (np.zeros((0, 2), np.int16), np.zeros((RATE, 2), np.int16)):
        assert integrated_loudness(samples, RATE) == -math.inf
        assert gain(samples, RATE) == 1.0


def test_the_gain_reaches_the_target_and_stops_below_full_scale() -> None:
    assert 20 * math.log10(gain(sine(-40, 3), RATE)) == pytest.approx(TARGET_LUFS + 40, abs=0.05)
    click = sine(-60, 20)
    click[5 * RATE : 5 * RATE + 100] = 20_000
    assert 20 * math.log10(gain(click, RATE) * 20_000 / 32767) == pytest.approx(PEAK_DBFS)
    blip = sine(-6, 0.05)
    assert gain(blip, RATE) * np.abs(blip.astype(int)).max() <= 32767
