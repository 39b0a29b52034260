"""The positional schemes beside the paper's, each after the article it is named by.

Tables of a layer belong to the scheme; numbers that are the same for all layers of a stack are
modules that are called once a pass.
"""

from typing import Any

import torch
from torch import Tensor, nn

from music_transformer.errors import ConfigError
from music_transformer.model.config import ModelConfig
from music_transformer.model.linear import Linear
from music_transformer.model.positions import QKV, Reading, Scheme, TensorsByName
from music_transformer.ops.attention import biased_attention, plain_attention, shaw_attention
from music_transformer.ops.positions import (
    alibi_bias,
    alibi_slopes,
    rotary_table,
    rotate,
    t5_bias,
    untied_bias,
)


class NoScheme(Scheme):
    """Nothing; with no input position either it is NoPE: an order from the causal mask alone."""

    def attend(self, qkv: QKV, tables: TensorsByName, shared: Any, dropout: float) -> Tensor:
        """Plain attention."""
        return plain_attention(*qkv, block=self.config.block, dropout=dropout)


class Shaw(Scheme):
    """Vectors of clipped distances 0..K on keys and values (Shaw et al. 2018)."""

    def tables(self) -> dict[str, int]:
        """No rows for later keys, for none is ever seen."""
        rows = self.config.clip_distance + 1
        return {"rel_key_embedding": rows, "rel_value_embedding": rows}

    def attend(self, qkv: QKV, tables: TensorsByName, shared: Any, dropout: float) -> Tensor:
        """See `ops.attention`."""
        on_keys, on_values = tables["rel_key_embedding"], tables["rel_value_embedding"]
        farthest, block = self.config.clip_distance, self.config.block
        return shaw_attention(
            *qkv, on_keys, on_values, clip_distance=farthest, block=block, dropout=dropout
        )


class Biased(Scheme):
    """Schemes whose stack gives a bias (H, L, S)."""

    def attend(self, qkv: QKV, tables: TensorsByName, shared: Tensor, dropout: float) -> Tensor:
        """Logits with a number added, see `ops.attention`."""
        return biased_attention(*qkv, shared, block=self.config.block, dropout=dropout)


class T5Table(nn.Module):
    """T5's numbers, (buckets, H), as a bias (H, L, S)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.max_distance = config.t5_max_distance
        table = torch.randn(config.t5_buckets, config.n_heads) * config.d_model**-0.5
        self.t5_table = nn.Parameter(table)  # (buckets, H)

    def forward(self, reading: Reading) -> Tensor:
        return t5_bias(self.t5_table, reading.queries, reading.keys, self.max_distance)


class T5(Biased):
    """A number for each head and bucket of distance (Raffel et al. 2020)."""

    stack = T5Table

    def check(self) -> None:
        """Buckets in pairs, and room for the logarithmic half."""
        super().check()
        buckets, farthest = self.config.t5_buckets, self.config.t5_max_distance
        if buckets % 2 or farthest <= buckets // 2:
            raise ConfigError(
                f"t5_buckets={buckets} to t5_max_distance={farthest}; choose an even number of "
                "buckets and a distance above half of it."
            )


class AlibiSlopes(nn.Module):
    """ALiBi's slope of each head, as a bias (H, L, S)."""

    slopes: Tensor

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        slopes = alibi_slopes(config.n_heads).float()  # (H,)
        self.register_buffer("slopes", slopes, persistent=False)

    def forward(self, reading: Reading) -> Tensor:
        return alibi_bias(self.slopes, reading.queries, reading.keys)


class Alibi(Biased):
    """Minus a fixed slope times the distance (Press et al. 2022)."""

    stack = AlibiSlopes


class RotaryTable(nn.Module):
    """Cosines and sines of the angles of RoPE, (2, L, D/2); it grows with the window."""

    rotary: Tensor

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.register_buffer("rotary", self._table(config.context), persistent=False)

    def forward(self, reading: Reading) -> Tensor:
        keys = reading.keys
        if keys > self.rotary.shape[1]:
            rows = max(keys, 2 * self.rotary.shape[1])  # event by event, it grows seldom
            with torch.inference_mode(False):  # it is kept, and training may need it later
                self.rotary = self._table(rows).to(self.rotary)
        return self.rotary[:, keys - reading.queries : keys]

    def _table(self, length: int) -> Tensor:
        """(2, length, D/2) float32."""
        return rotary_table(length, self.config.d_head, base=self.config.position_base).float()


class Rope(NoScheme):
    """Queries and keys turned by their position (Su et al. 2021)."""

    stack = RotaryTable

    def check(self) -> None:
        """Columns in pairs."""
        super().check()
        config = self.config
        if config.d_head % 2:
            raise ConfigError(
                f"attention_position=rope turns pairs of columns, and a head has {config.d_head}; "
                f"try d_attention={config.n_heads * (config.d_head + 1)}."
            )

    def turn(self, query: Tensor, key: Tensor, shared: Tensor) -> tuple[Tensor, Tensor]:
        """Each pair of columns by the angle of its position."""
        return rotate(query, shared), rotate(key, shared)


class UntiedPositions(nn.Module):
    """Learned positions with queries and keys of their own, as a bias (H, L, S)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        d = config.d_model
        self.position = nn.Embedding(config.positions, d)
        self.norm = nn.LayerNorm(d)
        self.query = Linear(d, config.attention_width, bias=False)
        self.key = Linear(d, config.attention_width, bias=False)

    def forward(self, reading: Reading) -> Tensor:
        config, keys = self.config, reading.keys
        config.require_learned_position(keys)
        position = self.norm(self.position.weight[:keys])  # (S, d_model)
        shape = (config.n_heads, config.d_head, config.d_model)
        query, key = self.query.weight.view(shape), self.key.weight.view(shape)
        with torch.autocast(position.device.type, enabled=False):
            return untied_bias(position, query, key, reading.queries)


class Untied(Biased):
    """Product of positions with positions, apart from content (Ke et al. 2021)."""

    stack = UntiedPositions

    def check(self) -> None:
        """Position in attention alone, and enough of it."""
        super().check()
        config = self.config
        config.check_learned_positions()
        if config.input_position != "none":
            raise ConfigError(
                f"attention_position=untied with input_position={config.input_position}: untied "
                "keeps position out of the input; use input_position=none."
            )

    def turn(self, query: Tensor, key: Tensor, shared: Any) -> tuple[Tensor, Tensor]:
        """Products of content are divided by sqrt(2 D), as those of positions are."""
        return query / 2**0.5, key
