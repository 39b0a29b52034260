"""How positions are told, to play with: the formulas of `ops/positions.py` on numpy arrays.

Arrays are float64, rows are positions. An offset is ``rel`` = key position minus query position, as
in T5's code: negative for the past. (Elsewhere in the package a *distance* is query minus key.)

    p = music_transformer.positions.sinusoidal_pe(100, 64)
    p @ p.T                       # similarity depends on the offset alone; see docs/positions.md
"""

import math

import numpy as np
import numpy.typing as npt
import torch

from music_transformer.errors import ShapeError
from music_transformer.ops.positions import rotary_table, rotate, t5_buckets

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


def wavelengths(d: int, base: float = 10000.0) -> FloatArray:
    """Positions in a full turn of each pair of columns: 2 pi base^(2i/d), shape (d/2,)."""
    _require_even(d)
    return 2 * math.pi * base ** (np.arange(0, d, 2, dtype=np.float64) / d)


def sinusoidal_pe(length: int, d: int, base: float = 10000.0) -> FloatArray:
    """Sinusoids (length, d) of Vaswani et al. 2017: sine in even columns, cosine in odd ones."""
    _require_even(d)
    cosine, sine = rotary_table(length, d, base=base)
    return np.stack([sine, cosine], axis=-1).reshape(length, d)


def shift_matrix(k: int, d: int, base: float = 10000.0) -> FloatArray:
    """The rotation M_k (d, d) with ``M_k @ p_t == p_(t+k)`` for every row of `sinusoidal_pe`."""
    angle = torch.from_numpy(2 * math.pi * k / wavelengths(d, base))  # (d/2,)
    table = torch.stack([angle.cos(), angle.sin()])[:, None]  # (2, 1, d/2)
    return np.asarray(rotate(torch.eye(d, dtype=torch.float64)[None, None], table)[0, 0])


def relative_head_W(  # noqa: N802 - W is the field's name for this matrix
    k: int, d: int, c: float = 8.0, base: float = 10000.0
) -> FloatArray:
    """W = c M_k (d, d): ``p_m @ W @ p_n`` is highest, c d/2, for the key n = m - k."""
    return c * shift_matrix(k, d, base)


def t5_bucket(
    rel: npt.ArrayLike, bidirectional: bool = True, num_buckets: int = 32, max_distance: int = 128
) -> IntArray:
    """T5's bucket of each offset, int64 in the shape of ``rel``; see `ops.positions.t5_buckets`.

    Bidirectional: half of the buckets for the past and the present, half for later keys. Causal:
    all for the past; later keys fall in bucket 0.
    """
    offset = np.asarray(rel, dtype=np.int64)
    later = num_buckets // 2 if bidirectional else 0
    distance = torch.as_tensor(np.abs(offset) if bidirectional else -offset)
    buckets = t5_buckets(distance, buckets=num_buckets - later, max_distance=max_distance)
    return np.asarray(buckets.numpy() + later * (offset > 0), dtype=np.int64)


def relative_bias_attention(
    Q: npt.ArrayLike,  # noqa: N803 - the paper's names
    K: npt.ArrayLike,  # noqa: N803
    V: npt.ArrayLike,  # noqa: N803
    bias_table: npt.ArrayLike,
) -> FloatArray:
    """Unmasked attention with a number for each offset: softmax(Q K^T / sqrt(d) + b[rel]) V.

    ``Q`` (..., L, d), ``K`` (..., S, d) and ``V`` (..., S, d_v) give (..., L, d_v). ``bias_table``
    is (n,), or (H, n) where the dimension before L counts heads. n odd, 2 R + 1: one number for
    each offset -R..R, those beyond clipped. n even: one for each ``t5_bucket(rel, num_buckets=n)``.

    Source: Raffel et al. 2020, section 2.1 (there without the division by sqrt(d)).

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
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    return np.asarray(weights / weights.sum(-1, keepdims=True) @ value)


def _require_even(d: int) -> None:
    if d < 2 or d % 2:
        raise ShapeError(f"d={d}: sinusoids come in pairs of columns; choose an even number.")
