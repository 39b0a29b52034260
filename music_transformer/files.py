"""Writing files so that an interrupted program leaves no half file and destroys nothing.

Everything is written under a temporary name in the folder of its destination and renamed when
complete: a reader sees the old file or the new one, never a part of either.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a temporary path beside `path`, renamed to it when the block ends without an error.

    The temporary name keeps the suffix, so that writers that choose a format by it still do. An
    existing file at `path` is replaced (callers that must not do so check first); a missing folder
    is made. When the block raises, the temporary file is removed and `path` is as it was.

    Raises:
        OSError: nothing can be written there; it names `path`, which is what the caller asked for.
    """
    final = Path(path)
    final.parent.mkdir(parents=True, exist_ok=True)
    temporary = _new_file_beside(final)
    try:
        # mkstemp makes files nobody else may read; a result is an ordinary file.
        temporary.chmod(0o666 & ~_umask())
        yield temporary
        with _errors_name(final):
            os.replace(temporary, final)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        if error.filename is None:  # a full disk says so without a name
            raise OSError(error.errno, error.strerror, str(final)) from error
        raise
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def replace_folder(ready: Path, final: Path) -> None:
    """Rename the complete folder `ready` to `final`; what was there goes only after that.

    Raises:
        OSError: it cannot be renamed; what was at `final` is there again.
    """
    if not final.exists():
        ready.rename(final)
        return
    aside = final.with_name(f".{final.name}.old-{os.getpid()}")
    final.rename(aside)
    try:
        ready.rename(final)
    except OSError:
        aside.rename(final)
        raise
    shutil.rmtree(aside, ignore_errors=True)


def _new_file_beside(final: Path) -> Path:
    """An empty file in the folder of `final`, with a hidden name that ends in the same suffix."""
    prefix = f".{final.stem[:16]}-"  # short: 16 characters may be 64 bytes, and names hold 255
    with _errors_name(final):
        handle, name = tempfile.mkstemp(
            prefix=prefix, suffix=f".tmp{final.suffix}", dir=final.parent
        )
    os.close(handle)
    return Path(name)


@contextmanager
def _errors_name(path: Path) -> Iterator[None]:
    """Let an OSError of the block name `path` instead of a temporary name."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def _umask() -> int:
    """The umask of this process; the operating system lets it be read only by setting it."""
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
