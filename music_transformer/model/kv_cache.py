"""Keys and values of what was already read, so that one more event costs one step."""

import torch
from torch import Tensor

from music_transformer.errors import ShapeError
from music_transformer.model.performance_state import StateReader


class KVCache:
    """Preallocated keys and values of every layer.

    A forward pass with a cache asks it for room once, then writes layer by layer; `length` moves
    when the pass is done.

    With ``ids`` it also keeps the id of each position, for what is made of pitches and voices.

    Attributes:
        length: positions held so far.
        capacity: the most it can hold.
        state_reader: follows what is held, event by event, for the performance state.
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
        ids: bool = False,
    ) -> None:
        shape = (n_layers, 2, batch, n_heads, capacity, d_head)
        self._store = torch.empty(shape, dtype=dtype, device=device)
        self._ids: Tensor | None = None
        if ids:
            self._ids = torch.empty(batch, capacity, dtype=torch.int64, device=device)
        self.capacity = capacity
        self.length = 0
        self.state_reader = StateReader(batch)

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
        assert self._ids is not None
        end = self.length + ids.shape[1]
        self._ids[:, self.length : end] = ids
        return self._ids[:, :end]

    def advance(self, length: int) -> None:
        """Count ``length`` new positions, after every layer has written them."""
        self.length += length

    def clear(self) -> None:
        """Forget everything; the memory is kept."""
        self.length = 0
        self.state_reader.clear()
