"""What the decoder is built of: the input (ids, positions, labels) and one layer."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from music_transformer.model.attention import CausalAttention
from music_transformer.model.chorale import held_steps
from music_transformer.model.config import ModelConfig
from music_transformer.model.kv_cache import KVCache
from music_transformer.model.one_row import Linear
from music_transformer.ops.positions import sinusoidal_table


class InputEmbedding(nn.Module):
    """Embeddings of the ids, scaled by sqrt(d_model), with position and labels.

    - position is counted from the start of the window;
    - the labels come from `place`, the index of each id in its whole piece (START is 0): the id at
      place p is there to predict event p, so it carries the voice and the step of that event, and
      for how many steps that voice has held what it has.
    """

    sinusoids: Tensor

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        d = config.d_model
        self.embedding = _embedding(config.vocab_size, d)
        self.voice = _embedding(config.voice_labels, d) if config.voice_labels else None
        self.step = _embedding(config.step_labels, d) if config.step_labels else None
        self.held_embedding: nn.Parameter | None = None
        if config.held_labels:
            self.held_embedding = nn.Parameter(torch.zeros(config.held_labels + 1, d))
        self.position = _embedding(config.positions, d) if self._is("learned") else None
        self.merge = Linear(2 * d, d, bias=False) if self._is("sinusoidal_concat") else None
        self.dropout = nn.Dropout(config.dropout)
        rows = config.context if self._is("sinusoidal") or self._is("sinusoidal_concat") else 0
        table = sinusoidal_table(rows, d, base=config.position_base)
        self.register_buffer("sinusoids", table, persistent=False)

    def forward(self, ids: Tensor, place: Tensor, start: int, read: Tensor | None = None) -> Tensor:
        """ids (B, L) at window positions start..start+L-1 -> (B, L, d_model).

        ``read`` (B, S) are all ids of the window so far, ``ids`` being the last of them; by default
        there were none before. They are for the labels of what a voice holds.

        Raises:
            ShapeError: a position past the table of learned positions.
        """
        scale = self.config.d_model**0.5
        x = self.embedding(ids) * scale  # (B, L, d_model)
        end = start + ids.shape[1]
        if self._is("sinusoidal"):
            x = x + self._sinusoids(start, end, x)
        elif self._is("sinusoidal_concat") and self.merge is not None:
            sinusoids = self._sinusoids(start, end, x).expand_as(x)
            x = self.merge(torch.cat([x, sinusoids], dim=-1))  # (B, L, d_model)
        elif self.position is not None:
            self.config.require_learned_position(end)
            x = x + self.position.weight[start:end] * scale
        if self.voice is not None:
            x = x + self.voice(place % self.config.voice_labels) * scale
        if self.step is not None:
            step = place // self.config.voice_labels % self.config.step_labels
            x = x + self.step(step) * scale
        if self.held_embedding is not None:
            x = x + self.held_labels(ids, ids if read is None else read)
        dropped: Tensor = self.dropout(x)
        return dropped

    def held_labels(self, ids: Tensor, read: Tensor) -> Tensor:
        """What is added for how long each voice has held what it has: (B, L, d_model)."""
        assert self.held_embedding is not None
        voices, most = self.config.voice_labels, self.config.held_labels
        near = read[:, -(ids.shape[1] + voices * (most + 1)) :]  # no farther is counted
        held = held_steps(near, voices, most)[:, -ids.shape[1] :]  # (B, L)
        added: Tensor = F.embedding(held, self.held_embedding) * self.config.d_model**0.5
        return added

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


class DecoderLayer(CheckpointedLayer):
    """Attention, then feed-forward; each reads a normalised copy and adds to the stream."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(config.d_model)
        self.attention = CausalAttention(config)
        self.feed_forward_norm = nn.LayerNorm(config.d_model)
        self.expand = Linear(config.d_model, config.d_ff)
        self.contract = Linear(config.d_ff, config.d_model)
        self.dropout = nn.Dropout(config.dropout)

    def forward(
        self,
        x: Tensor,
        *,
        layer: int,
        cache: KVCache | None = None,
        shared: object = None,
    ) -> Tensor:
        """x (B, L, d_model) -> (B, L, d_model)."""
        normed = self.attention_norm(x)
        mixed = self.attention(normed, layer=layer, cache=cache, shared=shared)
        x = x + self.dropout(mixed)
        hidden = F.relu(self.expand(self.feed_forward_norm(x)))  # (B, L, d_ff)
        out: Tensor = x + self.dropout(self.contract(hidden))
        return out


def _embedding(rows: int, d: int) -> nn.Embedding:
    """A table whose rows have length about 1: unit variance once scaled by sqrt(d)."""
    embedding = nn.Embedding(rows, d)
    nn.init.normal_(embedding.weight, std=d**-0.5)
    return embedding
