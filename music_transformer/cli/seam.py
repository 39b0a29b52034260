"""`seam`: how well a model goes on from real primers, beside what the pianists really played."""

import argparse
from typing import TYPE_CHECKING

from music_transformer.cli.options import add_settings, settings_from
from music_transformer.cli.output import print_json
from music_transformer.sampling import CARE, CHOICE, DRAWN

if TYPE_CHECKING:
    from music_transformer.notes import NoteSequence

DESCRIPTION = (
    "Continue primers of prepared performances and say, in nine measures, how far "
    "the continuations are from their primers: the model's, the true ones, and another "
    "piece's. `drift` is the geometric mean of model over truth; 1 is like the pianists."
)
EPILOG = """\
examples:
  music-transformer seam --checkpoint piano --data data/maestro
  music-transformer seam --checkpoint piano --data data/maestro --plain --primers 48 --json
  music-transformer seam --checkpoint piano --data data/maestro --top-p 0.9
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("--checkpoint", default="piano", help="default: %(default)s")
    parser.add_argument("--data", required=True, help="performances made by `prepare`")
    parser.add_argument("--split", default="validation", help="default: %(default)s")
    parser.add_argument("--primers", type=int, default=24, help="default: %(default)s")
    parser.add_argument(
        "--primer-seconds", dest="before", type=float, default=10.0, help="default: %(default)s"
    )
    parser.add_argument("--seconds", type=float, default=15.0, help="default: %(default)s")
    parser.add_argument("--plain", action="store_true", help="primers made plain, as motifs are")
    add_settings(parser, (DRAWN, CARE, CHOICE))
    parser.add_argument("--device", default="auto")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")


def run(args: argparse.Namespace) -> int:
    """Draw primers, continue them, measure."""
    import numpy as np
    from tqdm import tqdm

    from music_transformer.checkpoint.session import load_checkpoint
    from music_transformer.evaluation.seam import MEASURES, drift, part, seam_distances
    from music_transformer.generation.continuation import generate

    session = load_checkpoint(args.checkpoint, device=args.device)
    places = _places(args)
    primers = [primer for _, primer, _ in places]
    truths = [truth for _, _, truth in places]
    settings = settings_from(args)
    continued = []
    for index, (given, _, _) in enumerate(tqdm(places, desc="continuing", unit="primer")):
        result = generate(session, given, settings=settings, seed=args.seed + index, end="cut")
        continued.append(part(result.continuation, 0, args.seconds))
    sides = {
        "model": [seam_distances(p, c) for p, c in zip(primers, continued, strict=True)],
        "truth": [seam_distances(p, t) for p, t in zip(primers, truths, strict=True)],
        "another": [
            seam_distances(p, t) for p, t in zip(primers, truths[1:] + truths[:1], strict=True)
        ],
    }
    model, another = (drift(sides[name], sides["truth"]) for name in ("model", "another"))
    mean = {
        name: {m: float(np.nanmean([one[m] for one in side])) for m in MEASURES}
        for name, side in sides.items()
    }
    if args.json:
        print_json(
            {
                "drift": model.drift,
                "interval": model.interval,
                "by_measure": model.by_measure,
                "another": another.drift,
                "mean": mean,
                "primers": len(primers),
            }
        )
        return 0
    print(f"{'':14}{'truth':>9}{'model':>9}{'another':>9}{'model / truth':>15}")
    for name in MEASURES:
        row = "".join(f"{mean[side][name]:9.3f}" for side in ("truth", "model", "another"))
        print(f"{name:14}{row}{model.by_measure[name]:15.2f}")
    low, high = model.interval
    print(f"drift {model.drift:.3f} ({low:.2f} to {high:.2f}); another piece {another.drift:.2f}")
    return 0


def _places(
    args: argparse.Namespace,
) -> "list[tuple[NoteSequence | list[int], NoteSequence, NoteSequence]]":
    """(what the model is given, its notes, what follows), spread over the pieces of the split.

    The model is given events, in which notes that sound at the seam are still open: a primer whose
    notes all end there would say that the music ends. A plain motif
    ends so, as those of users do.
    """
    import numpy as np

    from music_transformer.datasets.prepared import PreparedData
    from music_transformer.errors import ConfigError
    from music_transformer.evaluation.seam import part
    from music_transformer.representations.performance.plain import made_plain

    data = PreparedData.open(args.data)
    pieces = data.pieces(args.split)
    random = np.random.default_rng(args.seed)
    before, after = args.before, args.seconds
    found: list[tuple[NoteSequence | list[int], NoteSequence, NoteSequence]] = []
    for index in np.linspace(0, len(pieces) - 1, args.primers).astype(int):
        notes = data.tokenizer.decode(pieces[index][1:-1].astype(np.int64))
        latest = notes.end_time - before - after
        at = float(random.uniform(0, max(latest, 0)))
        at = float(notes.start[np.searchsorted(notes.start, at)])  # an onset
        primer, truth = part(notes, at, at + before), part(notes, at + before, at + before + after)
        if len(primer) <= 4 or len(truth) <= 4 or latest <= 0:
            continue
        if args.plain:
            primer = made_plain(primer, before, random)
            found.append((primer, part(primer, 0, before), truth))
        else:
            piece = notes.sliced(at, at + before + after)
            ids = data.tokenizer.split_opening(piece, seconds=before, events=1)[0]
            found.append((ids, primer, truth))
    if not found:
        raise ConfigError(f"{args.data}: no piece of {args.split} is long enough for a primer.")
    return found
