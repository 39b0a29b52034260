"""What every subcommand does with its results: refuse, write, print, and show progress.

Results go to stdout (a path, or JSON), progress and warnings to stderr. A file that exists is kept
unless `--force` is given, and every file appears whole or not at all (`atomic_path`).
"""

import argparse
import contextlib
import dataclasses
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from music_transformer.errors import ConfigError, MidiError, TokenError
from music_transformer.files import atomic_path as atomic_path
from music_transformer.progress import Progress

if TYPE_CHECKING:
    from music_transformer.checkpoint.session import Session
    from music_transformer.notes import NoteSequence


def check_output(path: str | os.PathLike[str], force: bool = False) -> Path:
    """`path`, if a result may be written there; to be asked before the work. Its folder is made.

    Raises:
        ConfigError: the file exists and `force` is off, or `path` is a folder, a device or another
            thing that a file must not replace, or lies below a file.
        OSError: the folder cannot be made or written to, or no file can have this name.
    """
    path = Path(path)
    if path.is_dir():
        raise ConfigError(f"{path}: this is a folder; give --out the name of a file.")
    if os.path.lexists(path) and not force:
        raise ConfigError(f"{path}: the file exists; add --force to overwrite it.")
    if path.exists() and not path.is_file():  # /dev/null, to be replaced by a rename
        raise ConfigError(f"{path}: this is no ordinary file; give --out another name.")
    for folder in path.parents:
        if os.path.lexists(folder):
            if not folder.is_dir():
                raise ConfigError(f"{path}: {folder} is no folder; give --out another name.")
            break
    with contextlib.suppress(FileNotFoundError):
        os.lstat(path)  # a name that is too long is refused now, not after the work
    path.parent.mkdir(parents=True, exist_ok=True)
    if not os.access(path.parent, os.W_OK):
        raise PermissionError(13, "no permission to write in this folder", str(path.parent))
    return path


def check_picture(path: Path, force: bool) -> None:
    """`check_output` for a picture, whose suffix names the format."""
    if path.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise ConfigError(f"{path}: give --out a name ending in .png, .svg or .pdf.")
    check_output(path, force)


def write_results(
    stack: contextlib.ExitStack,
    files: Mapping[str, Path],
    notes: "NoteSequence",
    args: argparse.Namespace,
    *,
    heard: "NoteSequence | None" = None,
    **drawn: Any,
) -> None:
    """Write MIDI, sound and picture under temporary names that `stack` turns into theirs.

    Args:
        files: as `options.result_files` gives them.
        heard: notes of the sound, where they are others.
        drawn: arguments of `plot_pianoroll`.
    """
    from music_transformer.midi.bars import bar_lines
    from music_transformer.midi.write import write_midi

    paths = {
        kind: stack.enter_context(atomic_path(path, replace=args.force))
        for kind, path in files.items()
    }
    write_midi(notes, paths["midi"])
    if "wav" in paths:
        from music_transformer.render.audio import render_audio

        render_audio(notes if heard is None else heard, paths["wav"], soundfont=args.soundfont)
    if "plot" in paths:
        from music_transformer.render.pianoroll import plot_pianoroll

        title = files["midi"].stem
        plot_pianoroll(notes, title=title, bars=bar_lines(notes), **drawn).savefig(paths["plot"])


@contextlib.contextmanager
def naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Put `path` before what is said of its notes in the block: notes do not know their file."""
    try:
        yield
    except (MidiError, TokenError) as error:
        raise type(error)(f"{os.fspath(path)}: {error}") from error


def print_samples(
    args: argparse.Namespace,
    files: list[dict[str, Path]],
    reports: Iterable[Any],
    more: Iterable[dict[str, Any]] | None = None,
    **head: Any,
) -> None:
    """Print the paths of all samples, or one JSON object: `head`, and each with its report.

    There may be more `reports` than `files`, of candidates not written; `more` is what else to say
    of each sample in JSON.
    """
    if args.json:
        samples = [
            {**sample, "report": report.to_dict(), **rest}
            for sample, report, rest in zip(files, reports, more or [{}] * len(files), strict=False)
        ]
        print_json({"checkpoint": args.checkpoint, **head, "samples": samples})
        return
    for sample in files:
        for path in sample.values():
            print(path)


def print_json(value: Any) -> None:
    """Print `value` as one line of JSON on stdout; numpy scalars and arrays count as numbers."""
    print(json.dumps(value, default=_plain))


def warn(message: str) -> None:
    """Print one line for the user on stderr, where it cannot mix with results."""
    print(f"music-transformer: warning: {message}", file=sys.stderr)


def say(message: str) -> None:
    """Print one line on stderr that is no warning."""
    print(message, file=sys.stderr)


def say_device(asked: str, device: object) -> None:
    """Say which device ``--device auto`` stands for here."""
    if asked == "auto":
        say(f"device: {device}")


def load_model(args: argparse.Namespace) -> "Session":
    """The model of `--checkpoint` on `--device`, in int8 with `--quantise`; `auto` is said."""
    from music_transformer.checkpoint.session import load_checkpoint

    session = load_checkpoint(args.checkpoint, device=args.device)
    if getattr(args, "quantise", False):
        from music_transformer.model.quantised import quantise_linears

        session = dataclasses.replace(session, model=quantise_linears(session.model))
    say_device(args.device, session.device)
    return session


def report_warnings(path: str | os.PathLike[str], warnings: Mapping[str, int]) -> None:
    """Say on stderr what was survived in the file at `path`, one line for each kind."""
    for what, count in warnings.items():
        warn(f"{os.fspath(path)}: {what}" + (f" ({count} times)" if count > 1 else ""))


def _plain(value: Any) -> Any:
    """The plain Python value of a numpy scalar or array, the text of a path."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} has no JSON form")


class Bar(Progress):
    """A progress bar; where stderr is no terminal it is drawn every half minute."""

    def begin(self, total: int, *, done: int = 0, unit: str = "step") -> None:
        from tqdm import tqdm

        interval = 0.5 if sys.stderr.isatty() else 30.0
        self._bar = tqdm(
            total=total,
            initial=done,
            unit=unit,
            unit_scale=unit == "B",
            file=sys.stderr,
            mininterval=interval,
        )
        self._shown: dict[str, str] = {}

    def update(self, count: int = 1) -> None:
        self._bar.update(count)

    def measured(self, record: Mapping[str, Any]) -> None:
        """Show loss, speed and validation NLL behind the bar."""
        if "validation_nll" in record:
            self._shown["validation"] = f"{record['validation_nll']:.3f}"
        else:
            self._shown["loss"] = f"{record['loss']:.3f}"
            self._shown["events/s"] = f"{record['events_per_second']:,.0f}"
        self._bar.set_postfix(self._shown, refresh=False)

    def info(self, message: str) -> None:
        from tqdm import tqdm

        tqdm.write(message, file=sys.stderr)

    def end(self) -> None:
        self._bar.close()


@contextlib.contextmanager
def counter(description: str, **style: Any) -> Iterator[Callable[[float, float], None]]:
    """A bar on stderr, and the function that sets how much is done and how much there is.

    `style` is for tqdm; without it nothing is drawn where stderr is no terminal.
    """
    from tqdm import tqdm

    settings: dict[str, Any] = {"leave": False, "disable": None, "file": sys.stderr, **style}
    with tqdm(desc=description, **settings) as bar:

        def report(done: float, total: float) -> None:
            bar.total = total
            bar.update(done - bar.n)

        yield report
