"""One protocol for all that follows long work: training, evaluation, sampling."""

from collections.abc import Mapping
from typing import Any


class Progress:
    """Follows a piece of work; this one is silent, and is the base of those that show something."""

    def begin(self, total: int, *, done: int = 0, unit: str = "step") -> None:
        """Work of `total` units begins, of which some may be done already."""

    def update(self, count: int = 1) -> None:
        """So many more units are done."""

    def measured(self, record: Mapping[str, Any]) -> None:
        """Something was measured; `record` is a line of the metrics."""

    def info(self, message: str) -> None:
        """One line for the user."""

    def end(self) -> None:
        """The work is over, done or not."""
