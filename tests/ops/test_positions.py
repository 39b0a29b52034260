"""Sinusoids, checkable by hand."""

import torch

from music_transformer.ops.positions import sinusoidal_table


def test_positions_1_and_2_at_four_columns_are_the_textbook_values() -> None:
    table = sinusoidal_table(3, 4)
    expected = torch.tensor([[0.841, 0.540, 0.010, 1.000], [0.909, -0.416, 0.020, 1.000]])
    torch.testing.assert_close(table[1:], expected, atol=5e-4, rtol=0)


def test_an_odd_width_has_one_sine_more_than_cosines() -> None:
    assert sinusoidal_table(5, 7).shape == (5, 7)


def test_a_base_changes_the_slow_columns_only() -> None:
    a, b = sinusoidal_table(7, 4), sinusoidal_table(7, 4, base=100.0)
    assert torch.equal(a[:, :2], b[:, :2])
    assert not torch.allclose(a[1:, 2], b[1:, 2])
