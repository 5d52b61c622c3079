"""Files of another filesystem as files of a local disk, while a new file is made of them.

A rewrite needs nearly every byte of a file: what changes is decoded, and the rest is copied. Each
piece would be a request to another machine, so the file comes and goes whole.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fsspec.implementations.local import LocalFileSystem

from fsspeckit.storage.fs.clients import client_of
from fsspeckit.storage.fs.reads import download, naming_failure
from fsspeckit.storage.roots import Root

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from fsspeckit.storage.listing import DataFile

_NEW_FILE = ".new"
_MAX_NAME_BYTES = 255


@dataclass(frozen=True)
class OnDisk:
    """Files on a local disk, and the path of a new one."""

    root: Root
    """A local root, whose messages name the files as the caller spells them."""

    paths: tuple[str, ...]
    """The files."""

    destination: str
    """Where to write the new file."""

    @property
    def new_bytes(self) -> int | None:
        """The bytes of the new file; None if it was not written."""
        try:
            return os.stat(self.destination).st_size
        except FileNotFoundError:
            return None


@contextmanager
def on_local_disk(
    root: Root, paths: Sequence[str], destination: str, known: Mapping[str, DataFile] | None = None
) -> Iterator[OnDisk]:
    """Give files, and a new file, as files of a local disk.

    Files of a local disk are given as they are. Others are copied into a temporary directory, and
    the new file, if there is one, is copied to its destination at the end. ``known`` are the files
    by path as a listing has described them.

    Raises:
        OSError: What the filesystem raised, naming the file.
    """
    if root.is_local:
        yield OnDisk(root, tuple(paths), destination)
        return
    with tempfile.TemporaryDirectory(prefix="fsspeckit-") as place:
        base = os.path.realpath(place)
        outer = root.to_user_path(root.path).rstrip("/") + "/"
        found = OnDisk(
            Root(LocalFileSystem(), base, inner_prefix=base, outer_prefix=outer),
            tuple(_copied(root, path, base, known or {}) for path in paths),
            f"{base}/{_NEW_FILE}",
        )
        yield found
        if found.new_bytes is not None:
            with naming_failure(root, destination, "writing", "write"):
                client_of(root.filesystem).put_file(found.destination, destination)


def _copied(root: Root, path: str, base: str, known: Mapping[str, DataFile]) -> str:
    name = root.relative(path)
    if max(len(os.fsencode(part)) for part in name.split("/")) > _MAX_NAME_BYTES:
        name = hashlib.sha256(name.encode()).hexdigest()  # a key may be longer than a file name
    copy = f"{base}/{name}"
    os.makedirs(os.path.dirname(copy), exist_ok=True)
    download(root, path, copy, known.get(path))
    return copy
