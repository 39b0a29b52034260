"""The learning rate by step."""

import pytest

from music_transformer.training.config import TrainingConfig
from music_transformer.training.optimizers import cooldown_start, learning_rate, warmup_steps


def test_cosine_rises_linearly_and_ends_at_the_final_fraction() -> None:
    config = TrainingConfig(steps=100, warmup=0.1, learning_rate=1.0, final_fraction=0.02)
    assert [learning_rate(config, step) for step in (0, 4, 9)] == pytest.approx([0.1, 0.5, 1.0])
    assert learning_rate(config, 54) == pytest.approx(0.51)  # half way between 1 and 0.02
    assert learning_rate(config, 99) == pytest.approx(0.02)
    rates = [learning_rate(config, step) for step in range(9, 100)]
    assert rates == sorted(rates, reverse=True)


def test_wsd_stays_on_its_plateau_and_falls_linearly_at_the_end() -> None:
    config = TrainingConfig(
        steps=100, warmup=10, learning_rate=1.0, schedule="wsd", cooldown=0.2, final_fraction=0.0
    )
    assert cooldown_start(config) == 80
    assert {learning_rate(config, step) for step in range(9, 80)} == {1.0}
    assert learning_rate(config, 89) == pytest.approx(0.5)
    assert learning_rate(config, 99) == pytest.approx(0.0)


def test_extending_wsd_changes_no_rate_before_its_old_cooldown() -> None:
    short = TrainingConfig(steps=100, warmup=7, schedule="wsd", cooldown=0.25)
    long = TrainingConfig(steps=300, warmup=7, schedule="wsd", cooldown=0.25)
    for step in range(75):
        assert learning_rate(short, step) == learning_rate(long, step)


def test_warmup_below_one_is_a_fraction_and_else_a_number_of_steps() -> None:
    assert warmup_steps(TrainingConfig(steps=200, warmup=0.05)) == 10
    assert warmup_steps(TrainingConfig(steps=200, warmup=30)) == 30
    assert warmup_steps(TrainingConfig(steps=20, warmup=30)) == 20
    assert warmup_steps(TrainingConfig(steps=20, warmup=0)) == 0


@pytest.mark.parametrize("schedule", ["cosine", "wsd"])
@pytest.mark.parametrize("steps", [1, 2, 3])
def test_a_run_of_few_steps_has_a_rate_for_each(schedule: str, steps: int) -> None:
    config = TrainingConfig.from_dict({"steps": steps, "schedule": schedule})
    for step in range(steps):
        assert 0.0 < learning_rate(config, step) <= config.learning_rate
