"""Run a command: read settings, open dataset, source and engine, and print the result."""

from __future__ import annotations

import logging
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from fsspeckit.cli.config import Settings, hide, load_settings
from fsspeckit.cli.pages import PageFile
from fsspeckit.display import show_progress
from fsspeckit.errors import CommitPendingError, InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from fsspeckit.cli.options import EngineName, Format
    from fsspeckit.cli.output import Output
    from fsspeckit.datasets.base import DatasetIO
    from fsspeckit.display import Progress
    from fsspeckit.storage import Storage

__all__ = ["Job", "OpenedJob", "Session", "open_session"]

T = TypeVar("T")


@dataclass(frozen=True)
class Session:
    """Settings and output of one command: results go to stdout, messages to stderr."""

    settings: Settings
    output: Output
    quiet: bool

    def say(self, text: str) -> None:
        """Print a message to stderr, even with ``--quiet``."""
        # Not through a console: progress bars redirect this stream while they are shown.
        sys.stderr.write(f"{hide(text)}\n")

    def note(self, text: str) -> None:
        """Print a note, unless ``--quiet`` is given."""
        if not self.quiet:
            self.say(f"note: {text}")

    def show_done(self, show: Callable[..., None], *values: Any) -> None:
        """Print the result of a command that may have changed something."""
        try:
            show(*values)
            sys.stdout.flush()
        except OSError as error:  # a plain failure would mean that nothing was changed
            raise CommitPendingError(
                f"all is done, but the result cannot be printed: {error.strerror or error}.\n"
                "Hint: do not repeat the command; 'fsspeckit history' shows what it committed."
            ) from error

    def storage(self, path: str, control_dir: str | None, lock_timeout: float = 30.0) -> Storage:
        """Open the storage of a dataset."""
        from fsspeckit.storage import open_storage

        if path == "-":
            raise InvalidArgumentError(
                "the dataset cannot be '-', which stands for stdin.\n"
                "Hint: name a directory; write ./- if that is its name."
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


def _check_control(path: Path) -> None:
    """Refuse a control directory that cannot be created, since a parent is a file."""
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
    """Read the settings and choose the output format."""
    from fsspeckit.cli.output import JsonOutput, TextOutput

    settings = load_settings(storage_option or (), config)
    output: Output = JsonOutput(sys.stdout) if as_json else TextOutput(sys.stdout)
    return Session(settings, output, quiet)


@dataclass(frozen=True)
class OpenedJob:
    """A source and an engine, ready for a call of the library."""

    source: Any
    io: DatasetIO
    progress: Progress
    """Draws the bars, and notices when a commit begins: Ctrl-C waits for its end then."""


@dataclass(frozen=True)
class Job:
    """What a command that takes rows opens before it calls the library."""

    session: Session
    sources: Sequence[str]
    target: str
    engine: EngineName | None
    control_dir: str | None
    lock_timeout: float
    format: Format | None
    delimiter: str | None
    infer_types: bool
    keys: tuple[str, ...] = ()
    """The only columns of the source that are used; if there are none, all of them are."""

    marks: str | None = None
    """The boolean column of the source that the target does not have."""

    sequence_by: str | None = None
    """The column that orders the changes, if the source is a change feed."""

    adds_columns: bool = False
    """Whether the source may have columns that the target does not have."""

    html: str | None = None
    """The file of a page that shows the result."""

    def run(self, call: Callable[[OpenedJob], T], show: Callable[[str, T], None]) -> None:
        """Open dataset, source and engine, the cheapest first; call, and show the result."""
        from fsspeckit.cli.errors import Interrupts, report_on_interrupt

        session = self.session
        storage = session.storage(self.target, self.control_dir, self.lock_timeout)
        page = None if self.html is None else PageFile.of(self.html)
        interrupts = Interrupts(session.say)
        with report_on_interrupt(storage, interrupts, session.say):
            with ExitStack() as stack:
                source = self._open_source(storage, stack)
                io = stack.enter_context(self._open_engine())
                # After the engine: Spark has a handler of its own, which this one calls.
                stack.enter_context(interrupts)
                progress = stack.enter_context(show_progress(not session.quiet))
                result = call(OpenedJob(source, io, interrupts.watch(progress)))
            if page is not None:
                _write_page(page, result)
            show(storage.root.display_path, result)

    def _open_source(self, storage: Storage, stack: ExitStack) -> Any:
        if not self.sources:
            return None
        from fsspeckit.cli.sources import SourceOptions, TextColumns, open_source

        options = SourceOptions(self.format, self.delimiter, self.session.settings.storage_options)
        named = {} if self.marks is None else {"delete_when": self.marks}
        columns = TextColumns(self._text_columns, self._has_others, named)
        opened = open_source(self.sources, storage, options, stack, columns, infer=self.infer_types)
        if opened.inferred is not None:
            types = ", ".join(f"{field.name} {field.type}" for field in opened.inferred)
            self.session.note(f"the types of the columns were inferred from their values: {types}")
        return opened.data

    @property
    def _has_others(self) -> bool:
        """Whether a source of text may have more columns than the target."""
        return self.sequence_by is not None or self.adds_columns

    def _text_columns(self, target: pa.Schema) -> pa.Schema:
        """Return the columns of a source of text, whose types are those of the target."""
        import pyarrow as pa

        from fsspeckit.core.keys import check_columns

        if self.keys:
            check_columns("key_columns", self.keys, target.names)
            return pa.schema([field for field in target if field.name in self.keys])
        if self.sequence_by is not None:
            from fsspeckit.core.changes import feed_schema

            return feed_schema(target, self.sequence_by)
        if self.marks is not None and self.marks not in target.names:
            return target.append(pa.field(self.marks, pa.bool_()))
        return target

    def _open_engine(self) -> DatasetIO:
        from fsspeckit.datasets.registry import open_engine

        if not logging.root.handlers:
            # Libraries log tracebacks of errors that are printed here in one line; py4j also those
            # of interrupts.
            logging.root.addHandler(logging.NullHandler())
        settings = self.session.settings
        return open_engine(
            settings.engine if self.engine is None else self.engine.value,
            None,
            settings.storage_options(self.target),
            control_dir=self.control_dir,
            lock_timeout=self.lock_timeout,
        )


def _write_page(page: PageFile, result: Any) -> None:
    """Write the page of a plan or of a result, which may have changed something already."""
    try:
        page.write(result.to_html())
    except Exception as error:  # whatever it is, the rows are committed
        if not _is_committed(result):
            raise
        raise CommitPendingError(
            f"all is done, but the page cannot be written: {error}\n"
            "Hint: do not repeat the command; 'fsspeckit report' writes a page of the dataset."
        ) from error


def _is_committed(result: Any) -> bool:
    return bool(getattr(result, "metrics", {}).get("commit", {}).get("published"))
