"""The performance state against loops that say the same, one position at a time."""

import math
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from music_transformer.checkpoint import save_checkpoint
from music_transformer.datasets.prepared import write_prepared
from music_transformer.errors import ConfigError
from music_transformer.evaluation.nll import evaluate_nll
from music_transformer.model import AccompanimentConfig, ModelConfig, MusicTransformer
from music_transformer.model import performance_state as ps
from music_transformer.model.seq2seq import AccompanimentTransformer
from music_transformer.model.terms import without_mask
from music_transformer.notes import NoteSequence
from music_transformer.representations import PerformanceTokenizer
from music_transformer.representations.performance import vocabulary
from music_transformer.training.config import TrainingConfig
from music_transformer.training.loop import Trainer
from music_transformer.training.optimizers import build_optimizers
from music_transformer.training.plan import new_plan

CONFIG = ModelConfig(
    n_layers=2, d_model=12, n_heads=3, d_ff=20, dropout=0.0, context=32, performance_state=True
)


def facts(ids: list[int]) -> dict[str, Any]:
    """What the ids say, found by going through all of them."""
    kind = [sum(i >= first for first in (128, 256, 356, 388)) for i in ids]
    begin = max((n for n in range(len(ids)) if kind[n] == 4), default=-1)
    known = begin >= 0 and ids[begin] == 389
    time, velocity, last, rank = 0, 32, -1, -1
    onset: dict[int, int] = {}
    sounding: set[int] = set()
    seen: set[int] = set()
    clusters: list[int] = []
    last_onset: int | None = None
    for n in range(begin + 1, len(ids)):
        event = ids[n]
        if kind[n] == 0:
            if last_onset is None or time - last_onset > 4:
                clusters.append(time)
            last_onset, last, onset[event], rank = time, event, time, 128 + event
            sounding.add(event)
            seen.add(event)
        elif kind[n] == 1:
            sounding.discard(event - 128)
            seen.add(event - 128)
            rank = event - 128
        elif kind[n] == 2:
            time, rank = time + event - 255, -1
        elif kind[n] == 3:
            velocity = event - 356
    intervals = [0, 0, *(b - a for a, b in pairwise(clusters))]
    starts = [p for p in range(128) if p not in sounding and 128 + p > rank]
    allowed = set(starts)
    if not (kind[-1] == 3 and starts):
        for p in range(128):
            if p > rank and (p in sounding or (p not in seen and not known)):
                allowed.add(128 + p)
        if kind[-1] != 2 or ids[-1] == 355:
            allowed |= set(range(256, 356))
        if starts:
            allowed |= set(range(356, 388)) - {356 + velocity}
        allowed.add(390)
    return {
        "since": [time - onset[p] if p in onset else None for p in range(128)],
        "sounding": sounding,
        "unknown": set() if known else set(range(128)) - seen,
        "last": last,
        "velocity": velocity,
        "elapsed": time - clusters[-1] if clusters else 0,
        "interval": intervals[-1],
        "earlier": intervals[-2],
        "allowed": allowed,
    }


def laid_out(ids: list[int]) -> tuple[list[float], list[int], list[bool]]:
    """The fields of `State` for the last position, by the table of quantities."""
    fact = facts(ids)
    since, sounding = fact["since"], fact["sounding"]
    ages = {p: since[p] for p in sounding}
    columns = [float(p in sounding) for p in range(128)]
    columns += [math.log(1 + ages[p]) / 5 if p in sounding else 0.0 for p in range(128)]
    columns += [float(p in fact["unknown"]) for p in range(128)]
    fast, slow = (
        [0.0 if s is None else math.exp(-s / decay) for s in since] for decay in (50, 500)
    )
    columns += fast + slow
    columns += [sum(fast[c::12]) / 2 for c in range(12)] + [sum(slow[c::12]) / 4 for c in range(12)]

    def bucket(x: int, most: int, factor: int) -> int:
        return min(most, round(math.log2(1 + x) * factor))

    rows = [fact["velocity"], 33 + min(31, len(sounding))]
    for n, name in enumerate(("elapsed", "interval", "earlier")):
        rows.append(65 + 40 * n + bucket(fact[name], 39, 4))
    columns += [float(n in rows) for n in range(185)]

    edges = sorted({round(1500 ** (n / 22)) for n in range(23)})
    nothing = 74 + 26 + len(edges) + 1 + 50 + 64
    slots = [73 if fact["last"] < 0 else max(0, min(72, p - fact["last"] + 36)) for p in range(128)]
    for p in range(128):
        slots.append(100 + sum(e <= ages[p] for e in edges) if p in sounding else nothing)
    first = 100 + len(edges) + 1
    for k in range(1, 101):
        ratio = 49
        if fact["interval"]:
            ratio = round(8 * math.log2((fact["elapsed"] + k) / fact["interval"]))
            ratio = max(-24, min(24, ratio)) + 24
        slots.append(first + ratio)
    for b in range(32):
        slots.append(first + 50 + (63 if fact["velocity"] == 32 else b - fact["velocity"] + 31))
    slots += [74 + (25 if s is None else bucket(s, 24, 2)) for s in since]
    return columns, slots, [i not in fact["allowed"] for i in range(391)]


def check(ids: list[int]) -> None:
    """One pass over the window, the reader event by event, and the loops agree."""
    state = ps.read_window(torch.tensor([ids]), torch.float64)
    reader = ps.StateReader(1)
    for n in range(1, len(ids) + 1):
        step = reader.read(torch.tensor([ids[:n]]), torch.float64)
        for one, other, slow in zip(state, step, laid_out(ids[:n]), strict=True):
            expected = torch.tensor([slow], dtype=one.dtype)
            torch.testing.assert_close(one[:, n - 1], expected, rtol=1e-12, atol=1e-14)
            torch.testing.assert_close(other[:, 0], expected, rtol=1e-12, atol=1e-14)


def canonical(seed: int, notes: int) -> list[int]:
    """The ids of random notes on a piano, START first."""
    draw = np.random.default_rng(seed)
    start = np.cumsum(draw.integers(0, 30, notes)) / 100
    sequence = NoteSequence(
        pitch=draw.integers(40, 60, notes),
        velocity=draw.integers(1, 128, notes),
        start=start,
        end=start + draw.integers(1, 300, notes) / 100,
    )
    return [vocabulary.START, *PerformanceTokenizer().encode(sequence)]


few_pitches = st.sampled_from([0, 1, 60, 61, 127, 128, 129, 188, 189, 255])
others = st.sampled_from([256, 259, 260, 300, 355, 356, 387, 388, 389, 390])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(few_pitches, others, st.integers(0, 390)), min_size=1, max_size=24))
def test_any_ids_give_what_loops_give(ids: list[int]) -> None:
    check(ids)


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 60))
def test_canonical_ids_give_what_loops_give_and_are_never_forbidden(seed: int, skip: int) -> None:
    ids = canonical(seed, 20)
    window = ids[min(skip, len(ids) - 2) :]
    check(window[:40])
    forbidden = ps.read_window(torch.tensor([window])).forbidden[0]
    assert not forbidden[range(len(window) - 1), window[1:]].any()


def test_ids_are_those_of_the_vocabulary() -> None:
    ours = (ps.NOTE_OFF, ps.TIME_SHIFT, ps.VELOCITY, ps.PAD, ps.START, ps.END, ps.N_IDS)
    names = ("NOTE_OFF", "TIME_SHIFT", "VELOCITY", "PAD", "START", "END", "N_IDS")
    assert ours == tuple(getattr(vocabulary, name) for name in names)


def random_model(config: Any = CONFIG) -> Any:
    """A model whose terms of the state are not zero, in float64."""
    torch.manual_seed(0)
    model = (MusicTransformer if config is CONFIG else AccompanimentTransformer)(config)
    for parameter in model.performance_state.parameters():
        torch.nn.init.normal_(parameter)
    return model.double().eval()


@pytest.mark.parametrize("parts", [[5, 1, 1, 9, 1, 3], [1] * 20], ids=["parts", "singly"])
def test_cached_equals_full(parts: list[int]) -> None:
    model = random_model()
    ids = torch.tensor([canonical(1, 9)[:20], canonical(2, 9)[3:23]])
    full = model(ids)
    cache = model.new_cache(2)
    for _ in range(2):  # the second time after clear
        pieces = [model(part, cache=cache) for part in ids.split(parts, 1)]
        torch.testing.assert_close(torch.cat(pieces, 1), full, rtol=0, atol=1e-9)
        cache.clear()


def test_the_accompanist_has_it_too() -> None:
    config = AccompanimentConfig(
        n_layers=2, d_model=12, n_heads=3, d_ff=20, n_encoder_layers=1, d_encoder=12, d_cross=12
    )
    with_state = AccompanimentConfig(**{**config.to_dict(), "performance_state": True})
    model, source = random_model(with_state), torch.tensor([[60, 61, 62, 257]])
    ids = torch.tensor([canonical(1, 9)[:20]])
    full = model(ids, source=source)
    cache = model.new_cache(1)
    pieces = [
        model(ids[:, n : n + 1], source=source if n == 0 else None, cache=cache) for n in range(20)
    ]
    torch.testing.assert_close(torch.cat(pieces, 1), full, rtol=0, atol=1e-9)
    assert (full < -ps.PENALTY / 2).any()


def test_zero_terms_leave_the_logits_but_for_the_mask() -> None:
    torch.manual_seed(0)
    plain = MusicTransformer(ModelConfig(**{**CONFIG.to_dict(), "performance_state": False}))
    model = MusicTransformer(CONFIG)
    missing = model.load_state_dict(plain.state_dict(), strict=False).missing_keys
    assert all(name.startswith("performance_state.") for name in missing)
    ids = torch.tensor([canonical(3, 9)])
    before, after = plain(ids), model(ids)
    forbidden = ps.read_window(ids).forbidden
    assert torch.equal(after[~forbidden], before[~forbidden])
    assert (after[forbidden] < before[forbidden] - 1000).all()
    torch.testing.assert_close(without_mask(after), before, rtol=0, atol=1e-4)


def test_pedal_events_are_refused() -> None:
    with pytest.raises(ConfigError, match="391 ids of performances without pedal"):
        ModelConfig(vocab_size=393, performance_state=True)


def test_smoothing_over_what_is_forbidden_is_refused() -> None:
    settings, unused = TrainingConfig(label_smoothing=0.1), cast(Any, None)
    with pytest.raises(ConfigError, match=r"label_smoothing=0.1 asks for what performance_state"):
        Trainer(MusicTransformer(CONFIG), unused, settings, unused)


def test_init_gives_a_model_the_state_and_it_is_trained(tmp_path: Path) -> None:
    plain = MusicTransformer(ModelConfig(**{**CONFIG.to_dict(), "performance_state": False}))
    tokenizer = PerformanceTokenizer()
    given = save_checkpoint(tmp_path / "plain", plain, tokenizer, training={})
    pieces = [("piece", canonical(4, 20)[1:])]
    splits = {"train": pieces, "validation": pieces}
    write_prepared(tmp_path / "data", tokenizer=tokenizer, corpus="none", splits=splits)
    settings = ["performance_state=true"]
    plan = new_plan(str(tmp_path / "data"), "piano", settings, init=str(given))
    model, ids = plan.build().eval(), torch.tensor([canonical(3, 9)])
    torch.testing.assert_close(without_mask(model(ids)), plain.eval()(ids), rtol=0, atol=1e-4)
    report, before = (evaluate_nll(m, plan.data, "validation") for m in (model, plain))
    assert before.nll_without_mask is None
    assert report.nll_without_mask == pytest.approx(before.nll, abs=1e-4)
    assert report.nll < before.nll
    model(ids).log_softmax(-1)[:, :-1].gather(-1, ids[:, 1:, None]).sum().backward()
    adamw = build_optimizers(model, plan.training, muon_dtype=torch.float32)["adamw"]
    kept = {id(p) for group in adamw.param_groups for p in group["params"]}
    for parameter in model.performance_state.parameters():
        assert parameter.grad is not None
        assert parameter.grad.abs().max() > 0
        assert id(parameter) in kept
