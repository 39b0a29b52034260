"""Progress on stderr: lines, and a bar of tqdm."""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from music_transformer.progress import Progress


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


@contextmanager
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
