"""Pages that commands write: checked before anything happens, written when there is a result."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fsspeckit.errors import FsspeckitError, InvalidArgumentError

if TYPE_CHECKING:
    from fsspeckit.storage import Storage

__all__ = ["PageFile"]

_SUFFIX = ".new"
_MAX_READ_BYTES = 1024 * 1024


@dataclass(frozen=True)
class PageFile:
    """The file of a page, which can be written."""

    path: Path

    option: str = "--html"
    """The option that names it."""

    @classmethod
    def of(cls, name: str, *, overwrite: bool = False, option: str = "--html") -> PageFile:
        """Check the name of a file.

        A page replaces an earlier page. No other file is replaced, unless ``overwrite`` says so.

        Raises:
            InvalidArgumentError: If no page can be written there.
        """
        path = Path(name).absolute()
        if not name or name == "-":
            raise InvalidArgumentError(
                f"{option} needs the name of a file, got {name!r}.\nHint: write report.html."
            )
        from fsspeckit.storage import DATA_SUFFIXES

        if path.suffix.lower() in DATA_SUFFIXES:
            raise InvalidArgumentError(
                f"{option} {name!r} has the name of a data file, and is a page for a browser.\n"
                f"Hint: name it {path.with_suffix('.html').name!r}."
            )
        if not path.parent.is_dir():
            raise InvalidArgumentError(
                f"{option} {name!r} cannot be written: there is no directory "
                f"{str(path.parent)!r}.\nHint: create it, or choose another place."
            )
        if path.is_dir():
            raise InvalidArgumentError(
                f"{option} {name!r} is a directory.\n"
                f"Hint: name a file in it, as {str(Path(name) / 'report.html')!r}."
            )
        if path.exists() and not overwrite and not _is_page(path):
            other = "pass --overwrite" if option == "--output" else "remove the file first"
            raise InvalidArgumentError(
                f"{option} {name!r} exists already, and is not a page of fsspeckit.\n"
                f"Hint: choose another name, or {other}."
            )
        if not os.access(path.parent, os.W_OK):
            raise _not_writable(option, path, "this user may not write into its directory")
        return cls(path, option)

    @classmethod
    def for_dataset(cls, storage: Storage, *, overwrite: bool) -> PageFile:
        """Name the page of a dataset, in the working directory."""
        name = storage.root.path.rstrip("/").rpartition("/")[2] or "dataset"
        return cls.of(f"{name}-report.html", overwrite=overwrite, option="--output")

    def write(self, page: str) -> int:
        """Write the page, whole or not at all, and return its bytes.

        Raises:
            FsspeckitError: If that fails, such as on a full disk.
        """
        data = page.encode()
        new = self.path.with_name(self.path.name + _SUFFIX)
        try:
            new.write_bytes(data)
            new.replace(self.path)
        except OSError as error:
            with suppress(OSError):
                new.unlink()
            raise _not_writable(self.option, self.path, error.strerror or str(error)) from error
        return len(data)


def _not_writable(option: str, path: Path, why: str) -> FsspeckitError:
    return FsspeckitError(
        f"{option} {str(path)!r} cannot be written: {why}.\nHint: choose another place."
    )


def _is_page(path: Path) -> bool:
    from fsspeckit.report import is_report

    if not path.is_file():
        return False
    with path.open("rb") as file:
        return is_report(file.read(_MAX_READ_BYTES))
