"""How positions are told, as small numpy functions to read and to play with.

The models use `ops/positions.py`; these are the same formulas on plain arrays, with no model round
them, and the tests hold the two together. Arrays are float64. Rows are positions. An offset is
``rel`` = key position minus query position, as in T5's code: negative for the past. (Elsewhere in
the package a *distance* is query minus key.)

    import music_transformer
    p = music_transformer.positions.sinusoidal_pe(100, 64)
    p @ p.T                       # similarity depends on the offset alone

`docs/positions.md` shows the pictures.
"""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from music_transformer.errors import ShapeError

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


def wavelengths(d: int, base: float = 10000.0) -> FloatArray:
    """Positions in a full turn of each pair of columns: 2 pi base^(2i/d), shape (d/2,).

    The longest at d = 512 is 60,611.
    """
    _require_even(d)
    return 2 * math.pi * base ** (np.arange(0, d, 2, dtype=np.float64) / d)


def sinusoidal_pe(length: int, d: int, base: float = 10000.0) -> FloatArray:
    """Sinusoids of positions 0..length-1: sine in even columns, cosine in odd ones.

    A row is d/2 clock hands, each slower than the one before: column pair i turns once in
    ``2 pi base^(2i/d)`` positions. Every row has length sqrt(d/2).

    Source: Vaswani et al. 2017, "Attention Is All You Need", section 3.5.

    Returns:
        (length, d).

    Raises:
        ShapeError: d is odd.
    """
    angle = 2 * math.pi * np.arange(length, dtype=np.float64)[:, None] / wavelengths(d, base)
    return np.stack([np.sin(angle), np.cos(angle)], axis=-1).reshape(length, d)


def shift_matrix(k: int, d: int, base: float = 10000.0) -> FloatArray:
    """The matrix M_k with ``M_k @ p_t == p_(t+k)`` for every t: moving by k is a rotation.

    ``p_t`` is a row of `sinusoidal_pe`, taken as a column. Each pair of columns is turned by k
    steps of its own clock, so M_k is orthogonal, ``M_j @ M_k == M_(j+k)``, and ``p_t . p_(t+k)``
    cannot depend on t.

    Returns:
        (d, d).
    """
    angle = 2 * math.pi * k / wavelengths(d, base)  # (d/2,)
    matrix = np.zeros((d, d))
    even = np.arange(0, d, 2)
    matrix[even, even] = matrix[even + 1, even + 1] = np.cos(angle)
    matrix[even, even + 1] = np.sin(angle)
    matrix[even + 1, even] = -np.sin(angle)
    return matrix


def relative_head_W(  # noqa: N802 - W is the field's name for this matrix
    k: int, d: int, c: float = 8.0, base: float = 10000.0
) -> FloatArray:
    """W = c M_k: a head that looks k positions back, from sinusoids alone.

    The score of query position m for key position n, ``p_m @ W @ p_n = c p_m . p_(n+k)``, is
    highest at n = m - k, where it is c d/2. This is what a product of W_Q and W_K would have to
    learn; relative attention is given it.

    Returns:
        (d, d).
    """
    return c * shift_matrix(k, d, base)


def t5_bucket(
    rel: npt.ArrayLike, bidirectional: bool = True, num_buckets: int = 32, max_distance: int = 128
) -> IntArray:
    """T5's bucket of each offset: near ones exact, far ones on a logarithmic scale.

    Bidirectional: half of the buckets for the past and the present, half for later keys. Causal:
    all for the past; later keys fall in bucket 0.

    Source: Raffel et al. 2020, "Exploring the Limits of Transfer Learning", section 2.1.

    Args:
        rel: key position minus query position, integers of any shape.
        bidirectional: whether later keys have buckets of their own.
        num_buckets: all buckets.
        max_distance: from here on, at the latest, offsets share the last bucket.

    Returns:
        int64 in 0..num_buckets-1, shape of ``rel``.
    """
    offset = np.asarray(rel, dtype=np.int64)
    first = np.zeros_like(offset)
    if bidirectional:
        num_buckets //= 2
        first = np.where(offset > 0, num_buckets, 0)
    distance = np.abs(offset) if bidirectional else np.maximum(-offset, 0)
    exact = num_buckets // 2
    ratio = np.maximum(distance, exact) / exact
    # 1e-9: where the quotient of logarithms is a whole number it must not round to the one below.
    steps = np.log(ratio) / math.log(max_distance / exact) * (num_buckets - exact) + 1e-9
    far = np.minimum(exact + steps.astype(np.int64), num_buckets - 1)
    return np.asarray(first + np.where(distance < exact, distance, far), dtype=np.int64)


def relative_bias_attention(
    Q: npt.ArrayLike,  # noqa: N803 - the paper's names
    K: npt.ArrayLike,  # noqa: N803
    V: npt.ArrayLike,  # noqa: N803
    bias_table: npt.ArrayLike,
) -> FloatArray:
    """Unmasked attention with a number for each offset: softmax(Q K^T / sqrt(d) + b[rel]) V.

    With a table of zeros it is attention without positions, which is permutation equivariant.

    Source: Raffel et al. 2020, section 2.1 (there without the division by sqrt(d)).

    Args:
        Q: (..., L, d).
        K: (..., S, d).
        V: (..., S, d_v).
        bias_table: (n,), or (H, n) where the dimension before L counts heads. n odd, 2 R + 1: one
            number for each offset -R..R, those beyond clipped (2 L - 1 numbers tell all offsets
            apart). n even: one number for each bucket of ``t5_bucket(rel, num_buckets=n)``.

    Returns:
        (..., L, d_v).

    Raises:
        ShapeError: widths or numbers of keys that do not fit.
    """
    query, key, value = (np.asarray(x, dtype=np.float64) for x in (Q, K, V))
    table = np.asarray(bias_table, dtype=np.float64)
    if query.shape[-1] != key.shape[-1] or key.shape[-2] != value.shape[-2]:
        raise ShapeError(
            f"Q {query.shape}, K {key.shape}, V {value.shape}: expected (L, d), (S, d), (S, d_v)."
        )
    rel = np.arange(key.shape[-2])[None, :] - np.arange(query.shape[-2])[:, None]  # (L, S)
    n = table.shape[-1]
    row = np.clip(rel, -(n // 2), n // 2) + n // 2 if n % 2 else t5_bucket(rel, num_buckets=n)
    logits = query @ np.swapaxes(key, -1, -2) / math.sqrt(query.shape[-1]) + table[..., row]
    return np.asarray(_softmax(logits) @ value)


def _softmax(logits: FloatArray) -> FloatArray:
    weights: Any = np.exp(logits - logits.max(-1, keepdims=True))
    return np.asarray(weights / weights.sum(-1, keepdims=True))


def _require_even(d: int) -> None:
    if d < 2 or d % 2:
        raise ShapeError(f"d={d}: sinusoids come in pairs of columns; choose an even number.")
