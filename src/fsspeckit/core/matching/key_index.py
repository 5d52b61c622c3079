"""The key index: fingerprints of the target's keys, kept in the control directory if asked for.

An entry has the sorted fingerprints of each row group of one data file, and belongs to that file
by what the footer cache compares: name, size, inode and times, or ETag. Row groups without the
fingerprint of any source key need no key scan. A file without a valid entry is scanned, and its
entry is built after the commit.

One file has all entries, behind a checksum, and is replaced as a whole. Fingerprints are in
segments, which never change: a rewritten file whose row groups keep their keys gets an entry for
the same bytes. Whatever is damaged, missing or outdated is ignored and built again.
"""

from __future__ import annotations

import json
import sys
import time
import uuid
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
from xxhash import xxh3_64_hexdigest

from fsspeckit.core.keys import family, key_column, key_fingerprints
from fsspeckit.core.matching.positions import keys_of_file
from fsspeckit.core.planning import is_settled, read_target
from fsspeckit.core.threads import ThreadPool
from fsspeckit.storage import read_range

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from fsspeckit.core.keys import KeyColumn
    from fsspeckit.core.planning import FileFooter, Target
    from fsspeckit.storage import DataFile, StagedFile, Storage

    Fingerprints = NDArray[np.uint32]
    Found = tuple[str, str, list[int], bytes]

_T = TypeVar("_T")
_FORMAT: Final = "fsspeckit-keys"
_VERSION: Final = 1
_FINGERPRINT_BYTES: Final = 4
_BUILD_WORKERS: Final = 4
_MAX_WAIT_MS: Final = 10
"""How long to wait until the time that a disk gives files moves on; most do after 4."""

_COARSE_CLOCK: Final = 5
"""Where Linux takes the time of files from; Python has no name for it."""


MAX_UPKEEP_ROWS: Final = 50_000_000
"""A merge that was not asked to create the index reads no more keys than this to complete it."""

_MAX_SEGMENT_BYTES: Final = 64 * 1024 * 1024
_MAX_SMALL_SEGMENTS: Final = 8
"""More segments than this of which less than half the limit is used are joined."""

_MAX_READ_GAP_BYTES: Final = 1024 * 1024
"""Bytes that nobody needs are read up to this number where that saves a request."""


class _Entry(NamedTuple):
    """Where the fingerprints of one data file are."""

    identity: str
    rows: list[int]
    """The rows of each row group."""

    checksum: str
    segment: str
    offset: int

    @property
    def end(self) -> int:
        return self.offset + sum(self.rows) * _FINGERPRINT_BYTES


def file_identity(file: DataFile) -> str:
    """Return what no other version of a file has."""
    if file.etag is not None:
        return f"{file.size} {file.etag}"
    return f"{file.size} {file.mtime_ns} {file.inode} {file.birth_ns}"


class StoredKeyIndex:
    """The key index of a dataset, as one merge uses it and keeps it up to date.

    Args:
        storage: The dataset.
        wanted: True to create the index, False to remove it, None to leave that as it is.
    """

    def __init__(self, storage: Storage, wanted: bool | None = None) -> None:
        self._storage = storage
        self._root = storage.root
        self._wanted = wanted
        self._columns: tuple[KeyColumn, ...] = ()
        self._entries: dict[str, _Entry] = {}
        self._added: dict[DataFile, FileFooter | None] = {}
        self._is_kept = self._is_loaded = False

    @property
    def names(self) -> list[str]:
        """The key columns."""
        return [column.name for column in self._columns]

    def __bool__(self) -> bool:
        return bool(self._entries)

    def load(self, columns: Sequence[KeyColumn]) -> None:
        """Read the entries, if they are for these key columns and for keys of their types."""
        self._columns, self._entries = tuple(columns), {}
        self._is_kept, self._is_loaded = self._wanted is True, False
        if self._wanted is False:
            return
        try:
            data = self._storage.backend.read(self._storage.control.key_index)
        except OSError:
            return
        try:
            keys, entries = _decode(data)
            is_other = [name for name, _ in keys] != self.names
        except (AttributeError, KeyError, TypeError, ValueError):  # damaged, or of another version
            keys, is_other = None, False
        self._is_kept = self._is_kept or not is_other
        if keys == _encodings(columns):
            self._entries, self._is_loaded = entries, True

    def load_for_write(self, target: Target, source: pa.Schema) -> None:
        """Read the entries for a write, which has no key columns of its own."""
        types = {field.name: field.type for field in (*source, *target.types)}
        columns = {part.name: part for part in target.partition_columns}
        with suppress(OSError, AttributeError, KeyError, TypeError, ValueError):
            keys, _ = _decode(self._storage.backend.read(self._storage.control.key_index))
            self.load([columns.get(name) or key_column(name, types[name]) for name, _ in keys])
        self._is_kept = self._is_loaded

    def read(self, footers: Mapping[int, FileFooter]) -> Iterator[tuple[int, list[Fingerprints]]]:
        """Yield the sorted fingerprints of each row group of files, by their numbers.

        Files without a valid entry are left out.
        """
        found = {number: self._find(footer) for number, footer in footers.items()}
        entries = {number: entry for number, entry in found.items() if entry is not None}
        for number, entry, data in self._read(entries):
            yield number, np.split(np.frombuffer(data, "<u4"), np.cumsum(entry.rows)[:-1])

    def _find(self, footer: FileFooter) -> _Entry | None:
        """Return the entry of a file, if the file has not changed since."""
        entry = self._entries.get(self._root.relative(footer.file.path))
        is_valid = (
            entry is not None
            and entry.identity == file_identity(footer.file)
            and entry.rows == [group.rows for group in footer.row_groups]
        )
        return entry if is_valid else None

    def _read(self, entries: Mapping[_T, _Entry]) -> Iterator[tuple[_T, _Entry, memoryview]]:
        """Yield fingerprints as bytes; an entry whose bytes are not there is forgotten."""
        for run in _runs(sorted(entries.items(), key=lambda item: item[1][-2:])):
            start, end = run[0][1].offset, run[-1][1].end
            path = f"{self._storage.control.key_segments}/{run[0][1].segment}"
            data = memoryview(b"")
            with suppress(OSError):
                data = memoryview(read_range(self._root, path, start, end - start))
            for key, entry in run:
                part = data[entry.offset - start : entry.end - start]
                is_whole = len(part) == entry.end - entry.offset
                if is_whole and xxh3_64_hexdigest(part) == entry.checksum:
                    yield key, entry, part
                else:
                    self._entries = {k: e for k, e in self._entries.items() if e is not entry}

    def add(self, files: Sequence[StagedFile], replaced: Mapping[str, FileFooter]) -> None:
        """Take the identity of the files that are about to be committed.

        Nobody else knows them yet, so this is the identity of what was written. ``replaced`` has
        the file that each of them replaces, by final path.
        """
        self._added = {}
        for file in files if self._is_kept else ():
            found, old = self._storage.backend.stat(file.path), replaced.get(file.final)
            if found is not None:
                # Rows are replaced where they stand: as many rows have the same keys in order.
                keeps_keys = old is not None and old.rows == file.rows
                added = found._replace(path=self._storage.path(file.final))
                self._added[added] = old if keeps_keys else None
        # The record must be younger than these files, see `update`.
        written = max((f.mtime_ns or 0 for f in self._added if f.etag is None), default=0)
        for _ in range(_MAX_WAIT_MS):
            if _disk_time_ns() > written:
                break
            time.sleep(0.001)

    def update(
        self, target: Target, gone: Collection[str], begun: float, number: int | None = None
    ) -> list[str]:
        """Bring the index up to date; what fails is done by the next merge.

        Args:
            target: The dataset as it was before.
            gone: The files of it that are no longer there.
            begun: When its files were listed, or before.
            number: The commit of the files that were added; None if there was none.

        Returns:
            Notes, if the caller asked to create or remove the index and that is not done.
        """
        backend, control = self._storage.backend, self._storage.control
        try:
            if self._wanted is False:
                backend.discard(control.key_index)
                backend.discard_tree(control.key_segments)
            elif self._is_kept:
                record = None if number is None else backend.stat(control.record(number))
                # Whoever changes a new file makes it younger than the record, since nobody knew it
                # before. One that is not older than the record now would hide such a change.
                published_ns = (record and record.mtime_ns) or 0
                added = {f: old for f, old in self._added.items() if is_settled(f, published_ns, 1)}
                before = {f.file: f for f in target.footers if f.file.path not in gone}
                self._update(target, before, added, begun)
                return self._missing_notes([*before, *self._added])
        except (OSError, pa.ArrowException, KeyError, ValueError) as error:
            if self._wanted is not None:
                done = "written" if self._wanted else "removed"
                return [f"the key index could not be {done}: {error}."]
        return []

    def _missing_notes(self, files: Sequence[DataFile]) -> list[str]:
        """Say which files cannot be in an index that was asked for."""
        unknown = sum(file.etag is None and file.birth_ns is None for file in files)
        if not (self._wanted and unknown):
            return []
        return [
            f"{unknown:,} of {len(files):,} files are not in the key index, because their "
            "filesystem reports no creation time."
        ]

    def _update(
        self,
        target: Target,
        before: Mapping[DataFile, FileFooter],
        added: Mapping[DataFile, FileFooter | None],
        begun: float,
    ) -> None:
        entries: dict[str, _Entry] = {}
        missing: list[DataFile] = []
        for file, footer in {**before, **added}.items():
            entry = None if footer is None else self._find(footer)
            if entry is not None:
                entry = entry._replace(identity=file_identity(file))
                entries[self._root.relative(file.path)] = entry
            elif file in added or is_settled(file, int(begun * 1e9)):
                missing.append(file)
        if missing:
            entries |= self._write(self._build(missing, target.partition_columns))
        if not self._is_loaded or entries != self._entries:
            self._save(self._joined(entries))

    def _build(self, files: Sequence[DataFile], parts: Sequence[KeyColumn]) -> Iterator[Found]:
        """Read the keys of files, and yield path, identity, rows and fingerprints."""
        types = pa.schema([(part.name, part.type) for part in parts])
        target = read_target(self._root, files, self.names, types, types.names)
        target = replace(target, key_columns=self._columns)
        unknown, left = target.unknown_partitions(), MAX_UPKEEP_ROWS
        numbers = []
        for number, footer in enumerate(target.footers):
            left -= footer.rows
            if footer.error is None and number not in unknown and (left >= 0 or self._wanted):
                numbers.append(number)
        with ThreadPool(_BUILD_WORKERS, "fsspeckit-index") as pool:
            found = pool.map(partial(_read_fingerprints, target), numbers, ahead=_BUILD_WORKERS)
            for number, hashes in zip(numbers, found, strict=True):
                file = files[number]
                now = self._storage.backend.stat(file.path)
                # Else these may be the keys of a file that had the name for a moment only.
                if hashes and now is not None and file_identity(now) == file_identity(file):
                    data = np.concatenate(hashes).astype("<u4").tobytes()
                    path = self._root.relative(file.path)
                    yield path, file_identity(file), list(map(len, hashes)), data

    def _write(self, found: Iterable[Found]) -> dict[str, _Entry]:
        """Write fingerprints into new segments, and return their entries."""
        entries: dict[str, _Entry] = {}
        directory = self._storage.control.key_segments
        self._storage.backend.make_directories(directory)
        found = iter(found)
        while True:
            name, parts, size = f"{uuid.uuid4().hex}.keys", [], 0
            for path, identity, rows, data in found:
                entries[path] = _Entry(identity, rows, xxh3_64_hexdigest(data), name, size)
                parts.append(data)
                size += len(data)
                if size >= _MAX_SEGMENT_BYTES:
                    break
            if not parts:
                return entries
            data = b"".join(parts)
            self._storage.backend.overwrite(f"{directory}/{name}", data, sync=False)

    def _joined(self, entries: dict[str, _Entry]) -> dict[str, _Entry]:
        """Return the entries after joining segments, if too many of them are small."""
        used: Counter[str] = Counter()
        for entry in entries.values():
            used[entry.segment] += entry.end - entry.offset
        small = {name for name, size in used.items() if size * 2 < _MAX_SEGMENT_BYTES}
        if len(small) <= _MAX_SMALL_SEGMENTS:
            return entries
        moved = {path: entry for path, entry in entries.items() if entry.segment in small}
        stay = {path: entry for path, entry in entries.items() if path not in moved}
        found = self._read(moved)
        return stay | self._write((path, e.identity, e.rows, bytes(d)) for path, e, d in found)

    def _save(self, entries: dict[str, _Entry]) -> None:
        backend, control = self._storage.backend, self._storage.control
        backend.make_directories(control.path)
        backend.overwrite(control.key_index, _encode(self._columns, entries), sync=False)
        used = {entry.segment for entry in entries.values()}
        for name in backend.names(control.key_segments):
            if name not in used:  # if a merge that is running wrote it, its keys are read again
                backend.discard(f"{control.key_segments}/{name}")


def wrong_index_entries(storage: Storage, files: Sequence[DataFile]) -> list[str]:
    """Return the files, below the root, whose keys are not those that the index has of them.

    Raises:
        SchemaMismatchError, InvalidArgumentError: If the files have no such keys.
    """
    try:
        keys, entries = _decode(storage.backend.read(storage.control.key_index))
    except (OSError, AttributeError, KeyError, TypeError, ValueError):
        return []  # it is not used
    root = storage.root
    indexed = [file for file in files if root.relative(file.path) in entries]
    target = read_target(root, indexed, [name for name, _ in keys])
    index = StoredKeyIndex(storage)
    index.load(target.key_columns)
    numbers = {n: footer for n, footer in enumerate(target.footers) if footer.error is None}
    wrong = []
    for number, stored in index.read(numbers):
        actual = _read_fingerprints(target, number)
        if actual and not all(map(np.array_equal, stored, actual)):
            wrong.append(root.relative(target.footers[number].file.path))
    return wrong


def _disk_time_ns() -> int:
    is_linux = sys.platform == "linux"
    return time.clock_gettime_ns(_COARSE_CLOCK) if is_linux else time.time_ns()


def _read_fingerprints(target: Target, number: int) -> list[Fingerprints]:
    """Return the sorted fingerprints of each row group of a file; none if it cannot be read."""
    groups = range(len(target.footers[number].row_groups))
    try:
        keys = keys_of_file(target, None, number, groups)
        return [np.sort(key_fingerprints(found)) for _, _, found in keys]
    except (OSError, pa.ArrowException, KeyError, ValueError):
        return []


def _runs(entries: Iterable[tuple[_T, _Entry]]) -> Iterator[list[tuple[_T, _Entry]]]:
    """Yield entries in their order, those together whose bytes are read at once."""
    run: list[tuple[_T, _Entry]] = []
    for item in entries:
        last = run[-1][1] if run else item[1]
        if item[1].segment != last.segment or item[1].offset - last.end > _MAX_READ_GAP_BYTES:
            yield run
            run = []
        run.append(item)
    if run:
        yield run


def _encodings(columns: Sequence[KeyColumn]) -> list[list[str]]:
    """Return the key columns, and what their canonical values depend on."""
    return [[column.name, _encoding(column.type)] for column in columns]


def _encoding(data_type: pa.DataType) -> str:
    kind = family(data_type)
    if kind in ("string", "binary"):
        return "bytes"
    is_signed = kind == "integer" and not pa.types.is_uint64(data_type)
    return "integer" if is_signed else str(data_type)


def _encode(columns: Sequence[KeyColumn], entries: Mapping[str, _Entry]) -> bytes:
    about = {"format": _FORMAT, "version": _VERSION, "keys": _encodings(columns)}
    data = json.dumps({**about, "entries": entries}).encode()
    return xxh3_64_hexdigest(data).encode() + b"\n" + data


def _decode(content: bytes) -> tuple[list[list[str]], dict[str, _Entry]]:
    """Read what `_encode` wrote; raises ValueError if it is damaged or of another version."""
    checksum, _, data = content.partition(b"\n")
    if xxh3_64_hexdigest(data).encode() != checksum:
        raise ValueError("the checksum is wrong")
    about = json.loads(data)
    if (about["format"], about["version"]) != (_FORMAT, _VERSION):
        raise ValueError("it is of another version")
    return about["keys"], {path: _Entry(*entry) for path, entry in about["entries"].items()}
