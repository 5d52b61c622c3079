"""Bytes that can be read from their beginning more than once: files, and stdin."""

from __future__ import annotations

import io
import sys
import tempfile
import threading
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

import fsspec
import pyarrow as pa

from fsspeckit.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import ExitStack

    from fsspeckit.storage.roots import Root

__all__ = ["Lent", "Stream", "file_stream", "stdin_stream"]

_IN_MEMORY = 64 * 1024 * 1024
_PIECE = 1024 * 1024
_PATIENCE = 10.0
"""Seconds to wait for threads that have nothing left to do."""


@dataclass(frozen=True)
class Stream:
    """Named bytes; each call of ``open`` gives them from the beginning."""

    name: str
    """For messages."""

    open: Callable[[], IO[bytes]]


def file_stream(root: Root, path: str) -> Stream:
    """A file, decompressed where its name says that it is compressed."""

    def opened() -> IO[bytes]:
        handle: Any = fsspec.core.OpenFile(root.filesystem, path, "rb", compression="infer").open()
        return handle  # type: ignore[no-any-return]

    return Stream(root.spelled(path), opened)


def stdin_stream(stack: ExitStack) -> Stream:
    """What is piped in; kept, because what does not fit is looked for a second time.

    Args:
        stack: Lets go of what is kept.

    Raises:
        InvalidArgumentError: If nothing is piped in.
    """
    if sys.stdin is None or sys.stdin.isatty():
        raise InvalidArgumentError(
            "SOURCE is '-', but nothing is piped into this command.\n"
            "Hint: pipe JSON lines or an Arrow stream into it, or name a file."
        )
    spool = tempfile.SpooledTemporaryFile(_IN_MEMORY, prefix="fsspeckit-stdin-")  # noqa: SIM115
    kept = stack.enter_context(spool)
    while piece := sys.stdin.buffer.read(_PIECE):
        kept.write(piece)

    def opened() -> IO[bytes]:
        kept.seek(0)
        handle: Any = _Kept(kept)
        return handle  # type: ignore[no-any-return]

    return Stream("stdin", opened)


class _Kept(io.RawIOBase):
    """Reads a file from its beginning and leaves it open when it is closed."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._file.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


class Lent:
    """A file that is lent to Arrow while a ``with`` statement lasts; counts its quotes.

    The threads of Arrow may hold it for a moment after all is read. To let go of it they need the
    interpreter, and a process that ends in that moment is aborted; so the end waits for them.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._returned = threading.Event()
        self._returned.set()
        self.quotes = 0

    def __enter__(self) -> Callable[[], pa.NativeFile]:
        return self._lend

    def __exit__(self, *exception: object) -> None:
        self._returned.wait(_PATIENCE)

    def _lend(self) -> pa.NativeFile:
        self._returned.clear()
        return pa.PythonFile(_Loan(self, self._returned), mode="r")

    def read(self, size: int) -> bytes:
        """Some bytes."""
        data = self._file.read(size)
        self.quotes += data.count(b'"')
        return data


class _Loan:
    """What Arrow holds of a file; tells when nobody holds it any more."""

    closed = False

    def __init__(self, lent: Lent, returned: threading.Event) -> None:
        self.read = lent.read
        self._returned = returned

    def __del__(self) -> None:
        self._returned.set()
