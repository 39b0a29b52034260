"""`prepare`: a corpus or a folder of MIDI files -> arrays of event ids.

Results (counts, or JSON) go to stdout, progress and every skipped file with its reason to stderr.
An interrupted preparation goes on where it was when the same command is given again.
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from music_transformer.cli.options import add_read_arguments
from music_transformer.cli.output import Bar, print_json
from music_transformer.errors import ConfigError

if TYPE_CHECKING:
    from music_transformer.datasets.encoding import MidiSettings
    from music_transformer.datasets.prepared import PreparedData

DESCRIPTION = (
    "Turn a corpus or a folder of MIDI files into arrays of event ids. Files that cannot be read "
    "are skipped and named with the reason."
)
EPILOG = """\
examples:
  music-transformer prepare jsb --source data/Jsb16thSeparated.json --out data/jsb
  music-transformer prepare maestro --source data/maestro-v3.0.0-midi.zip --out data/maestro
  music-transformer prepare maestro --task accompaniment \\
      --source data/maestro-v3.0.0-midi.zip --out data/accompaniment
  music-transformer prepare my_midi_files --out data/mine --piano-only
  music-transformer prepare data/mine --verify
"""

_SHOWN = 50  # skipped files in the summary


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("corpus", metavar="CORPUS|FOLDER", help="what to prepare: jsb, maestro, or MIDI files")
    add(
        "--source",
        type=Path,
        help="jsb: the JSON file or its folder; maestro: the unpacked folder, the zip or a tar "
        "(a folder of MIDI files needs none)",
    )
    add("--out", type=Path, help="folder to make, as data/NAME")
    add("--verify", action="store_true", help="only read the prepared data in FOLDER, every byte")
    add(
        "--task",
        choices=("continuation", "accompaniment"),
        help="what is to be learned: the music itself (default), or to play the rest of it to its "
        "melody",
    )
    add(
        "--melody-track",
        type=int,
        metavar="N",
        help="accompaniment: the melody is all notes of this MIDI track, 0 the first "
        "(default: the highest notes, by a rule that docs/accompaniment.md states)",
    )
    add("--tokenizer", metavar="KIND", help="performance (default) or chorale")
    add(
        "--pedal",
        choices=("sustain", "events"),
        help="lengthen the notes it holds (default), or keep it as events of its own",
    )
    add_read_arguments(parser)
    add("--keep-silence", action="store_true", help="keep the silence before the first note")
    add("--split", help="shares of training, validation and test pieces of a folder: 80/10/10")
    add("--jobs", type=int, help="processes; default: one for each core")
    add("--force", action="store_true", help="replace prepared data at --out")
    add("--json", action="store_true", help="print the summary as JSON")


def run(args: argparse.Namespace) -> int:
    """Prepare or verify, print what came of it."""
    if args.verify:
        from music_transformer.datasets.prepared import PreparedData

        data = PreparedData.open(args.corpus).verify()
    elif args.out is None:
        raise ConfigError("prepare needs --out: the folder to make, as data/NAME.")
    else:
        data = _prepare(args)
    if args.json:
        print_json(summary(data))
    else:
        print(_text(summary(data)))
    return 0


def summary(data: "PreparedData") -> dict[str, Any]:
    """What `--json` prints: path, corpus, tokenizer, counts of every split, what was skipped."""
    return {
        "path": str(data.path),
        "corpus": data.corpus,
        "tokenizer": data.meta["tokenizer"],
        "splits": {
            split: {
                "pieces": len(data.names(split)),
                "events": data.events(split),
                **({"melody_notes": data.melody_notes(split)} if data.melody_arrays else {}),
            }
            for split in data.splits
        },
        "skipped": data.meta["skipped"],
        **data.meta["report"],
    }


def _prepare(args: argparse.Namespace) -> "PreparedData":
    """Call what prepares the corpus that was named."""
    from music_transformer.datasets.corpora import CORPORA, KnownCorpus
    from music_transformer.datasets.prepare import DEFAULT_SHARES, parse_shares, prepare_corpus

    corpus = CORPORA.get(args.corpus, KnownCorpus())
    _refuse(args, corpus.refuses)
    source = _source(args) if args.corpus in CORPORA else _folder(args, ", ".join(CORPORA))
    if corpus.prepare is not None:
        return corpus.prepare(source, args.out, force=args.force)
    return prepare_corpus(
        corpus.listing,
        source,
        args.out,
        settings=_settings(args),
        shares=DEFAULT_SHARES if args.split is None else parse_shares(args.split),
        jobs=args.jobs,
        force=args.force,
        progress=Bar(),
    )


def _source(args: argparse.Namespace) -> Path:
    """`--source`, which a corpus needs."""
    if args.source is None:
        raise ConfigError(
            f"prepare {args.corpus} needs --source; "
            f"`music-transformer download {args.corpus}` fetches it."
        )
    return Path(args.source)


def _folder(args: argparse.Namespace, corpora: str) -> Path:
    """The folder to prepare: named by itself, or as `folder --source PATH`."""
    if args.source is None:
        return Path(args.corpus)
    if args.corpus not in ("folder", str(args.source)):
        raise ConfigError(
            f"{args.corpus}: --source goes with {corpora} or folder; name a folder just once."
        )
    return _source(args)


def _refuse(args: argparse.Namespace, names: tuple[str, ...]) -> None:
    """Complain of a flag that would have no effect: one that is neither None nor False."""
    for name in names:
        if getattr(args, name) is not None and getattr(args, name) is not False:
            flag = "--" + name.replace("_", "-")
            raise ConfigError(f"prepare {args.corpus}: {flag} means nothing here; leave it out.")


def _settings(args: argparse.Namespace) -> "MidiSettings":
    """How MIDI files are to be encoded."""
    from music_transformer.datasets.encoding import MidiSettings
    from music_transformer.representations.base import representation_from_config

    config = {"kind": args.tokenizer or "performance"}
    if args.task == "accompaniment":
        for name in ("tokenizer", "pedal"):
            if getattr(args, name) is not None:
                raise ConfigError(f"--task accompaniment: --{name} means nothing here.")
        if args.melody_track is not None and args.melody_track < 0:
            raise ConfigError(f"--melody-track {args.melody_track}: 0 is the first track.")
        config = {"kind": "accompaniment"}
    elif args.melody_track is not None:
        raise ConfigError("--melody-track: only --task accompaniment has a melody; add it.")
    elif args.pedal is not None:
        config["pedal"] = args.pedal
    return MidiSettings(
        representation_from_config(config).to_config(),
        piano_only=args.piano_only,
        one_pedal=args.one_pedal,
        keep_silence=args.keep_silence,
        melody_track=args.melody_track,
    )


def _text(found: dict[str, Any]) -> str:
    """The summary for people."""
    lines = [found["path"]]
    for split, counts in found["splits"].items():
        line = f"{split:<11}{counts['pieces']:>7,} pieces {counts['events']:>12,} events"
        if "melody_notes" in counts:
            line += f" to {counts['melody_notes']:>9,} notes of melody"
        lines.append(line)
    if duplicates := found.get("duplicates"):
        copies = sum(len(group) - 1 for group in duplicates)
        lines.append(f"{'copies':<11}{copies:>7,} pieces, each in the split of its original")
    lines.append(f"{'skipped':<11}{len(found['skipped']):>7,} files")
    lines += [f"  {item['name']}: {item['reason']}" for item in found["skipped"][:_SHOWN]]
    if len(found["skipped"]) > _SHOWN:
        lines.append(f"  and {len(found['skipped']) - _SHOWN:,} more: meta.json has all of them")
    return "\n".join(lines)
