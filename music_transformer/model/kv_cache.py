"""Keys and values of what was already read, so that one more event costs one step."""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from music_transformer.errors import ShapeError

if TYPE_CHECKING:
    from music_transformer.model.config import ModelConfig


class Cache:
    """What every kind of cache counts: ``length`` positions held of at most ``capacity``."""

    def __init__(self, batch: int, capacity: int) -> None:
        self.batch, self.capacity, self.length = batch, capacity, 0

    def require_room(self, ids: Tensor) -> None:
        """Raise `ShapeError` unless ids (B, L) fit: the same batch, and room for L."""
        batch, length = ids.shape
        if batch != self.batch:
            raise ShapeError(f"ids of {batch} sequences for a cache of {self.batch}.")
        if self.length + length > self.capacity:
            raise ShapeError(
                f"{length} ids for a cache that holds {self.length} of {self.capacity}; clear it "
                "and read the last part of the window again."
            )


class KVCache(Cache):
    """Preallocated keys and values of every layer, of the type of ``like``, and their ids.

    A forward pass asks for room once, then writes layer by layer, and advances when it is done.

    Attributes:
        kept: what else is needed in the next call, by name: what terms keep (`model/terms.py`); of
            an encoder-decoder the encoded melody, and the time (B,) that has passed.
    """

    def __init__(
        self, config: "ModelConfig", batch: int, capacity: int | None, like: Tensor
    ) -> None:
        super().__init__(batch, config.context if capacity is None else capacity)
        shape = (config.n_layers, 2, batch, config.n_heads, self.capacity, config.d_head)
        self._store = torch.empty(shape, dtype=like.dtype, device=like.device)
        self._ids = torch.empty(batch, self.capacity, dtype=torch.int64, device=like.device)
        self.kept: dict[str, Any] = {}

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
