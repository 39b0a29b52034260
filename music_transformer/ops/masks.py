"""Which key a query may attend to. Masks are bool, True = may attend.

Queries are the last L of S positions: query i stands at position S - L + i, so one function serves
the full pass (L = S) and cached decoding (L < S).
"""

import torch
from torch import Tensor


def causal_mask(
    queries: int, keys: int, *, block: int | None = None, device: torch.device | None = None
) -> Tensor:
    """Mask of causal attention, global or local.

    Global: every key up to the query itself. Local (``block`` = N): of those, the keys of the
    query's own block of N positions and of the whole block before it, that is distances 0..2N-1.

    Source: Huang et al. 2018, "Relative local attention".

    Args:
        queries: L, the number of queries, the last of the S positions.
        keys: S.
        block: N, or None for global attention.
        device: where the mask is made.

    Returns:
        (L, S) bool.
    """
    key_position = torch.arange(keys, device=device)  # (S,)
    query_position = key_position[keys - queries :, None]  # (L, 1)
    mask = key_position <= query_position  # (L, S)
    if block is not None:
        mask = mask & (key_position // block >= query_position // block - 1)  # (L, S)
    return mask
