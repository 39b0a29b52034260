"""Accompany a melody that is kept: by alto, tenor and bass, or by a piano.

Several candidates are drawn and ranked: first those that end on a triad or octaves (not so with
``end="cut"``), then by their likelihood: the mean negative log-likelihood of what was composed
under the model itself, before any processor, as `evaluate` counts it. The two tasks are `harmony`
(a chorale model) and `duet` (a model of piano accompaniments).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from music_transformer.checkpoint.session import Session
from music_transformer.errors import ConfigError
from music_transformer.generation.duet import play_to
from music_transformer.generation.harmony import harmonize
from music_transformer.generation.loop import SampleSpec
from music_transformer.generation.report import Report
from music_transformer.notes import NoteSequence
from music_transformer.sampling import check_count, settings_of

DEFAULT_CANDIDATES = 8

#: Called with how much is done and how much there is.
Progress = Callable[[float, float], None]


@dataclass(frozen=True)
class Accompaniment:
    """One candidate.

    Attributes:
        notes: the melody's own notes on track 0, alto, tenor and bass on tracks 1 to 3; of a piano
            model what it plays on track 1.
        ids: the whole grid at the pitch of the melody, from second 0 on, four ids a sixteenth; of a
            piano model its events from the first note of the melody on.
        report: numbers and warnings.
    """

    notes: NoteSequence
    ids: list[int]
    report: Report

    @property
    def nll(self) -> float:
        """Mean over the composed cells, nats per note, or over the events; lower is likelier."""
        return self.report.nll


def accompany(
    session: Session,
    melody: NoteSequence,
    *,
    candidates: int = DEFAULT_CANDIDATES,
    keep_key: bool = False,
    on_progress: Progress | None = None,
    **settings: Any,
) -> list[Accompaniment]:
    """Candidates of what goes with the melody, the best first: voices, or a piano.

    Args:
        session: a chorale model, for alto, tenor and bass; or a model of piano accompaniments.
        melody: one voice; of more the highest notes are taken, see `melody`.
        candidates: how many to draw; candidate i has generator (seed, i).
        keep_key: read the melody where it is, even outside the soprano's range. Chorales only; a
            piano always does.
        on_progress: called after every event with how much is done and how much there is.
        settings: as in `generate`, but for the length, which is the melody's; `keep_silence`
            composes during the silence before the melody too.

    Raises:
        ConfigError: a setting outside its range, or a model that accompanies nothing.
        MidiError: a melody without notes.
        TokenError: a melody too long for a grid.
    """
    tasks = {"chorale": harmonize, "accompaniment": play_to}
    kind = session.tokenizer.kind
    if kind not in tasks:
        raise ConfigError(
            f"{session.path}: this checkpoint does not accompany, it continues "
            f"{kind}s; take one of chorales, such as bach, or of accompaniments, "
            "such as piano-accompaniment."
        )
    check_count("candidates", candidates)
    how = settings_of(settings)
    for name in ("seconds", "events"):
        if getattr(how, name) is not None:
            raise ConfigError(f"{name}: an accompaniment is as long as its melody; leave it out.")
    specs = [SampleSpec(how, number) for number in range(candidates)]
    results = tasks[kind](session, melody, specs, keep_key, on_progress or _silently)
    names = session.tokenizer.accompanied
    return [
        Accompaniment(notes.replaced(track_names=names), ids, report)
        for notes, ids, report in results
    ]


def _silently(done: float, total: float) -> None:
    pass
