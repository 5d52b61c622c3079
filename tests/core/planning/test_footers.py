"""Footers: how often a file is read, what is found in it, and what damage does."""

from __future__ import annotations

import base64
import errno
import threading
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import datafusion
import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest
from tests.core.planning.edited_footers import CountingFileSystem, edit_footer, remove

from fsspeckit.core.planning import footers as module
from fsspeckit.core.planning.footers import FileFooter, Leaf, read_footer, read_footers
from fsspeckit.errors import UnreadableFileError
from fsspeckit.storage.fs.reads import read_tail
from fsspeckit.storage.listing import DataFile, list_files
from fsspeckit.storage.roots import Root, open_root

if TYPE_CHECKING:
    from pathlib import Path


def footer_of(path: Path, columns: list[str] | None = None) -> FileFooter:
    root = open_root(path.parent)
    (footer,) = read_footers(root, [DataFile(str(path), path.stat().st_size)], columns)
    return footer


def write(path: Path, table: pa.Table, **options: Any) -> Path:
    pq.write_table(table, path, **options)
    return path


def write_datafusion(directory: Path, table: pa.Table) -> Path:
    datafusion.SessionContext().from_arrow(table).write_parquet(str(directory))
    (path,) = directory.iterdir()
    return path


def upload(filesystem: CountingFileSystem, path: str, table: pa.Table) -> int:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    data = sink.getvalue().to_pybytes()
    filesystem.pipe_file(path, data)
    return len(data)


def remote_footers(filesystem: CountingFileSystem) -> tuple[Root, list[FileFooter]]:
    root = open_root("/data", filesystem)
    files = list_files(root).files
    filesystem.requests.clear()
    return root, read_footers(root, files, ["id"])


@pytest.mark.parametrize("count", [1, 40])
def test_a_footer_takes_one_request(counting: CountingFileSystem, count: int) -> None:
    for number in range(count):
        upload(counting, f"/data/{number:02}.parquet", pa.table({"id": [number]}))
    _, footers = remote_footers(counting)
    assert sorted(path for path, _, _ in counting.requests) == [f.file.path for f in footers]
    assert [f.row_groups[0].columns["id"].low for f in footers] == list(range(count))


def test_a_footer_of_more_than_64_kib_takes_two_requests(counting: CountingFileSystem) -> None:
    wide = pa.table({"id": [1], **{f"column_{n}": ["x"] for n in range(600)}})
    size = upload(counting, "/data/a.parquet", wide)
    _, (footer,) = remote_footers(counting)
    first, second = counting.requests
    assert first[1:] == (size - 64 * 1024, size)
    assert second[1] < first[1]
    assert footer.row_groups[0].columns["id"].low == 1


def test_footers_are_in_the_order_of_the_files(tmp_path: Path) -> None:
    paths = [write(tmp_path / f"{n}.parquet", pa.table({"id": [n]})) for n in range(23)]
    files = [DataFile(str(path), path.stat().st_size) for path in reversed(paths)]
    footers = read_footers(open_root(tmp_path), files, ["id"])
    assert [footer.file for footer in footers] == files
    assert [f.row_groups[0].columns["id"].high for f in footers] == list(range(22, -1, -1))


@pytest.mark.parametrize("wait", [0, 0.002])
def test_threads_read_footers_where_the_disk_is_slow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wait: float
) -> None:
    path = write(tmp_path / "a.parquet", pa.table({"id": [1]}))
    files = [DataFile(str(path), path.stat().st_size, number) for number in range(200)]
    threads = set()

    def slow(*args: Any) -> tuple[bytes, int]:
        threads.add(threading.get_ident())
        time.sleep(wait)
        return read_tail(*args)

    if not wait:  # on a busy machine all takes longer than it works
        monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=float, thread_time=float))
    monkeypatch.setattr(module, "read_tail", slow)
    footers = read_footers(open_root(tmp_path), files, ["id"])
    assert [footer.file for footer in footers] == files
    assert len(threads) == (5 if wait else 1)


def test_statistics_are_kept_per_row_group(tmp_path: Path) -> None:
    table = pa.table({"id": [3, 1, None, None, 9], "v": list("abcde")})
    footer = footer_of(write(tmp_path / "a.parquet", table, row_group_size=2), ["id", "nothing"])
    chunks = [group.columns["id"] for group in footer.row_groups]
    assert [(c.low, c.high, c.null_count) for c in chunks] == [
        (1, 3, 0),
        (None, None, 2),
        (9, 9, 0),
    ]
    assert [group.rows for group in footer.row_groups] == [2, 2, 1]
    assert list(footer.leaves) == ["id"]


def test_a_footer_without_null_counts_does_not_say_zero(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", pa.table({"id": [1, 2]}))

    def without_null_count(footer: Any) -> None:
        remove(footer.values[4][0].values[1][0].values[3].values[12], 3)

    edit_footer(path, {4: [{1: [{3: {12: {}}}]}]}, without_null_count)
    chunk = footer_of(path).row_groups[0].columns["id"]
    assert (chunk.low, chunk.high, chunk.null_count) == (1, 2, None)


def test_one_bound_alone_proves_nothing(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", pa.table({"id": [1, 2]}))

    def without_maximum(footer: Any) -> None:
        remove(footer.values[4][0].values[1][0].values[3].values[12], 1, 5)

    edit_footer(path, {4: [{1: [{3: {12: {}}}]}]}, without_maximum)
    chunk = footer_of(path).row_groups[0].columns["id"]
    assert (chunk.low, chunk.high) == (None, None)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "does not end with a Parquet footer"),
        (b"PAR1", "does not end with a Parquet footer"),
        (b"PAR1PAR1", "does not end with a Parquet footer"),
        (b"PAR1 some bytes that are no footer", "does not end with a Parquet footer"),
        (b"PAR1\0\0\0\0PAR1", "Couldn't deserialize|not readable"),
        (b"PAR1garbage\x07\0\0\0PAR1", "Couldn't deserialize|not readable"),
        (b"PAR1\xff\xff\xff\x7fPAR1", "claims"),
        (b"PARE\0\0\0\0\x04\0\0\0PARE", "encrypted"),
    ],
)
def test_a_damaged_file_is_an_error_in_its_footer(tmp_path: Path, data: bytes, reason: str) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(data)
    footer = footer_of(path)
    assert footer.error is not None
    assert "a.parquet" in footer.error
    with pytest.raises(UnreadableFileError, match=reason):
        read_footer(open_root(tmp_path), footer.file, ["id"])


def test_a_file_cut_anywhere_is_an_error_in_its_footer(tmp_path: Path) -> None:
    whole = write(tmp_path / "a.parquet", pa.table({"id": [1, 2], "s": ["a", "b"]})).read_bytes()
    path = tmp_path / "b.parquet"
    for end in range(len(whole)):
        path.write_bytes(whole[:end])
        assert footer_of(path).error is not None, end


def test_a_name_that_is_not_utf8_does_not_raise(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", pa.table({"id": [1]}), store_schema=False)
    path.write_bytes(path.read_bytes().replace(b"id", b"\xff\xfe"))
    assert "UTF" in (footer_of(path).error or "").upper()


def test_a_damaged_stored_schema_does_not_raise(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", pa.table({"id": [1]}))
    data = path.read_bytes()
    start = data.index(b"ARROW:schema") + 20
    path.write_bytes(data[:start] + b"?" * 40 + data[start + 40 :])
    assert footer_of(path).error is not None


def test_two_columns_of_one_name_do_not_raise_and_neither_is_the_key(tmp_path: Path) -> None:
    table = pa.Table.from_arrays([pa.array([1]), pa.array([9]), pa.array([5])], ["id", "id", "v"])
    footer = footer_of(write(tmp_path / "a.parquet", table))
    assert footer.error is None
    assert list(footer.leaves) == ["v"]


class _PlainKms(pe.KmsClient):  # type: ignore[misc]
    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> bytes:
        return base64.b64encode(key_bytes)


@pytest.mark.parametrize("plaintext_footer", [True, False])
def test_an_encrypted_column_does_not_end_the_process(
    tmp_path: Path, plaintext_footer: bool
) -> None:
    settings = pe.EncryptionConfiguration(
        footer_key="footer", column_keys={"column": ["id"]}, plaintext_footer=plaintext_footer
    )
    factory = pe.CryptoFactory(lambda _: _PlainKms())
    keys = factory.file_encryption_properties(pe.KmsConnectionConfig(), settings)
    table = pa.table({"id": [1], "v": [2]})
    path = tmp_path / "a.parquet"
    with pq.ParquetWriter(path, table.schema, encryption_properties=keys) as writer:
        writer.write_table(table)
    assert "encrypted" in (footer_of(path, ["id"]).error or "")


def test_cut_bounds_of_a_fixed_width_column_do_not_end_the_process(tmp_path: Path) -> None:
    values = [letter * 100 for letter in (b"a", b"b")]
    table = pa.table({"id": pa.array(values, pa.binary(100))})
    path = write_datafusion(tmp_path / "arrow_rs", table)
    chunk = footer_of(path).row_groups[0].columns["id"]
    assert (chunk.low, chunk.high, chunk.null_count) == (None, None, 0)


def test_whole_bounds_of_a_fixed_width_column_are_read_whoever_wrote_them(tmp_path: Path) -> None:
    table = pa.table({"v": [1, 2], "id": pa.array([b"a" * 16, b"b" * 16], pa.binary(16))})
    path = write_datafusion(tmp_path / "arrow_rs", table)
    chunk = footer_of(path, ["id"]).row_groups[0].columns["id"]
    assert (chunk.low, chunk.high, chunk.null_count) == (b"a" * 16, b"b" * 16, 0)


def test_a_vanished_local_file_is_raised_with_its_path(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"gone\.parquet"):
        read_footers(open_root(tmp_path), [DataFile(str(tmp_path / "gone.parquet"), 100)], ["id"])


def test_a_vanished_remote_file_is_not_taken_for_a_damaged_one(
    counting: CountingFileSystem,
) -> None:
    upload(counting, "/data/a.parquet", pa.table({"id": [1]}))
    root = open_root("/data", counting)
    files = list_files(root).files
    counting.rm("/data/a.parquet")
    with pytest.raises(FileNotFoundError, match=r"/data/a\.parquet"):
        read_footers(root, files, ["id"])


@pytest.mark.parametrize(
    "error", [PermissionError("Access Denied"), PermissionError(errno.EACCES, "Access Denied")]
)
def test_an_error_of_the_filesystem_keeps_its_type_and_names_the_file(
    counting: CountingFileSystem, error: OSError, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload(counting, "/data/a.parquet", pa.table({"id": [1]}))
    root = open_root("/data", counting)
    files = list_files(root).files

    def refuse(*args: Any, **kwargs: Any) -> bytes:
        raise error

    monkeypatch.setattr(counting, "cat_file", refuse)
    with pytest.raises(PermissionError, match=r"footer of '/data/a\.parquet'.*Access") as caught:
        read_footers(root, files, ["id"])
    assert caught.value.errno == errno.EACCES
    assert caught.value.__cause__ is error


def test_a_nested_leaf_named_like_the_key_is_not_the_key(tmp_path: Path) -> None:
    nested = pa.array([{"id": 1, "b": 2}])
    footer = footer_of(write(tmp_path / "a.parquet", pa.table({"a": nested, "l": [[1]]})))
    assert footer.leaves == {}


def test_a_column_named_with_a_dot_is_not_the_nested_one(tmp_path: Path) -> None:
    table = pa.table({"a": pa.array([{"b": "nested"}]), "a.b": ["flat"]})
    footer = footer_of(write(tmp_path / "a.parquet", table))
    assert footer.leaves == {"a.b": Leaf("BYTE_ARRAY", pa.string(), 1)}
    assert footer.row_groups[0].columns["a.b"].low == b"flat"


@pytest.mark.parametrize("nested_first", [True, False])
def test_files_whose_leaves_only_look_alike_do_not_share_a_schema(
    tmp_path: Path, nested_first: bool
) -> None:
    # A required parent adds no level: both files have one optional leaf `id`.
    nested = pa.struct([("id", pa.int64())])
    schema = pa.schema([pa.field("a", nested, nullable=False)])
    inside = pa.Table.from_arrays([pa.array([{"id": 1}], nested)], schema=schema)
    names = ("b", "a") if nested_first else ("a", "b")
    write(tmp_path / f"{names[0]}.parquet", pa.table({"id": [1]}), store_schema=False)
    write(tmp_path / f"{names[1]}.parquet", inside, store_schema=False)
    root = open_root(tmp_path)
    shared = [file for file in list_files(root).files for _ in range(8)]
    for footer in read_footers(root, shared, ["id"]):
        flat = footer.file.path.endswith(f"{names[0]}.parquet")
        assert list(footer.leaves) == (["id"] if flat else [])


def test_files_that_differ_in_the_stored_schema_alone_do_not_share_it(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", pa.table({"id": pa.array([1], pa.int64())}))
    write(tmp_path / "b.parquet", pa.table({"id": pa.array([1], pa.duration("s"))}))
    root = open_root(tmp_path)
    files = list_files(root).files
    for order in (files, files[::-1]):
        footers = read_footers(root, [file for file in order for _ in range(8)], None)
        for footer in footers:
            expected = pa.int64() if "a.parquet" in footer.file.path else pa.duration("s")
            assert footer.leaves["id"].type == expected


def test_int96_is_an_instant_in_utc(tmp_path: Path) -> None:
    table = pa.table({"id": pa.array([1], pa.timestamp("us"))})
    path = write(tmp_path / "a.parquet", table, use_deprecated_int96_timestamps=True)
    leaf = footer_of(path).leaves["id"]
    assert (leaf.physical, leaf.type) == ("INT96", pa.timestamp("us", "UTC"))


def test_the_filesystem_of_these_tests_is_not_shared_with_others(
    counting: CountingFileSystem,
) -> None:
    upload(counting, "/data/a.parquet", pa.table({"id": [1]}))
    assert not fsspec.filesystem("memory").exists("/data/a.parquet")
