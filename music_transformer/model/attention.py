"""Multi-head attention: projections and tables round one operator of `ops`."""

import torch
from torch import Tensor, nn

from music_transformer.model.config import ModelConfig
from music_transformer.model.kv_cache import KVCache
from music_transformer.model.one_row import Linear
from music_transformer.model.positions import scheme_of


class CausalAttention(nn.Module):
    """Causal self-attention, with the tables of its positional scheme.

    Of the paper's scheme ``rel_embedding`` is E_r: one row a distance, one table a head (or one for
    all heads of the layer), on keys only; a parameter like any other.

    Source: Huang et al. 2018, "Relative positional self-attention".
    """

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
        return self.scheme.attend(query, key, value, tables, shared, dropout)

    def _heads(self, x: Tensor) -> Tensor:
        """(B, L, H * D) -> (B, H, L, D)."""
        return x.view(*x.shape[:2], self.config.n_heads, self.config.d_head).transpose(1, 2)
