"""Flags that several commands share; those of how music is drawn are made from `Settings`."""

import argparse
import dataclasses
import importlib.util
from pathlib import Path

from music_transformer.errors import ConfigError, RenderError
from music_transformer.sampling import DRAWN, Settings

#: Extra of the package and library behind each flag that needs one.
_EXTRAS = {"wav": ("audio", "midirenderer"), "plot": ("plot", "matplotlib")}


def add_settings(parser: argparse.ArgumentParser, groups: tuple[str, ...] = (DRAWN,)) -> None:
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
    """What the flags of `add_settings` say.

    Raises:
        ConfigError: a value outside its range.
    """
    names = [one.name for one in dataclasses.fields(Settings) if hasattr(args, one.name)]
    return Settings(**{name: getattr(args, name) for name in names})


def add_results(parser: argparse.ArgumentParser, out: str) -> None:
    """Add the flags that say what is written, and where.

    Args:
        out: help of ``--out``.
    """
    parser.add_argument("--out", type=Path, metavar="OUT.mid", help=out)
    parser.add_argument("--force", action="store_true", help="overwrite files that exist")
    parser.add_argument("--wav", action="store_true", help="write the sound too, as OUT.wav")
    parser.add_argument("--plot", action="store_true", help="write the piano roll too, as OUT.png")
    parser.add_argument("--device", default="auto", help="cpu, cuda, mps or auto (default)")
    parser.add_argument(
        "--json", action="store_true", help="print files and reports as one JSON object"
    )


def result_files(args: argparse.Namespace) -> list[dict[str, Path]]:
    """The files of each sample, by kind; none exists, or may be overwritten.

    Raises:
        ConfigError: a file that may not be written.
        RenderError: an extra that is missing, before the work that could not be written.
    """
    from music_transformer.cli.output import check_output

    if args.samples < 1:
        raise ConfigError(f"--samples {args.samples}; choose 1 or more.")
    if args.out.suffix.lower() in (".wav", ".png"):
        raise ConfigError(f"{args.out}: give --out the name of the MIDI file, ending in .mid.")
    suffixes = {"midi": args.out.suffix}
    suffixes |= {"wav": ".wav"} if args.wav else {}
    suffixes |= {"plot": ".png"} if args.plot else {}
    stems = [args.out.stem]
    if args.samples > 1:
        stems = [f"{args.out.stem}-{number}" for number in range(1, args.samples + 1)]
    files = [
        {kind: args.out.with_name(stem + suffix) for kind, suffix in suffixes.items()}
        for stem in stems
    ]
    for path in (path for sample in files for path in sample.values()):
        check_output(path, args.force)
    for flag, (extra, library) in _EXTRAS.items():
        if getattr(args, flag) and importlib.util.find_spec(library) is None:
            raise RenderError(
                f"--{flag} needs the [{extra}] extra: pip install music-transformer[{extra}]"
            )
    return files
