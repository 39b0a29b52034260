"""What a model is to continue: notes, ids or nothing, as the ids it reads first.

- The primer lasts to its last event: a closing rest counts, as TIME_SHIFTs or silent sixteenths.
- `primer_seconds` keeps the last part. A note that sounds at the cut begins there, in the cut part
  as in the output; a note of given ids that has no NOTE_OFF yet stays open to the model.
- Leading silence goes, the cut part's too, unless `keep_silence`.
- PAD, START and END among given ids are skipped, as `decode` skips them.

A chorale's first place is the index of its first id in the whole piece, so that a cut does not move
the bar line under the step labels.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from music_transformer.errors import ConfigError, MidiError
from music_transformer.generation.grammar import PerformanceGrammar
from music_transformer.notes import STEPS_PER_SECOND, NoteSequence, to_steps
from music_transformer.tokenizers import (
    ChoraleTokenizer,
    PerformanceTokenizer,
    Tokenizer,
    drop_leading_silence,
    rest,
)
from music_transformer.tokenizers.chorale import (
    DEFAULT_SECONDS_PER_BEAT,
    N_VOICES,
    SILENCE,
    SIXTEENTHS_PER_BEAT,
    to_sixteenths,
)
from music_transformer.tokenizers.vocabulary import (
    MAX_SHIFT,
    NOTE_OFF,
    PEDAL_OFF,
    TIME_SHIFT,
    VELOCITY,
    check_ids,
)

LONGEST_CLOSING_REST_SECONDS = 3600.0
SHORTEST_BEAT_SECONDS = 0.05  # 1200 a minute; a damaged tempo would ask for millions of sixteenths


@dataclass(frozen=True)
class Primer:
    """The ids to continue, START not among them.

    Attributes:
        ids: possibly none.
        first_place: index of the first id in its piece; the START before it has this place.
        seconds_per_beat: the primer's beat; chorales only.
    """

    ids: list[int]
    first_place: int = 0
    seconds_per_beat: float = DEFAULT_SECONDS_PER_BEAT


def read_primer(
    tokenizer: Tokenizer,
    primer: NoteSequence | Sequence[int] | None,
    *,
    primer_seconds: float | None = None,
    keep_silence: bool = False,
) -> Primer:
    """The ids of a primer in the form the model reads.

    Raises:
        MidiError: notes without a note, in all or in the part kept.
        TokenError: ids outside the vocabulary.
        ConfigError: the tokenizer is of an unknown kind.
    """
    if primer is None:
        return Primer([])
    if isinstance(primer, NoteSequence) and not len(primer):
        raise MidiError("the primer has no notes: give one that has, or leave it out.")
    if isinstance(tokenizer, PerformanceTokenizer):
        return _performance(tokenizer, primer, primer_seconds, keep_silence)
    if isinstance(tokenizer, ChoraleTokenizer):
        return _chorale(tokenizer, primer, primer_seconds, keep_silence)
    raise ConfigError(f"a {tokenizer.kind} tokenizer cannot read a primer.")


def events_of(tokenizer: Tokenizer, ids: Sequence[int]) -> list[int]:
    """The ids without PAD, START and END.

    Raises:
        TokenError: an id outside the vocabulary, named with its position.
    """
    special = {tokenizer.pad, tokenizer.start, tokenizer.end}
    return [i for i in check_ids(ids, tokenizer.vocab_size).tolist() if i not in special]


def _performance(
    tokenizer: PerformanceTokenizer,
    primer: NoteSequence | Sequence[int],
    primer_seconds: float | None,
    keep_silence: bool,
) -> Primer:
    if isinstance(primer, NoteSequence):
        ids = tokenizer.encode(primer)
        ids += _closing_rest(tokenizer, ids, primer.end_time)
    else:
        ids = events_of(tokenizer, primer)
    if primer_seconds is not None:
        ids = last_part(tokenizer, ids, round(primer_seconds * STEPS_PER_SECOND))
    return Primer(ids if keep_silence else drop_leading_silence(ids))


def _closing_rest(tokenizer: PerformanceTokenizer, ids: list[int], end_time: float) -> list[int]:
    """The ids of the time between the last event and the end of the file."""
    encoded_seconds = tokenizer.duration_seconds(ids)
    _check_closing_rest(end_time - encoded_seconds)
    steps = int(to_steps(end_time)) - round(encoded_seconds * STEPS_PER_SECOND)
    return rest(max(steps, 0))


def _check_closing_rest(seconds: float) -> None:
    if seconds > LONGEST_CLOSING_REST_SECONDS:
        raise MidiError(f"the primer ends with a rest of {seconds:.0f} s: cut the silence.")


def last_part(tokenizer: PerformanceTokenizer, ids: list[int], steps: int) -> list[int]:
    """The canonical ids of the last ``steps`` steps.

    Notes that sound at the cut begin there; those that still sound at the end stay open.

    Raises:
        MidiError: no note is in that part.
    """
    grammar = PerformanceGrammar(tokenizer.vocab_size)
    grammar.read(ids)
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
        raise MidiError(
            f"the last {steps / STEPS_PER_SECOND:g} s of the primer have no note: "
            "keep more of it (--primer-seconds)."
        )
    part = tokenizer.encode(kept)
    part = part[: len(part) - len(ends)]
    while part and TIME_SHIFT <= part[-1] < VELOCITY:
        part.pop()
    return part + rest(steps - round(tokenizer.duration_seconds(part) * STEPS_PER_SECOND))


def _chorale(
    tokenizer: ChoraleTokenizer,
    primer: NoteSequence | Sequence[int],
    primer_seconds: float | None,
    keep_silence: bool,
) -> Primer:
    seconds_per_beat = DEFAULT_SECONDS_PER_BEAT
    if isinstance(primer, NoteSequence):
        seconds_per_beat = tokenizer.seconds_per_beat(primer)
        if seconds_per_beat < SHORTEST_BEAT_SECONDS:
            raise MidiError(
                f"the primer's beat lasts {seconds_per_beat:g} s, expected "
                f"{SHORTEST_BEAT_SECONDS:g} or more: its tempo is damaged."
            )
        ids = tokenizer.encode(primer)
        _check_closing_rest(primer.end_time - float(primer.end.max()))
        sixteenths = int(to_sixteenths(primer.tempos.quarters(primer.end_time)))
        ids += [SILENCE] * (sixteenths * N_VOICES - len(ids))
    else:
        ids = events_of(tokenizer, primer)
    dropped = 0 if keep_silence else _leading_silence(ids)
    ids = ids[dropped:]
    in_the_beat = dropped % (N_VOICES * SIXTEENTHS_PER_BEAT)  # an upbeat stays one for the labels
    first = 0
    if primer_seconds is not None:
        sixteenths = max(1, round(primer_seconds / seconds_per_beat * SIXTEENTHS_PER_BEAT))
        first = N_VOICES * max(0, math.ceil(len(ids) / N_VOICES) - sixteenths)
        if first and not keep_silence:
            first += _leading_silence(ids[first:])
        if first and all(i == SILENCE for i in ids[first:]):
            raise MidiError(
                f"the last {primer_seconds:g} s of the primer have no note: "
                "keep more of it (--primer-seconds)."
            )
    return Primer(ids[first:], in_the_beat + first, seconds_per_beat)


def _leading_silence(ids: list[int]) -> int:
    """How many ids are in the whole sixteenths of silence at the front; none if all is silence."""
    sounding = (index for index, event_id in enumerate(ids) if event_id != SILENCE)
    return next(sounding, 0) // N_VOICES * N_VOICES
