"""Tombstones: files with the keys that change feeds have deleted, and when.

A change that is older than the deletion of its key must not bring the row back, and the dataset
itself no longer knows the key. So the key is kept in a file of the control directory. A commit
writes such a file before its record, and the record names it: with the record the tombstones are
committed, without it nobody reads them. Storage does not look into the files.

The name of a file begins with the number of the commit that it was written for. A number is taken
once, so a file of a commit that is complete, or was not made, is garbage unless the record of a
later one names it.
"""

from __future__ import annotations

import hashlib
import re
import time
import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fsspeckit.errors import CorruptRecordError
from fsspeckit.storage.commit.log import (
    RecordedState,
    TombstoneFile,
    Tombstones,
    pending_numbers,
)
from fsspeckit.storage.commit.publish import trash_control_file, trashed_control_file
from fsspeckit.storage.fs.backends import TEMPORARY_PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fsspeckit.storage.commit.log import CommitRecord
    from fsspeckit.storage.storage import Storage

_NAME = re.compile(r"^(\d{10})_[0-9a-f]{32}\.arrow$")


@dataclass(frozen=True)
class TombstoneChange:
    """What a commit does to the tombstones that it was planned with."""

    base: Tombstones
    """Those that it was planned with; if others are committed meanwhile, it is planned again."""

    kept: tuple[TombstoneFile, ...] = ()
    """The files that stay."""

    seconds: float = 0.0
    """How long tombstones are kept from now on."""

    data: bytes | None = None
    """The content of a new file, if there is one."""

    rows: int = 0
    """The tombstones in the new file."""

    newest: float = 0.0
    """When the newest of them was deleted, in seconds since 1970."""

    @property
    def is_none(self) -> bool:
        """Whether everything stays as it is."""
        return self.data is None and self.kept == self.base.files


def read_tombstones(storage: Storage, seconds: float) -> tuple[Tombstones, list[bytes | None]]:
    """Return the tombstones that are committed now, and the content of each file.

    ``seconds`` is how long the caller wants to keep them. What is older is not read, and None: so
    a file that is lost does not stop feeds for ever.

    Raises:
        CorruptRecordError: If a file is lost or damaged; without it deleted rows could come back.
    """
    while True:
        state = RecordedState(storage, pending_numbers(storage)[0])
        found = state.tombstones(seconds) or Tombstones()
        try:
            oldest = time.time() - seconds
            return found, [
                _read(storage, file) if file.newest >= oldest else None for file in found.files
            ]
        except CorruptRecordError:
            # A later commit may have removed it, and then says which files there are now.
            now = RecordedState(storage, pending_numbers(storage)[0]).tombstones(seconds)
            if now == found:
                raise


def _read(storage: Storage, file: TombstoneFile) -> bytes:
    path = storage.control.at("tombstones", file.name)
    try:
        data = storage.backend.read(path)
    except FileNotFoundError as error:
        raise CorruptRecordError.of_tombstones(path, "is lost") from error
    return _checked(path, data, file)


def _checked(path: str, data: bytes, file: TombstoneFile) -> bytes:
    if _checksum(data) != file.checksum:
        raise CorruptRecordError.of_tombstones(path, "does not fit its checksum")
    return data


def write_tombstones(storage: Storage, change: TombstoneChange, number: int) -> Tombstones:
    """Write the new file of a change, and return what the record of this number says of it."""
    if change.is_none:
        return change.base
    files = change.kept
    if change.data is not None:
        name = f"{number:010}_{uuid.uuid4().hex}.arrow"
        if not storage.backend.names(storage.control.tombstones):
            storage.backend.make_directories(storage.control.tombstones)
            storage.backend.sync_directory(storage.control.path)
        storage.backend.create(storage.control.at("tombstones", name), change.data)
        new = TombstoneFile(name, change.rows, change.newest, _checksum(change.data))
        files = (*files, new)
    return Tombstones(files, change.seconds, number)


def sweep_tombstones(storage: Storage, record: CommitRecord) -> None:
    """Remove the files that no record needs after a commit that has changed the tombstones."""
    for name in unused_tombstones(storage, record.tombstones, record.number):
        if name.startswith(TEMPORARY_PREFIX):
            storage.backend.discard(storage.control.at("tombstones", name))
        else:
            trash_control_file(storage, record.number, "tombstones", name)


def unused_tombstones(storage: Storage, needed: Tombstones | None, number: int) -> list[str]:
    """Return the names of files that no record needs after the commit of a number."""
    names = {file.name for file in needed.files} if needed else set()
    unused = []
    for name in storage.backend.names(storage.control.tombstones):
        found = _NAME.match(name)
        is_old = found is not None and int(found[1]) <= number and name not in names
        # Only the holder of the kernel lock writes here, so nobody else's file is half written.
        is_partial = storage.capabilities.kernel_lock and name.startswith(TEMPORARY_PREFIX)
        if is_old or is_partial:
            unused.append(name)
    return unused


def find_tombstones(storage: Storage, name: str, commits: Iterable[int]) -> str | None:
    """Return where a file of tombstones is now: in its place, or in the trash of a commit."""
    paths = [storage.control.at("tombstones", name)]
    paths += [trashed_control_file(storage, number, "tombstones", name) for number in commits]
    return next((place for place in paths if storage.backend.stat(place) is not None), None)


def restore_tombstones(
    storage: Storage, wanted: Tombstones, now: Tombstones, number: int
) -> Tombstones:
    """Bring back the tombstones of an earlier commit for the record of a number.

    Files that are not in use any more get new names: a commit that is slow to tidy up would remove
    them under their old ones.
    """
    if wanted == now:
        return now
    files = []
    for file in wanted.files:
        if file in now.files:
            files.append(file)
            continue
        place = find_tombstones(storage, file.name, range(wanted.commit + 1, number))
        if place is None:
            raise CorruptRecordError.of_tombstones(file.name, "is lost")
        data = _checked(place, storage.backend.read(place), file)
        name = f"{number:010}_{uuid.uuid4().hex}.arrow"
        storage.backend.make_directories(storage.control.tombstones)
        storage.backend.create(storage.control.at("tombstones", name), data)
        files.append(replace(file, name=name))
    return Tombstones(tuple(files), wanted.seconds, number)


def _checksum(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()
