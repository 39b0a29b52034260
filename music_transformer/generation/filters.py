"""From logits to an id: filters as pure functions on logits (B, V), and the draw.

A filter returns logits of the same shape in which the ids it rejects are -inf; it never rejects the
likeliest id of a row. They are applied in the order temperature, top_k, top_p, min_p, after the
grammar has removed what may not follow: each cuts the distribution that is really drawn from.

Every row has its own `torch.Generator`, on the CPU whatever the model runs on, and takes one number
from it per event. So what sample i draws does not depend on how many samples are drawn beside it.
Its logits may, in the last bit: matrix products of other sizes add in another order.
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from music_transformer.errors import CheckpointError
from music_transformer.sampling import DEFAULT_SAMPLING, Sampling

_REJECTED = -math.inf


@dataclass(frozen=True)
class Filters:
    """How to turn logits into the distribution that is drawn from.

    Attributes:
        temperature: divides the logits; 0 keeps only the likeliest id.
        top_k: keep the k likeliest ids; None keeps all.
        top_p: keep the likeliest ids that together reach this probability; None or 1 keeps all.
        min_p: keep ids at least this fraction as likely as the likeliest; None or 0 keeps all.

    Raises:
        ConfigError: a value outside its range.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None

    def __post_init__(self) -> None:
        Sampling(self.temperature, self.top_k, self.top_p, self.min_p)  # checks the ranges

    def __call__(self, logits: Tensor) -> Tensor:
        """The filtered logits, (B, V)."""
        logits = apply_temperature(logits, self.temperature)
        if self.top_k is not None:
            logits = keep_top_k(logits, self.top_k)
        if self.top_p is not None and self.top_p < 1:
            logits = keep_top_p(logits, self.top_p)
        if self.min_p is not None and self.min_p > 0:
            logits = keep_min_p(logits, self.min_p)
        return logits


def choose_filters(asked: Sampling, checkpoint: Sampling) -> Filters:
    """The filters to draw with: as asked for, else as the checkpoint says, else the defaults."""
    return Filters(**asked.or_else(checkpoint).or_else(DEFAULT_SAMPLING).to_dict())


def apply_temperature(logits: Tensor, temperature: float) -> Tensor:
    """The logits divided by the temperature; at 0 only the likeliest id (the first of equals)."""
    if temperature == 0:
        return _only(logits, logits.argmax(dim=-1, keepdim=True))
    # The likeliest is moved to 0 first: a tiny temperature then cannot overflow.
    return (logits - logits.amax(dim=-1, keepdim=True)) / temperature


def keep_top_k(logits: Tensor, top_k: int) -> Tensor:
    """The logits of the k likeliest ids of each row, exactly k: of equals the lower id stays."""
    order = logits.argsort(dim=-1, descending=True, stable=True)  # (B, V)
    return _only(logits, order[:, :top_k])


def keep_top_p(logits: Tensor, top_p: float) -> Tensor:
    """The logits of the smallest set of likeliest ids whose probabilities reach top_p.

    Source: Holtzman et al. 2020, "The Curious Case of Neural Text Degeneration".
    """
    ordered, order = logits.sort(dim=-1, descending=True, stable=True)  # (B, V)
    probabilities = ordered.softmax(dim=-1)
    before = probabilities.cumsum(dim=-1) - probabilities  # (B, V) what the likelier ones hold
    rejected = before >= top_p
    rejected[:, 0] = False
    return logits.masked_fill(rejected.gather(-1, order.argsort(dim=-1)), _REJECTED)


def keep_min_p(logits: Tensor, min_p: float) -> Tensor:
    """The logits of ids at least min_p times as likely as the likeliest of their row.

    Source: Nguyen et al. 2024, "Turning Up the Heat: Min-p Sampling".
    """
    floor = logits.amax(dim=-1, keepdim=True) + math.log(min_p)
    return logits.masked_fill(logits < floor, _REJECTED)


def draw(logits: Tensor, generators: Sequence[torch.Generator]) -> list[int]:
    """One id per row of logits (B, V), drawn with the row's own generator.

    The inverse of the cumulative distribution at one uniform number: a last-bit difference in the
    logits changes the id only where the number falls on a boundary.

    Raises:
        CheckpointError: a row without a finite logit, or with one that is not a number.
    """
    likeliest = logits.amax(dim=-1, keepdim=True)  # NaN if any is
    if not bool(torch.isfinite(likeliest).all()):
        raise CheckpointError(
            "the model gives logits that are not finite numbers: its weights are damaged, or the "
            "training diverged; take another checkpoint."
        )
    cumulative = (logits.double() - likeliest).exp().cumsum(dim=-1)  # (B, V)
    uniform = torch.cat([torch.rand(1, generator=g, dtype=torch.float64) for g in generators])
    total = cumulative[:, -1:].contiguous()  # (B, 1)
    point = uniform[:, None] * total  # (B, 1)
    ids = torch.searchsorted(cumulative, point, right=True)[:, 0]  # (B,)
    last = torch.searchsorted(cumulative, total)[:, 0]  # the last possible id
    result: list[int] = torch.minimum(ids, last).tolist()
    return result


def sample_generator(seed: int, sample: int, attempt: int = 0) -> torch.Generator:
    """The generator of one attempt at a sample: the same for the same numbers, unrelated otherwise.

    torch's CPU generator is seeded by 32 bits; a hash spreads the numbers over all of them.
    """
    name = f"{seed}/{sample}" if attempt == 0 else f"{seed}/{sample}/{attempt}"
    digest = hashlib.sha256(name.encode()).digest()
    generator = torch.Generator()
    generator.manual_seed(int.from_bytes(digest[:4], "little"))
    return generator


def _only(logits: Tensor, kept: Tensor) -> Tensor:
    """The logits with all but the ids in ``kept`` (B, K) rejected."""
    result = torch.full_like(logits, _REJECTED)
    return result.scatter_(-1, kept, logits.gather(-1, kept))
