"""Flags that several commands share; those of how music is drawn are made from `Settings`."""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import math
import os
from pathlib import Path
from typing import TYPE_CHECKING

from music_transformer.cli.output import check_output, naming, report_warnings, warn
from music_transformer.errors import ConfigError, RenderError
from music_transformer.sampling import Settings, check_count

if TYPE_CHECKING:
    from music_transformer.notes import NoteSequence
    from music_transformer.representations.base import Representation


#: Extra of the package and library behind each flag that needs one.
EXTRAS = {"wav": ("audio", "midirenderer"), "plot": ("plot", "matplotlib")}


def add_settings(parser: argparse.ArgumentParser, groups: tuple[str, ...]) -> None:
    """Add a flag for every field of `Settings` that belongs to one of the groups."""
    for group in groups:
        heading = parser.add_argument_group(group)
        for one in dataclasses.fields(Settings):
            about = one.metadata
            if about["group"] != group:
                continue
            flag = f"--{one.name.replace('_', '-')}"
            if about["kind"] is bool:
                heading.add_argument(flag, action="store_true", help=about["text"])
                continue
            text = about["text"]
            if "otherwise" in about:
                text += f" (default: what the checkpoint says, else {about['otherwise']:g})"
            elif one.default is not None:
                text += " (default: %(default)s)"
            heading.add_argument(
                flag,
                type=about["kind"],
                default=one.default,
                metavar=about.get("metavar"),
                help=text,
            )


def settings_from(args: argparse.Namespace) -> Settings:
    """What the flags of `add_settings` say; ConfigError for a value outside its range."""
    names = [one.name for one in dataclasses.fields(Settings) if hasattr(args, one.name)]
    return Settings(**{name: getattr(args, name) for name in names})


def add_results(parser: argparse.ArgumentParser, out: str) -> None:
    """Add the flags that say what is written, and where; `out` is the help of ``--out``."""
    add = parser.add_argument
    add("--out", type=Path, metavar="OUT.mid", help=out)
    add("--force", action="store_true", help="overwrite files that exist")
    add("--wav", action="store_true", help="write the sound too, as OUT.wav")
    add("--soundfont", metavar="FONT", help="with --wav: as in `render`")
    add("--plot", action="store_true", help="write the piano roll too, as OUT.png")
    add("--device", default="auto", help="cpu, cuda, mps or auto (default)")
    add("--json", action="store_true", help="print files and reports as one JSON object")


def result_files(args: argparse.Namespace) -> list[dict[str, Path]]:
    """The files of each sample, by kind, all of which may be written.

    Raises:
        ConfigError: one may not.
        RenderError: an extra is missing.
    """
    check_count("samples", args.samples)
    if args.out.suffix.lower() in (".wav", ".png"):
        raise ConfigError(f"{args.out}: give --out the name of the MIDI file, ending in .mid.")
    suffixes = {"midi": args.out.suffix}
    suffixes |= {"wav": ".wav"} if args.wav else {}
    suffixes |= {"plot": ".png"} if args.plot else {}
    stems = [args.out.stem]
    if args.samples > 1:
        stems = [f"{args.out.stem}-{number}" for number in range(1, args.samples + 1)]
    files = [
        {
            kind: check_output(args.out.with_name(stem + suffix), args.force)
            for kind, suffix in suffixes.items()
        }
        for stem in stems
    ]
    for flag, (extra, library) in EXTRAS.items():
        if getattr(args, flag) and importlib.util.find_spec(library) is None:
            raise RenderError(
                f"--{flag} needs the [{extra}] extra: pip install music-transformer[{extra}]"
            )
    if args.soundfont is not None:
        if not args.wav:
            raise ConfigError("--soundfont is for the sound; add --wav.")
        from music_transformer.render.audio import find_soundfont

        find_soundfont(args.soundfont)
    return files


def add_tokenizer_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags that choose a tokenizer."""
    parser.add_argument(
        "--tokenizer",
        metavar="KIND",
        default="performance",
        help="performance: 388 events of 10 ms; chorale: four voices of sixteenths "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--pedal",
        choices=("sustain", "events"),
        help="performance only. sustain: longer notes; events: PEDAL_ON and PEDAL_OFF as events "
        "of their own (default: sustain)",
    )


def tokenizer_of(args: argparse.Namespace) -> Representation:
    """The tokenizer that the flags name; ConfigError for an unknown kind, or a pedal it lacks."""
    from music_transformer.representations.base import representation_from_config

    settings = {} if args.pedal is None else {"pedal": args.pedal}
    return representation_from_config({"kind": args.tokenizer, **settings})


def add_part_arguments(parser: argparse.ArgumentParser) -> None:
    """Add `--from`, `--to`, `--one-pedal` and `--piano-only`."""
    parser.add_argument(
        "--from",
        dest="begin",
        metavar="PLACE",
        help="where the part begins: seconds, a bar (bar:5), or seconds before the end (-10)",
    )
    parser.add_argument(
        "--to", dest="stop", metavar="PLACE", help="where it ends, said in the same way"
    )
    add_read_arguments(parser)


def add_read_arguments(parser: argparse.ArgumentParser) -> None:
    """Add `--one-pedal` and `--piano-only`."""
    parser.add_argument(
        "--one-pedal",
        action="store_true",
        help="one pedal for all channels: a Disklavier's hands have a channel each",
    )
    parser.add_argument("--piano-only", action="store_true", help="keep only programs 0-7, pianos")


def read_part(path: str | os.PathLike[str], args: argparse.Namespace) -> NoteSequence:
    """The notes that the flags name; what was survived in the file is said on stderr.

    MidiError where the file cannot be read or the part is empty, ConfigError for a place beyond it.
    """
    from music_transformer.midi.bars import part_of
    from music_transformer.midi.read import read_midi

    notes = read_midi(path, piano_only=args.piano_only, one_pedal=args.one_pedal)
    report_warnings(path, notes.warnings)
    with naming(path):
        return part_of(notes, args.begin, args.stop)


def read_given(path: str | os.PathLike[str], args: argparse.Namespace) -> NoteSequence:
    """What a model is to go on from: `read_part`, if it can be written again.

    A rest of more than two bars at its end (4 s without a metre) is said on stderr. Errors are as
    in `read_part` and `check_writable`, and RenderError where it is too long for `--wav`.
    """
    from music_transformer.midi.write import check_writable

    notes = read_part(path, args)
    check_writable(notes, os.fspath(path))
    if args.wav:
        from music_transformer.render.audio import check_sound_length

        check_sound_length(notes.end_time + (getattr(args, "primer_gap", None) or 0))
    last = float(notes.sustained().end.max(initial=0.0))
    most, rest = 4.0, notes.end_time - last
    if len(notes.time_signatures) and len(notes.tempos):
        bar = float(notes.time_signatures.bar_quarters()[-1])
        most = 2 * bar * notes.tempos.quarter_at(notes.end_time)
    if len(notes) and rest > most + 0.01:
        warn(
            f"{os.fspath(path)}: it ends with a rest of {rest:.1f} s, which counts; "
            f"--to -{math.floor(rest * 100) / 100:g} drops it."
        )
    return notes
