"""Relative attention in a fused kernel for CUDA, trusted only after it agreed with the skew.

The forward pass is one Triton kernel, the backward pass that of `ops/blockwise.py`. On a CPU the
kernel runs in Triton's interpreter only (``TRITON_INTERPRET=1``): for tests.
"""

import functools
import importlib
import importlib.util
import logging
import math
import os
from typing import Any

import torch
from torch import Tensor

from music_transformer.errors import ConfigError
from music_transformer.ops.blockwise import Blockwise, Places, farthest_first
from music_transformer.ops.skew import skew_attention

TILE = 32  # queries, and keys, of a tile; two bands of embeddings must fit in shared memory too
_log = logging.getLogger(__name__)


def fused_attention(
    query: Tensor, key: Tensor, value: Tensor, tables: Tensor, *, first: int, block: int | None
) -> Tensor:
    """Causal relative attention with one table; memory O(S D), time O(L S D).

    Arguments as in `ops.relative.relative_attention`; `ConfigError` unless `fused_works`.
    """
    device = query.device.type
    if not fused_works(device, query.shape[3], query.dtype):
        raise ConfigError(
            f"the fused attention kernel does not work on {device} here; it needs Triton and a "
            "CUDA device; use implementation auto."
        )
    return _fused(query, key, value, tables, block=block)


def _fused(
    query: Tensor, key: Tensor, value: Tensor, tables: Tensor, *, block: int | None = None
) -> Tensor:
    widest = key.shape[2] if block is None else min(key.shape[2], 2 * block)
    table = farthest_first(tables, widest)  # (1, H or 1, widest + 1, D)
    out: Tensor = _Fused.apply(query, key, value, table, (block, 0))  # type: ignore[no-untyped-call]
    return out


@functools.cache
def fused_works(device: str, d_head: int, dtype: torch.dtype) -> bool:
    """Whether the kernel runs on this device and agrees with the skew; asked once, then kept."""
    interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    if importlib.util.find_spec("triton") is None or (device == "cpu" and not interpreted):
        return False
    generator = torch.Generator().manual_seed(0)
    shapes = [(1, 2, 67, d_head), (1, 2, 79, d_head), (1, 2, 79, d_head), (1, 2, 71, d_head)]
    inputs = [torch.randn(s, generator=generator).to(device, dtype) for s in shapes]
    tolerance = 1e-4 if dtype in (torch.float32, torch.float64) else 2e-2
    try:
        with torch.no_grad():
            expected = skew_attention(*(x.double() for x in inputs), block=None)
            difference = float((_fused(*inputs).double() - expected).abs().max())
    except Exception as error:  # whatever a compiler or a driver raises means: not here
        _log.warning("the fused attention kernel does not run on %s: %s", device, error)
        return False
    if not difference <= tolerance:
        _log.warning("the fused attention kernel is off by %g on %s; not used", difference, device)
        return False
    return True


class _Fused(Blockwise):
    """The kernel forward, that of `Blockwise` backward: both save the same tensors."""

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, table: Tensor, places: Places
    ) -> Tensor:
        """(B, H, L, D); arguments as in `Blockwise.forward`."""
        assert table.shape[0] == 1  # the kernel knows one table
        batch, heads, queries, d_head = query.shape
        keys, maps = key.shape[2], batch * heads
        q = (query / math.sqrt(d_head)).reshape(maps, queries, d_head).contiguous()
        k = key.reshape(maps, keys, d_head).contiguous()
        v = value.reshape(maps, keys, d_head).contiguous()
        by_distance = table[0, :, :-1].flip(1).contiguous()  # (H or 1, widest, D)
        out = torch.empty_like(q)
        log_sum = torch.empty(maps, queries, 1, dtype=torch.float32, device=q.device)
        module: Any = importlib.import_module("music_transformer.ops.triton_kernel")
        module.relative_attention_kernel[(-(-queries // TILE), maps)](
            q,
            k,
            v,
            by_distance,
            out,
            log_sum,
            queries,
            keys,
            by_distance.shape[1],
            heads,
            by_distance.shape[0],
            places[0] or 0,  # the window
            D=d_head,
            BD=max(16, 1 << (d_head - 1).bit_length()),
            BM=TILE,
        )
        log_sum = log_sum.to(torch.promote_types(q.dtype, torch.float32))
        ctx.save_for_backward(q, k, v, table, out, log_sum)
        ctx.shape, ctx.places = (batch, heads), places
        return out.view(batch, heads, queries, d_head)
