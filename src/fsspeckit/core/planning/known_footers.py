"""What earlier merges knew of the files of a dataset: footers that need not be read again."""

from __future__ import annotations

import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from fsspeckit.core.planning.footer_cache import decode_summaries, encode_summaries, is_settled
from fsspeckit.core.planning.footers import raw_footer
from fsspeckit.core.planning.garbage import collector_paused

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from fsspeckit.core.planning.footer_cache import Summaries
    from fsspeckit.core.planning.footers import FileFooter, FooterReader
    from fsspeckit.storage.listing import DataFile
    from fsspeckit.storage.roots import Root
    from fsspeckit.storage.storage import Storage

__all__ = ["KnownFooters"]

_FEWEST_FILES = 64
"""Below this, reading the footers costs less than looking for summaries."""

_WORTH_A_SHARE = 50
"""Summaries are written again when one file in so many was not among them."""


class KnownFooters:
    """Reads footers, those it knows from the control directory; remembers the others there."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._columns: tuple[str, ...] = ()
        self._to_keep: list[FileFooter] = []
        self._is_worth_keeping = False

    def reader(self, read: FooterReader) -> FooterReader:
        """A reader that asks another one only for footers that are not known."""

        def read_unknown(
            root: Root, files: Sequence[DataFile], columns: Iterable[str] | None
        ) -> list[FileFooter]:
            if len(files) < _FEWEST_FILES or columns is None:
                return read(root, files, columns)
            return self._read(root, files, tuple(columns), read)

        return read_unknown

    def _read(
        self, root: Root, files: Sequence[DataFile], columns: tuple[str, ...], read: FooterReader
    ) -> list[FileFooter]:
        with collector_paused():
            known = self._load(columns)
            found = {
                file.path: footer
                for file in files
                if known is not None and (footer := known.find(root.relative(file.path), file))
            }
        begun = time.time_ns()
        missing = [file for file in files if file.path not in found]
        fresh = {footer.file.path: footer for footer in read(root, missing, columns)}
        settled = [footer for footer in fresh.values() if is_settled(footer.file, begun)]
        self._columns = columns
        self._to_keep = [*found.values(), *settled]
        self._is_worth_keeping = len(settled) * _WORTH_A_SHARE >= len(files)
        return [found.get(file.path) or fresh[file.path] for file in files]

    def _load(self, columns: tuple[str, ...]) -> Summaries | None:
        """Summaries of these columns; None where there are none that can be used."""
        try:
            known = decode_summaries(self._storage.disk.read(self._storage.control.footers))
        except (OSError, pa.ArrowException, KeyError, TypeError, ValueError):
            return None  # they only save time: whatever is wrong with them, footers are read
        return known if known is not None and set(known.columns) == set(columns) else None

    def keep(self) -> None:
        """Write the summaries, if there is enough that is new in them."""
        if not self._is_worth_keeping:
            return
        root = self._storage.root
        raw = partial(raw_footer, root)
        data = encode_summaries(self._to_keep, self._columns, root.relative, raw)
        with suppress(OSError):  # the next merge reads the footers again
            self._storage.disk.overwrite(self._storage.control.footers, data, sync=False)
