"""A trained model in one folder: weights, model config, tokenizer config.

`format` reads and writes the files, `session` loads and saves, `hub` knows where checkpoints are.
"""

from music_transformer.checkpoint.format import (
    CONFIG,
    README,
    load_weights,
    read_config,
    read_json,
    read_tensors,
    sampling_of,
    write_files,
    write_tensors,
)
from music_transformer.checkpoint.hub import (
    SEARCH_VARIABLE,
    find_checkpoint,
    named_step,
    select_device,
)
from music_transformer.checkpoint.session import (
    Session,
    check_replaceable,
    load_checkpoint,
    save_checkpoint,
)

__all__ = [
    "CONFIG",
    "README",
    "SEARCH_VARIABLE",
    "Session",
    "check_replaceable",
    "find_checkpoint",
    "load_checkpoint",
    "load_weights",
    "named_step",
    "read_config",
    "read_json",
    "read_tensors",
    "sampling_of",
    "save_checkpoint",
    "select_device",
    "write_files",
    "write_tensors",
]
