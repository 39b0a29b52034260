"""One door to causal attention: picks the implementation of the relative operator.

All implementations compute the same function of `ops/reference.py`:

| name | embeddings | logits | for |
| --- | --- | --- | --- |
| reference | O(L S D) | O(L S) | the definition, tests |
| skew | O(S D) | O(L S) | short inputs, attention dropout, one query at a time |
| blockwise | O(S D) | O(S) at a time | everything else |
"""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from music_transformer.errors import ConfigError
from music_transformer.ops.blockwise import blockwise_attention
from music_transformer.ops.masks import causal_mask
from music_transformer.ops.reference import reference_attention
from music_transformer.ops.skew import skew_attention

IMPLEMENTATIONS = ("auto", "reference", "skew", "blockwise")
FEW_LOGITS = 64 * 64  # below this many logits a map, building blocks costs more than it saves


def choose_implementation(queries: int, keys: int, *, dropout: float = 0.0) -> str:
    """What ``auto`` stands for at this size: ``skew`` or ``blockwise``."""
    if dropout > 0.0 or queries == 1 or queries * keys <= FEW_LOGITS:
        return "skew"
    return "blockwise"


def relative_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    rel_embedding: Tensor,
    *,
    block: int | None = None,
    dropout: float = 0.0,
    implementation: str = "auto",
) -> Tensor:
    """Causal attention with the paper's relative term, softmax((Q K^T + S_rel) / sqrt(D)) V.

    Source: Huang et al. 2018, equation 3.

    Args:
        query: (B, H, L, D), the last L of the S positions.
        key: (B, H, S, D).
        value: (B, H, S, D).
        rel_embedding: (H or 1, M, D); row d belongs to distance d. Beyond M - 1 nothing is added.
        block: N for local attention in blocks, None for global.
        dropout: on attention weights; ``reference`` and ``skew`` only.
        implementation: one of `IMPLEMENTATIONS`.

    Returns:
        (B, H, L, D), in the dtype of ``value``. On a CPU half-precision inputs are computed in
        float32.

    Raises:
        ConfigError: unknown implementation, or dropout asked of ``blockwise``.
    """
    if implementation == "auto":
        implementation = choose_implementation(query.shape[2], key.shape[2], dropout=dropout)
    dtype = value.dtype
    with torch.autocast(query.device.type, enabled=False):
        if query.device.type == "cpu" and dtype in (torch.bfloat16, torch.float16):
            query, key, value = query.float(), key.float(), value.float()
        table = rel_embedding.to(query.dtype)
        if implementation == "reference":
            out = reference_attention(query, key, value, table, block=block, dropout=dropout)
        elif implementation == "skew":
            out = skew_attention(query, key, value, table, block=block, dropout=dropout)
        elif implementation == "blockwise" and dropout == 0.0:
            out = blockwise_attention(query, key, value, table, block=block)
        elif implementation == "blockwise":
            raise ConfigError(
                f"attention dropout {dropout} with blockwise attention, which never holds the "
                "weights; use implementation skew, or dropout 0."
            )
        else:
            raise ConfigError(
                f"attention implementation {implementation!r}; choose one of "
                f"{', '.join(IMPLEMENTATIONS)}."
            )
    return out.to(dtype)


def plain_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    causal: bool = True,
    block: int | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """Attention without any positional term (PyTorch's fused kernel).

    Shapes as in `relative_attention`. Causal, it still tells an order: the first query sees one
    key, the second two ("NoPE"). With ``causal`` False every query sees every key, and nothing
    tells one order of the keys from another; ``block`` is for causal attention only.
    """
    queries, keys = query.shape[2], key.shape[2]
    if not causal or (block is None and queries == 1):
        return F.scaled_dot_product_attention(query, key, value, dropout_p=dropout)
    if block is None and queries == keys:
        return F.scaled_dot_product_attention(query, key, value, dropout_p=dropout, is_causal=True)
    mask = causal_mask(queries, keys, block=block, device=query.device)  # (L, S)
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=dropout)


def biased_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor,
    *,
    scale: float | None = None,
    block: int | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """Causal attention with a number added to each logit: softmax(scale Q K^T + bias) V.

    Cost: the bias of all heads, O(H L S) memory, shared by the batch.

    Args:
        query: (B, H, L, D), the last L of the S positions.
        key: (B, H, S, D).
        value: (B, H, S, D).
        bias: (H or 1, L, S), not scaled; see `ops/positions.py`.
        scale: of the products; None is 1 / sqrt(D).
        block: N for local attention in blocks, None for global.
        dropout: on attention weights.

    Returns:
        (B, H, L, D).
    """
    queries, keys = query.shape[2], key.shape[2]
    bias = bias.to(query.dtype)
    if queries > 1 or block is not None:
        mask = causal_mask(queries, keys, block=block, device=query.device)  # (L, S)
        bias = bias.masked_fill(~mask, -math.inf)  # (H or 1, L, S)
    return F.scaled_dot_product_attention(
        query, key, value, attn_mask=bias[None], dropout_p=dropout, scale=scale
    )
