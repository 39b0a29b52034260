"""Anchors: a slow twin finds the same rows; the cache, the zero start, causality."""

import math
from typing import Any

import pytest
import torch

from music_transformer.errors import ConfigError
from music_transformer.model import (
    AccompanimentConfig,
    AccompanimentTransformer,
    ModelConfig,
    MusicTransformer,
)
from music_transformer.model import anchors as an
from music_transformer.model.positions import NO_TIME, Reading

END, SHIFT = 390, 255  # SHIFT + k lets k steps pass
CONFIG = ModelConfig(
    n_layers=2, d_model=12, n_heads=3, d_ff=20, dropout=0.0, context=64, anchors=True
)
#: Rests of 20 and 130 steps and two chords, END, then music whose time begins anew.
GAPPED = [SHIFT + 20, 60, 64, SHIFT + 100, SHIFT + 30, 72, 200, END]
GAPPED += [SHIFT + 12, 65, SHIFT + 8, 67, SHIFT + 100, 193, SHIFT + 17, 40, SHIFT + 60, 41]
TWO_ROWS = torch.tensor([GAPPED, [60, SHIFT + 5, END, 389, *GAPPED[-14:]]])


def rows_and_slots(anchors: list[tuple[int, int]], now: int) -> tuple[list[int], list[int]]:
    """What `anchor_state` gives at one time, by the table of the module's text."""
    before = [a for a in anchors if a[0] <= now][-1:]
    after = [a for a in anchors if a[0] > now][:1]
    rows, slots = [an.INPUT_ROWS] * 4, [an.OUTPUT_ROWS] * 456

    def bucket(x: int) -> int:
        return min(39, round(4 * math.log2(1 + x)))

    def interval(pitch: int, other: int) -> int:
        return max(-36, min(36, pitch - other)) + 36

    if before:
        rows[0] = bucket(now - before[0][0])
        slots[:128] = [49 + 50 + interval(p, before[0][1]) for p in range(128)]
    if after:
        until = after[0][0] - now
        rows[1] = 40 + bucket(until)
        slots[228:356] = [49 + 50 + 73 + interval(p, after[0][1]) for p in range(128)]
        for k in range(1, 101):
            late = k - until
            far = late if abs(late) <= 8 else min(24, 8 + round(4 * math.log2(abs(late) / 8)))
            slots[127 + k] = 24 + (math.copysign(far, late) if abs(late) > 8 else late)
    if before and after:
        since, between = now - before[0][0], after[0][0] - before[0][0]
        phase = [min(49, math.floor(48 * (since + k) / between + 0.5)) for k in range(101)]
        rows[2:] = [80 + bucket(between), 120 + phase[0]]
        slots[356:] = [49 + x for x in phase[1:]]
    return rows, [int(x) for x in slots]


def test_the_rows_are_those_of_a_slow_twin() -> None:
    anchors = [(20, 60), (20, 64), (150, 72), (1500, 10)]
    times, pitches = torch.tensor([[*[a[0] for a in anchors], NO_TIME]]), [a[1] for a in anchors]
    now = [0, 19, 20, 21, 84, 85, 149, 150, 151, 500, 1499, 1500, 1700]
    state = an.anchor_state(times, torch.tensor([[*pitches, 0]]), torch.tensor([now, [-1] * 13]))
    for n, time in enumerate(now):
        rows, slots = rows_and_slots(anchors, time)
        assert state.rows[0, n].tolist() == rows
        assert state.slots[0, n].tolist() == slots
    assert (state.rows[1] == an.INPUT_ROWS).all()
    assert (state.slots[1] == an.OUTPUT_ROWS).all()


def test_a_window_says_its_anchors_itself() -> None:
    term = an.Anchors(CONFIG)
    length = TWO_ROWS.shape[1]
    state = term.read(Reading(TWO_ROWS, torch.arange(length), length, length), None)
    end, time = GAPPED.index(END), 0
    assert (state.rows[0, :end] == an.INPUT_ROWS).all()
    for n in range(end, length):
        time += GAPPED[n] - SHIFT if SHIFT < GAPPED[n] < 356 else 0
        rows, slots = rows_and_slots([(20, 60), (20, 64), (150, 72)], time)
        assert (state.rows[0, n].tolist(), state.slots[0, n].tolist()) == (rows, slots)


def random_model(config: Any = CONFIG) -> Any:
    torch.manual_seed(0)
    kind = AccompanimentTransformer if isinstance(config, AccompanimentConfig) else MusicTransformer
    model = kind(config)
    for parameter in model.anchors.parameters():
        torch.nn.init.normal_(parameter)
    return model.double().eval()


ACCOMPANIMENT = AccompanimentConfig(
    n_layers=2, d_model=12, n_heads=3, d_ff=20, n_encoder_layers=1, d_encoder=12, d_cross=12,
    anchors=True,
)  # fmt: skip
MELODY = torch.tensor([[60 + 258 * 7, 188, 256, 62, 62 + 258 * 9, 257]])


@pytest.mark.parametrize("config", [CONFIG, ACCOMPANIMENT], ids=["gap", "melody"])
@pytest.mark.parametrize("parts", [[5, 1, 7, 5], [1] * 18], ids=["parts", "singly"])
def test_cached_equals_full(config: Any, parts: list[int]) -> None:
    model = random_model(config)
    given = {"source": MELODY} if config is ACCOMPANIMENT else {}
    full, cache = model(TWO_ROWS, **given), model.new_cache(2)
    for _ in range(2):  # the second time after clear
        pieces = [
            model(part, cache=cache, **(given if n == 0 else {}))
            for n, part in enumerate(TWO_ROWS.split(parts, 1))
        ]
        torch.testing.assert_close(torch.cat(pieces, 1), full, rtol=0, atol=1e-9)
        cache.clear()


def test_the_onsets_of_a_melody_are_anchors_to_ten_milliseconds() -> None:
    model = random_model(ACCOMPANIMENT)
    cache = model.new_cache(1)
    model.encode(MELODY, cache)
    assert "melody" in cache.kept
    times, pitches = (each[0, :3].tolist() for each in cache.kept["melody"].anchors)
    assert (times, pitches) == ([7, 30, 49], [60, 62, 62])
    coarse = model.new_cache(1)
    model.encode(MELODY % 258, coarse)  # the same steps for the encoder
    assert "melody" in coarse.kept
    assert torch.equal(cache.kept["melody"].layers[1][0], coarse.kept["melody"].layers[1][0])


@pytest.mark.parametrize("config", [CONFIG, ACCOMPANIMENT], ids=["gap", "melody"])
def test_terms_that_are_zero_change_nothing_and_learn(config: Any) -> None:
    torch.manual_seed(0)
    model = type(random_model(config))(config).eval()
    plain = type(model)(type(config)(**{**config.to_dict(), "anchors": False})).eval()
    unexpected = plain.load_state_dict(model.state_dict(), strict=False).unexpected_keys
    assert all(name.startswith("anchors.") for name in unexpected)
    given = {"source": MELODY} if config is ACCOMPANIMENT else {}
    logits = model(TWO_ROWS, **given)
    assert torch.equal(logits, plain(TWO_ROWS, **given))
    logits[:, -9:, 65].sum().backward()
    assert model.anchors.output_table_bias.grad.abs().max() > 0


def test_music_that_is_told_nothing_has_no_anchors() -> None:
    with_terms = random_model()
    plain = MusicTransformer(ModelConfig(**{**CONFIG.to_dict(), "anchors": False})).double()
    plain.load_state_dict(with_terms.state_dict(), strict=False)
    ids = torch.tensor([[389, *GAPPED[8:]]])
    torch.testing.assert_close(with_terms(ids), plain.eval()(ids), rtol=0, atol=0)


def test_pedal_events_are_refused() -> None:
    with pytest.raises(ConfigError, match="anchors with vocab_size=393: they are for the 391 ids"):
        ModelConfig(vocab_size=393, anchors=True)
