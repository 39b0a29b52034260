"""A trained model in one folder: weights, model config, tokenizer config.

`format` reads and writes the files, `session` loads and saves, `hub` knows where checkpoints are.
"""

from music_transformer.checkpoint.session import Session, load_checkpoint, save_checkpoint

__all__ = ["Session", "load_checkpoint", "save_checkpoint"]
