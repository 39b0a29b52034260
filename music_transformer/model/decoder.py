"""The Music Transformer: a causal decoder with relative attention.

ids (B, L) -> embeddings with positions and labels -> n_layers of attention and feed-forward ->
normalise -> logits (B, L, V) of the next event. It differs from the paper in normalising before
each sublayer instead of after it, which trains without a long warm-up.

Source: Huang et al. 2018, "Music Transformer".
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from music_transformer.errors import ShapeError
from music_transformer.model.chorale import IntervalOutput, last_of_voice
from music_transformer.model.config import ModelConfig
from music_transformer.model.kv_cache import KVCache
from music_transformer.model.layers import DecoderLayer, InputEmbedding
from music_transformer.model.one_row import Linear
from music_transformer.model.performance_state import PerformanceState
from music_transformer.model.positions import Reading, scheme_of


class MusicTransformer(nn.Module):
    """Causal decoder; see the module's text."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.input = InputEmbedding(config)
        self.positions = scheme_of(config).stack()
        self.layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.n_layers))
        self.norm = nn.LayerNorm(config.d_model)
        self.output = Linear(config.d_model, config.vocab_size)
        self.interval_output: IntervalOutput | None = None
        if config.interval_output:
            self.interval_output = IntervalOutput(config.d_model, config.vocab_size)
        self.performance_state: PerformanceState | None = None
        if config.performance_state:
            self.performance_state = PerformanceState(config.d_model)
        self.apply(_initialise)
        with torch.no_grad():
            for layer in self.layers:  # the stream's variance stays near 1 at any depth
                assert isinstance(layer, DecoderLayer)
                layer.attention.out.weight.mul_((2 * config.n_layers) ** -0.5)
                layer.contract.weight.mul_((2 * config.n_layers) ** -0.5)

    def forward(
        self, ids: Tensor, *, place: Tensor | None = None, cache: KVCache | None = None
    ) -> Tensor:
        """Logits of the event after each id.

        Args:
            ids: (B, L) int64.
            place: (B, L) or (L,) int64, index of each id in its piece (START is 0); by default
                ``ids`` is taken to be the beginning of a piece. The labels and relative time use
                it; for relative time places must be consecutive, also across cached calls.
            cache: what was read before ``ids``; the new keys and values are added to it.

        Returns:
            (B, L, V).

        Raises:
            ShapeError: ids that are not (B, L), or more of them than the cache has room for; with
                relative time, places that do not go up by one.
        """
        if ids.dim() != 2 or ids.shape[1] == 0:
            raise ShapeError(f"ids is {tuple(ids.shape)}, expected (B, L) with L >= 1.")
        start = 0
        if cache is not None:
            cache.require_room(ids)
            start = cache.length
        if place is None:
            place = torch.arange(start, start + ids.shape[1], device=ids.device)  # (L,)
        read = cache.append_ids(ids) if cache is not None and self._keeps_ids else ids  # (B, S)
        x = self.input(ids, place, start, read)  # (B, L, d_model)
        state = None
        if self.performance_state is not None:
            state = self.performance_state.read(
                read, ids.shape[1], None if cache is None else cache.state_reader
            )
            x = x + self.performance_state.input_terms(state)
        reading = Reading(read, place, ids.shape[1], start + ids.shape[1])
        shared = None if self.positions is None else self.positions(reading)
        for index, layer in enumerate(self.layers):
            x = layer(x, layer=index, cache=cache, shared=shared)
        if cache is not None:
            cache.advance(ids.shape[1])
        x = self.norm(x)
        logits: Tensor = self.output(x)  # (B, L, V)
        if self.interval_output is not None:
            near = read[:, -(ids.shape[1] + self.config.voice_labels - 1) :]
            last = last_of_voice(near, self.config.voice_labels)[:, -ids.shape[1] :]  # (B, L)
            logits = logits + self.interval_output(x, last)
        if self.performance_state is not None and state is not None:
            logits = self.performance_state.logits(x, logits, state)
        return logits

    @property
    def _keeps_ids(self) -> bool:
        """Whether more is made of the ids than their embeddings: a cache must keep them then."""
        config = self.config
        voices = config.relative_pitch or config.held_labels or config.interval_output
        return bool(voices or config.performance_state)

    def new_cache(self, batch: int, *, capacity: int | None = None) -> KVCache:
        """An empty cache for ``batch`` sequences of ``capacity`` ids (default: the context)."""
        weight = self.output.weight
        return KVCache(
            n_layers=self.config.n_layers,
            batch=batch,
            n_heads=self.config.n_heads,
            d_head=self.config.d_head,
            capacity=self.config.context if capacity is None else capacity,
            dtype=weight.dtype,
            device=weight.device,
            ids=self._keeps_ids,
        )


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """The model without dropout for the time of the block, and then as it was."""
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)


def _initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Linear):
        nn.init.xavier_uniform_(module.weight)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
