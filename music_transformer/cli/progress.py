"""Progress on stderr: lines, and a bar of tqdm."""

import sys
from collections.abc import Mapping
from typing import Any

from music_transformer.progress import Progress


class Bar(Progress):
    """A progress bar; where stderr is no terminal it is drawn every half minute."""

    def begin(self, total: int, *, done: int = 0, unit: str = "step") -> None:
        """Draw the bar."""
        from tqdm import tqdm

        interval = 0.5 if sys.stderr.isatty() else 30.0
        self._bar = tqdm(
            total=total, initial=done, unit=unit, file=sys.stderr, mininterval=interval
        )
        self._shown: dict[str, str] = {}

    def update(self, count: int = 1) -> None:
        """Move the bar."""
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
        """Print the line."""
        print(message, file=sys.stderr, flush=True)

    def end(self) -> None:
        """Leave the bar as it is."""
        self._bar.close()
