"""The loop: samples drawn side by side, event by event; the only place where music is drawn.

A task makes the samples, which know what may come next, and the reader, which knows what the model
sees. Every sample takes one number per event from its own generator, on the CPU, so what it draws
does not depend on those beside it, but in the last bit of its logits (matrix products of other
sizes add in another order).
"""

import copy
import hashlib
import math
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from music_transformer.checkpoint.session import Session
from music_transformer.errors import CheckpointError
from music_transformer.generation.processors import process
from music_transformer.generation.sampler import Window
from music_transformer.generation.steering import Steering
from music_transformer.model.registry import evaluating
from music_transformer.representations.base import Grammar
from music_transformer.sampling import Settings

#: The number of a sample and its next id.
NumberedIds = Generator[tuple[int, int], None, None]


@dataclass(frozen=True)
class SampleSpec:
    """What makes a sample: with these, the same model and the same primer, the same music."""

    settings: Settings
    number: int = 0
    attempt: int = 0  # more where one was not good enough

    def resolved(self, session: Session) -> "SampleSpec":
        """The same with nothing left open: as the checkpoint says, else the default."""
        settings = self.settings.or_else(self.settings.mood).or_else(session.sampling).resolved()
        return replace(self, settings=settings)


class Sample:
    """One sample on its way: what was drawn so far, and what may come next.

    Attributes:
        spec: nothing of its settings left open.
        ids: what the model reads of it: the primer's ids, then the new ones.
        nll: negative log-likelihood of each new id under the model alone, nats.
        closing: the ids that ended what still sounded.
        away: (128,) 1 for pitches outside the triad on which it is to end, once it comes to an end.
        forced: draws where the grammar left one id.
        windows_reread: how often the oldest half of the context was dropped.
        pause: seconds after which it waits, if it is not finished before.

    Args:
        end: the id of END, which ends the sample wherever `allowed` has it.
    """

    def __init__(
        self, spec: SampleSpec, grammar: Grammar, *, primer: Sequence[int] = (), end: int = -1
    ) -> None:
        self.spec, self.grammar = spec, grammar
        self.ids = list(primer)
        self.nll: list[float] = []
        self.closing: list[int] = []
        self.steering: Steering | None = None
        self.away: Tensor | None = None
        self.forced = 0
        self.windows_reread = 0
        self.pause = math.inf
        self.ended = False
        self.end = end
        self._primer_length = len(self.ids)
        self.generator = sample_generator(spec.settings.seed, spec.number, spec.attempt)

    @property
    def settings(self) -> Settings:
        """Those of `spec`."""
        return self.spec.settings

    @property
    def drawn(self) -> list[int]:
        """The new ids, without those that close it."""
        return self.ids[self._primer_length :]

    @property
    def events(self) -> int:
        """How many ids are new."""
        return len(self.nll)

    @property
    def finished(self) -> bool:
        """Whether it has its length or END."""
        wanted = self.grammar.wanted
        return self.ended or (self.grammar.finished if wanted is None else self.events >= wanted)

    @property
    def waits(self) -> bool:
        """Whether it is finished or pauses."""
        return self.finished or self.grammar.seconds >= self.pause

    def branch(self, number: int, attempt: int) -> "Sample":
        """Another that is the same so far, and goes on with the generator of those numbers."""
        one = copy.copy(self)
        one.spec = replace(self.spec, number=number, attempt=attempt)
        one.ids, one.nll = list(self.ids), list(self.nll)
        one.grammar, one.steering = copy.deepcopy((self.grammar, self.steering))
        one.generator = sample_generator(self.settings.seed, number, attempt)
        return one

    def account(self) -> dict[str, Any]:
        """What a `Report` of any task says of it."""
        grammar, settings = self.grammar, self.settings
        return {
            "sample": self.spec.number,
            "seed": settings.seed,
            "attempt": self.spec.attempt,
            "nll": sum(self.nll) / max(self.events, 1),
            "events": self.events,
            "closing_events": len(self.closing),
            "forced_events": self.forced,
            "long_notes_closed": grammar.long_notes_closed,
            "notes_cut": grammar.notes_cut,
            "windows_reread": self.windows_reread,
        }

    def on_time(self) -> Tensor | None:
        """(100,) bool of the TIME_SHIFTs, True = in time with what is kept; None: there is none."""
        return None

    def allowed(self) -> Tensor:
        """(V,) bool, True = may come next; a copy."""
        wanted = self.grammar.wanted
        remaining = None if wanted is None else wanted - self.events
        return torch.from_numpy(self.grammar.mask(remaining).copy())

    def take(self, drawn: int, log_probabilities: Tensor) -> int | None:
        """Follow a drawn id; the id that counts (a TIME_SHIFT may be shortened), None for END.

        Args:
            log_probabilities: (V,) of the model alone.
        """
        if drawn == self.end:
            self.ended = True
            return None
        event_id = self.grammar.clip(drawn)
        self.nll.append(-float(log_probabilities[event_id]))
        self.grammar.advance(event_id)
        self.ids.append(event_id)
        return event_id

    def close(self) -> list[int]:
        """The ids that end what still sounds, followed too."""
        self.closing = self.grammar.closing()
        return self.closing


class Reader(Protocol):
    """What the model sees of some samples, one row each; see `sampler.Window`."""

    reread: int

    @property
    def is_full(self) -> bool: ...

    def read(self, ids: Tensor) -> Tensor: ...

    def keep(self, rows: list[int]) -> None: ...


def draw_in_window(
    session: Session, samples: Sequence[Sample], first: Tensor, *, context: int, place: int = 0
) -> NumberedIds:
    """`draw_all` with a `Window` of the session's model, whose first id has this index."""
    window = Window(session.model, len(samples), context=context, first_place=place)
    drawn = draw_all(window, samples, first, session.tokenizer.pad)
    with evaluating(session.model), closing(drawn):
        yield from drawn


def draw_all(reader: Reader, samples: Sequence[Sample], first: Tensor, pad: int) -> NumberedIds:
    """Draw until every sample is finished, and closed, or waits; yields every new id.

    A sample that waits keeps its row, fed with PAD, until the reader is full.

    Args:
        first: (B, L) ids to read before the first draw.
        pad: the id of PAD.
    """
    rows = list(range(len(samples)))
    read = first
    while True:
        reread = reader.reread
        logits = reader.read(read)  # (B, V)
        active = [row for row, number in enumerate(rows) if not samples[number].waits]
        logits = logits[active]  # (A, V)
        next_ids = _next_ids(logits, [samples[rows[row]] for row in active])
        log_probabilities = logits.log_softmax(dim=-1)  # (A, V)
        read = torch.full((len(rows), 1), pad)  # (B, 1)
        for row, drawn, known in zip(active, next_ids, log_probabilities, strict=True):
            sample = samples[rows[row]]
            sample.windows_reread += reader.reread - reread
            taken = sample.take(drawn, known)
            if taken is not None:
                read[row] = taken
                yield rows[row], taken
            if sample.finished:
                yield from ((rows[row], closed) for closed in sample.close())
        active = [row for row in active if not samples[rows[row]].waits]
        if not active:
            return
        if reader.is_full and len(active) < len(rows):
            reader.keep(active)
            read, rows = read[active], [rows[row] for row in active]


def _next_ids(logits: Tensor, samples: list[Sample]) -> list[int]:
    """What comes next in each sample: given, or drawn from its row of logits (A, V)."""
    given = [sample.grammar.given for sample in samples]
    free = [row for row, event_id in enumerate(given) if event_id is None]
    drawn: list[int] = []
    if free:
        drawing = [samples[row] for row in free]
        allowed = torch.stack([sample.allowed() for sample in drawing])  # (F, V)
        for sample, some in zip(drawing, allowed.sum(dim=1).tolist(), strict=True):
            sample.forced += some == 1
        masked = logits[free].masked_fill(~allowed, -math.inf)  # (F, V)
        drawn = draw(process(masked, drawing), [sample.generator for sample in drawing])
    following = iter(drawn)
    return [next(following) if event_id is None else event_id for event_id in given]


def draw(logits: Tensor, generators: Sequence[torch.Generator]) -> list[int]:
    """One id per row of logits (B, V), drawn with the row's own generator.

    By the inverse of the cumulative distribution, as a last-bit difference in the logits then
    hardly ever changes the id.

    Raises:
        CheckpointError: a row without a finite logit, or with one that is not a number.
    """
    likeliest = logits.amax(dim=-1, keepdim=True)  # NaN if any is
    if not bool(torch.isfinite(likeliest).all()):
        raise CheckpointError(
            "the model gives logits that are not finite numbers: its weights are damaged, or the "
            "training diverged; take another checkpoint."
        )
    cumulative = (logits.double() - likeliest).exp().cumsum(dim=-1)  # (B, V)
    uniform = torch.cat([torch.rand(1, generator=g, dtype=torch.float64) for g in generators])
    total = cumulative[:, -1:].contiguous()  # (B, 1)
    point = uniform[:, None] * total  # (B, 1)
    ids = torch.searchsorted(cumulative, point, right=True)[:, 0]  # (B,)
    last = torch.searchsorted(cumulative, total)[:, 0]  # the last possible id
    result: list[int] = torch.minimum(ids, last).tolist()
    return result


def sample_generator(seed: int, sample: int, attempt: int = 0) -> torch.Generator:
    """The generator of one attempt at a sample: a hash spreads the numbers over torch's 32 bits."""
    name = f"{seed}/{sample}" if attempt == 0 else f"{seed}/{sample}/{attempt}"
    digest = hashlib.sha256(name.encode()).digest()
    generator = torch.Generator()
    generator.manual_seed(int.from_bytes(digest[:4], "little"))
    return generator
