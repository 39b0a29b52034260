"""The paper's operator: one definition, four implementations, and the choice between them.

All implementations compute the same function of `ops/reference.py`:

| name | embeddings | logits | for |
| --- | --- | --- | --- |
| reference | O(L S D) | O(L S) | the definition, tests |
| skew | O(S D) | O(L S) | short inputs, attention dropout, one query at a time |
| blockwise | O(S D) | O(S) at a time | everything else |
| fused | O(S D) | in registers | CUDA, where the kernel runs and agrees with skew |
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from music_transformer.errors import ConfigError
from music_transformer.lazy import load
from music_transformer.ops.skew import skew_attention


class Implementation(NamedTuple):
    """A way to compute the operator, and what it can do beyond the plain case."""

    attention: Callable[..., Tensor] | str  # or "module:function", loaded when it is chosen
    dropout: bool = False  # it holds the weights, so some can be dropped
    tables: bool = True  # it takes several tables, and queries and keys wider than these


IMPLEMENTATIONS = {
    "reference": Implementation(
        "music_transformer.ops.reference:reference_attention", dropout=True
    ),
    "skew": Implementation(skew_attention, dropout=True),
    "blockwise": Implementation("music_transformer.ops.blockwise:blockwise_attention"),
    "fused": Implementation("music_transformer.ops.fused:fused_attention", tables=False),
}
FUSED_WORKS = "music_transformer.ops.fused:fused_works"
CHOICES = ("auto", *IMPLEMENTATIONS)
# Up to so many logits a map, building blocks costs more than it saves: (reading, training).
# CPU: measured, skew and blockwise cross between 128 x 128 and 256 x 256, and near 32 x 1024.
# Elsewhere each small block is a handful of kernel launches, so blocks only pay where the logits
# themselves become the burden; an estimate that has not been measured.
FEW_LOGITS = {"cpu": (1 << 15, 1 << 15)}
FEW_LOGITS_ELSEWHERE = (1 << 22, 1 << 20)


def choose_implementation(
    queries: int, keys: int, *, dropout: float = 0.0, device: str = "cpu", gradients: bool = True
) -> str:
    """What ``auto`` stands for with L queries and S keys where it is not ``fused``.

    ``gradients`` says whether a backward pass will follow, for which skew keeps its maps.
    """
    few = FEW_LOGITS.get(device, FEW_LOGITS_ELSEWHERE)[int(gradients)]
    if dropout > 0.0 or queries == 1 or queries * keys <= few:
        return "skew"
    return "blockwise"


def relative_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    tables: Tensor,
    *,
    first: int = 0,
    block: int | None = None,
    dropout: float = 0.0,
    implementation: str = "auto",
) -> Tensor:
    """Causal attention with the paper's relative term, softmax((Q K^T + S_rel) / sqrt(D)) V.

    The paper is P = 0 and V = 1. With P > 0 the first D columns of a query meet the tables; with
    V > 1 queries take turns, query i meets table (first + i) mod V.

    Source: Huang et al. 2018, equation 3.

    Args:
        query: (B, H, L, D + P), the last L of the S positions.
        key: (B, H, S, D + P).
        value: (B, H, S, D).
        tables: (V, H or 1, M, D), or (H or 1, M, D) for one; row d belongs to distance d. Beyond
            M - 1 nothing is added.
        first: the table of the first query.
        block: N for local attention in blocks, None for global.
        dropout: on attention weights; ``reference`` and ``skew`` only.
        implementation: one of `CHOICES`.

    Returns:
        (B, H, L, D), in the dtype of ``value``. On a CPU half precision is computed in float32.

    Raises:
        ConfigError: an implementation that is unknown, does not work here, or cannot do this.
    """
    tables = tables if tables.dim() == 4 else tables[None]  # (V, H or 1, M, D)
    paper = tables.shape[0] == 1 and query.shape[3] == tables.shape[3]
    device = query.device.type
    if implementation == "auto":
        inputs = (query, key, value, tables)
        implementation = choose_implementation(
            query.shape[2],
            key.shape[2],
            dropout=dropout,
            device=device,
            gradients=torch.is_grad_enabled() and any(x.requires_grad for x in inputs),
        )
        fusible = device == "cuda" and dropout == 0.0 and query.shape[2] > 1 and paper
        if fusible and load(FUSED_WORKS)(device, value.shape[3], value.dtype):
            implementation = "fused"
    chosen = IMPLEMENTATIONS.get(implementation)
    if chosen is None:
        raise ConfigError(
            f"attention implementation {implementation!r}; choose one of {', '.join(CHOICES)}."
        )
    options = {"dropout": dropout} if chosen.dropout else {}
    if dropout > 0.0 and not options:
        raise ConfigError(
            f"attention dropout {dropout} with {implementation} attention, which never holds "
            "the weights; use implementation skew, or dropout 0."
        )
    if not (paper or chosen.tables):
        raise ConfigError(
            f"several tables, or wider queries, with {implementation} attention, which has no such "
            "terms; use implementation auto."
        )
    with torch.autocast(device, enabled=False):
        query, key, wide = (in_float32(x) for x in (query, key, value))
        tables = tables.to(wide.dtype)
        run = chosen.attention
        run = load(run) if isinstance(run, str) else run
        out: Tensor = run(query, key, wide, tables, first=first, block=block, **options)
    return out.to(value.dtype)


def in_float32(x: Tensor) -> Tensor:
    """``x`` as it is computed with: half precision on a CPU becomes float32."""
    return x.float() if x.is_cpu and x.dtype in (torch.bfloat16, torch.float16) else x
