"""A tokenizer from its configuration: what checkpoints and prepared data store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from music_transformer.errors import ConfigError
from music_transformer.tokenizers.chorale import ChoraleTokenizer
from music_transformer.tokenizers.melody import AccompanimentTokenizer
from music_transformer.tokenizers.performance import PerformanceTokenizer
from music_transformer.tokenizers.vocabulary import Tokenizer

_Kind = type[PerformanceTokenizer] | type[ChoraleTokenizer] | type[AccompanimentTokenizer]

TOKENIZERS: dict[str, _Kind] = {
    PerformanceTokenizer.kind: PerformanceTokenizer,
    ChoraleTokenizer.kind: ChoraleTokenizer,
    AccompanimentTokenizer.kind: AccompanimentTokenizer,
}


def tokenizer_from_config(config: Mapping[str, Any]) -> Tokenizer:
    """The tokenizer whose `to_config` gave the mapping.

    Raises:
        ConfigError: an unknown kind, or a key that this kind does not know.
    """
    settings = dict(config)
    kind = settings.pop("kind", None)
    if kind not in TOKENIZERS:
        raise ConfigError(f"tokenizer kind={kind!r} is unknown; try one of {sorted(TOKENIZERS)}.")
    known = TOKENIZERS[kind]().to_config().keys() - {"kind"}
    unknown = sorted(settings.keys() - known)
    if unknown:
        raise ConfigError(
            f"the {kind} tokenizer does not know {unknown[0]!r}; it knows {sorted(known)}."
        )
    return TOKENIZERS[kind](**settings)
