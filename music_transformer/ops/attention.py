"""One door to causal attention: picks the implementation of the relative operator.

All implementations compute the same function of `ops/reference.py`:

| name | embeddings | logits | for |
| --- | --- | --- | --- |
| reference | O(L S D) | O(L S) | the definition, tests |
| skew | O(S D) | O(L S) | short inputs, attention dropout, one query at a time |
| blockwise | O(S D) | O(S) at a time | everything else |
| fused | O(S D) | in registers | CUDA, where the kernel runs and agrees with skew |
"""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from music_transformer.errors import ConfigError
from music_transformer.ops.blockwise import blockwise_attention
from music_transformer.ops.fused import fused_attention, fused_works
from music_transformer.ops.masks import causal_mask
from music_transformer.ops.reference import reference_attention
from music_transformer.ops.relational import Relational, pitch_pairs
from music_transformer.ops.skew import skew_attention

IMPLEMENTATIONS = ("auto", "reference", "skew", "blockwise", "fused")
# Up to so many logits a map, building blocks costs more than it saves: (reading, training).
# CPU: measured, skew and blockwise cross between 128 x 128 and 256 x 256, and near 32 x 1024.
# Elsewhere each small block is a handful of kernel launches, so blocks only pay where the logits
# themselves become the burden; reasoned, not measured.
FEW_LOGITS = {"cpu": (1 << 15, 1 << 15)}
FEW_LOGITS_ELSEWHERE = (1 << 22, 1 << 20)


def choose_implementation(
    queries: int,
    keys: int,
    *,
    dropout: float = 0.0,
    device: str = "cpu",
    gradients: bool = True,
) -> str:
    """What ``auto`` stands for at this size: ``skew`` or ``blockwise``.

    On CUDA ``fused`` goes before both where it works and there is no dropout.

    Args:
        queries: L.
        keys: S.
        dropout: on attention weights.
        device: type of the device, as "cpu" or "cuda".
        gradients: whether a backward pass will follow, for which skew keeps its maps.
    """
    few = FEW_LOGITS.get(device, FEW_LOGITS_ELSEWHERE)[int(gradients)]
    if dropout > 0.0 or queries == 1 or queries * keys <= few:
        return "skew"
    return "blockwise"


def relative_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    rel_embedding: Tensor,
    *,
    relational: Relational | None = None,
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
        relational: relative time and pitch (`ops/relational.py`), for all but ``fused``. Sequences
            whose first queries are of different voices are computed a voice at a time.
        block: N for local attention in blocks, None for global.
        dropout: on attention weights; ``reference`` and ``skew`` only.
        implementation: one of `IMPLEMENTATIONS`.

    Returns:
        (B, H, L, D), in the dtype of ``value``. On a CPU half-precision inputs are computed in
        float32.

    Raises:
        ConfigError: unknown implementation, one that does not work here, dropout asked of
            ``blockwise`` or ``fused``, or ``relational`` of ``fused``.
    """
    if relational is not None and isinstance(relational.first_voice, tuple):
        return _voice_by_voice(
            (query, key, value),
            rel_embedding,
            relational,
            block=block,
            dropout=dropout,
            implementation=implementation,
        )
    device, d_head, dtype = query.device.type, query.shape[3], value.dtype
    if implementation == "auto":
        inputs = (query, key, value, rel_embedding)
        implementation = choose_implementation(
            query.shape[2],
            key.shape[2],
            dropout=dropout,
            device=device,
            gradients=torch.is_grad_enabled() and any(x.requires_grad for x in inputs),
        )
        fusible = device == "cuda" and dropout == 0.0 and query.shape[2] > 1
        fusible = fusible and relational is None
        if fusible and fused_works(device, d_head, dtype):
            implementation = "fused"
    with torch.autocast(device, enabled=False):
        if device == "cpu" and dtype in (torch.bfloat16, torch.float16):
            query, key, value = query.float(), key.float(), value.float()
        table = rel_embedding.to(query.dtype)
        further = _prepared(relational, query, by_product=implementation == "blockwise")
        inputs = (query, key, value, table)
        if implementation == "reference":
            out = reference_attention(*inputs, relational=further, block=block, dropout=dropout)
        elif implementation == "skew":
            out = skew_attention(*inputs, relational=further, block=block, dropout=dropout)
        elif implementation == "blockwise" and dropout == 0.0:
            out = blockwise_attention(*inputs, relational=further, block=block)
        elif implementation == "fused" and further is not None:
            raise ConfigError(
                "relative time and pitch with fused attention, which has no such terms; use "
                "implementation auto."
            )
        elif implementation in ("blockwise", "fused") and dropout > 0.0:
            raise ConfigError(
                f"attention dropout {dropout} with {implementation} attention, which never holds "
                "the weights; use implementation skew, or dropout 0."
            )
        elif implementation == "fused" and fused_works(device, d_head, query.dtype):
            out = fused_attention(query, key, value, table, block=block)
        elif implementation == "fused":
            raise ConfigError(
                f"the fused attention kernel does not work on {device} here; it needs Triton and a "
                "CUDA device; use implementation auto."
            )
        else:
            raise ConfigError(
                f"attention implementation {implementation!r}; choose one of "
                f"{', '.join(IMPLEMENTATIONS)}."
            )
    return out.to(dtype)


def _prepared(
    relational: Relational | None, query: Tensor, *, by_product: bool
) -> Relational | None:
    """The terms in the dtype of the query; ``by_product``: with key columns."""
    if relational is None:
        return None
    dtype, pitch = query.dtype, relational.pitch
    if pitch is not None and pitch.key_columns is not None:
        pitch = pitch._replace(key_columns=pitch.key_columns.to(dtype))
    elif pitch is not None and by_product:
        pitch = pitch_pairs(pitch.pitches, query.shape[2], dtype=dtype, by_key=False)
    time, interval = relational.time_embedding, relational.pitch_embedding
    return relational._replace(
        time_embedding=None if time is None else time.to(dtype),
        pitch_embedding=None if interval is None else interval.to(dtype),
        pitch=pitch,
    )


def _voice_by_voice(
    sequences: tuple[Tensor, Tensor, Tensor],
    rel_embedding: Tensor,
    relational: Relational,
    *,
    block: int | None,
    dropout: float,
    implementation: str,
) -> Tensor:
    """`relative_attention` for the sequences of each first voice, put together again."""
    first_voice = relational.first_voice
    assert isinstance(first_voice, tuple)
    found = sorted(set(first_voice))
    parts, order = [], []
    for voice in found:
        rows = [row for row, other in enumerate(first_voice) if other == voice]
        index = torch.tensor(rows, device=sequences[0].device)
        mine = relational._replace(first_voice=voice)
        if relational.pitch is not None and len(found) > 1:
            mine = mine._replace(pitch=relational.pitch.of_sequences(index))
        query, key, value = (x if len(found) == 1 else x[index] for x in sequences)
        parts.append(
            relative_attention(
                query,
                key,
                value,
                rel_embedding,
                relational=mine,
                block=block,
                dropout=dropout,
                implementation=implementation,
            )
        )
        order += rows
    if len(found) == 1:
        return parts[0]
    back = torch.tensor(order, device=sequences[0].device).argsort()
    return torch.cat(parts)[back]  # (B, H, L, D)


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
