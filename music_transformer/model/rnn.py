"""The LSTM baseline (Oore et al. 2018): what music was written with before attention alone could.

ids (B, L) -> embeddings -> n_layers of LSTM -> [attention over the hidden states] -> logits
(B, L, V). With attention, each hidden state h looks back at all of the window up to itself:
context = sum_s softmax_s(h W h_s / sqrt(d_hidden)) h_s, out = tanh([context, h] C).

Source: Luong et al. 2015, "Effective approaches to attention-based neural machine translation",
equations 5 to 8, turned on the sequence itself; see docs/design.md.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from music_transformer.errors import ShapeError
from music_transformer.model.config import Settings
from music_transformer.model.kv_cache import Cache
from music_transformer.model.linear import Linear
from music_transformer.model.registry import register
from music_transformer.ops.attention import plain_attention

ATTENTIONS = ("none", "causal")
_GATES = 4  # input, forget, cell, output: the order in which nn.LSTM stacks them
_FORGET = 1


@dataclass(frozen=True)
class RNNConfig(Settings):
    """Settings of a `PerformanceRNN`; what makes no sense is a `ConfigError`."""

    vocab_size: int = 391
    n_layers: int = 3
    d_model: int = 512  # width of the embeddings
    d_hidden: int = 1024  # width of hidden states and cells
    dropout: float = 0.1  # on embeddings, between layers and before the logits
    context: int = 2048  # the most ids the model reads at once; longer pieces are read in windows
    attention: str = "none"  # or causal: over the hidden states of the window

    def __post_init__(self) -> None:
        self._at_least(1, "vocab_size", "n_layers", "d_model", "d_hidden", "context")
        self._fraction("dropout")
        self._one_of("attention", ATTENTIONS)


class RNNCache(Cache):
    """What the layers remember of the ids read so far: states, and for attention all of the past.

    Its capacity is a Transformer's: what a model says of an id is what it says in a full pass.

    Attributes:
        state: hidden states and cells, each (n_layers, B, d_hidden).
    """

    def __init__(self, config: RNNConfig, batch: int, capacity: int | None, like: Tensor) -> None:
        super().__init__(batch, config.context if capacity is None else capacity)
        self._zeros = like.new_zeros(config.n_layers, batch, config.d_hidden)
        self._past: Tensor | None = None  # (B, capacity, d_hidden)
        if config.attention == "causal":
            self._past = like.new_empty(batch, self.capacity, config.d_hidden)
        self.clear()

    def clear(self) -> None:
        """Forget everything; the memory is kept."""
        self.length = 0
        self.state = (self._zeros, self._zeros)

    def append(self, hidden: Tensor) -> Tensor:
        """Write hidden states (B, L, d_hidden) of the last layer; all so far (B, S, d_hidden)."""
        assert self._past is not None
        end = self.length + hidden.shape[1]
        self._past[:, self.length : end] = hidden
        return self._past[:, :end]

    def advance(self, length: int, state: tuple[Tensor, Tensor]) -> None:
        """Count ``length`` new positions and keep the states after the last of them."""
        self.length += length
        self.state = state


class CausalLookBack(nn.Module):
    """Attention of hidden states over those up to them; see the module's text."""

    def __init__(self, d_hidden: int) -> None:
        super().__init__()
        self.query = Linear(d_hidden, d_hidden, bias=False)
        self.merge = Linear(2 * d_hidden, d_hidden, bias=False)

    def forward(self, hidden: Tensor, past: Tensor) -> Tensor:
        """hidden (B, L, d_hidden), the last L of past (B, S, d_hidden) -> (B, L, d_hidden)."""
        query = self.query(hidden)[:, None]  # (B, 1, L, d_hidden)
        past = past[:, None]  # (B, 1, S, d_hidden)
        context = plain_attention(query, past, past)[:, 0]  # (B, L, d_hidden)
        return torch.tanh(self.merge(torch.cat([context, hidden], dim=-1)))  # (B, L, d_hidden)


class PerformanceRNN(nn.Module):
    """LSTM with or without attention; see the module's text."""

    def __init__(self, config: RNNConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, config.d_model)
        self.lstm = nn.LSTM(
            config.d_model,
            config.d_hidden,
            config.n_layers,
            batch_first=True,
            dropout=config.dropout if config.n_layers > 1 else 0.0,  # there is no "between" in one
        )
        self.attention = CausalLookBack(config.d_hidden) if config.attention == "causal" else None
        self.dropout = nn.Dropout(config.dropout)
        self.output = nn.Linear(config.d_hidden, config.vocab_size)
        self._remember_at_first()

    def forward(
        self, ids: Tensor, *, place: Tensor | None = None, cache: RNNCache | None = None
    ) -> Tensor:
        """Logits (B, L, V) of the event after each id (B, L).

        ``place`` is what other models take, and not used; what was read before is in the ``cache``.

        Raises:
            ShapeError: ids that are not (B, L), or more of them than the cache has room for.
        """
        if ids.dim() != 2 or ids.shape[1] == 0:
            raise ShapeError(f"ids is {tuple(ids.shape)}, expected (B, L) with L >= 1.")
        if cache is not None:
            cache.require_room(ids)
        if not torch.is_inference_mode_enabled():  # else what it makes could not be trained later
            self.lstm.flatten_parameters()  # a copy of a model on a GPU has its weights scattered
        x = self.dropout(self.embedding(ids))  # (B, L, d_model)
        hidden, state = self.lstm(x, None if cache is None else cache.state)  # (B, L, d_hidden)
        if self.attention is not None:
            past = hidden if cache is None else cache.append(hidden)  # (B, S, d_hidden)
            hidden = self.attention(hidden, past)  # (B, L, d_hidden)
        if cache is not None:
            cache.advance(ids.shape[1], state)
        logits: Tensor = self.output(self.dropout(hidden))  # (B, L, V)
        return logits

    def new_cache(self, batch: int, *, capacity: int | None = None) -> RNNCache:
        """An empty cache for ``batch`` sequences of ``capacity`` ids (default: the context)."""
        return RNNCache(self.config, batch, capacity, self.output.weight)

    @torch.no_grad()
    def _remember_at_first(self) -> None:
        """Let the forget gates start open: bias 1 (Jozefowicz et al. 2015)."""
        for layer in range(self.config.n_layers):
            bias, recurrent_bias = (
                self.lstm.get_parameter(f"bias_{kind}_l{layer}") for kind in ("ih", "hh")
            )
            bias.view(_GATES, -1)[_FORGET] = 1.0
            recurrent_bias.view(_GATES, -1)[_FORGET] = 0.0


register("rnn", RNNConfig, PerformanceRNN)
