"""`music-transformer render`: a MIDI file to sound."""

import argparse
from pathlib import Path

from music_transformer.cli.options import add_part_arguments, read_part
from music_transformer.cli.output import check_output, warn
from music_transformer.errors import ConfigError
from music_transformer.files import atomic_path

DESCRIPTION = (
    "Play a MIDI file on a sampled piano, pedal applied, into a stereo WAV, FLAC, MP3 or Opus "
    "file. All pieces come out equally loud (-18 LUFS), and none is clipped."
)
EPILOG = """\
examples:
  music-transformer render data/motifs/fur_elise_opening.mid --out fur_elise.wav
  music-transformer render out/continuation.mid --out continuation.opus --primer-end 10.3
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("midi", type=Path, metavar="FILE.mid")
    add("--out", type=Path, required=True, metavar="F.wav", help=".wav, .flac, .mp3 or .opus")
    add("--force", action="store_true", help="overwrite --out when it exists")
    add(
        "--soundfont",
        type=Path,
        metavar="FONT",
        help="the instrument: an .sf2 file, or piano, which `download piano-soundfont` fetches "
        "(default: the small one inside the installed pretty_midi)",
    )
    add("--primer-end", type=float, metavar="SECONDS", help="put a silence in there")
    add(
        "--primer-gap",
        type=float,
        metavar="SECONDS",
        help="how long that silence is (default: 2.5)",
    )
    add("--max-seconds", type=float, default=3600.0, help="refuse longer sound (default: an hour)")
    add_part_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Read, play, write; the path goes to stdout."""
    from music_transformer.render.audio import (
        DEFAULT_FONT_HIGHEST,
        PRIMER_GAP_SECONDS,
        check_sound_name,
        render_audio,
        with_primer_gap,
    )
    from music_transformer.render.pianoroll import pitch_name

    check_sound_name(args.out)
    if args.primer_gap is not None and args.primer_end is None:
        raise ConfigError("--primer-gap: say where the primer ends, with --primer-end SECONDS.")
    check_output(args.out, args.force)
    notes = read_part(args.midi, args)
    silent = notes.pitch[notes.pitch > DEFAULT_FONT_HIGHEST].tolist()
    if silent and args.soundfont is None:
        names = ", ".join(pitch_name(pitch) for pitch in sorted(set(silent)))
        warn(f"{args.midi}: the default font cannot play {names}: {len(silent)} notes are silent")
    if args.primer_end is not None:
        gap = PRIMER_GAP_SECONDS if args.primer_gap is None else args.primer_gap
        notes = with_primer_gap(notes, primer_end=args.primer_end, gap=gap)
    with atomic_path(args.out, replace=args.force) as temporary:
        render_audio(notes, temporary, soundfont=args.soundfont, max_seconds=args.max_seconds)
    print(args.out)
    return 0
