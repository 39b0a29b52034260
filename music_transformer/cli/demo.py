"""`music-transformer demo`: one `generate` command with the released piano model, and printed."""

import argparse
import importlib.util
import shlex
import sys
from pathlib import Path

from music_transformer.cli.options import EXTRAS
from music_transformer.cli.output import warn
from music_transformer.errors import DatasetError
from music_transformer.motifs import find_motifs

DEFAULT_MOTIF = "fur_elise_opening"

DESCRIPTION = (
    "Continue a motif with the released piano model and write continuation.mid, .wav and .png. "
    "Its own earlier results are overwritten."
)
EPILOG = f"""\
examples:
  music-transformer demo
  music-transformer demo twinkle_melody --seconds 20 --seed 3
  music-transformer demo my_motif.mid --out-dir my_out

motifs: bach_bwv846_prelude_bars1-4, c_major_scale, {DEFAULT_MOTIF},
ode_to_joy_melody, twinkle_melody
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "motif",
        nargs="?",
        default=DEFAULT_MOTIF,
        help="a motif by name, or a MIDI file (default: %(default)s)",
    )
    add("--seconds", type=float, default=30.0, help="length (default: 30)")
    add("--seed", type=int, default=0, help="another seed, another continuation")
    add("--checkpoint", default="piano", help="a model's name or folder")
    add("--device", default="auto", help="cpu, cuda, mps or auto (default)")
    add("--out-dir", type=Path, default=Path("out"), help="folder of the results (default: out)")


def run(args: argparse.Namespace) -> int:
    """Run the one `generate` command, and show it."""
    from music_transformer.cli.main import main

    command = ["generate", str(find_motif(args.motif)), "--checkpoint", args.checkpoint]
    command += ["--seconds", f"{args.seconds:g}", "--seed", str(args.seed)]
    command += ["--device", args.device]
    command += ["--out", str(args.out_dir / "continuation.mid"), "--force"]
    for flag, (extra, library) in EXTRAS.items():
        if importlib.util.find_spec(library) is None:
            warn(f"no {flag}: it needs pip install music-transformer[{extra}]")
        else:
            command.append(f"--{flag}")
    print(f"music-transformer {shlex.join(command)}", file=sys.stderr)
    return main(command)


def find_motif(name: str) -> Path:
    """The MIDI file that `name` means: a path, or one of the motifs; DatasetError for neither."""
    if Path(name).is_file():
        return Path(name)
    motifs = find_motifs()
    if path := motifs.get(name.removesuffix(".mid")):
        return path
    known = ", ".join(motifs) or "none is installed"
    raise DatasetError(f"{name}: neither a MIDI file nor a motif ({known}).")
