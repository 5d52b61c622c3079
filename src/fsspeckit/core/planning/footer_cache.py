"""The footer cache: footers that earlier merges have read, kept in the control directory.

A cached footer belongs to a file by name, size, inode and the times of creation and of the last
change, or by ETag. A file is not cached that was changed shortly before its footer was read,
because a second change might show in none of these; nor one without an ETag on a filesystem that
does not record when it was created, because another file may have got its inode.

The cache has an Arrow stream for each schema that files have, behind a checksum. One that is
damaged, or was written by another version, is ignored.
"""

from __future__ import annotations

import hashlib
import json
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from fsspeckit.core.planning.footers import (
    ChunkStatistics,
    FileFooter,
    Leaf,
    RowGroup,
    gc_disabled,
    raw_footer,
    read_footers,
)
from fsspeckit.core.planning.pruning import inexact_row_groups

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from fsspeckit.core.planning.footers import FooterReader
    from fsspeckit.storage import DataFile, Root, Storage

_FORMAT: Final = "fsspeckit-footers"
_VERSION: Final = 2
_DIGEST_BYTES: Final = 32
_MAX_SCHEMAS: Final = 16
_MIN_AGE_NS: Final = 2_000_000_000
"""A file that was changed less than this before its footer was read may change unnoticed."""

_MIN_FILES: Final = 64
"""With fewer files, reading the footers costs less than reading the cache."""

_REWRITE_RATIO: Final = 50
"""The cache is written again if one file in this number was not in it."""

_STORED: Final = {
    "BOOLEAN": pa.bool_(),
    "INT32": pa.int64(),
    "INT64": pa.int64(),
    "FLOAT": pa.float64(),
    "DOUBLE": pa.float64(),
    "BYTE_ARRAY": pa.binary(),
    "FIXED_LEN_BYTE_ARRAY": pa.binary(),
}
"""How the bounds of each physical type are stored; those of INT96 have no meaning."""

_FILES: Final = pa.schema(
    [
        ("path", pa.string()),
        ("size", pa.int64()),
        ("mtime_ns", pa.int64()),
        ("inode", pa.uint64()),
        ("etag", pa.string()),
        ("birth_ns", pa.int64()),
        ("rows", pa.int64()),
        ("created_by", pa.dictionary(pa.int32(), pa.string())),
        ("groups", pa.int64()),
    ]
)


class _Summary(NamedTuple):
    """What is known of one file; a footer is made of it if the file is still the same."""

    identity: tuple[Any, ...]
    rows: int
    row_groups: tuple[RowGroup, ...]
    schema: pa.Schema
    created_by: str
    leaves: dict[str, Leaf]


@dataclass(frozen=True)
class Summaries:
    """What is known of files, by their paths below the root."""

    columns: tuple[str, ...]
    """The columns whose statistics are known."""

    by_path: dict[str, _Summary]

    def find(self, relative: str, file: DataFile) -> FileFooter | None:
        """Return the footer of a file, if the file has not changed since."""
        known = self.by_path.get(relative)
        if known is None or known.identity != file[1:]:
            return None
        return FileFooter(file, *known[1:], is_checked=True)


def is_settled(file: DataFile, read_ns: int, min_age_ns: int = _MIN_AGE_NS) -> bool:
    """Return whether a later change of a file would be noticed."""
    if file.etag is not None:
        return True
    if file.birth_ns is None:
        return False
    return file.mtime_ns is not None and file.mtime_ns <= read_ns - min_age_ns


def encode_summaries(
    footers: Iterable[FileFooter],
    columns: Sequence[str],
    relative: Callable[[str], str],
    raw: Callable[[FileFooter], bytes | None],
) -> bytes:
    """Serialise the footers of settled files; those that cannot be summarised are left out.

    ``relative`` makes paths relative to the root; ``raw`` returns the bytes of a footer.
    """
    parts: dict[tuple[bytes, str], list[FileFooter]] = {}
    keys: dict[int, tuple[bytes, str]] = {}
    for footer in footers:
        is_storable = all(leaf.physical in _STORED for leaf in footer.leaves.values())
        if footer.error is None and is_storable:
            key = keys.get(id(footer.schema))
            if key is None:
                key = (footer.schema.serialize().to_pybytes(), _leaves_as_json(footer.leaves))
                keys[id(footer.schema)] = key
            parts.setdefault(key, []).append(_without_truncated_bounds(footer, raw))
    sink = pa.BufferOutputStream()
    for schema, leaves in list(parts)[:_MAX_SCHEMAS]:
        about = {"format": _FORMAT, "version": _VERSION, "columns": list(columns)}
        _write_part(sink, parts[schema, leaves], about, schema, leaves, relative)
    data: bytes = sink.getvalue().to_pybytes()
    return _digest(data) + data


def _without_truncated_bounds(
    footer: FileFooter, raw: Callable[[FileFooter], bytes | None]
) -> FileFooter:
    """Return the footer without truncated bounds: its bytes, which say so, are not cached."""
    groups = list(footer.row_groups)
    for name in footer.leaves:
        for number in inexact_row_groups(footer, name, raw):
            known = groups[number].columns
            unbounded = replace(known[name], low=None, high=None)
            groups[number] = replace(groups[number], columns={**known, name: unbounded})
    return replace(footer, row_groups=tuple(groups))


def _leaves_as_json(leaves: dict[str, Leaf]) -> str:
    described = {
        name: {
            "physical": leaf.physical,
            "type": pa.schema([(name, leaf.type)]).serialize().to_pybytes().hex(),
            "index": leaf.index,
            "length": leaf.length,
        }
        for name, leaf in leaves.items()
    }
    return json.dumps(described)


def _leaves_from_json(text: str) -> dict[str, Leaf]:
    return {
        name: Leaf(
            leaf["physical"],
            pa.ipc.read_schema(pa.py_buffer(bytes.fromhex(leaf["type"]))).field(0).type,
            leaf["index"],
            leaf["length"],
        )
        for name, leaf in json.loads(text).items()
    }


def _write_part(
    sink: pa.BufferOutputStream,
    footers: list[FileFooter],
    about: dict[str, Any],
    schema: bytes,
    leaves: str,
    relative: Callable[[str], str],
) -> None:
    """Write the files of one schema: a stream of files and one of row groups."""
    about_files = {b"about": json.dumps(about), b"schema": schema, b"leaves": leaves}
    files, groups = _files_batch(footers, relative), _groups_batch(footers)
    for batch, metadata in ((files, about_files), (groups, {})):
        with pa.ipc.new_stream(sink, batch.schema.with_metadata(metadata)) as writer:
            writer.write_batch(batch)


def _files_batch(footers: list[FileFooter], relative: Callable[[str], str]) -> pa.RecordBatch:
    identity = ("size", "mtime_ns", "inode", "etag", "birth_ns")
    values = {
        "path": [relative(footer.file.path) for footer in footers],
        **{name: [getattr(footer.file, name) for footer in footers] for name in identity},
        "rows": [footer.rows for footer in footers],
        "created_by": [footer.created_by for footer in footers],
        "groups": [len(footer.row_groups) for footer in footers],
    }
    return pa.record_batch([pa.array(values[f.name], f.type) for f in _FILES], schema=_FILES)


def _groups_batch(footers: list[FileFooter]) -> pa.RecordBatch:
    groups = [group for footer in footers for group in footer.row_groups]
    columns: dict[str, pa.Array] = {
        "rows": pa.array([group.rows for group in groups], pa.int64()),
        "bytes": pa.array([group.bytes for group in groups], pa.int64()),
    }
    for number, (name, leaf) in enumerate(footers[0].leaves.items()):
        chunks = [group.columns[name] for group in groups]
        bound = _STORED[leaf.physical]
        columns |= {
            f"low {number}": pa.array([chunk.low for chunk in chunks], bound),
            f"high {number}": pa.array([chunk.high for chunk in chunks], bound),
            f"nulls {number}": pa.array([chunk.null_count for chunk in chunks], pa.int64()),
            f"bloom {number}": pa.array([chunk.bloom_offset for chunk in chunks], pa.int64()),
            f"length {number}": pa.array([chunk.bloom_length for chunk in chunks], pa.int64()),
        }
    return pa.record_batch(list(columns.values()), names=list(columns))


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=_DIGEST_BYTES).digest()


def decode_summaries(data: bytes) -> Summaries | None:
    """Read what `encode_summaries` wrote; None if it is damaged or of another version."""
    if len(data) <= _DIGEST_BYTES or _digest(data[_DIGEST_BYTES:]) != data[:_DIGEST_BYTES]:
        return None
    source = pa.BufferReader(pa.py_buffer(data).slice(_DIGEST_BYTES))
    by_path: dict[str, _Summary] = {}
    columns: tuple[str, ...] = ()
    while source.tell() < source.size():
        files = pa.ipc.open_stream(source).read_all()
        about = json.loads(files.schema.metadata[b"about"])
        if (about["format"], about["version"]) != (_FORMAT, _VERSION):
            return None
        columns = tuple(about["columns"])
        groups = pa.ipc.open_stream(source).read_all()
        by_path |= _read_part(files, groups)
    return Summaries(columns, by_path)


def _read_part(files: pa.Table, groups: pa.Table) -> dict[str, _Summary]:
    metadata = files.schema.metadata
    schema = pa.ipc.read_schema(pa.py_buffer(metadata[b"schema"]))
    leaves = _leaves_from_json(metadata[b"leaves"].decode())
    row_groups = _row_groups(groups, list(leaves))
    path, *identity, rows, created_by, counts = (
        files.column(name).to_pylist() for name in _FILES.names
    )
    if sum(counts) != groups.num_rows:
        raise ValueError(f"expected {sum(counts):,} row groups, got {groups.num_rows:,}")
    found = (tuple(islice(row_groups, count)) for count in counts)
    facts = zip(path, zip(*identity, strict=True), rows, found, created_by, strict=True)
    return {
        path: _Summary(seen, rows, found, schema, created_by, leaves)
        for path, seen, rows, found, created_by in facts
    }


def _row_groups(groups: pa.Table, names: list[str]) -> Iterator[RowGroup]:
    fields = ("low", "high", "nulls", "bloom", "length")
    columns = [
        map(ChunkStatistics, *(groups.column(f"{field} {n}").to_pylist() for field in fields))
        for n in range(len(names))
    ]
    rows, sizes = groups.column("rows").to_pylist(), groups.column("bytes").to_pylist()
    chunks = zip(*columns, strict=True) if columns else chain([()] * len(rows))
    for count, size, found in zip(rows, sizes, chunks, strict=True):
        yield RowGroup(count, size, dict(zip(names, found, strict=True)))


class FooterCache:
    """Reads footers, if possible from the control directory, and saves the others there."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._columns: tuple[str, ...] = ()
        self._to_save: list[FileFooter] = []
        self._is_outdated = False

    def reader(self, read: FooterReader) -> FooterReader:
        """Return a reader that calls another one only for footers that are not cached."""
        return partial(self._read, read)

    def _read(
        self,
        read: FooterReader,
        root: Root,
        files: Sequence[DataFile],
        wanted: Iterable[str] | None,
    ) -> list[FileFooter]:
        if len(files) < _MIN_FILES or wanted is None:
            return read(root, files, wanted)
        columns = tuple(wanted)
        with gc_disabled():
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
        self._to_save = [*found.values(), *settled]
        self._is_outdated = len(settled) * _REWRITE_RATIO >= len(files)
        return [found.get(file.path) or fresh[file.path] for file in files]

    def _load(self, columns: tuple[str, ...]) -> Summaries | None:
        """Return the summaries of these columns; None if there are none that can be used."""
        try:
            known = decode_summaries(self._storage.backend.read(self._storage.control.footers))
        except (OSError, pa.ArrowException, KeyError, TypeError, ValueError):
            return None  # the cache only saves time: without it, footers are read
        return known if known is not None and set(known.columns) == set(columns) else None

    def save(self) -> None:
        """Write the summaries, if enough of them are new."""
        if not self._is_outdated:
            return
        root = self._storage.root
        raw = partial(raw_footer, root)
        data = encode_summaries(self._to_save, self._columns, root.relative, raw)
        with suppress(OSError):  # the next merge reads the footers again
            self._storage.backend.overwrite(self._storage.control.footers, data, sync=False)


def wrong_summaries(storage: Storage, files: Sequence[DataFile]) -> list[tuple[str, str]]:
    """Return the files of which the cache holds another footer than their own, and what of it."""
    try:
        known = decode_summaries(storage.backend.read(storage.control.footers))
    except (OSError, pa.ArrowException, KeyError, TypeError, ValueError):
        return []  # it is not used
    if known is None:
        return []
    root = storage.root
    cached = {
        file.path: footer
        for file in files
        if (footer := known.find(root.relative(file.path), file)) is not None
    }
    existing = [file for file in files if file.path in cached]
    raw = partial(raw_footer, root)
    wrong = []
    for footer in read_footers(root, existing, known.columns):
        if footer.error is None:
            actual, found = _without_truncated_bounds(footer, raw), cached[footer.file.path]
            for name in ("rows", "row_groups", "schema", "leaves"):
                if getattr(actual, name) != getattr(found, name):
                    wrong.append((root.relative(footer.file.path), f"other {name}"))
                    break
    return wrong
