"""Loss over real targets only."""

import math

import torch

from music_transformer.training.loss import count_targets, summed_cross_entropy

PAD = 5


def test_equal_logits_cost_the_logarithm_of_the_vocabulary_for_each_real_target() -> None:
    targets = torch.tensor([[0, 1, PAD], [PAD, 4, PAD]])
    logits = torch.zeros(2, 3, 7)
    assert count_targets(targets, PAD) == 3
    loss = summed_cross_entropy(logits, targets, pad=PAD)
    torch.testing.assert_close(loss, torch.tensor(3 * math.log(7)))


def test_a_padded_target_has_no_gradient() -> None:
    logits = torch.randn(2, 3, 7, requires_grad=True)
    targets = torch.tensor([[0, 1, PAD], [PAD, 4, PAD]])
    summed_cross_entropy(logits, targets, pad=PAD).backward()
    assert logits.grad is not None
    real = targets != PAD
    assert torch.count_nonzero(logits.grad[~real]) == 0
    assert bool((logits.grad[real] != 0).all())


def test_nothing_but_padding_costs_nothing() -> None:
    targets = torch.full((2, 3), PAD)
    loss = summed_cross_entropy(torch.randn(2, 3, 7), targets, pad=PAD)
    assert float(loss) == 0.0
