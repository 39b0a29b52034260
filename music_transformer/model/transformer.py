"""The Music Transformer: a causal decoder with relative attention, from ids to logits.

ids (B, L) -> embeddings with positions -> n_layers of attention and feed-forward -> normalise ->
logits (B, L, V) of the next event. It differs from the paper in normalising before each sublayer
instead of after it, which trains without a long warm-up.

The operator of attention is that of the positional scheme (`model/positions.py`; the paper's is
`ops/relative.py`). What some models know of their ids is in `model/terms.py`.

Source: Huang et al. 2018, "Music Transformer".
"""

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
        """The new ids (B, L) of a reading -> (B, L, d_model).

        Raises:
            ShapeError: a position past the table of learned positions.
        """
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


class CheckpointedLayer(nn.Module):
    """A layer that, while ``checkpointing``, keeps only its input and is computed again backward.

    The generators are put where they were, so dropout and gradients are the same bit for bit. It
    costs about one forward pass more.

    Source: Chen et al. 2016, "Training deep nets with sublinear memory cost".
    """

    checkpointing = False

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        """What ``forward`` gives."""
        if self.checkpointing and self.training and torch.is_grad_enabled():
            return checkpoint(super().__call__, *inputs, use_reentrant=False, **named)
        return super().__call__(*inputs, **named)


class CausalAttention(nn.Module):
    """Causal self-attention, with the tables of its positional scheme.

    Of the paper's scheme ``rel_embedding`` is E_r: one row a distance, one table a head (or one for
    all heads of the layer), on keys only; a parameter like any other.

    Source: Huang et al. 2018, "Relative positional self-attention".
    """

    uncompiled = ("_attend",)  # by `training/compiled.py`

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        width = config.attention_width
        self.query = Linear(config.d_model, width, bias=False)
        self.key = Linear(config.d_model, width, bias=False)
        self.value = Linear(config.d_model, width, bias=False)
        self.out = Linear(width, config.d_model, bias=False)
        self.scheme = scheme_of(config)
        self.tables = tuple(self.scheme.tables())
        heads, d_head = 1 if config.shared_table else config.n_heads, config.d_head
        for name, rows in self.scheme.tables().items():  # vectors of length about 1
            table = torch.randn(heads, rows, d_head) * d_head**-0.5
            self.register_parameter(name, nn.Parameter(table))  # (H or 1, rows, D)

    def forward(
        self, x: Tensor, *, layer: int = 0, cache: KVCache | None = None, shared: object = None
    ) -> Tensor:
        """x (B, L, d_model), the last L positions -> (B, L, d_model)."""
        query, key, value = self.projected(x, shared)  # (B, H, L, D)
        if cache is not None:
            key, value = cache.append(layer, key, value)  # (B, H, S, D)
        mixed = self.mixed(query, key, value, shared)  # (B, H, L, D)
        out: Tensor = self.out(mixed.transpose(1, 2).flatten(2))  # (B, L, d_model)
        return out

    def projected(self, x: Tensor, shared: object) -> tuple[Tensor, Tensor, Tensor]:
        """Query, key and value, (B, H, L, D) each, of x (B, L, d_model)."""
        query, key, value = (self._heads(p(x)) for p in (self.query, self.key, self.value))
        return *self.scheme.turn(query, key, shared), value

    def mixed(self, query: Tensor, key: Tensor, value: Tensor, shared: object) -> Tensor:
        """Weights times values, by the operator of the scheme; shapes as in `Scheme.attend`."""
        return self._attend(query, key, value, shared)

    def _attend(self, query: Tensor, key: Tensor, value: Tensor, shared: object) -> Tensor:
        tables = {name: getattr(self, name) for name in self.tables}
        dropout = self.config.attention_dropout if self.training else 0.0
        return self.scheme.attend((query, key, value), tables, shared, dropout)

    def _heads(self, x: Tensor) -> Tensor:
        """(B, L, H * D) -> (B, H, L, D)."""
        return x.view(*x.shape[:2], self.config.n_heads, self.config.d_head).transpose(1, 2)


class Layer(CheckpointedLayer):
    """Attention, then feed-forward; each reads a normalised copy and adds to the stream."""

    def __init__(self, config: ModelConfig, attention: nn.Module) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(config.d_model)
        self.attention = attention
        self.feed_forward_norm = nn.LayerNorm(config.d_model)
        self.expand = Linear(config.d_model, config.d_ff)
        self.contract = Linear(config.d_ff, config.d_model)
        self.dropout = nn.Dropout(config.dropout)

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
        self, x: Tensor, *, layer: int, cache: KVCache | None = None, shared: object = None
    ) -> Tensor:
        """x (B, L, d_model) -> (B, L, d_model)."""
        normed = self.attention_norm(x)
        mixed = self.attention(normed, layer=layer, cache=cache, shared=shared)
        return self.feed_forward(x + self.dropout(mixed))


class MusicTransformer(nn.Module):
    """Causal decoder; see the module's text."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.input: InputEmbedding = input_class(config, InputEmbedding)(config)
        self.positions = scheme_of(config).stack()
        self.layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.n_layers))
        self.norm = nn.LayerNorm(config.d_model)
        self.output = Linear(config.d_model, config.vocab_size)
        self.terms = add_terms(self, config)
        self.apply(initialise_linear)
        with torch.no_grad():
            scale_residual(self.layers)

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
        read = ids if cache is None else cache.append_ids(ids)  # (B, S)
        reading = Reading(read, place, ids.shape[1], start + ids.shape[1])
        x = self.input(ids, reading)  # (B, L, d_model)
        kept = None if cache is None else cache.kept
        states = [term.read(reading, kept) for term in self.terms]
        for term, state in zip(self.terms, states, strict=True):
            x = term.embed(x, state)
        shared = None if self.positions is None else self.positions(reading)
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
        return KVCache(self.config, batch, capacity, self.output.weight)


def initialise_linear(module: nn.Module) -> None:
    """Xavier's weights and no bias for a linear layer; other modules are left as they are."""
    if isinstance(module, nn.Linear):
        nn.init.xavier_uniform_(module.weight)
        if module.bias is not None:
            nn.init.zeros_(module.bias)


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


register("decoder", ModelConfig, MusicTransformer)
