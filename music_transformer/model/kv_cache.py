"""Keys and values of what was already read, so that one more event costs one step."""

from typing import Any

import torch
from torch import Tensor

from music_transformer.errors import ShapeError


class KVCache:
    """Preallocated keys and values of every layer, and the ids they are of.

    A forward pass with a cache asks it for room once, then writes layer by layer; `length` moves
    when the pass is done.

    Attributes:
        length: positions held so far.
        capacity: the most it can hold.
        kept: what the terms of `model/terms.py` keep from one call to the next.
    """

    def __init__(
        self,
        *,
        n_layers: int,
        batch: int,
        n_heads: int,
        d_head: int,
        capacity: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        shape = (n_layers, 2, batch, n_heads, capacity, d_head)
        self._store = torch.empty(shape, dtype=dtype, device=device)
        self._ids = torch.empty(batch, capacity, dtype=torch.int64, device=device)
        self.capacity = capacity
        self.length = 0
        self.kept: dict[str, Any] = {}

    @property
    def batch(self) -> int:
        """B, the number of sequences."""
        return self._store.shape[2]

    def require_room(self, ids: Tensor) -> None:
        """Check that ids (B, L) fit.

        Raises:
            ShapeError: another batch size, or more ids than there is room for.
        """
        batch, length = ids.shape
        if batch != self.batch:
            raise ShapeError(f"ids of {batch} sequences for a cache of {self.batch}.")
        if self.length + length > self.capacity:
            raise ShapeError(
                f"{length} ids for a cache that holds {self.length} of {self.capacity}; clear it "
                "and read the last part of the window again."
            )

    def append(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Write keys and values (B, H, L, D) of one layer; all of them so far (B, H, S, D)."""
        end = self.length + key.shape[2]
        self._store[layer, 0, :, :, self.length : end] = key
        self._store[layer, 1, :, :, self.length : end] = value
        return self._store[layer, 0, :, :, :end], self._store[layer, 1, :, :, :end]

    def append_ids(self, ids: Tensor) -> Tensor:
        """Write the ids (B, L) of the new positions; all of them so far (B, S)."""
        end = self.length + ids.shape[1]
        self._ids[:, self.length : end] = ids
        return self._ids[:, :end]

    def advance(self, length: int) -> None:
        """Count ``length`` new positions, after every layer has written them."""
        self.length += length

    def clear(self) -> None:
        """Forget everything; the memory is kept."""
        self.length = 0
        self.kept.clear()
