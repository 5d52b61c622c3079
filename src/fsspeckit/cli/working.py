"""What ``merge``, ``plan`` and ``write`` open before they call the library, and close after it."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fsspeckit.display.progress import reporting

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from fsspeckit.cli.session import Session
    from fsspeckit.datasets.base import DatasetIO
    from fsspeckit.display.progress import Progress

__all__ = ["Work", "working"]


@dataclass(frozen=True)
class Work:
    """A dataset, a source and an engine, ready for a call of the library."""

    shown: str
    """The dataset, as messages call it."""

    data: Any
    """The source."""

    io: DatasetIO
    """The engine."""

    progress: Progress
    """Draws the bars, and knows when a commit begins: Ctrl-C waits for its end then."""


@contextmanager
def working(session: Session, arguments: Mapping[str, Any]) -> Iterator[Work]:
    """Open dataset, source and engine, in the order of what each costs; tell what Ctrl-C left."""
    from fsspeckit.cli.interrupts import Interrupts, told_on_interrupt
    from fsspeckit.cli.sources import SourceOptions, open_source

    target, control_dir = arguments["target"], arguments["control_dir"]
    timeout = arguments["lock_timeout"]
    storage = session.storage(target, control_dir, timeout)
    reading = SourceOptions(
        arguments["source_format"], arguments["delimiter"], session.settings.storage_options
    )
    with ExitStack() as stack:
        infer = arguments["infer_types"]
        source = open_source(arguments["sources"], storage, reading, stack, infer=infer)
        session.tell_types(source)
        name = arguments["engine"]
        io = session.engine(
            None if name is None else name.value,
            target,
            control_dir=control_dir,
            lock_timeout=timeout,
        )
        stack.enter_context(io)
        interrupts = Interrupts(session.say)
        stack.enter_context(told_on_interrupt(storage, interrupts, session.say))
        stack.enter_context(interrupts)
        report = stack.enter_context(reporting(not session.quiet))
        yield Work(storage.root.shown, source.data, io, interrupts.watch(report))
