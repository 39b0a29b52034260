"""Multi-head attention that knows distances: projections and tables round one operator of `ops`."""

import torch
from torch import Tensor, nn

from music_transformer.model.config import ModelConfig
from music_transformer.model.kv_cache import KVCache
from music_transformer.model.one_row import Linear
from music_transformer.model.positions import SharedPositions
from music_transformer.ops.attention import biased_attention, plain_attention, relative_attention
from music_transformer.ops.positions import rotate
from music_transformer.ops.relational import INTERVALS, Relational
from music_transformer.ops.shaw import shaw_attention


class CausalAttention(nn.Module):
    """Causal self-attention, with the tables of its positional scheme.

    ``rel_embedding`` is the paper's E_r: one row a distance, one table a head (or one for all heads
    of the layer), on keys only; a parameter like any other; ``time_embedding`` and
    ``pitch_embedding`` are its companions for chorales. Shaw's two tables end at K, the last
    distance told apart; the K rows of later keys are left out, for none is ever seen.

    Source: Huang et al. 2018, "Relative positional self-attention"; Shaw et al. 2018.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        width = config.attention_width
        self.query = Linear(config.d_model, width, bias=False)
        self.key = Linear(config.d_model, width, bias=False)
        self.value = Linear(config.d_model, width, bias=False)
        self.out = Linear(width, config.d_model, bias=False)
        self.rel_embedding: nn.Parameter | None = None
        self.time_embedding: nn.Parameter | None = None
        self.pitch_embedding: nn.Parameter | None = None
        self.rel_key_embedding: nn.Parameter | None = None
        self.rel_value_embedding: nn.Parameter | None = None
        if config.attention_position == "relative":
            self.rel_embedding = self._table(config.distances)  # (H or 1, M, D)
            if config.relative_time:
                self.time_embedding = self._table(config.times)  # (H or 1, T, D)
            if config.relative_pitch:
                self.pitch_embedding = self._table(INTERVALS)  # (H or 1, INTERVALS, D)
        elif config.attention_position == "shaw":
            self.rel_key_embedding = self._table(config.clip_distance + 1)  # (H or 1, K+1, D)
            self.rel_value_embedding = self._table(config.clip_distance + 1)  # (H or 1, K+1, D)

    def forward(
        self,
        x: Tensor,
        *,
        layer: int = 0,
        cache: KVCache | None = None,
        positions: SharedPositions | None = None,
    ) -> Tensor:
        """x (B, L, d_model), the last L positions -> (B, L, d_model)."""
        query, key, value = (self._heads(p(x)) for p in (self.query, self.key, self.value))
        if positions is not None and positions.rotation is not None:
            query, key = rotate(query, positions.rotation), rotate(key, positions.rotation)
        if cache is not None:
            key, value = cache.append(layer, key, value)  # (B, H, S, D)
        mixed = self._attend(query, key, value, positions)  # (B, H, L, D)
        out: Tensor = self.out(mixed.transpose(1, 2).flatten(2))  # (B, L, d_model)
        return out

    def _attend(
        self, query: Tensor, key: Tensor, value: Tensor, positions: SharedPositions | None
    ) -> Tensor:
        """The operator of the scheme; shapes as in `ops.attention`."""
        config = self.config
        dropout = config.attention_dropout if self.training else 0.0
        if self.rel_embedding is not None:
            return relative_attention(
                query,
                key,
                value,
                self.rel_embedding,
                relational=self._relational(positions),
                block=config.block,
                dropout=dropout,
                implementation=config.attention,
            )
        if self.rel_key_embedding is not None and self.rel_value_embedding is not None:
            return shaw_attention(
                query,
                key,
                value,
                self.rel_key_embedding,
                self.rel_value_embedding,
                clip_distance=config.clip_distance,
                block=config.block,
                dropout=dropout,
            )
        if positions is not None and positions.bias is not None:
            return biased_attention(
                query,
                key,
                value,
                positions.bias,
                scale=positions.scale,
                block=config.block,
                dropout=dropout,
            )
        return plain_attention(query, key, value, block=config.block, dropout=dropout)

    def _relational(self, positions: SharedPositions | None) -> Relational | None:
        """The further terms of a chorale model; None where it has none."""
        if positions is None or (self.time_embedding is None and self.pitch_embedding is None):
            return None
        return Relational(
            time_embedding=self.time_embedding,
            voices=self.config.voice_labels,
            first_voice=positions.first_voice,
            pitch_embedding=self.pitch_embedding,
            pitch=positions.pitch,
        )

    def _table(self, rows: int) -> nn.Parameter:
        """Vectors of distances 0..rows-1, of length about 1: (H or 1, rows, D)."""
        tables, d_head = 1 if self.config.shared_table else self.config.n_heads, self.config.d_head
        return nn.Parameter(torch.randn(tables, rows, d_head) * d_head**-0.5)

    def _heads(self, x: Tensor) -> Tensor:
        """(B, L, H * D) -> (B, H, L, D)."""
        return x.view(*x.shape[:2], self.config.n_heads, self.config.d_head).transpose(1, 2)
