"""The storages that every engine must merge on, and what a test can see of them.

A store looks at a dataset as any program would: it lists, opens and reads plain files, and knows
nothing of engines, plans or commits.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

import fsspec
import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.arrow import ArrowFile, ArrowFSWrapper
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem

from fsspeckit.core.arrow_compat import cast_values, has_nanoseconds
from fsspeckit.testing import object_stores

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
    from datetime import datetime
    from pathlib import Path

    from fsspec import AbstractFileSystem

    from fsspeckit.testing.object_stores import ObjectStore

__all__ = ["OBJECT_STORES", "STORES", "Entry", "Store", "hive", "open_store"]

STORES = ("exchange", "plain", "memory", "dirfs", "arrow")
"""Local disk in both publish modes, memory, a directory inside another filesystem, and a pyarrow
filesystem, as fsspec has ``hdfs://``."""

OBJECT_STORES = ("moto", "moto-as-minio", "minio", "azurite", "fake-gcs")
"""Stores behind a server of this machine."""

_OF_CLOUDS = ("moto", "minio", "azurite", "fake-gcs")

TORTURE = bool(os.environ.get("TORTURE"))
"""Whether tests may take minutes rather than seconds."""


def long_object_stores() -> tuple[str, ...]:
    """The object stores of tests that make many requests.

    One of them will do, the real one where it is built; where tests may take minutes, all.
    """
    one = "minio" if object_stores.minio_program().exists() else "moto-as-minio"
    return OBJECT_STORES if TORTURE else (one,)


def killed_object_stores() -> tuple[str, ...]:
    """The object stores on which writers are killed: one of each cloud."""
    return _OF_CLOUDS if TORTURE else (*long_object_stores(), "azurite", "fake-gcs")


def stores_of_clouds() -> tuple[str, ...]:
    """One store of each cloud, and S3 twice; those that are built, where tests must not take long.

    moto that answers as MinIO does adds nothing to MinIO itself.
    """
    return tuple(kind for kind in _OF_CLOUDS if TORTURE or kind == "moto" or not _missing(kind))


def both_object_stores() -> tuple[str, ...]:
    """The object stores of tests that are about what differs between stores.

    moto that answers as MinIO does adds nothing to MinIO itself, where that is built.
    """
    return OBJECT_STORES if TORTURE else ("moto", *long_object_stores(), "azurite", "fake-gcs")


_PROGRAMS: dict[str, tuple[str, Callable[[], Path], str, Callable[[], ObjectStore | None]]] = {
    "minio": ("MinIO", object_stores.minio_program, "", object_stores.minio),
    "azurite": ("Azurite", object_stores.azurite_program, "adlfs", object_stores.azurite),
    "fake-gcs": (
        *("fake-gcs-server", object_stores.fake_gcs_program),
        *("gcsfs", object_stores.fake_gcs),
    ),
    "hdfs": ("HDFS", object_stores.hadoop_jars, "hdfs_native", object_stores.hdfs),
}
# What such a case runs beyond the same case on a disk, tests of object stores run, too.
_REPEATED = (pytest.mark.slow, pytest.mark.untraced)


def every_store() -> list[Any]:
    """The stores of the store suite, as parameters of a test."""
    return [*STORES, *(pytest.param(kind, marks=_REPEATED) for kind in long_object_stores())]


def every_store_and_strategy(
    strategies: Collection[str], on_object_stores: str = "upsert"
) -> pytest.MarkDecorator:
    """Every strategy on every store, as parameters of a test; on an object store only one.

    A strategy decides about rows and a store keeps files, and neither knows of the other. An
    object store takes ten times as long as a disk, so it runs every strategy only where tests may
    take minutes.
    """
    cases: list[Any] = [(store, strategy) for strategy in strategies for store in STORES]
    for store in long_object_stores():
        for strategy in strategies if TORTURE else (on_object_stores,):
            cases.append(pytest.param(store, strategy, marks=_REPEATED))
    return pytest.mark.parametrize(("store", "strategy"), cases, indirect=["store"])


_SUFFIXES = (".parquet", ".pq", ".parq")
_NULL = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True, slots=True)
class Entry:
    """A file at one moment: two entries are equal if nobody touched it in between."""

    data: bytes = field(repr=False)
    modified: datetime


Tree = dict[str, Entry]
"""Every file below the root, hidden ones too, by its path below the root."""


@dataclass(frozen=True)
class Store:
    """A storage location for one dataset."""

    filesystem: AbstractFileSystem
    """How the test looks at it."""

    path: str
    """The dataset as a caller of the engine spells it."""

    options: dict[str, Any] = field(default_factory=dict)
    """What the engine's constructor is given."""

    local: str = ""
    """The dataset's directory on a disk; empty if there is none."""

    @property
    def opening(self) -> dict[str, Any]:
        """What `recover` and `history` are given besides the path."""
        names = ("filesystem", "storage_options")
        return {name: self.options[name] for name in names if name in self.options}

    def at(self, name: str) -> str:
        """The path of a file of the dataset, fit for the filesystem."""
        return f"{self.filesystem._strip_protocol(self.path)}/{name}"

    def relative(self, path: str) -> str:
        """The part below the root of a path that an engine returned; the file must be there."""
        stripped = str(self.filesystem._strip_protocol(path))
        prefix = self.at("")
        assert stripped.startswith(prefix), f"{path!r} is not below {self.path!r}"
        assert self.filesystem.exists(path), f"{path!r} does not exist"
        return stripped.removeprefix(prefix)

    def put(self, name: str, data: bytes) -> None:
        """Write any file."""
        path = self.at(name)
        self.filesystem.makedirs(path.rpartition("/")[0], exist_ok=True)
        self.filesystem.pipe_file(path, data)

    def write(self, name: str, table: pa.Table, **options: Any) -> None:
        """Write one Parquet file with pyarrow; the options are those of ``pq.write_table``."""
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, **options)
        self.put(name, sink.getvalue().to_pybytes())

    def tree(self) -> Tree:
        """Remember every file, byte for byte."""
        prefix = self.at("")
        if not self.filesystem.isdir(prefix.rstrip("/")):
            return {}
        self.filesystem.invalidate_cache()
        return {
            path.removeprefix(prefix): Entry(
                self.filesystem.cat_file(path),
                # A listing of an object store has it already.
                info.get("LastModified") or self.filesystem.modified(path),
            )
            for path, info in self.filesystem.find(prefix.rstrip("/"), detail=True).items()
        }

    def leftovers(self) -> list[str]:
        """Staging directories that no writer needs any more."""
        parent, _, name = self.at("").rstrip("/").rpartition("/")
        control = f"{parent}/.{name}.fsspeckit" if parent else f".{name}.fsspeckit"
        # Not one level of a listing: a bucket that keeps versions names deleted prefixes there.
        found = self.filesystem.find(control, withdirs=True)
        names = {str(path).removeprefix(f"{control}/").partition("/")[0] for path in found}
        return sorted(name for name in names if name.startswith(".staging_"))

    def moved(self, name: str) -> Store:
        """The same kind of store under another name."""
        parent = self.path.removesuffix("data")
        local = self.local and f"{self.local.removesuffix('data')}{name}"
        return replace(self, path=f"{parent}{name}", local=local)

    def footer(self, name: str) -> pq.FileMetaData:
        """The footer of a file."""
        return pq.read_metadata(pa.BufferReader(self.filesystem.cat_file(self.at(name))))

    def schema(self, name: str) -> pa.Schema:
        """The Arrow schema of a file."""
        return pq.read_schema(pa.BufferReader(self.filesystem.cat_file(self.at(name))))

    def read(self, name: str, schema: pa.Schema) -> pa.Table:
        """Read a file as a table of ``schema``; columns that it does not hold are in its path."""
        return read_rows(name, self.filesystem.cat_file(self.at(name)), schema)


def read_rows(name: str, data: bytes, schema: pa.Schema) -> pa.Table:
    """Read the bytes of a file; columns that it does not hold are in its path."""
    # The default unit turns dates outside the range of nanoseconds into others, silently.
    fine = any(has_nanoseconds(f.type) for f in schema)
    source = pa.BufferReader(data)
    with pq.ParquetFile(source, coerce_int96_timestamp_unit="ns" if fine else "us") as file:
        stored = file.read()
    columns = [
        cast_values(stored[f.name], f.type)
        if f.name in stored.column_names
        else _path_column(name, f, stored.num_rows)
        for f in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def data_files(names: Iterable[str]) -> list[str]:
    """The paths below a root that are data."""
    return sorted(
        name
        for name in names
        if name.lower().endswith(_SUFFIXES)
        and not any(part.startswith((".", "_")) for part in name.split("/"))
    )


def hive(name: str, value: Any) -> str:
    """A partition's directory as pyarrow spells it."""
    if isinstance(value, bool):
        value = str(value).lower()
    return f"{name}={_NULL if value is None else quote(str(value), safe='')}"


def partition_names(name: str) -> list[str]:
    """The partition columns of a path below the root."""
    return [unquote(part.partition("=")[0]) for part in name.split("/")[:-1] if "=" in part]


def _path_column(name: str, column: pa.Field, rows: int) -> pa.Array:
    found = dict(part.split("=", 1) for part in name.split("/")[:-1] if "=" in part)
    texts = {unquote(key): None if text == _NULL else unquote(text) for key, text in found.items()}
    assert column.name in texts, f"{name!r} holds no column {column.name!r}"
    return pa.array([texts[column.name]] * rows, pa.string()).cast(column.type)


class _AnsweringFile(ArrowFile):  # type: ignore[misc] # fsspec has no types
    def read(self, *size: int) -> bytes:
        """Some bytes."""
        self.fs.answer(self.path, "forbidden", "secret", "vanishing", "fading")
        return bytes(self.stream.read(*size))


class AnsweringStore(ArrowFSWrapper):  # type: ignore[misc] # fsspec has no types
    """A filesystem whose errors have no errno, as those of object stores: a file's name decides.

    ``forbidden`` in a name refuses every read, ``secret`` all but the footer's. A file with
    ``vanishing`` in its name is deleted by whoever reads it first, who does not find it then; one
    with ``fading`` by whoever reads more than its footer. Nothing is remembered, so that it is the
    same in every process.
    """

    def cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any
    ) -> Any:
        """Some bytes of a file."""
        self.answer(path, "forbidden", "vanishing")
        with self.fs.open_input_file(self._strip_protocol(path)) as file:
            begin = start or 0
            return file.read_at((file.size() if end is None else end) - begin, begin)

    def _open(self, path: str, mode: str = "rb", *args: Any, **kwargs: Any) -> Any:
        if mode == "rb":
            return _AnsweringFile(self, self.fs.open_input_file(path), path, mode)
        return super()._open(path, mode, *args, **kwargs)

    def answer(self, path: str, *words: str) -> None:
        """Raise what one of some words in the name of a file asks for."""
        word = path.rpartition("/")[2].partition(".")[0]
        if word not in words:
            return
        if word in ("forbidden", "secret"):
            raise PermissionError("Forbidden")
        self.fs.delete_file(path)
        raise FileNotFoundError("The specified key does not exist.")


@contextmanager
def open_store(kind: str) -> Iterator[Store]:
    """Open an empty store, and leave nothing of it behind."""
    if kind in OBJECT_STORES:
        server = object_store(kind)
        yield bucket_store(server, server.make_bucket())
        return
    if kind == "memory":
        name = f"/{uuid.uuid4().hex}"
        yield Store(MemoryFileSystem(), f"memory:/{name}/data")
        if MemoryFileSystem().exists(name):
            MemoryFileSystem().rm(name, recursive=True)
        return
    # Exchanging works on a disk in memory, too.
    directory = os.path.realpath(tempfile.mkdtemp(dir=object_stores.memory_disk()))
    try:
        yield _local_store(kind, directory)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _local_store(kind: str, directory: str) -> Store:
    local = f"{directory}/data"
    if kind == "dirfs":
        filesystem = DirFileSystem(directory, LocalFileSystem())
        return Store(filesystem, "data", {"filesystem": filesystem}, local)
    if kind == "arrow":
        # pyarrow's own local filesystem is opened as the local disk; wrapped, it is any other.
        wrapped = ArrowFSWrapper(pa.fs.LocalFileSystem())
        return Store(LocalFileSystem(), local, {"filesystem": wrapped})
    if kind == "answering":
        answering = AnsweringStore(pa.fs.LocalFileSystem())
        return Store(LocalFileSystem(), local, {"filesystem": answering})
    options = {"publish": "plain"} if kind == "plain" else {}
    return Store(LocalFileSystem(), local, options, local)


def object_store(kind: str) -> ObjectStore:
    """The server of an object store; skips the test where it is not built."""
    if kind == "moto":
        return object_stores.moto()
    if kind == "moto-as-minio":
        return object_stores.moto_as_minio()
    missing = _missing(kind)
    server = None if missing else _PROGRAMS[kind][3]()
    if server is not None:
        return server
    missing = missing or f"{kind} cannot be started. Hint: see 'make {kind}'."
    if TORTURE:
        pytest.fail(missing)
    pytest.skip(missing)


def _missing(kind: str) -> str:
    """What a store that is a program of its own lacks on this machine; empty if nothing."""
    name, program, package, _ = _PROGRAMS[kind]
    if package and find_spec(package) is None:
        return f"the package {package} is missing. Hint: install it."
    if not program().exists():
        return f"{name} is not built at {program()}. Hint: run 'make {kind}'."
    return ""


def bucket_store(
    server: ObjectStore, bucket: str, credentials: Mapping[str, str] | None = None
) -> Store:
    """A store in a bucket: the test sees all of it, the engine what its credentials allow."""
    given = server.opened_with(server.credentials if credentials is None else credentials)
    filesystem = fsspec.filesystem(server.scheme, **server.options, use_listings_cache=False)
    return Store(filesystem, server.at(bucket, "lake/data"), {"storage_options": given})
