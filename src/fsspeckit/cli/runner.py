"""What one command works with: settings, where results go, and where talk goes."""

from __future__ import annotations

import logging
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fsspeckit.cli.config import Settings, hide, load_settings
from fsspeckit.errors import CommitPendingError, InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fsspeckit.cli.output import Output
    from fsspeckit.cli.sources import OpenedSource
    from fsspeckit.datasets.base import DatasetIO
    from fsspeckit.storage.storage import Storage

__all__ = ["Session", "open_session"]


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
        from fsspeckit.storage.storage import open_storage

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
                f"{storage.root.shown!r} is a file, and a dataset is a directory.\n"
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
