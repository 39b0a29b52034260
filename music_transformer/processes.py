"""Worker processes: how many there may be, and that none outlives its parent."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable


def usable_cores() -> int:
    """The number of cores this process may use."""
    affinity: Callable[[int], set[int]] | None = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else (os.cpu_count() or 1)


def follow_parent() -> None:
    """Leave signals to the process that started this one, and end with it however it ends.

    Ctrl-C reaches every process of a terminal; a run that saves its last step still needs workers.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
