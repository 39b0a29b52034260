"""What the terms of performances share: the vocabulary, and tables that are zero at first."""

from typing import ClassVar

import torch
from torch import nn

from music_transformer.errors import ConfigError
from music_transformer.model.config import ModelConfig
from music_transformer.model.terms import Term

# The ids of the performance vocabulary; a test holds them against the tokenizer's.
N_PITCHES = 128
NOTE_OFF, TIME_SHIFT, VELOCITY, PAD, START, END, N_IDS = 128, 256, 356, 388, 389, 390, 391
N_SHIFTS, N_VELOCITIES = VELOCITY - TIME_SHIFT, PAD - VELOCITY


class PerformanceTerm(Term):
    """A term with a table of rows for the input and one for the logits, zero at first."""

    uncompiled = ("read",)  # by `training/compiled.py`
    input_rows: ClassVar[int]
    output_rows: ClassVar[int]

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        # No nn.Linear: like other tables, these stay float32 and belong to AdamW, undecayed.
        self.input_table = nn.Parameter(torch.zeros(self.input_rows, config.d_model))
        self.output_table = nn.Parameter(torch.zeros(self.output_rows, config.d_model))
        self.output_table_bias = nn.Parameter(torch.zeros(self.output_rows))

    def output_parameters(self) -> list[nn.Parameter]:
        """The output table."""
        return [self.output_table, self.output_table_bias]


def check_vocabulary(config: ModelConfig, name: str, knows: str, it: str) -> None:
    """Refuse another vocabulary than that of performances without pedal events.

    ``name`` is of the setting that asks for the term; ``knows`` and ``it`` end the error.
    """
    if config.vocab_size != N_IDS:
        raise ConfigError(
            f"{name} with vocab_size={config.vocab_size}: {knows} the {N_IDS} ids of performances "
            f"without pedal events; leave {it} out, or prepare with --pedal sustain."
        )
