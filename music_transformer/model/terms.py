"""Terms from ids: what some models add to embeddings and logits because of what the ids mean.

A term is a module that a setting of the config asks for, by the name of that setting. The paper's
model has none. `INPUTS` has what takes the place of the whole input.
"""

from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor, nn

from music_transformer.lazy import part
from music_transformer.model.positions import Reading

if TYPE_CHECKING:
    from music_transformer.model.config import ModelConfig

PENALTY = 1024.0  # what the logit of an id loses that a term forbids
Input = TypeVar("Input", bound=nn.Module)
#: The class of each term, by the setting that asks for it.
TERMS = {
    "interval_output": "music_transformer.model.chorale:IntervalOutput",
    "performance_state": "music_transformer.model.performance_state:PerformanceState",
    "anchors": "music_transformer.model.anchors:Anchors",
}
#: Subclasses of `InputEmbedding`, likewise.
INPUTS = {"voice_labels": "music_transformer.model.chorale:LabelledInput"}


class Term(nn.Module):
    """A term from ids; the methods with a body add nothing."""

    def __init__(self, config: "ModelConfig") -> None:
        super().__init__()

    @staticmethod
    def check(config: "ModelConfig") -> None:
        """Refuse a config that the term cannot do, with a `ConfigError`."""

    def read(self, reading: Reading, kept: dict[str, Any] | None) -> Any:
        """What the term makes of the ids of this pass.

        ``kept`` is what it wants to keep from one cached call to the next, emptied when the cache
        is cleared; None without a cache.
        """

    def embed(self, x: Tensor, state: Any) -> Tensor:
        """Embeddings (B, L, d_model) with what the ``state`` that was read adds to them."""
        return x

    def logits(self, x: Tensor, logits: Tensor, state: Any) -> Tensor:
        """Logits (B, L, V) of the stream x (B, L, d_model), with what is added to them."""
        return logits

    def output_parameters(self) -> list[nn.Parameter]:
        """The parameters that the logits it adds are a multiple of."""
        return []


def add_terms(model: nn.Module, config: "ModelConfig") -> tuple[Term, ...]:
    """The terms that a config asks for, in order; each a submodule of ``model``, by its name."""
    terms = {name: kind(config) for name, kind in term_classes(config).items()}
    for name, term in terms.items():
        model.add_module(name, term)
    return tuple(terms.values())


def term_classes(config: "ModelConfig") -> dict[str, type[Term]]:
    """The classes of the terms that a config asks for, by name."""
    return {name: part(TERMS, name, "term") for name in TERMS if getattr(config, name)}


def input_class(config: "ModelConfig", plain: type[Input]) -> type[Input]:
    """The class of the input that a config asks for; ``plain`` where it asks for none."""
    for name in INPUTS:
        if getattr(config, name):
            return part(INPUTS, name, "input")  # type: ignore[no-any-return]
    return plain


def without_mask(logits: Tensor) -> Tensor:
    """The logits as they were before ids were forbidden; where none were, as they are."""
    return torch.where(logits < -PENALTY / 2, logits + PENALTY, logits)
