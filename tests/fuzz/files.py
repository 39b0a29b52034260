"""Files for the fuzzer: MIDI by a small grammar, mutations of bytes and of JSON; all by seed."""

import json
import random
from collections.abc import Callable
from typing import Any

_EXTREMES = (0, 1, 0x7F, 0x80, 0xFE, 0xFF)
_VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 1, 2**31, 2**63, 10**400, 0.5, 1e308, "", "x", "../x", [], [[]], {},
    "\ud800",
)  # fmt: skip


def midi_files(random: random.Random, count: int) -> list[bytes]:
    """MIDI files of the grammar, most of them under 500 bytes."""
    return [_grammar(random) for _ in range(count)]


def damaged(random: random.Random, data: bytes) -> bytes:
    """The bytes after some mutations; three times in eight after none."""
    for _ in range(random.choice((0, 0, 0, 1, 1, 1, 2, 6))):
        data = mutated(random, data)
    return data


def mutated(random: random.Random, data: bytes) -> bytes:
    """The bytes with one damage: changed, cut, lost, doubled, put in, or filled."""
    at, length = random.randrange(len(data) + 1), random.choice((1, 1, 1, 2, 4, 16, 64))
    part = data[at : at + length]
    damage: Callable[[], bytes] = random.choice(
        (
            lambda: data[:at] + bytes(random.choice(_EXTREMES) for _ in part) + data[at + length :],
            lambda: data[:at] + random.randbytes(len(part)) + data[at + length :],
            lambda: (
                data[:at] + bytes(b ^ 1 << random.randrange(8) for b in part) + data[at + length :]
            ),
            lambda: data[:at] + data[at + length :],
            lambda: data[:at] + part * random.choice((2, 3, 50)) + data[at + length :],
            lambda: data[:at] + random.randbytes(length) + data[at:],
            lambda: data[:at] + b"\xff\xff\xff\x7f" + data[at:],
            lambda: data[:at] if random.random() < 0.3 else data + part,
        )
    )
    return damage()[: 1 << 16]


def mutated_json(random: random.Random, text: bytes) -> bytes:
    """A JSON document with one value exchanged or lost, or its bytes damaged."""
    if random.random() < 0.3:
        return mutated(random, text)
    document = json.loads(text)
    places: list[tuple[Any, Any]] = []
    open_ = [document]
    while open_:
        one = open_.pop()
        if isinstance(one, dict | list):
            keys = list(one) if isinstance(one, dict) else range(min(len(one), 9))
            places += [(one, key) for key in keys]
            open_ += [one[key] for key in keys]
    if not places:
        return b"null"
    holder, key = random.choice(places)
    if random.random() < 0.2:
        del holder[key]
    elif random.random() < 0.1:
        return text.replace(json.dumps(holder[key]).encode(), b"[" * 100_000, 1)
    else:
        holder[key] = random.choice(_VALUES)
    return json.dumps(document).encode()


def _grammar(random: random.Random) -> bytes:
    kind = random.choice((0, *(1,) * 20, 2))
    tracks = [_track(random) for _ in range(1 if kind == 0 else random.choice((1, 1, 1, 2, 2, 4)))]
    count = len(tracks) if random.random() < 0.98 else random.randrange(1 << 16)
    division = random.choice((480,) * 20 + (96, 1, 0x7FFF, 0, 0xE728, random.randrange(1 << 16)))
    head = b"MThd" + bytes([0, 0, 0, 6, 0, kind]) + count.to_bytes(2) + division.to_bytes(2)
    data = head + b"".join(tracks)
    if random.random() < 0.03:
        return (
            b"RIFF"
            + (len(data) + 12).to_bytes(4, "little")
            + b"RMIDdata"
            + len(data).to_bytes(4, "little")
            + data
        )
    return data


def _track(random: random.Random) -> bytes:
    events = b"".join(
        _event(random) for _ in range(random.choice((*(0, 2, 4, 6, 12, 25, 80) * 200, 1500)))
    )
    if random.random() < 0.9:
        events += _delta(random) + b"\xff\x2f\x00"
    length = len(events) if random.random() < 0.98 else random.randrange(1 << 32)
    return random.choice((b"MTrk",) * 99 + (b"MTrx",)) + length.to_bytes(4) + events


def _event(random: random.Random) -> bytes:
    channel, low = random.choice((0, 0, 0, 1, 9, 15)), lambda: random.randrange(128)
    pitch = random.choice((60, 60, 64, 67, low()))
    delta = _delta(random)
    match random.randrange(16):
        case 0 | 1 | 2 | 3 | 4:
            return delta + bytes([0x90 | channel, pitch, random.choice((0, 1, 64, 127))])
        case 5 | 6 | 7:
            return delta + bytes([0x80 | channel, pitch, low()])
        case 8:
            again = delta + bytes([pitch, low()])  # running status
            return again if random.random() < 0.02 else delta + bytes([0x90, pitch, 9]) + again
        case 9 | 10:
            control = random.choice((64, 64, 66, 7, 121, 123, low()))
            return delta + bytes([0xB0 | channel, control, random.choice((0, 63, 64, 127))])
        case 11:
            return delta + b"\xff\x51\x03" + random.choice((1, 500_000, 2**24 - 1, 0)).to_bytes(3)
        case 12:
            return delta + bytes([0xFF, 0x58, 4, random.choice((4, 3, 0, 255)), low() % 9, 24, 8])
        case 13:
            kind = random.choice((1, 3, 5, 0x20, 0x21, 0x54, 0x59, 0x7F))
            text = random.randbytes(random.choice((0, 2, 2, 9)))
            return delta + bytes([0xFF, kind, len(text)]) + text
        case 14:
            text = random.randbytes(random.randrange(9))
            return (
                delta
                + bytes([random.choice((0xF0,) * 20 + (0xF7,) * 20 + (0xF2,)), len(text)])
                + text
            )
        case _:
            status = random.choice((0xA0, 0xC0, 0xD0, 0xE0))
            return delta + bytes([status | channel, low(), low()][: 2 + (status in (0xA0, 0xE0))])


def _delta(random: random.Random) -> bytes:
    ticks = random.choice((0, 0, 1, 7, 120, 240, 480, 5000))
    if random.random() < 0.001:
        ticks = random.randrange(1 << 28)
    out = [ticks & 0x7F]
    while ticks := ticks >> 7:
        out.append(ticks & 0x7F | 0x80)
    return bytes(reversed(out))
