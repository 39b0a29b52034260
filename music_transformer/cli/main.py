"""`music-transformer`: picks the subcommand, and turns every outcome into an exit code.

0 done; 1 a bug of ours (traceback); 2 a wrong request (usage, `ConfigError`); 3 an input is missing
or broken, or an output cannot be written (one line); 130 interrupted; 143 ended by SIGTERM.

Only the module of the subcommand that was named is imported, and it imports what is heavy inside
`run`: so `encode`, `decode`, `render`, `plot` and every `--help` start without torch.
"""

import argparse
import contextlib
import difflib
import errno
import importlib
import os
import select
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from types import FrameType, ModuleType
from typing import TextIO

from music_transformer._version import __version__
from music_transformer.errors import ConfigError, DivergenceError, MusicTransformerError
from music_transformer.limits import check_number

PROGRAM = "music-transformer"

#: Name of each subcommand and its line in `--help`; its module is `cli/<name>.py`, with _ for -.
COMMANDS: dict[str, str] = {
    "download": "fetch a corpus or released weights, checked by size and sha256",
    "prepare": "turn a corpus or a folder of MIDI files into arrays of event ids",
    "train": "train a model on prepared data",
    "evaluate": "measure a model in nats per event, beside the baselines",
    "generate": "continue a motif, or compose from nothing",
    "accompany": "keep a melody and compose what goes with it",
    "fill": "compose a gap of a file; what stands before and after it is kept",
    "encode": "print the event ids of a MIDI file",
    "decode": "turn event ids back into a MIDI file",
    "render": "turn a MIDI file into sound",
    "plot": "draw a MIDI file as a piano roll",
    "listening-test": "build a blind listening test from checkpoints, analyse its answers",
    "serve": "a page in your browser: drop a motif or play one, hear it go on",
    "demo": "continue a motif with the released piano model: MIDI, sound, picture",
}

EPILOG = """\
examples:
  music-transformer demo
  music-transformer generate motif.mid --checkpoint piano --seconds 30 --out out.mid --wav --plot
  music-transformer generate --help
"""

#: What the file system says of a path the user gave; any other OSError is a bug until proven else.
_PATH_ERRORS = {
    errno.ENOENT,
    errno.EACCES,
    errno.EPERM,
    errno.EISDIR,
    errno.ENOTDIR,
    errno.EEXIST,
    errno.ENOTEMPTY,
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EFBIG,
    errno.EROFS,
    errno.ENAMETOOLONG,
    errno.ELOOP,
    errno.EBUSY,
    errno.EXDEV,
}

#: Flags that may be `inf`: they leave to the model what they would else decide.
_UNLIMITED = ("hold_seconds",)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line (default: the one of this process) and return its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    return exit_code(lambda: _dispatch(arguments))


def exit_code(run: Callable[[], int]) -> int:
    """That of some work: its own, or that of its error, which becomes one line on stderr."""
    _open_closed_streams()
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")  # a file name may be no valid text
    try:
        with _cleaned_up_at_signals():
            code = run()
        sys.stdout.flush()
        return code
    except DivergenceError as error:
        return _complain(str(error), 1)
    except MusicTransformerError as error:
        return _complain(str(error), 2 if isinstance(error, ConfigError) else 3)
    except KeyboardInterrupt:
        return _complain("interrupted", 130)
    except BrokenPipeError:
        without_reader = _code_without_reader()
        return _report_bug() if without_reader is None else without_reader
    except OSError as error:
        if error.errno not in _PATH_ERRORS:
            return _report_bug()
        place = "" if error.filename is None else f"{os.fsdecode(error.filename)}: "
        if not place and _cannot_be_written(sys.stdout):
            place = "standard output: "
        return _complain(f"{place}{(error.strerror or str(error)).lower()}.", 3)
    except Exception:
        return _report_bug()


def _dispatch(arguments: list[str]) -> int:
    """Parse, then run the subcommand; argparse's own exits become return values."""
    try:
        parsed = _parser(arguments[0] if arguments else None).parse_args(arguments)
    except SystemExit as exit_request:
        return exit_request.code if isinstance(exit_request.code, int) else 0
    for name, value in vars(parsed).items():
        flag = "--" + name.replace("_", "-")
        check_number(flag, value, infinite=name in _UNLIMITED)
    return int(parsed.run(parsed))


def _parser(command: str | None) -> argparse.ArgumentParser:
    """The parser for a command line that begins with `command`; only its module is imported."""
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        description="Continue a motif with a Transformer with relative attention: "
        "read MIDI, train, generate, hear and see the result.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"{PROGRAM} {__version__}")
    if command is not None and not command.startswith("-") and command not in COMMANDS:
        parser.error(_unknown(command))
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True)
    if command is not None and command in COMMANDS:
        module = _module(command)
        chosen = subparsers.add_parser(
            command,
            description=module.DESCRIPTION,
            epilog=module.EPILOG,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        chosen.set_defaults(run=module.run)
        module.add_arguments(chosen)
    else:
        for name, line in COMMANDS.items():
            subparsers.add_parser(name, help=line)
    return parser


def _module(command: str) -> ModuleType:
    """Import `cli/<command>.py`.

    It has a DESCRIPTION, an EPILOG of examples, `add_arguments(parser)` and `run(args) -> int`.
    """
    name = f"{__package__}.{command.replace('-', '_')}"
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise ConfigError(f"{command}: this installation has no such command.") from error


def _unknown(command: str) -> str:
    """What to say of a command that does not exist: the nearest one, else all of them."""
    near = difflib.get_close_matches(command, COMMANDS, n=1)
    mend = f"did you mean {near[0]!r}?" if near else f"choose from {', '.join(COMMANDS)}."
    return f"unknown command {command!r}; {mend}"


def _complain(message: str, code: int) -> int:
    """Print one line on stderr and return `code`."""
    with contextlib.suppress(OSError):  # nobody reads it; the code still tells
        print(f"{PROGRAM}: error: {' '.join(message.split())}", file=sys.stderr)
    return code


def _report_bug() -> int:
    """Print the traceback of the current exception and return 1."""
    traceback.print_exc()
    print(f"{PROGRAM}: this is a bug; please report it with the lines above.", file=sys.stderr)
    return 1


@contextlib.contextmanager
def _cleaned_up_at_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP leave the block like an exception: no temporary file stays behind."""
    named = (getattr(signal, name, None) for name in ("SIGTERM", "SIGHUP"))
    in_main_thread = threading.current_thread() is threading.main_thread()
    handled = [one for one in named if one and in_main_thread]
    # `nohup` ignores SIGHUP, and it stays so.
    ours = [one for one in handled if signal.getsignal(one) is signal.SIG_DFL]

    def end(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    for one in ours:
        signal.signal(one, end)
    try:
        yield
    finally:
        for one in ours:
            signal.signal(one, signal.SIG_DFL)


def _open_closed_streams() -> None:
    """Let streams that the caller closed (`>&-`) lead nowhere; Python has None in their place.

    The first file that is opened would else become file 1, and get what is printed there.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115


def _cannot_be_written(stream: TextIO) -> bool:
    """Whether what was printed finds no room; what is left of it then goes nowhere."""
    try:
        stream.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        return True
    return False


def _code_without_reader() -> int | None:
    """The exit code when the reader of a stream is gone (`| head`); None when none is.

    0 where nobody wants more results; 141, as a shell calls SIGPIPE, where warnings and progress
    found no reader: the work was not done then.
    """
    left = [stream for stream in (sys.stdout, sys.stderr) if _reader_has_left(stream)]
    # Python flushes the streams once more at exit; let that go nowhere instead of failing.
    for stream in left:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    if sys.stderr in left:
        return 141
    return 0 if left else None


def _reader_has_left(stream: TextIO) -> bool:
    """Whether the stream is a pipe whose reader is gone."""
    if not hasattr(select, "poll"):  # Windows; of its pipes the one of the results breaks so
        return stream is sys.stdout
    try:
        number = stream.fileno()
    except (OSError, ValueError):  # no file of the system
        return False
    poller = select.poll()
    poller.register(number, 0)  # errors and hang-ups are reported whatever the mask
    return bool(poller.poll(0))


if __name__ == "__main__":
    sys.exit(main())
