"""Positional signals as plain tensors: sinusoids, T5's buckets, ALiBi's slopes, rotation, TUPE.

Distance is query minus key. A bias is (H, L, S) for the last L of the S positions, added to the
logits after their division by sqrt(D); what a later key gets is arbitrary.
`music_transformer.positions` offers these formulas on numpy arrays, to play with.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional as F


def sinusoidal_table(length: int, d: int, *, base: float = 10000.0) -> Tensor:
    """Sinusoids of positions 0..length-1, (length, d) float32: sine in even columns, cosine in odd.

    ``out[t, 2i] = sin(t / base^(2i/d))``, ``out[t, 2i+1] = cos(t / base^(2i/d))``.

    Source: Vaswani et al. 2017, "Attention Is All You Need", section 3.5.
    """
    column = torch.arange(0, d, 2, dtype=torch.float64)  # (ceil(d/2),)
    angle = torch.arange(length, dtype=torch.float64)[:, None] / base ** (column / d)
    table = torch.empty(length, d, dtype=torch.float64)
    table[:, 0::2] = angle.sin()
    table[:, 1::2] = angle.cos()[:, : d // 2]
    return table.float()  # (length, d)


def rotary_table(length: int, d: int, *, base: float = 10000.0) -> Tensor:
    """Cosines and sines of the angles ``t base^(-2i/d)``, d even: (2, length, d/2) float64.

    Source: Su et al. 2021, "RoFormer: Enhanced Transformer with Rotary Position Embedding".
    """
    column = torch.arange(0, d, 2, dtype=torch.float64)  # (d/2,)
    angle = torch.arange(length, dtype=torch.float64)[:, None] / base ** (column / d)
    return torch.stack([angle.cos(), angle.sin()])  # (2, length, d/2)


def rotate(x: Tensor, table: Tensor) -> Tensor:
    """Each pair of columns (2i, 2i+1) of x (B, H, L, D) turned by the angle of its position.

    ``table`` has the rows of these positions, (2, L, D/2) of `rotary_table`. The product of a query
    and a key that were turned depends on their distance only.

    Source: Su et al. 2021, "RoFormer", equation 34.
    """
    cosine, sine = table.to(x.dtype)  # each (L, D/2)
    even, odd = x[..., 0::2], x[..., 1::2]  # each (B, H, L, D/2)
    turned = [even * cosine - odd * sine, even * sine + odd * cosine]
    return torch.stack(turned, dim=-1).flatten(-2)  # (B, H, L, D)


def t5_buckets(distance: Tensor, *, buckets: int = 32, max_distance: int = 128) -> Tensor:
    """Bucket of each causal distance: half of them exact, half of growing, logarithmic width.

    With 32 buckets to 128: 0-15 exact, then 16-18, 19-20, 21-23 and so on; 113 and more share the
    last. Later keys (distance < 0) fall in bucket 0. Int64 of any shape; ``buckets`` is even.

    Source: Raffel et al. 2020, "Exploring the Limits of Transfer Learning", section 2.1.
    """
    exact = buckets // 2
    distance = distance.clamp(min=0)
    ratio = distance.clamp(min=exact).double() / exact
    # 1e-9: where the quotient of logarithms is a whole number it must not round to the one below.
    steps = ratio.log() / math.log(max_distance / exact) * (buckets - exact) + 1e-9
    far = (exact + steps.long()).clamp(max=buckets - 1)
    return torch.where(distance < exact, distance, far)


def bias_by_distance(by_distance: Tensor, queries: int) -> Tensor:
    """Bias (H, L, S) from one number a distance, (H, S): constant along diagonals, later keys 0.

    ``out[h, i, j] = by_distance[h, (S - L + i) - j]``. No gather: its gradient is a plain sum.
    """
    keys = by_distance.shape[1]
    line = F.pad(by_distance.flip(1), (0, queries - 1))  # (H, S+L-1), distance S-1 down to -(L-1)
    return line.unfold(1, keys, 1).flip(1)  # (H, L, S)


def t5_bias(table: Tensor, queries: int, keys: int, max_distance: int = 128) -> Tensor:
    """T5's learned numbers, (buckets, H) by head and bucket of distance, as a bias (H, L, S)."""
    distance = torch.arange(keys, device=table.device)  # (S,)
    bucket = t5_buckets(distance, buckets=table.shape[0], max_distance=max_distance)  # (S,)
    return bias_by_distance(F.embedding(bucket, table).T, queries)  # (H, L, S)


def alibi_slopes(heads: int) -> Tensor:
    """The slope of each head, (H,) float64: ``2^(-8 h / H)``, h = 1..H, for H a power of two.

    For other H: the slopes of the power of two below, then every other slope of the power above.

    Source: Press et al. 2022, "Train Short, Test Long", section 3 and its code.
    """
    below = 2 ** (heads.bit_length() - 1)
    slopes = [2.0 ** (-8 * h / below) for h in range(1, below + 1)]
    slopes += [2.0 ** (-4 * h / below) for h in range(1, 2 * (heads - below), 2)]
    return torch.tensor(slopes, dtype=torch.float64)


def alibi_bias(slopes: Tensor, queries: int, keys: int) -> Tensor:
    """ALiBi's penalty, minus slope (H,) times distance, as a bias (H, L, S)."""
    distance = torch.arange(keys, device=slopes.device)  # (S,)
    return bias_by_distance(-slopes[:, None] * distance, queries)  # (H, L, S)


def untied_bias(position: Tensor, query_weight: Tensor, key_weight: Tensor, queries: int) -> Tensor:
    """Product of positions with positions, ``(p_i U_Q) (p_j U_K) / sqrt(2 D)``: (H, L, S).

    The content term is divided by ``sqrt(2 D)`` too: both together have the variance of one.
    ``position`` is (S, d_model); ``query_weight`` U_Q and ``key_weight`` U_K are (H, D, d_model).

    Source: Ke et al. 2021, "Rethinking Positional Encoding in Language Pre-training", equation 7.
    """
    keys, d_head = position.shape[0], query_weight.shape[1]
    query = position[keys - queries :] @ query_weight.mT / math.sqrt(2 * d_head)  # (H, L, D)
    if queries < d_head:  # one event at a time: turn the few queries, not every key
        return query @ key_weight @ position.T  # (H, L, S)
    return query @ (position @ key_weight.mT).mT  # (H, L, S)
