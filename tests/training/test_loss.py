"""Loss over real targets only."""

import math

import torch

from music_transformer.training.loop import count_targets, drop_tokens, summed_cross_entropy

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


def test_hidden_ids_are_about_the_share_asked_for_and_never_the_start() -> None:
    torch.manual_seed(0)
    ids = torch.arange(1, 1001).expand(8, -1)  # (8, 1000)
    ids = ids.clone()
    ids[:, 0] = 0
    hidden = drop_tokens(ids, 0.25, hidden=2000, kept=0)
    gone = hidden == 2000
    assert 0.22 < float(gone.float().mean()) < 0.28
    assert not gone[:, 0].any()
    assert torch.equal(hidden[~gone], ids[~gone])


def test_no_share_hides_nothing_and_draws_nothing() -> None:
    ids = torch.arange(10)[None]
    before = torch.get_rng_state()
    assert drop_tokens(ids, 0.0, hidden=99, kept=0) is ids
    assert torch.equal(torch.get_rng_state(), before)
