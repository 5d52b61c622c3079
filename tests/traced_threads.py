"""Threads that start although another one is just being traced.

While coverage is measured, a new thread sets its trace function first. CPython 3.11 refuses that
while another thread does the same and is interrupted, as it may be once there is an audit hook. The
new thread is then over before it has begun: whoever waits for it waits for ever.
"""

from __future__ import annotations

import sys
import threading
import time
from typing import Any

_PAUSE_SECONDS = 0.0001


class _System:
    """The module sys, except that it sets a trace function as soon as it may."""

    def __getattr__(self, name: str) -> Any:
        return getattr(sys, name)

    def settrace(self, function: Any) -> None:
        while True:
            try:
                return sys.settrace(function)
            except RuntimeError:  # "while another trace function is being installed"
                time.sleep(_PAUSE_SECONDS)


def install() -> None:
    """Let every thread of this process start, traced or not."""
    threading._sys = _System()  # type: ignore[attr-defined]
