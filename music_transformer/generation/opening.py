"""A piece parted in two: its opening, to be continued by others, and how it really went on."""

import math

from music_transformer.errors import ConfigError, MidiError
from music_transformer.notes import NoteSequence, to_steps
from music_transformer.tokenizers import ChoraleTokenizer, Tokenizer, rest
from music_transformer.tokenizers.chorale import (
    DEFAULT_SECONDS_PER_BEAT,
    N_VOICES,
    SIXTEENTHS_PER_BEAT,
)
from music_transformer.tokenizers.vocabulary import TIME_SHIFT, VELOCITY


def split_opening(
    tokenizer: Tokenizer, notes: NoteSequence, *, seconds: float, events: int
) -> tuple[list[int], list[int]]:
    """The ids of the first `seconds` of a piece, and the `events` ids after them.

    Counted from the first note. A rest that goes on past the cut is parted in two. A chorale is cut
    between sixteenths at 80 beats a minute, and its events are rounded up to whole sixteenths.

    Raises:
        MidiError: the piece has no notes, or fewer events than asked for.
        ConfigError: no length to speak of.
    """
    if not (seconds > 0 and math.isfinite(seconds) and events > 0):
        raise ConfigError(f"an opening of {seconds:g} s and {events} events: choose more than 0.")
    if not len(notes):
        raise MidiError("no notes in it.")
    ids = tokenizer.encode(notes, keep_silence=False)
    if isinstance(tokenizer, ChoraleTokenizer):
        cut = N_VOICES * round(seconds / DEFAULT_SECONDS_PER_BEAT * SIXTEENTHS_PER_BEAT)
        opening, after = ids[:cut], ids[cut:]
        events += -events % N_VOICES
    else:
        opening, after = _split_performance(ids, int(to_steps(seconds)))
    if len(after) < events:
        raise MidiError(
            f"{len(after)} events after its first {seconds:g} s, {events} are needed: take a "
            "longer piece, or ask for less."
        )
    return opening, after[:events]


def _split_performance(ids: list[int], cut: int) -> tuple[list[int], list[int]]:
    """The ids before step `cut`, lasting until then, and the rest."""
    step = 0
    for index, event_id in enumerate(ids):
        if not TIME_SHIFT <= event_id < VELOCITY:
            continue
        shift = event_id - TIME_SHIFT + 1
        if step + shift >= cut:
            return [*ids[:index], *rest(cut - step)], [*rest(step + shift - cut), *ids[index + 1 :]]
        step += shift
    return ids, []
