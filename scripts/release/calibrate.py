"""The one temperature that makes a model's probabilities fit validation, put into its weights.

A model that has seen its few pieces a hundred times is surer than it has reason to be: on music it
does not know, its logits are too far apart. Divided by one number they lose none of their order,
and the NLL falls. The number is the one of lowest validation NLL; dividing the weights of the
output by it gives a checkpoint like any other, of which temperature 1 is calibrated.

One number from tens of thousands of notes can hardly over-fit, and the script shows it: it also
finds the number on every second piece and measures it on the others, and the other way round.

    python scripts/release/calibrate.py checkpoints/run --data data/jsb --out checkpoints/calibrated

Source: Guo et al. 2017, "On calibration of modern neural networks", section 4.2.
"""

from __future__ import annotations

import argparse
import sys

import torch
from torch import Tensor
from torch.nn import functional as F
from tqdm import tqdm

from music_transformer.checkpoint import load_checkpoint, save_checkpoint
from music_transformer.datasets import PreparedData
from music_transformer.datasets.windows import collate
from music_transformer.errors import ConfigError, MusicTransformerError
from music_transformer.evaluation.nll import protocol_windows
from music_transformer.model import MusicTransformer
from music_transformer.model.registry import evaluating
from music_transformer.model.terms import without_mask

_LOWEST, _HIGHEST = 0.25, 4.0  # temperatures looked at
_HALVINGS = 30
_BATCH = 8


@torch.no_grad()
def read_split(
    model: MusicTransformer, data: PreparedData, split: str
) -> tuple[Tensor, Tensor, Tensor]:
    """All that the model answers along a split, by the protocol of `evaluate`.

    Returns:
        Logits (N, V), targets (N,) and pieces (N,) of the N events that count.
    """
    pad = data.tokenizer.pad
    windows = sorted(
        protocol_windows(data, split, model.config.context), key=lambda window: -len(window.ids)
    )
    logits, targets, pieces = [], [], []
    with evaluating(model):
        for first in tqdm(range(0, len(windows), _BATCH), unit="batch", disable=None):
            some = windows[first : first + _BATCH]
            batch = collate(some, pad=pad)
            counted = batch.targets != pad  # (B, L)
            logits.append(model(batch.ids, **batch.given())[counted].float())
            targets.append(batch.targets[counted])
            piece = torch.tensor([window.piece for window in some])[:, None]
            pieces.append(piece.expand_as(counted)[counted])
    return torch.cat(logits), torch.cat(targets), torch.cat(pieces)


def nll_at(logits: Tensor, targets: Tensor, temperature: float) -> float:
    """Mean NLL in nats of logits (N, V) divided by a temperature, forbidden ids as before."""
    losses = F.cross_entropy(_divided(logits, temperature), targets, reduction="none")
    return float(losses.double().mean())


def _divided(logits: Tensor, temperature: float) -> Tensor:
    """The logits of a model whose weights are divided: what forbids an id is no weight."""
    allowed = without_mask(logits)
    return allowed / temperature - (allowed - logits)


def best_temperature(logits: Tensor, targets: Tensor) -> float:
    """The temperature of lowest mean NLL for logits (N, V) and targets (N,).

    The NLL is convex in 1 / temperature; where it falls no further, the expected logit is that of
    the target, and halving finds the place.
    """
    low, high = 1 / _HIGHEST, 1 / _LOWEST
    allowed = without_mask(logits)
    of_target = allowed.gather(1, targets[:, None]).double().mean()
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        expected = (_divided(logits, 1 / middle).softmax(1) * allowed).sum(1).double().mean()
        if expected < of_target:
            low = middle
        else:
            high = middle
    return 2 / (low + high)


def cross_fitted_nll(logits: Tensor, targets: Tensor, pieces: Tensor) -> float:
    """Mean NLL where each half of the pieces has the temperature that the other half asks for."""
    even = pieces % 2 == 0  # (N,)
    total = 0.0
    for here in (even, ~even):
        temperature = best_temperature(logits[~here], targets[~here])
        total += nll_at(logits[here], targets[here], temperature) * int(here.sum())
    return total / len(targets)


@torch.no_grad()
def divide_logits(model: MusicTransformer, temperature: float) -> None:
    """Make every logit of ``model`` smaller by this factor, in its weights."""
    of_terms = [part for term in model.terms for part in term.output_parameters()]
    for part in (model.output.weight, model.output.bias, *of_terms):
        part.div_(temperature)


def main() -> int:
    """Measure, divide, save, tell."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkpoint", help="a decoder: name or folder")
    parser.add_argument("--data", required=True, help="prepared data; its validation split decides")
    parser.add_argument("--out", required=True, help="folder of the calibrated checkpoint")
    args = parser.parse_args()
    try:
        session = load_checkpoint(args.checkpoint, "cpu")
        if not isinstance(session.model, MusicTransformer):
            raise ConfigError(f"{args.checkpoint}: no decoder of its own; nothing is calibrated.")
        logits, targets, pieces = read_split(
            session.model, PreparedData.open(args.data), "validation"
        )
        temperature = best_temperature(logits, targets)
        found = {
            "temperature": round(temperature, 4),
            "validation_nll_before": nll_at(logits, targets, 1.0),
            "validation_nll": nll_at(logits, targets, temperature),
            "validation_nll_cross_fitted": cross_fitted_nll(logits, targets, pieces),
        }
        divide_logits(session.model, temperature)
        save_checkpoint(
            args.out,
            session.model,
            session.tokenizer,
            training={**session.training, "calibrated": found},
            sampling=session.sampling,
        )
    except MusicTransformerError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(", ".join(f"{name} {value:.4f}" for name, value in found.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
