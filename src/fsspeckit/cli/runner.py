"""What one command works with: settings, where results go, and where talk goes.

What ``merge``, ``plan`` and ``write`` open before they call the library, and close after it.
"""

from __future__ import annotations

import logging
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from fsspeckit.cli.config import Settings, hide, load_settings
from fsspeckit.display import reporting
from fsspeckit.errors import CommitPendingError, InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from fsspeckit.cli.output import Output
    from fsspeckit.cli.sources import OpenedSource
    from fsspeckit.datasets.base import DatasetIO
    from fsspeckit.display import Progress
    from fsspeckit.storage import Storage

__all__ = ["Session", "Work", "open_session", "work_on"]


# --- What one command works with: settings, where results go, and where talk goes ---


@dataclass(frozen=True)
class Session:
    """Settings and streams of one command: stdout is data, stderr is talk."""

    settings: Settings
    output: Output
    quiet: bool

    def say(self, text: str) -> None:
        """Tell the user something on stderr, also where quiet was asked for."""
        # Not through a console: while bars are shown, they take care of what is written here.
        sys.stderr.write(f"{hide(text)}\n")

    def note(self, text: str) -> None:
        """Tell the user something that is of use, but not needed."""
        if not self.quiet:
            self.say(f"note: {text}")

    def show_done(self, show: Callable[..., None], *values: Any) -> None:
        """Show the result of a command that may have changed something.

        Raises:
            CommitPendingError: If it cannot be shown: whoever asked must not take that for a
                failure that changed nothing.
        """
        try:
            show(*values)
            sys.stdout.flush()
        except OSError as error:
            raise CommitPendingError(
                f"all is done, but the result cannot be printed: {error.strerror or error}.\n"
                "Hint: do not repeat the command; history() tells what it committed."
            ) from error

    def tell_types(self, source: OpenedSource) -> None:
        """Tell which types the columns of text were found to have, if nothing else told them."""
        if source.inferred is not None:
            types = ", ".join(f"{field.name} {field.type}" for field in source.inferred)
            self.note(f"the types of the columns were found from their values: {types}")

    def storage(self, path: str, control_dir: str | None, lock_timeout: float = 30.0) -> Storage:
        """The storage of a dataset."""
        from fsspeckit.storage import open_storage

        if path == "-":
            raise InvalidArgumentError(
                "a dataset cannot be '-', which stands for stdin.\n"
                "Hint: name a directory; ./- if it is really called that."
            )
        options = self.settings.storage_options(path)
        storage = open_storage(
            path, None, options, control_dir=control_dir, lock_timeout=lock_timeout
        )
        if storage.root.filesystem.isfile(storage.root.path):
            raise NotADirectoryError(
                f"{storage.root.display_path!r} is a file, and a dataset is a directory.\n"
                "Hint: name the directory that holds the file."
            )
        if control_dir is not None and storage.root.is_local:
            _check_control(Path(storage.control.path))
        return storage

    def engine(self, name: str | None, path: str, **options: Any) -> DatasetIO:
        """Open an engine for a dataset."""
        from fsspeckit.datasets.registry import open_engine

        if not logging.root.handlers:
            # Libraries log tracebacks of what is told here in one line, py4j those of an interrupt.
            logging.root.addHandler(logging.NullHandler())
        storage_options = self.settings.storage_options(path)
        return open_engine(name or self.settings.engine, None, storage_options, **options)


def _check_control(path: Path) -> None:
    """Refuse a control directory that could never be made."""
    existing = next(parent for parent in (path, *path.parents) if parent.exists())
    if not existing.is_dir():
        raise NotADirectoryError(
            f"--control-dir {str(path)!r} cannot be a directory: {str(existing)!r} is a file.\n"
            "Hint: name a directory, which need not exist yet."
        )


def open_session(
    as_json: bool,
    quiet: bool = False,
    storage_option: Sequence[str] | None = None,
    config: Path | None = None,
) -> Session:
    """Read the settings and choose the output."""
    from fsspeckit.cli.output import JsonOutput, TextOutput

    settings = load_settings(storage_option or (), config)
    output: Output = JsonOutput(sys.stdout) if as_json else TextOutput(sys.stdout)
    return Session(settings, output, quiet)


# --- What ``merge`` ---

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
    from fsspeckit.cli.errors import Interrupts, report_on_interrupt

    target, control_dir = arguments["target"], arguments["control_dir"]
    storage = session.storage(target, control_dir, arguments["lock_timeout"])
    interrupts = Interrupts(session.say)
    with report_on_interrupt(storage, interrupts, session.say):
        with ExitStack() as stack:
            data = _source(session, arguments, storage, stack)
            io = stack.enter_context(_engine(session, arguments))
            # After the engine: Spark has a handler of its own, which this one calls.
            stack.enter_context(interrupts)
            report = stack.enter_context(reporting(not session.quiet))
            result = call(Work(data, io, interrupts.watch(report)))
        show(storage.root.display_path, result)


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
