"""How well a piano that plays to a melody keeps its time.

    python scripts/studies/in_time.py --checkpoint piano-accompaniment --seeds 4

Steady melodies of data/motifs, each with several seeds. For each
the share of onsets within 50 ms of the melody's eighths beside
what onsets at any time would have, the longest note, and how many notes were closed by a rule.
"""

import argparse
from pathlib import Path

import numpy as np

from music_transformer.checkpoint.session import load_checkpoint
from music_transformer.generation.accompaniment import accompany
from music_transformer.midi.read import read_midi

MOTIFS = Path(__file__).parents[2] / "data" / "motifs"
MELODIES = ("ode_to_joy_melody", "twinkle_melody")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--checkpoint", default="piano-accompaniment")
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--in-time", type=float, help="default: that of the checkpoint")
    parser.add_argument("--melodies", nargs="*", default=MELODIES, help="of data/motifs")
    args = parser.parse_args()
    session, shares, longest = load_checkpoint(args.checkpoint, "cpu"), [], []
    for name in args.melodies:
        melody = read_midi(MOTIFS / f"{name}.mid")
        beat = float(melody.tempos.seconds_per_quarter[0])
        for seed in range(args.seeds):
            [one] = accompany(session, melody, candidates=1, seed=seed, in_time=args.in_time)
            piano = one.notes.selected(one.notes.track == 1)
            half = beat / 2
            off = (piano.start - float(melody.start[0]) + half / 2) % half - half / 2
            share = float(np.mean(np.abs(off) <= 0.05)) if len(piano) else 0.0
            longest.append(float((piano.end - piano.start).max(initial=0)))
            shares.append((share, len(piano)))
            closed = one.report.long_notes_closed
            print(
                f"{name} {seed}: {share:.3f} of {len(piano)} onsets (by chance "
                f"{0.2 / beat:.3f}), longest {longest[-1]:.2f} s, {closed} closed by a rule",
                flush=True,
            )
    rate = np.average([s for s, _ in shares], weights=[n for _, n in shares])
    print(f"all: {rate:.3f} of {sum(n for _, n in shares)} onsets, longest {max(longest):.2f} s")


if __name__ == "__main__":
    main()
