"""Writing files and folders so that an interrupted program leaves no half and destroys nothing.

Everything is written under a temporary name of its own beside its destination, and renamed when it
is complete and on the disk. A link is followed, never replaced. Of a folder that is replaced only
the files that were made by us are deleted, by name; whatever else is in it moves into the new one.
"""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from music_transformer.errors import ConfigError

_LOCK_TEXT = b"a music-transformer command is writing here\n"


def checkout() -> Path | None:
    """The clone this package runs from (an editable install, or its own folder), if it does."""
    root = Path(__file__).resolve().parents[1]
    return root if (root / "pyproject.toml").is_file() else None


@contextmanager
def atomic_path(
    path: str | os.PathLike[str], *, sync: bool = True, replace: bool = True
) -> Iterator[Path]:
    """Give a temporary path beside `path`, renamed to it when the block ends without an error.

    The temporary name has the same suffix. A missing folder is made. When the block raises, the
    temporary file is removed and `path` is as it was.

    Args:
        sync: force it to the disk first; off for what can be made again and is checked when read.
        replace: off for what must be new: a file that came to `path` meanwhile stays.

    Raises:
        ConfigError: `replace` is off and the file exists.
        OSError: nothing can be written there; it names `path`.
    """
    final = followed(path)
    final.parent.mkdir(parents=True, exist_ok=True)
    temporary = _new_file_beside(final)
    try:
        # A full disk gives no name, and the temporary one is nobody's business.
        with errors_name(final, inside=temporary):
            # mkstemp makes files nobody else may read; a result is an ordinary file.
            temporary.chmod(0o666 & ~_umask())
            yield temporary
            if sync:
                sync_file(temporary)
            if replace:
                os.replace(temporary, final)
            else:
                _rename_to_new(temporary, final)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    if sync:
        sync_names(final.parent)


def _rename_to_new(temporary: Path, final: Path) -> None:
    """Rename a file where no other is, in one step where the drive can do that (by a link)."""
    try:
        os.link(temporary, final)
    except OSError as error:
        if isinstance(error, FileExistsError) or os.path.lexists(final):
            raise ConfigError(
                f"{final}: a file of this name has come meanwhile; add --force to overwrite it."
            ) from error
        os.replace(temporary, final)  # a drive without links
    else:
        temporary.unlink()


def replace_text(path: str | os.PathLike[str], text: str) -> None:
    """Make or replace a text file at once."""
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


@contextmanager
def new_folder(final: Path) -> Iterator[Path]:
    """A new folder beside `final`, to be filled and published; gone when the block ends."""
    final.parent.mkdir(parents=True, exist_ok=True)
    with errors_name(final):
        folder = Path(
            tempfile.mkdtemp(prefix=f".{final.name[:16]}-", suffix=".tmp", dir=final.parent)
        )
    try:
        folder.chmod(0o777 & ~_umask())
        with errors_name(final, inside=folder):
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)  # nobody else can have put anything there


def publish_folder(ready: Path, final: Path, *, made: Callable[[str], bool]) -> None:
    """Sync the complete folder `ready` and rename it to `final`.

    Only then of what was at `final` the files whose names are `made` (by us) are deleted, and
    everything else moves into the new folder.

    Raises:
        OSError: it cannot be renamed, and what was at `final` is there again; or a file of the
            user's has a name that is to be written, and nothing is touched.
    """
    for path in ready.iterdir():
        sync_file(path)
    sync_names(ready)
    if not final.exists():
        ready.rename(final)
        sync_names(final.parent)
        return
    for kept in final.iterdir():
        if not made(kept.name) and os.path.lexists(ready / kept.name):
            raise FileExistsError(17, "this file is not ours to replace; move it", str(kept))
    holder = Path(tempfile.mkdtemp(prefix=f".{final.name[:16]}-", suffix=".old", dir=final.parent))
    old = holder / "old"
    try:
        final.rename(old)
        try:
            ready.rename(final)
        except BaseException:
            old.rename(final)
            raise
    except BaseException:
        with contextlib.suppress(OSError):
            holder.rmdir()
        raise
    sync_names(final.parent)
    for entry in sorted(old.iterdir()):
        if not made(entry.name) or (entry.is_dir() and not entry.is_symlink()):
            entry.rename(final / entry.name)
    remove_made(old, made)
    with contextlib.suppress(OSError):
        holder.rmdir()


def remove_made(folder: Path, made: Callable[[str], bool]) -> None:
    """Delete the files in `folder` whose names are `made`, and the folder if that was all of it."""
    for entry in sorted(folder.iterdir()):
        if made(entry.name) and (entry.is_symlink() or not entry.is_dir()):
            entry.unlink()
    with contextlib.suppress(OSError):
        folder.rmdir()


@contextmanager
def locked(path: Path, busy: str) -> Iterator[None]:
    """Keep other processes that ask for the same lock out while the block runs.

    A process that was killed holds nothing. The file at `path` goes in the end, unless it is
    somebody else's, and so does an empty folder made for it. A drive without locks (of a network)
    keeps nobody out.

    Raises:
        ConfigError: another process is in its block; its message is `busy`.
    """
    made, ours = not path.parent.exists(), False
    path.parent.mkdir(parents=True, exist_ok=True)
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    while True:
        with errors_name(path.parent):
            descriptor = os.open(path, flags, 0o666)
        try:
            try:
                _lock(descriptor)
            except BlockingIOError as error:
                raise ConfigError(busy) from error
            if not _is_at(descriptor, path):
                continue  # who had it has just removed it
            if os.fstat(descriptor).st_size == 0:
                os.write(descriptor, _LOCK_TEXT)
            try:
                yield
            finally:
                with contextlib.suppress(OSError):
                    os.lseek(descriptor, 0, os.SEEK_SET)
                    ours = os.read(descriptor, 100) == _LOCK_TEXT and _is_at(descriptor, path)
                    if ours:
                        path.unlink()
            return
        finally:
            os.close(descriptor)
            with contextlib.suppress(OSError):
                if ours and os.name == "nt":  # where an open file cannot be deleted
                    path.unlink()
                if made:
                    path.parent.rmdir()


def _lock(descriptor: int) -> None:
    """Lock an open file for this process; BlockingIOError where another has done so."""
    try:
        import fcntl
    except ImportError:  # Windows, where a byte is locked: one far behind what anybody reads
        import msvcrt

        os.lseek(descriptor, 1 << 30, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
        except OSError as error:
            raise BlockingIOError from error
        finally:
            os.lseek(descriptor, 0, os.SEEK_SET)
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if isinstance(error, BlockingIOError):
            raise  # else it is a drive that has no locks


def output_lock(final: Path) -> contextlib.AbstractContextManager[None]:
    """The lock of an output: one command writes there at a time."""
    return locked(
        final.with_name(f".{final.name}.lock"),
        f"{final}: another command is writing it; wait for it, or choose another --out.",
    )


def followed(path: str | os.PathLike[str]) -> Path:
    """Where a write to `path` goes: `path`, or what a link there points to, if it exists or not."""
    path = Path(path)
    if not path.is_symlink():
        return path
    target = Path(os.path.realpath(path))
    if target.is_symlink():
        raise OSError(40, "links that lead in a circle", str(path))
    return target


def sync_file(path: Path) -> None:
    """Force the bytes of a file to the disk."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def sync_names(folder: Path) -> None:
    """Force the list of names of `folder` to the disk, where the system can do that."""
    if os.name == "nt":
        return
    with errors_name(folder):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextmanager
def errors_name(path: Path, *, inside: Path | None = None) -> Iterator[None]:
    """Let an OSError of the block (of nothing, or something in `inside`, if given) name `path`."""
    try:
        yield
    except OSError as error:
        named = error.filename
        other = inside and named is not None and not Path(str(named)).is_relative_to(inside)
        if error.errno is None or other:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


def _is_at(descriptor: int, path: Path) -> bool:
    """Whether an open file is the one at `path`."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    except FileNotFoundError:
        return False


def _new_file_beside(final: Path) -> Path:
    """An empty file in the folder of `final`, with a hidden name that ends in the same suffix."""
    prefix = f".{final.stem[:16]}-"  # short: 16 characters may be 64 bytes, and names hold 255
    with errors_name(final):
        handle, name = tempfile.mkstemp(
            prefix=prefix, suffix=f".tmp{final.suffix}", dir=final.parent
        )
    os.close(handle)
    return Path(name)


def _umask() -> int:
    """The umask of this process; the operating system lets it be read only by setting it."""
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
