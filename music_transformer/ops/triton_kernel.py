# mypy: ignore-errors
# (Triton's language is not Python's: arguments are pointers, annotations are compile-time marks.)
"""Relative attention as one Triton kernel: a tile of logits lives in registers, never in memory.

Importing this file needs Triton. A program handles BM queries of one head and walks over tiles of
BM keys with a streaming softmax. The relative logits of a tile are one more product, with the 2 BM
embeddings of the distances that occur in it, gathered along the rows: the skew, tile by tile.
"""

import triton
import triton.language as tl


@triton.jit
def relative_attention_kernel(
    Q,  # noqa: N803 - (BH, L, D), already divided by sqrt(D)
    K,  # noqa: N803 - (BH, S, D)
    V,  # noqa: N803 - (BH, S, D)
    E,  # noqa: N803 - (H or 1, M, D), by distance
    OUT,  # noqa: N803 - (BH, L, D)
    LOG_SUM,  # noqa: N803 - (BH, L)
    queries,
    keys,
    distances,
    heads,
    tables,
    window,  # N of local attention, 0 for global
    D: tl.constexpr,  # noqa: N803
    BD: tl.constexpr,  # noqa: N803 - the power of two from D up
    BM: tl.constexpr,  # noqa: N803 - queries and keys of a tile
):
    first = tl.program_id(0) * BM
    which = tl.program_id(1)
    offset = keys - queries
    rows = first + tl.arange(0, BM)  # (BM,)
    places = offset + rows  # (BM,) position of each query
    columns = tl.arange(0, BD)  # (BD,)
    inside = columns[None, :] < D  # (1, BD)
    at = (which * queries + rows)[:, None] * D + columns[None, :]  # (BM, BD)
    kept = (rows[:, None] < queries) & inside
    query = tl.load(Q + at, mask=kept, other=0.0)  # (BM, BD)
    table = E + (which % heads % tables) * distances * D

    largest = tl.full((BM,), float("-inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    mixed = tl.zeros((BM, BD), tl.float32)
    start = 0
    if window > 0:
        start = tl.maximum((offset + first) // window - 1, 0) * window
    end = tl.minimum(offset + first + BM, keys)
    band = tl.arange(0, 2 * BM)  # (2 BM,)
    by_distance = tl.arange(0, BM)[:, None] - tl.arange(0, BM)[None, :] + BM - 1  # (BM, BM)
    for j in range(start, end, BM):
        key_places = j + tl.arange(0, BM)  # (BM,)
        key_at = (which * keys + key_places)[:, None] * D + columns[None, :]
        key_kept = (key_places[:, None] < keys) & inside
        key = tl.load(K + key_at, mask=key_kept, other=0.0)  # (BM, BD)
        value = tl.load(V + key_at, mask=key_kept, other=0.0)  # (BM, BD)
        distance = offset + first - j - (BM - 1) + band  # (2 BM,)
        known = (distance >= 0) & (distance < distances)
        rel = tl.load(
            table + distance[:, None] * D + columns[None, :],
            mask=known[:, None] & inside,
            other=0.0,
        )  # (2 BM, BD)
        by_band = tl.dot(query, tl.trans(rel), input_precision="ieee")  # (BM, 2 BM)
        logits = tl.dot(query, tl.trans(key), input_precision="ieee")  # (BM, BM)
        logits += tl.gather(by_band, by_distance, 1)
        seen = (key_places[None, :] <= places[:, None]) & (key_places[None, :] < keys)
        if window > 0:
            seen = seen & (key_places[None, :] // window >= places[:, None] // window - 1)
        logits = tl.where(seen, logits, float("-inf"))
        now = tl.maximum(largest, tl.max(logits, 1))  # (BM,)
        reference = tl.where(now == float("-inf"), 0.0, now)  # a row that has seen nothing yet
        weights = tl.exp(logits - reference[:, None])  # (BM, BM)
        shrink = tl.exp(largest - reference)  # (BM,)
        total = total * shrink + tl.sum(weights, 1)
        mixed = mixed * shrink[:, None]
        mixed += tl.dot(weights.to(value.dtype), value, input_precision="ieee")
        largest = now
    tl.store(OUT + at, mixed / total[:, None], mask=kept)
    tl.store(LOG_SUM + which * queries + rows, largest + tl.log(total), mask=rows < queries)
