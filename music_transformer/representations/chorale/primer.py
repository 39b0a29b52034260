"""The primer of a chorale, on the grid of its own beat."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from music_transformer.errors import MidiError
from music_transformer.notes import NoteSequence, Tempos
from music_transformer.representations.base import (
    DEFAULT_SECONDS_PER_BEAT,
    Primer,
    check_closing_rest,
    no_note_in,
)
from music_transformer.representations.chorale.grid import (
    N_VOICES,
    SILENCE,
    SIXTEENTHS_PER_BEAT,
    to_sixteenths,
)

if TYPE_CHECKING:
    from music_transformer.representations.chorale.tokenizer import ChoraleTokenizer

SHORTEST_BEAT_SECONDS = 0.05  # 1200 a minute; a damaged tempo would ask for millions of sixteenths


def read_primer(
    tokenizer: ChoraleTokenizer,
    primer: NoteSequence | Sequence[int],
    last_seconds: float | None,
    keep_silence: bool,
) -> Primer:
    """The ids of a primer, whole sixteenths of it where it is cut.

    Its first place is the index of its first id in the whole piece, so that a cut does not move the
    bar line under the step labels.
    """
    tempos = Tempos([0.0], [DEFAULT_SECONDS_PER_BEAT])
    if isinstance(primer, NoteSequence):
        tempos = primer.tempos
        _check_beat(tokenizer.seconds_per_beat(primer))
        ids = tokenizer.encode(primer)
        check_closing_rest(primer.end_time - float(primer.end.max()))
        sixteenths = int(to_sixteenths(primer.tempos.quarters(primer.end_time)))
        ids += [SILENCE] * (sixteenths * N_VOICES - len(ids))
    else:
        ids = tokenizer.events_of(primer)
    end = float(tempos.at_quarters(math.ceil(len(ids) / N_VOICES) / SIXTEENTHS_PER_BEAT))
    seconds_per_beat = tempos.quarter_at(end)
    _check_beat(seconds_per_beat)
    dropped = 0 if keep_silence else _leading_silence(ids)
    ids = ids[dropped:]
    in_the_beat = dropped % (N_VOICES * SIXTEENTHS_PER_BEAT)  # an upbeat stays one for the labels
    first, begin = 0, 0.0
    if last_seconds is not None:
        sixteenths = max(1, round(last_seconds / seconds_per_beat * SIXTEENTHS_PER_BEAT))
        first = N_VOICES * max(0, math.ceil(len(ids) / N_VOICES) - sixteenths)
        if first:
            quarter = (dropped + first) / N_VOICES / SIXTEENTHS_PER_BEAT
            begin = float(tempos.at_quarters(quarter))
        if first and not keep_silence:
            first += _leading_silence(ids[first:])
        if first and all(i == SILENCE for i in ids[first:]):
            raise no_note_in(last_seconds)
    if not isinstance(primer, NoteSequence):
        begin = (
            end - math.ceil(len(ids[first:]) / N_VOICES) * seconds_per_beat / SIXTEENTHS_PER_BEAT
        )
    return Primer(ids[first:], in_the_beat + first, seconds_per_beat, begin, end)


def _check_beat(seconds: float) -> None:
    if seconds < SHORTEST_BEAT_SECONDS:
        raise MidiError(
            f"the primer's beat lasts {seconds:g} s, expected {SHORTEST_BEAT_SECONDS:g} or more: "
            "its tempo is damaged."
        )


def _leading_silence(ids: list[int]) -> int:
    """How many ids are in the whole sixteenths of silence at the front; none if all is silence."""
    sounding = (index for index, event_id in enumerate(ids) if event_id != SILENCE)
    return next(sounding, 0) // N_VOICES * N_VOICES
