"""What ``merge``, ``plan`` and ``write`` open before they call the library, and close after it."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from fsspeckit.display.progress import reporting

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from fsspeckit.cli.runner import Session
    from fsspeckit.datasets.base import DatasetIO
    from fsspeckit.display.progress import Progress
    from fsspeckit.storage.storage import Storage

__all__ = ["Work", "work_on"]

T = TypeVar("T")


@dataclass(frozen=True)
class Work:
    """A source and an engine, ready for a call of the library."""

    data: Any
    """The source."""

    io: DatasetIO
    """The engine."""

    progress: Progress
    """Draws the bars, and knows when a commit begins: Ctrl-C waits for its end then."""


def work_on(
    session: Session,
    arguments: Mapping[str, Any],
    call: Callable[[Work], T],
    show: Callable[[str, T], None],
) -> None:
    """Open dataset, source and engine, in the order of what each costs; call, and show the result.

    What Ctrl-C left is told, at whatever moment it was pressed.

    Args:
        session: Settings and streams.
        arguments: What the command was given.
        call: Calls the library.
        show: Shows the dataset's name and what the call returned.
    """
    from fsspeckit.cli.interrupts import Interrupts, told_on_interrupt

    target, control_dir = arguments["target"], arguments["control_dir"]
    storage = session.storage(target, control_dir, arguments["lock_timeout"])
    interrupts = Interrupts(session.say)
    with told_on_interrupt(storage, interrupts, session.say):
        with ExitStack() as stack:
            data = _source(session, arguments, storage, stack)
            io = stack.enter_context(_engine(session, arguments))
            # After the engine: Spark has a handler of its own, which this one calls.
            stack.enter_context(interrupts)
            report = stack.enter_context(reporting(not session.quiet))
            result = call(Work(data, io, interrupts.watch(report)))
        show(storage.root.shown, result)


def _source(
    session: Session, arguments: Mapping[str, Any], storage: Storage, stack: ExitStack
) -> Any:
    from fsspeckit.cli.sources import SourceOptions, open_source

    reading = SourceOptions(
        arguments["source_format"], arguments["delimiter"], session.settings.storage_options
    )
    infer = arguments["infer_types"]
    source = open_source(arguments["sources"], storage, reading, stack, infer=infer)
    session.tell_types(source)
    return source.data


def _engine(session: Session, arguments: Mapping[str, Any]) -> DatasetIO:
    name = arguments["engine"]
    return session.engine(
        None if name is None else name.value,
        arguments["target"],
        control_dir=arguments["control_dir"],
        lock_timeout=arguments["lock_timeout"],
    )
