"""Writing files so that an interrupted program leaves no half file and destroys nothing.

Everything is written under a temporary name in the folder of its destination and renamed when
complete: a reader sees the old file or the new one, never a part of either.
"""

import os
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
    """
    final = Path(path)
    final.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(
        prefix=f".{final.stem[:64]}-", suffix=f".tmp{final.suffix}", dir=final.parent
    )
    os.close(handle)
    temporary = Path(name)
    try:
        # mkstemp makes files nobody else may read; a result is an ordinary file.
        temporary.chmod(0o666 & ~_umask())
        yield temporary
        os.replace(temporary, final)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _umask() -> int:
    """The umask of this process; the operating system lets it be read only by setting it."""
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
