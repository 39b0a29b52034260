"""The primer of a performance: all of it, or its last part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from music_transformer.notes import STEPS_PER_SECOND, NoteSequence, to_steps
from music_transformer.representations.base import Limits, Primer, check_closing_rest, no_note_in
from music_transformer.representations.performance.vocabulary import (
    MAX_SHIFT,
    NOTE_OFF,
    PEDAL_OFF,
    TIME_SHIFT,
    VELOCITY,
    drop_leading_silence,
    rest,
)

if TYPE_CHECKING:
    from music_transformer.representations.performance.tokenizer import PerformanceTokenizer


def read_primer(
    tokenizer: PerformanceTokenizer,
    primer: NoteSequence | Sequence[int],
    last_seconds: float | None,
    keep_silence: bool,
) -> Primer:
    """The ids of a primer, its closing rest as TIME_SHIFTs."""
    if isinstance(primer, NoteSequence):
        ids = tokenizer.encode(primer)
        ids += _closing_rest(tokenizer, ids, primer.end_time)
    else:
        ids = tokenizer.events_of(primer)
    seconds, begin = tokenizer.duration_seconds(ids), 0.0
    if last_seconds is not None:
        begin = max(seconds - round(last_seconds * STEPS_PER_SECOND) / STEPS_PER_SECOND, 0.0)
        ids = last_part(tokenizer, ids, round(last_seconds * STEPS_PER_SECOND))
    ids = ids if keep_silence else drop_leading_silence(ids)
    if isinstance(primer, NoteSequence):
        return Primer(ids, begin=begin, end=max(seconds, primer.end_time))
    return Primer(ids)


def _closing_rest(tokenizer: PerformanceTokenizer, ids: list[int], end_time: float) -> list[int]:
    """The ids of the time between the last event and the end of the file."""
    encoded_seconds = tokenizer.duration_seconds(ids)
    check_closing_rest(end_time - encoded_seconds)
    steps = int(to_steps(end_time)) - round(encoded_seconds * STEPS_PER_SECOND)
    return rest(max(steps, 0))


def last_part(tokenizer: PerformanceTokenizer, ids: list[int], steps: int) -> list[int]:
    """The canonical ids of the last ``steps`` steps.

    Notes that sound at the cut begin there; those that still sound at the end stay open.

    Raises:
        MidiError: no note is in that part.
    """
    grammar = tokenizer.grammar(Primer(ids), Limits())
    cut = grammar.step - steps
    if cut <= 0:
        return ids
    # What is open ends a second later for the time of the cut, then its end is taken off again.
    ends = [PEDAL_OFF] if grammar.pedal_is_down else []
    ends += [NOTE_OFF + pitch for pitch in grammar.sounding]
    later = [TIME_SHIFT + MAX_SHIFT - 1, *ends] if ends else []
    longer = tokenizer.decode([*ids, *later])
    kept = longer.sliced(cut / STEPS_PER_SECOND, longer.end_time)
    if not len(kept):
        raise no_note_in(steps / STEPS_PER_SECOND)
    part = tokenizer.encode(kept)
    part = part[: len(part) - len(ends)]
    while part and TIME_SHIFT <= part[-1] < VELOCITY:
        part.pop()
    return part + rest(steps - round(tokenizer.duration_seconds(part) * STEPS_PER_SECOND))


def split_at(ids: list[int], cut: int) -> tuple[list[int], list[int]]:
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
