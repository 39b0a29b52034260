"""The mean of the weights of several checkpoints, as a checkpoint of its own.

Models that were trained on from the same weights, each in its own way, often do better when their
weights are averaged than any of them alone (Wortsman et al. 2022, "Model soups"). The shapes have
to be the same; tables of relative pitch and time that one of them lacks count as zero there. What
the mean is good for, `evaluate` says.

    python scripts/release/average.py checkpoints/a checkpoints/b --out checkpoints/mean
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import torch

from music_transformer.checkpoint import Session, load_checkpoint, save_checkpoint
from music_transformer.errors import MusicTransformerError
from music_transformer.training.plan import ZERO_AT_FIRST


def average(sessions: list[Session]) -> dict[str, Any]:
    """The mean of the weights; the first session says which weights there are.

    Raises:
        ValueError: a weight is missing, or its shape is another.
    """
    states = [session.model.state_dict() for session in sessions]
    mean = {}
    for name, tensor in states[0].items():
        parts = [tensor]
        for state, session in zip(states[1:], sessions[1:], strict=True):
            if name not in state and name.rpartition(".")[2] in ZERO_AT_FIRST:
                parts.append(torch.zeros_like(tensor))
            elif name in state and state[name].shape == tensor.shape:
                parts.append(state[name])
            else:
                raise ValueError(f"{session.path}: {name} is not the one of {sessions[0].path}.")
        mean[name] = torch.stack(parts).mean(dim=0)
    return mean


def main() -> int:
    """Average and save; the config is that of the first checkpoint."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "checkpoints", nargs="+", help="names or folders; the first gives the config"
    )
    parser.add_argument("--out", required=True, help="folder of the new checkpoint")
    args = parser.parse_args()
    try:
        sessions = [load_checkpoint(name, "cpu") for name in args.checkpoints]
        sessions[0].model.load_state_dict(average(sessions))
        training = {**sessions[0].training, "averaged": args.checkpoints}
        save_checkpoint(
            args.out,
            sessions[0].model,
            sessions[0].tokenizer,
            training=training,
            sampling=sessions[0].sampling,
            half=False,
        )
    except (MusicTransformerError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
