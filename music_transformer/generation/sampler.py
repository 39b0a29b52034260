"""Reading with a cache: prefill, step, and the window that keeps memory bounded.

When the ``context`` is full the oldest half is dropped and the rest read again from position 0, so
any length works for every positional scheme. A primer longer than the context is read from the
window on that event-by-event reading would have reached.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from music_transformer.errors import ConfigError

if TYPE_CHECKING:
    from music_transformer.model.config import ModelConfig
    from music_transformer.model.kv_cache import KVCache
    from music_transformer.model.transformer import MusicTransformer

MIN_CONTEXT = 2


@torch.inference_mode()
def prefill(model: MusicTransformer, cache: KVCache, ids: Tensor, place: Tensor) -> Tensor:
    """The logits (B, V) of what follows ids (B, L), read from position 0; clears the cache.

    Args:
        place: (L,) int64, the index of each id in its piece.
    """
    cache.clear()
    return step(model, cache, ids, place)


@torch.inference_mode()
def step(model: MusicTransformer, cache: KVCache, ids: Tensor, place: Tensor) -> Tensor:
    """The same of ids, usually (B, 1), that are read after what the cache holds."""
    logits: Tensor = model(ids, place=place, cache=cache)  # (B, 1, V)
    return logits[:, -1]  # (B, V)


class Window:
    """The last ids of every row, as many as the model reads at once, and their cache.

    Attributes:
        ids: (B, L) int64, what the model sees now.
        first_place: index in the piece of the first of them.
        reread: how often the oldest half was dropped.
    """

    def __init__(
        self, model: MusicTransformer, batch: int, *, context: int, first_place: int = 0
    ) -> None:
        self._model, self._context = model, context
        self._cache = self._new_cache(batch)
        device = next(model.parameters()).device
        self.ids = torch.empty(batch, 0, dtype=torch.long, device=device)
        self.first_place = first_place
        self.reread = 0

    @property
    def is_full(self) -> bool:
        """Whether the next id makes the window drop its oldest half."""
        return self.ids.shape[1] >= self._context

    def read(self, ids: Tensor) -> Tensor:
        """Read more ids (B, L), L >= 1; the logits (B, V) of what follows, float64, on the CPU."""
        before = self.ids.shape[1]
        self.ids = torch.cat([self.ids, ids.to(self.ids.device)], dim=1)  # (B, before + L)
        surplus = self.ids.shape[1] - self._context
        if surplus > 0:
            half = self._context // 2
            dropped = -(-surplus // half) * half
            self.ids = self.ids[:, dropped:]
            self.first_place += dropped
            self.reread += 1 if before else 0
        last = self.first_place + self.ids.shape[1]
        place = torch.arange(self.first_place, last, device=self.ids.device)  # (L,)
        if surplus > 0 or before == 0 or ids.shape[1] > 1:
            logits = prefill(self._model, self._cache, self.ids, place)
        else:
            logits = step(self._model, self._cache, self.ids[:, -1:], place[-1:])
        return logits.cpu().double()  # in this order: not every device has float64

    def keep(self, rows: list[int]) -> None:
        """Go on with some of the rows only; for a full window, which will be read again anyway."""
        assert self.is_full
        self.ids = self.ids[rows]
        self._cache = self._new_cache(len(rows))

    def _new_cache(self, batch: int) -> KVCache:
        try:
            return self._model.new_cache(batch, capacity=self._context)
        except RuntimeError as error:
            raise ConfigError(
                f"context={self._context} with {batch} samples at a time needs more memory than "
                "there is; try less of either."
            ) from error


def context_of(config: ModelConfig, context: int | None) -> int:
    """The ids to read at once: what is asked for, or the model's own context.

    Raises:
        ConfigError: too few to drop half of, or more than the positions the model has learned.
    """
    if context is None:
        return max(config.context, MIN_CONTEXT)
    if context < MIN_CONTEXT:
        raise ConfigError(f"context={context}; choose {MIN_CONTEXT} or more.")
    learned = getattr(config, "input_position", None) == "learned"  # an LSTM counts by itself
    if learned and context > config.positions:
        raise ConfigError(
            f"context={context} is more than the {config.positions} positions the model has "
            f"learned; try {config.positions}."
        )
    return context
