"""Pauses of the garbage collector, where many objects are made that stay.

Each time enough objects are new, the collector looks at all that there are, and here it finds
nothing to collect.
"""

from __future__ import annotations

import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["collector_paused"]


@contextmanager
def collector_paused() -> Iterator[None]:
    """Let nothing be collected meanwhile, in any thread; for parts of a second.

    Pauses of several threads may overlap: the first that ends may end all of them, and the one that
    began first always turns the collector on again.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
