"""Every error a user can cause: one line that says what is wrong, where, and how to mend it.

The command line prints it and ends with 2 for `ConfigError` (a wrong request), 1 for
`DivergenceError` (no input is at fault), 3 for the others (an input is missing or broken).
"""


class MusicTransformerError(Exception):
    """What a user, a file or a setting caused, said in one line."""


class MidiError(MusicTransformerError):
    """A MIDI file is missing, damaged or holds nothing to play."""


class TokenError(MusicTransformerError):
    """An id or a stream of ids is outside the vocabulary."""


class DatasetError(MusicTransformerError):
    """A corpus or prepared data is missing, damaged or of the wrong kind."""


class ConfigError(MusicTransformerError):
    """A setting, alone or with others, makes no sense."""


class DivergenceError(MusicTransformerError):
    """Training came to a loss or gradients that are no number."""


class ShapeError(MusicTransformerError):
    """A tensor has another shape than the operator expects."""


class CheckpointError(MusicTransformerError):
    """A checkpoint is missing, damaged or does not fit what is asked of it."""


class RenderError(MusicTransformerError):
    """Audio or a picture cannot be made: a missing extra, font or a broken input."""
