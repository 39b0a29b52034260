"""How loud a recording is to the ear, and the gain that makes all recordings equally loud.

Loudness is ITU-R BS.1770-4's: both channels are K-weighted (a shelf for the head, a high-pass for
the ear), the mean square of blocks of 400 ms every 100 ms is taken, and blocks that are silent, or
10 LU below the rest, do not count. The unit is LUFS: a full-scale sine of 997 Hz in both channels
has 0. Bringing peaks to one height instead leaves recordings of the same piano up to 8 dB apart.

Differs from the standard: the filters are applied by FFT, stretch by stretch, which numpy can do
fast; the difference is below 0.01 LU.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Usual for music players (ReplayGain 2), and low enough for the peaks of a piano to fit.
TARGET_LUFS = -18.0
PEAK_DBFS = -1.0

_FULL_SCALE = 32768.0
_HOPS_PER_SECOND = 10
_HOPS_PER_BLOCK = 4
_STRETCH_HOPS = 25
_WARM_UP_HOPS = 2  # the filters forget within 100 ms
_SILENCE_LUFS = -70.0
_GATE_LU = 10.0
_OFFSET = -0.691

Floats = NDArray[np.float64]


def integrated_loudness(samples: NDArray[np.int16], sample_rate: int) -> float:
    """The loudness in LUFS of samples (N, channels) int16; minus infinity for silence."""
    power = _hop_power(samples, sample_rate)  # (hops,)
    if len(power) < _HOPS_PER_BLOCK:
        power = np.pad(power, (0, _HOPS_PER_BLOCK - len(power)))
    blocks = np.convolve(power, np.ones(_HOPS_PER_BLOCK) / _HOPS_PER_BLOCK, mode="valid")
    loud = blocks[blocks > _power_of(_SILENCE_LUFS)]
    if not len(loud):
        return -math.inf
    loud = loud[loud > loud.mean() / 10 ** (_GATE_LU / 10)]
    return _OFFSET + 10 * math.log10(loud.mean())


def gain(samples: NDArray[np.int16], sample_rate: int) -> float:
    """What brings samples (N, channels) int16 to `TARGET_LUFS`, with no peak above `PEAK_DBFS`.

    Silence stays as it is: 1.
    """
    peak = max(float(samples.max(initial=0)), -float(samples.min(initial=0)))
    loudness = integrated_loudness(samples, sample_rate)
    if not peak:
        return 1.0
    highest = 10 ** (PEAK_DBFS / 20) * 32767 / peak
    return min(highest, 10 ** ((TARGET_LUFS - loudness) / 20)) if loudness > -math.inf else highest


def _power_of(lufs: float) -> float:
    return float(10 ** ((lufs - _OFFSET) / 10))


def _hop_power(samples: NDArray[np.int16], sample_rate: int) -> Floats:
    """(hops,) K-weighted mean square of each 100 ms, the channels added; the last is padded."""
    hop = sample_rate // _HOPS_PER_SECOND
    new, warm_up = _STRETCH_HOPS * hop, _WARM_UP_HOPS * hop
    response = _k_weighting(np.fft.rfftfreq(new + warm_up, 1 / sample_rate), sample_rate)
    powers = []
    for first in range(0, len(samples), new):  # an hour as floats would be gigabytes
        stretch = np.zeros((warm_up + new, samples.shape[1]))
        before = samples[max(0, first - warm_up) : first]
        after = samples[first : first + new]
        stretch[warm_up - len(before) : warm_up] = before / _FULL_SCALE
        stretch[warm_up : warm_up + len(after)] = after / _FULL_SCALE
        spectrum = np.fft.rfft(stretch, axis=0) * response[:, None]
        weighted = np.fft.irfft(spectrum, len(stretch), axis=0)[warm_up:]  # (new, channels)
        hops = -(-len(after) // hop)
        powers.append((weighted**2).sum(1).reshape(-1, hop).mean(1)[:hops])
    return np.concatenate(powers) if powers else np.zeros(0)


def _k_weighting(frequency: NDArray[np.floating[Any]], sample_rate: int) -> NDArray[np.complex128]:
    """The response of both K-weighting filters at frequencies in Hz.

    The analogue values behind the standard's table for 48 kHz, so that any rate can be had.
    """
    back = np.exp(-2j * np.pi * frequency / sample_rate)  # one sample back
    k, q, shelf = math.tan(math.pi * 1681.974450955533 / sample_rate), 0.7071752369554196, 1.5848647
    middle = shelf**0.4996667741545416
    scale = 1 + k / q + k * k
    numerator = (
        (shelf + middle * k / q + k * k)
        + 2 * (k * k - shelf) * back
        + (shelf - middle * k / q + k * k) * back**2
    )
    head = numerator / (scale + 2 * (k * k - 1) * back + (1 - k / q + k * k) * back**2)
    k, q = math.tan(math.pi * 38.13547087602444 / sample_rate), 0.5003270373238773
    scale = 1 + k / q + k * k
    high_pass = (1 - 2 * back + back**2) / (
        1 + 2 * (k * k - 1) / scale * back + (1 - k / q + k * k) / scale * back**2
    )
    response: NDArray[np.complex128] = head * high_pass
    return response
