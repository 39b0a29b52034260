"""What the layers of a stack share about position: computed once a pass, handed to each layer.

The paper's table and Shaw's belong to a layer and live in `attention.py`; T5's numbers, ALiBi's
slopes, the angles of RoPE and the untied product are the same for all layers and live here.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from music_transformer.errors import ShapeError
from music_transformer.model.config import ModelConfig
from music_transformer.ops.positions import (
    alibi_bias,
    alibi_slopes,
    rotary_table,
    t5_bias,
    untied_bias,
)
from music_transformer.ops.relational import PitchPairs

SHARED_SCHEMES = ("t5", "alibi", "rope", "untied")


class SharedPositions(NamedTuple):
    """For queries that are the last L of S positions; what a scheme does not use is None."""

    bias: Tensor | None = None  # (H, L, S), added to the scaled logits
    rotation: Tensor | None = None  # (2, L, D/2), of queries and new keys
    scale: float | None = None  # of the products; None is 1 / sqrt(D)
    pitch: PitchPairs | None = None  # of relative pitch
    first_voice: int | tuple[int, ...] = 0  # of the first query, for relative time


class StackPositions(nn.Module):
    """The part of a scheme that one stack of layers shares; see the module's text."""

    slopes: Tensor
    rotary: Tensor

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        scheme, d = config.attention_position, config.d_model
        self.t5_table: nn.Parameter | None = None
        if scheme == "t5":
            table = torch.randn(config.t5_buckets, config.n_heads) * d**-0.5
            self.t5_table = nn.Parameter(table)  # (buckets, H)
        if scheme == "alibi":
            slopes = alibi_slopes(config.n_heads).float()  # (H,)
            self.register_buffer("slopes", slopes, persistent=False)
        if scheme == "rope":
            self.register_buffer("rotary", self._rotary(config.context), persistent=False)
        if scheme == "untied":
            self.position = nn.Embedding(config.positions, d)
            self.norm = nn.LayerNorm(d)
            self.query = nn.Linear(d, config.attention_width, bias=False)
            self.key = nn.Linear(d, config.attention_width, bias=False)

    def forward(self, queries: int, keys: int) -> SharedPositions:
        """For the last ``queries`` of ``keys`` positions.

        Raises:
            ShapeError: a position past the learned table of untied.
        """
        scheme = self.config.attention_position
        if scheme == "rope":
            if keys > self.rotary.shape[1]:
                rows = max(keys, 2 * self.rotary.shape[1])  # event by event, it grows seldom
                with torch.inference_mode(False):  # it is kept, and training may need it later
                    self.rotary = self._rotary(rows).to(self.rotary)
            return SharedPositions(rotation=self.rotary[:, keys - queries : keys])
        if scheme == "alibi":
            return SharedPositions(bias=alibi_bias(self.slopes, queries, keys))
        if self.t5_table is not None:
            max_distance = self.config.t5_max_distance
            return SharedPositions(bias=t5_bias(self.t5_table, queries, keys, max_distance))
        scale = (2 * self.config.d_head) ** -0.5
        return SharedPositions(bias=self._untied(queries, keys), scale=scale)

    def _untied(self, queries: int, keys: int) -> Tensor:
        """(H, L, S)."""
        config = self.config
        if keys > config.positions:
            raise ShapeError(
                f"position {keys - 1} is past the {config.positions} learned positions; "
                f"read windows of at most {config.positions} ids."
            )
        position = self.norm(self.position.weight[:keys])  # (S, d_model)
        shape = (config.n_heads, config.d_head, config.d_model)
        with torch.autocast(position.device.type, enabled=False):
            return untied_bias(
                position, self.query.weight.view(shape), self.key.weight.view(shape), queries
            )

    def _rotary(self, length: int) -> Tensor:
        """(2, length, D/2) float32."""
        config = self.config
        return rotary_table(length, config.d_head, base=config.position_base).float()
