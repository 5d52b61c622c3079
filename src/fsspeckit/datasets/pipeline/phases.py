"""Phases: what a call tells about its progress, and how long each part of it took."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fsspeckit.display.progress import Progress

__all__ = ["Phases"]


class Phases:
    """The phases of one call, which is told about the same way by every engine.

    Args:
        tell: Called with phase, done and total: at the beginning of a phase with 0 of 1, at its end
            with 1 of 1, and by engines in between.
    """

    def __init__(self, tell: Progress) -> None:
        self.tell = tell
        self.seconds: dict[str, float] = {}

    @contextmanager
    def timed(self, phase: str) -> Iterator[None]:
        """Measure a phase and tell about its start and end; one that fails has no end."""
        self.tell(phase, 0, 1)
        start = time.perf_counter()
        yield
        spent = time.perf_counter() - start
        self.seconds[phase] = self.seconds.get(phase, 0.0) + spent
        self.tell(phase, 1, 1)
