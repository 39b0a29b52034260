"""The Music Transformer: a causal decoder with relative attention, from ids to logits.

ids (B, L) -> embeddings with positions -> n_layers of attention and feed-forward -> normalise ->
logits (B, L, V). Unlike the paper it normalises before each sublayer, which trains without a long
warm-up. Source: Huang et al. 2018, "Music Transformer".
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from music_transformer.errors import ShapeError
from music_transformer.model.config import ModelConfig
from music_transformer.model.kv_cache import KVCache
from music_transformer.model.linear import Linear
from music_transformer.model.positions import Reading, scheme_of
from music_transformer.model.registry import register
from music_transformer.model.terms import add_terms, input_class
from music_transformer.ops.positions import sinusoidal_table


class InputEmbedding(nn.Module):
    """Embeddings of the ids, scaled by sqrt(d_model), with the position in the window."""

    sinusoids: Tensor

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        d = config.d_model
        self.embedding = embedding_table(config.vocab_size, d)
        self.position = embedding_table(config.positions, d) if self._is("learned") else None
        self.merge = Linear(2 * d, d, bias=False) if self._is("sinusoidal_concat") else None
        self.dropout = nn.Dropout(config.dropout)
        rows = config.context if self._is("sinusoidal") or self._is("sinusoidal_concat") else 0
        table = sinusoidal_table(rows, d, base=config.position_base)
        self.register_buffer("sinusoids", table, persistent=False)

    def forward(self, ids: Tensor, reading: Reading) -> Tensor:
        """The new ids (B, L) of a reading -> (B, L, d_model)."""
        scale = self.config.d_model**0.5
        x = self.embedding(ids) * scale  # (B, L, d_model)
        start, end = reading.keys - reading.queries, reading.keys
        if self._is("sinusoidal"):
            x = x + self._sinusoids(start, end, x)
        elif self.merge is not None:
            sinusoids = self._sinusoids(start, end, x).expand_as(x)
            x = self.merge(torch.cat([x, sinusoids], dim=-1))  # (B, L, d_model)
        elif self.position is not None:
            self.config.require_learned_position(end)
            x = x + self.position.weight[start:end] * scale
        dropped: Tensor = self.dropout(self.labelled(x, reading))
        return dropped

    def labelled(self, x: Tensor, reading: Reading) -> Tensor:
        """x (B, L, d_model) with the labels of the new ids added; here there are none."""
        return x

    def _is(self, input_position: str) -> bool:
        return self.config.input_position == input_position

    def _sinusoids(self, start: int, end: int, like: Tensor) -> Tensor:
        """(end - start, d_model); the table grows when a longer window is read."""
        if end > self.sinusoids.shape[0]:
            rows = max(end, 2 * self.sinusoids.shape[0])  # read event by event, it grows seldom
            with torch.inference_mode(False):  # it is kept, and training may need it later
                table = sinusoidal_table(rows, self.config.d_model, base=self.config.position_base)
                self.sinusoids = table.to(like.device)
        return self.sinusoids[start:end].to(like.dtype)


class Attention(nn.Module):
    """The four projections of attention with H heads, over ``width`` numbers together."""

    def __init__(self, d_model: int, width: int, n_heads: int, *, d_source: int) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.query = Linear(d_model, width, bias=False)
        self.key = Linear(d_source, width, bias=False)
        self.value = Linear(d_source, width, bias=False)
        self.out = Linear(width, d_model, bias=False)

    def heads(self, x: Tensor) -> Tensor:
        """(B, L, H * D) -> (B, H, L, D)."""
        return x.view(*x.shape[:2], self.n_heads, -1).transpose(1, 2)

    def merged(self, mixed: Tensor) -> Tensor:
        """What the heads give, (B, H, L, D) -> (B, L, d_model)."""
        out: Tensor = self.out(mixed.transpose(1, 2).flatten(2))
        return out


class CausalAttention(Attention):
    """Causal self-attention, with the tables of its positional scheme.

    Of the paper's scheme ``rel_embedding`` is E_r: one row a distance, one table a head (or one for
    all heads of the layer), on keys only.
    """

    uncompiled = ("mixed",)  # by `training/precision.py`

    def __init__(self, config: ModelConfig) -> None:
        d = config.d_model
        super().__init__(d, config.attention_width, config.n_heads, d_source=d)
        self.config = config
        self.scheme = scheme_of(config)
        self.tables = tuple(self.scheme.tables())
        heads = 1 if config.shared_table else config.n_heads
        for name, rows in self.scheme.tables().items():
            self.register_parameter(name, distance_table(heads, rows, config.d_head))

    def forward(
        self, x: Tensor, *, layer: int = 0, cache: KVCache | None = None, shared: object = None
    ) -> Tensor:
        """x (B, L, d_model), the last L positions -> (B, L, d_model)."""
        query, key, value = self.projected(x, shared)  # (B, H, L, D)
        if cache is not None:
            key, value = cache.append(layer, key, value)  # (B, H, S, D)
        return self.merged(self.mixed(query, key, value, shared))

    def projected(self, x: Tensor, shared: object) -> tuple[Tensor, Tensor, Tensor]:
        """Query, key and value, (B, H, L, D) each, of x (B, L, d_model)."""
        query, key, value = (self.heads(p(x)) for p in (self.query, self.key, self.value))
        return *self.scheme.turn(query, key, shared), value

    def mixed(self, query: Tensor, key: Tensor, value: Tensor, shared: object) -> Tensor:
        """Weights times values, by the operator of the scheme; shapes as in `Scheme.attend`."""
        tables = {name: getattr(self, name) for name in self.tables}
        dropout = self.config.attention_dropout if self.training else 0.0
        return self.scheme.attend((query, key, value), tables, shared, dropout)


class Layer(nn.Module):
    """Attention, then feed-forward; each reads a normalised copy and adds to the stream.

    While ``checkpointing`` it keeps only its input and is computed again backward, with the same
    dropout. Source: Chen et al. 2016, "Training deep nets with sublinear memory cost".
    """

    checkpointing = False

    def __init__(self, config: ModelConfig, attention: nn.Module) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(config.d_model)
        self.attention = attention
        self.feed_forward_norm = nn.LayerNorm(config.d_model)
        self.expand = Linear(config.d_model, config.d_ff)
        self.contract = Linear(config.d_ff, config.d_model)
        self.dropout = nn.Dropout(config.dropout)

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        """What ``forward`` gives."""
        if self.checkpointing and self.training and torch.is_grad_enabled():
            return checkpoint(super().__call__, *inputs, use_reentrant=False, **named)
        return super().__call__(*inputs, **named)

    def feed_forward(self, x: Tensor) -> Tensor:
        """x (B, L, d_model) with the feed-forward sublayer added."""
        hidden = F.relu(self.expand(self.feed_forward_norm(x)))  # (B, L, d_ff)
        out: Tensor = x + self.dropout(self.contract(hidden))
        return out


class DecoderLayer(Layer):
    """A layer of causal attention."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config, CausalAttention(config))

    def forward(
        self, x: Tensor, *, layer: int, shared: Any, cache: KVCache | None = None
    ) -> Tensor:
        """x (B, L, d_model) -> (B, L, d_model)."""
        normed = self.attention_norm(x)
        mixed = self.attention(normed, layer=layer, cache=cache, shared=shared)
        return self.feed_forward(x + self.dropout(mixed))


class Decoder(nn.Module):
    """A stack of layers from ids to logits; subclasses say what the layers share of a pass."""

    def build(self, config: ModelConfig, new_layer: Callable[[], nn.Module]) -> None:
        """Add the parts and draw all weights, those of parts that the model already has too."""
        self.stack_config = config
        self.input: InputEmbedding = input_class(config, InputEmbedding)(config)
        stack = scheme_of(config).stack
        self.positions = None if stack is None else stack(config)
        self.layers = nn.ModuleList(new_layer() for _ in range(config.n_layers))
        self.norm = nn.LayerNorm(config.d_model)
        self.output = Linear(config.d_model, config.vocab_size)
        self.terms = add_terms(self, config)
        self.apply(initialise_linear)
        scale_residual(self.layers)

    def reading(self, ids: Tensor, place: Tensor | None, cache: KVCache | None) -> Reading:
        """The new ids (B, L) with those in the cache; by default its first one begins a piece.

        Raises:
            ShapeError: ids that are not (B, L), or more of them than the cache has room for.
        """
        if ids.dim() != 2 or ids.shape[1] == 0:
            raise ShapeError(f"ids is {tuple(ids.shape)}, expected (B, L) with L >= 1.")
        if cache is not None:
            cache.require_room(ids)
        start = 0 if cache is None else cache.length
        end = start + ids.shape[1]
        if place is None:
            place = torch.arange(start, end, device=ids.device)  # (L,)
        read = ids if cache is None else cache.append_ids(ids)  # (B, S)
        return Reading(read, place, ids.shape[1], end)

    def decode(self, ids: Tensor, reading: Reading, cache: KVCache | None, shared: Any) -> Tensor:
        """Logits (B, L, V) after each of the new ids (B, L)."""
        x = self.input(ids, reading)  # (B, L, d_model)
        kept = None if cache is None else cache.kept
        states = [term.read(reading, kept) for term in self.terms]
        for term, state in zip(self.terms, states, strict=True):
            x = term.embed(x, state)
        for index, layer in enumerate(self.layers):
            x = layer(x, layer=index, cache=cache, shared=shared)
        if cache is not None:
            cache.advance(ids.shape[1])
        x = self.norm(x)
        logits: Tensor = self.output(x)  # (B, L, V)
        for term, state in zip(self.terms, states, strict=True):
            logits = term.logits(x, logits, state)
        return logits

    def new_cache(self, batch: int, *, capacity: int | None = None) -> KVCache:
        """An empty cache for ``batch`` sequences of ``capacity`` ids (default: the context)."""
        return KVCache(self.stack_config, batch, capacity, self.output.weight)


class MusicTransformer(Decoder):
    """Causal decoder; see the module's text."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.build(config, lambda: DecoderLayer(config))

    def forward(
        self, ids: Tensor, *, place: Tensor | None = None, cache: KVCache | None = None
    ) -> Tensor:
        """Logits (B, L, V) of the event after each id.

        Args:
            ids: (B, L) int64.
            place: (B, L) or (L,) int64, index of each id in its piece (START is 0); by default
                ``ids`` is taken to be the beginning of a piece. The labels and relative time use
                it; for relative time places must be consecutive, also across cached calls.
            cache: what was read before ``ids``; the new keys and values are added to it.

        Raises:
            ShapeError: ids that are not (B, L), or more of them than the cache has room for; with
                relative time, places that do not go up by one.
        """
        reading = self.reading(ids, place, cache)
        shared = None if self.positions is None else self.positions(reading)
        return self.decode(ids, reading, cache, shared)


def initialise_linear(module: nn.Module) -> None:
    """Xavier's weights and no bias for a linear layer; other modules are left as they are."""
    if isinstance(module, nn.Linear):
        nn.init.xavier_uniform_(module.weight)
        if module.bias is not None:
            nn.init.zeros_(module.bias)


@torch.no_grad()
def scale_residual(layers: nn.ModuleList) -> None:
    """Make smaller what each layer adds: the stream's variance stays near 1 at any depth."""
    for layer in layers:
        layer.get_parameter("attention.out.weight").mul_((2 * len(layers)) ** -0.5)
        layer.get_parameter("contract.weight").mul_((2 * len(layers)) ** -0.5)


def embedding_table(rows: int, d: int) -> nn.Embedding:
    """A table whose rows have length about 1: unit variance once scaled by sqrt(d)."""
    embedding = nn.Embedding(rows, d)
    nn.init.normal_(embedding.weight, std=d**-0.5)
    return embedding


def distance_table(heads: int, rows: int, d_head: int) -> nn.Parameter:
    """Vectors of length about 1, one a head and distance: (H, rows, D)."""
    return nn.Parameter(torch.randn(heads, rows, d_head) * d_head**-0.5)


register("decoder", ModelConfig, MusicTransformer)
