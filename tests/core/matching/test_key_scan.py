"""The key scan: which files hold a key, and what is read to know it."""

from __future__ import annotations

import io
import math
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.spec import AbstractBufferedFile
from hypothesis import given, settings

from fsspeckit.core.incremental import confirm_affected_files
from fsspeckit.core.keys.canonical import key_column
from fsspeckit.core.matching.positions import prefilter_for, scan_keys
from fsspeckit.core.parquet.format.layout import FILE_SPEC
from fsspeckit.core.parquet.format.thrift import I32, STRUCT, Struct, decode, encode
from fsspeckit.core.planning.footers import read_footer
from fsspeckit.errors import InvalidArgumentError, SchemaMismatchError, UnreadableFileError
from fsspeckit.storage.listing import DataFile
from fsspeckit.storage.roots import open_root
from fsspeckit.testing.model_source import values_of
from fsspeckit.testing.strategies import COLUMN_NAMES, GeneratedDataset, dataset_schemas, datasets

if TYPE_CHECKING:
    from collections.abc import Iterator

TAIL = 64 * 1024
Range = tuple[int, int]


class RecordingFile(io.BytesIO):
    """A file that notes which bytes are read from it."""

    def __init__(self, data: bytes, ranges: list[Range]) -> None:
        super().__init__(data)
        self.ranges = ranges

    def read(self, size: int | None = -1, /) -> bytes:
        start = self.tell()
        data = super().read(size)
        self.ranges.append((start, start + len(data)))
        return data

    def readinto(self, buffer: Any, /) -> int:
        data = self.read(len(memoryview(buffer)))
        buffer[: len(data)] = data
        return len(data)


class RecordingFileSystem(MemoryFileSystem):  # type: ignore[misc]
    """A filesystem in memory that notes which bytes of its files are read."""

    store: dict[str, Any] = {}  # noqa: RUF012
    pseudo_dirs = [""]  # noqa: RUF012
    protocol = "recording"
    ranges: list[Range] = []  # noqa: RUF012

    def _open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        if mode != "rb":
            return super()._open(path, mode, **options)
        return RecordingFile(self.store[path].getvalue(), self.ranges)

    def cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **_: Any
    ) -> bytes:
        with self.open(path) as file:
            file.seek(start or 0)
            data: bytes = file.read(None if end is None else end - (start or 0))
            return data


@pytest.fixture
def recording() -> Iterator[RecordingFileSystem]:
    """An empty filesystem that notes what is read."""
    filesystem = RecordingFileSystem(skip_instance_cache=True)
    yield filesystem
    filesystem.store.clear()
    filesystem.ranges.clear()


def noise(rows: int) -> pa.Array:
    """Values that no encoding makes small."""
    data = np.random.default_rng(1).integers(-(2**62), 2**62, rows)
    return pa.array(data)


def write(filesystem: Any, path: str, table: pa.Table, **options: Any) -> None:
    with filesystem.open(path, "wb") as file:
        pq.write_table(table, file, **options)


def chunk_of(chunk: pq.ColumnChunkMetaData) -> Range:
    offsets = (chunk.dictionary_page_offset, chunk.data_page_offset)
    start = min(offset for offset in offsets if offset is not None)
    return start, start + chunk.total_compressed_size


ROWS = 100_000


@pytest.fixture
def wide(recording: RecordingFileSystem) -> dict[str, list[Range]]:
    """A file of two row groups with payload around the keys: where its column chunks are."""
    table = pa.table(
        {
            "before": noise(ROWS),
            "id": pa.array(range(ROWS)),
            "between": noise(ROWS),
            "c": pa.array([f"c{row % 7}" for row in range(ROWS)]),
            "after": noise(ROWS),
        }
    )
    write(recording, "/d/x.parquet", table, row_group_size=ROWS // 2)
    data = recording.store["/d/x.parquet"].getvalue()
    metadata = pq.read_metadata(io.BytesIO(data))
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    assert len(groups) == 2
    chunks = {
        name: [chunk_of(group.column(index)) for group in groups]
        for index, name in enumerate(table.column_names)
    }
    chunks["size"] = [(0, len(data))]
    return chunks


def without_tail(ranges: list[Range], chunks: dict[str, list[Range]]) -> list[Range]:
    size = chunks["size"][0][1]
    return [(start, end) for start, end in ranges if start < size - TAIL and end > start]


def inside(ranges: list[Range], allowed: list[Range]) -> bool:
    return all(any(a <= start and end <= b for a, b in allowed) for start, end in ranges)


def test_only_the_key_columns_and_the_footer_are_read(
    recording: RecordingFileSystem, wide: dict[str, list[Range]]
) -> None:
    assert confirm_affected_files(["/d/x.parquet"], ["id"], [-1], recording) == []
    read = without_tail(recording.ranges, wide)
    assert read
    assert inside(read, wide["id"])
    # Both row groups were: nothing was taken from statistics.
    assert {start for start, _ in read} >= {start for start, _ in wide["id"]}


def test_only_the_columns_of_a_composite_key_are_read(
    recording: RecordingFileSystem, wide: dict[str, list[Range]]
) -> None:
    assert confirm_affected_files(["/d/x.parquet"], ["c", "id"], [("c9", 1)], recording) == []
    read = without_tail(recording.ranges, wide)
    assert inside(read, wide["id"] + wide["c"])
    assert not inside(read, wide["id"])


def test_the_scan_ends_with_the_first_row_group_that_holds_a_key(
    recording: RecordingFileSystem, wide: dict[str, list[Range]]
) -> None:
    assert confirm_affected_files(["/d/x.parquet"], ["id"], [5], recording) == ["/d/x.parquet"]
    assert inside(without_tail(recording.ranges, wide), wide["id"][:1])


def test_only_the_row_groups_asked_for_are_read(
    recording: RecordingFileSystem, wide: dict[str, list[Range]]
) -> None:
    root = open_root("/d/x.parquet", recording)
    footer = read_footer(root, DataFile(root.path, recording.size(root.path)), ["id"])
    column = key_column("id", pa.int64())
    recording.ranges.clear()
    scanned = list(scan_keys(root, footer, [1], [column], {}))
    assert [number for number, _, _ in scanned] == [1]
    assert scanned[0][2].column("id").to_pylist() == list(range(ROWS // 2, ROWS))
    assert inside(without_tail(recording.ranges, wide), wide["id"][1:])


class BufferedFile(AbstractBufferedFile):  # type: ignore[misc]
    """A file as object stores have it: fsspec decides which ranges to request."""

    def _fetch_range(self, start: int, end: int) -> bytes:
        self.fs.ranges.append((start, min(end, self.size)))
        data: bytes = self.fs.store[self.path].getvalue()[start:end]
        return data


class BufferedFileSystem(RecordingFileSystem):
    """A filesystem whose files read ahead unless they are told not to."""

    def _open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        return BufferedFile(self, path, mode, **options)


def test_nothing_is_read_ahead_into_other_columns(wide: dict[str, list[Range]]) -> None:
    filesystem = BufferedFileSystem(skip_instance_cache=True)
    with filesystem.open("/d/x.parquet") as file:
        file.read(10)
    assert filesystem.ranges.pop()[1] > wide["before"][0][1]  # what fsspec does by itself
    filesystem.ranges.clear()
    assert confirm_affected_files(["/d/x.parquet"], ["id"], [-1], filesystem) == []
    assert inside(without_tail(filesystem.ranges, wide), wide["id"])


# Which files hold a key.


def dataset(directory: Path) -> list[str]:
    paths = []
    for number in range(3):
        path = directory / f"part-{number}.parquet"
        ids = range(number * 10, number * 10 + 10)
        pq.write_table(pa.table({"id": ids, "v": ids}), path, row_group_size=4)
        paths.append(str(path))
    return paths


def test_files_that_hold_a_key_are_returned_in_the_order_given(tmp_path: Path) -> None:
    paths = dataset(tmp_path)
    assert confirm_affected_files(paths, ["id"], [5, 25, 99]) == [paths[0], paths[2]]
    assert confirm_affected_files(paths[::-1], ["id"], [5, 25]) == [paths[2], paths[0]]
    assert confirm_affected_files(paths, ["id"], [99]) == []
    assert confirm_affected_files(paths, ["id"], []) == []
    assert confirm_affected_files([], ["id"], [5]) == []


def test_statistics_that_lie_do_not_matter_to_the_scan(tmp_path: Path) -> None:
    paths = dataset(tmp_path)
    # In the range of the first file, but not in it.
    gap = tmp_path / "gap.parquet"
    pq.write_table(pa.table({"id": [0, 9]}), gap)
    assert confirm_affected_files([*paths, str(gap)], ["id"], [5]) == [paths[0]]


def test_a_generator_of_keys_is_good_for_every_file(tmp_path: Path) -> None:
    paths = dataset(tmp_path)
    keys: Any = (key for key in (5, 15, 25))
    assert confirm_affected_files(paths, ["id"], keys) == paths


@pytest.mark.parametrize("spelling", ["plain", "url", "memory", "dir", "relative"])
def test_paths_are_returned_as_they_were_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spelling: str
) -> None:
    monkeypatch.chdir(tmp_path)
    paths = dataset(tmp_path)
    filesystem: Any = None
    if spelling == "url":
        paths = [f"file://{path}" for path in paths]
    elif spelling == "dir":
        filesystem = DirFileSystem(str(tmp_path), LocalFileSystem())
        paths = [Path(path).name for path in paths]
    elif spelling == "relative":
        paths = [Path(path).name for path in paths]
    elif spelling == "memory":
        for path in paths:
            MemoryFileSystem().pipe(f"/scan/{Path(path).name}", Path(path).read_bytes())
        paths = [f"memory://scan/{Path(path).name}" for path in paths]
    assert confirm_affected_files(paths, ["id"], [15], filesystem) == [paths[1]]
    if spelling == "memory":
        MemoryFileSystem().rm("/scan", recursive=True)


def test_int96_keys_are_instants_also_outside_the_range_of_nanoseconds(tmp_path: Path) -> None:
    path = str(tmp_path / "x.parquet")
    old, new = datetime(1500, 1, 1, tzinfo=UTC), datetime(2024, 1, 1, tzinfo=UTC)
    stamps = pa.array([old, new], pa.timestamp("us"))
    pq.write_table(pa.table({"t": stamps}), path, use_deprecated_int96_timestamps=True)
    assert pq.read_metadata(path).row_group(0).column(0).physical_type == "INT96"
    for key in (old, new):
        assert confirm_affected_files([path], ["t"], [key]) == [path]
    assert confirm_affected_files([path], ["t"], [datetime(2084, 7, 20, tzinfo=UTC)]) == []
    with pytest.raises(SchemaMismatchError, match="never equal"):
        confirm_affected_files([path], ["t"], [datetime(2024, 1, 1)])  # without a zone


def test_keys_in_the_path_are_taken_from_there(tmp_path: Path) -> None:
    paths = []
    for day in (1, 2):
        path = tmp_path / f"day={day}" / "x.parquet"
        path.parent.mkdir()
        pq.write_table(pa.table({"id": [1, 2]}), path)
        paths.append(str(path))
    assert confirm_affected_files(paths, ["day", "id"], [(2, 1)]) == [paths[1]]
    assert confirm_affected_files(paths, ["id", "day"], [(3, 1)]) == []
    assert confirm_affected_files(paths, ["day"], [1]) == [paths[0]]  # nothing else to read
    assert confirm_affected_files(paths, ["day"], ["1"]) == [paths[0]]


def test_null_and_nan_keys_are_found(tmp_path: Path) -> None:
    path = str(tmp_path / "x.parquet")
    pq.write_table(pa.table({"f": [None, math.nan, -0.0]}), path)
    for key in (None, math.nan, 0.0):
        assert confirm_affected_files([path], ["f"], pa.array([key], pa.float64())) == [path]
    assert confirm_affected_files([path], ["f"], [1.0]) == []


def test_an_unreadable_file_counts_as_affected(tmp_path: Path) -> None:
    paths = dataset(tmp_path)
    Path(paths[1]).write_bytes(b"no parquet")
    Path(paths[2]).write_bytes(b"")
    assert confirm_affected_files(paths, ["id"], [99]) == paths[1:]


def test_damaged_pages_count_as_affected(tmp_path: Path) -> None:
    paths = dataset(tmp_path)
    data = bytearray(Path(paths[1]).read_bytes())
    data[4:60] = b"\xff" * 56
    Path(paths[1]).write_bytes(data)
    assert confirm_affected_files(paths, ["id"], [99]) == [paths[1]]


def test_a_missing_file_raises_naming_it(tmp_path: Path) -> None:
    path = str(tmp_path / "gone.parquet")
    with pytest.raises(FileNotFoundError, match=r"gone\.parquet"):
        confirm_affected_files([path], ["id"], [1])
    with pytest.raises(FileNotFoundError, match=r"gone\.parquet"):
        confirm_affected_files(["memory://scan/gone.parquet"], ["id"], [1])


def test_a_file_without_the_key_column_counts_as_affected(tmp_path: Path) -> None:
    path = str(tmp_path / "x.parquet")
    pq.write_table(pa.table({"v": [1], "s": [{"id": 1}]}), path)
    assert confirm_affected_files([path], ["id"], [99]) == [path]
    assert confirm_affected_files([path], ["s"], [99]) == [path]  # nested: no key column


def test_a_key_that_one_file_s_type_cannot_hold_is_not_in_that_file(tmp_path: Path) -> None:
    narrow, wide = str(tmp_path / "narrow.parquet"), str(tmp_path / "wide.parquet")
    pq.write_table(pa.table({"id": pa.array([1], pa.int8())}), narrow)
    pq.write_table(pa.table({"id": pa.array([2**40], pa.int64())}), wide)
    assert confirm_affected_files([narrow, wide], ["id"], [2**40]) == [wide]
    assert confirm_affected_files([narrow, wide], ["id"], [1]) == [narrow]


def test_a_key_column_beside_a_column_whose_name_goes_on_with_a_dot(tmp_path: Path) -> None:
    path = str(tmp_path / "x.parquet")
    pq.write_table(pa.table({"id": [1], "id.x": ["p"], "s": [{"id": 7}]}), path)
    assert confirm_affected_files([path], ["id"], [1]) == [path]
    assert confirm_affected_files([path], ["id"], [7]) == []
    assert confirm_affected_files([path], ["id.x"], ["p"]) == [path]
    pq.write_table(pa.table({"s.id": [1], "s": [{"id": 7}]}), path)
    assert confirm_affected_files([path], ["s.id"], [1]) == [path]
    assert confirm_affected_files([path], ["s.id"], [7]) == []


@pytest.mark.parametrize("name", COLUMN_NAMES)
def test_key_columns_may_have_odd_names(tmp_path: Path, name: str) -> None:
    path = str(tmp_path / "x.parquet")
    pq.write_table(pa.table({"other": [2], name: [1]}), path)
    assert confirm_affected_files([path], [name], [1]) == [path]
    assert confirm_affected_files([path], [name], [2]) == []


@pytest.mark.parametrize(
    ("files", "columns", "keys", "message"),
    [
        ("x.parquet", ["id"], [1], "candidate_files must be a list"),
        (["x.parquet"], b"id", [1], "got the string b'id'"),
        (["x.parquet"], [], [1], "at least one"),
        (["x.parquet"], ["id"], "abc", "source_keys must be a sequence"),
        (["x.parquet"], ["id", "id"], [(1, 1)], "once"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_read(
    files: Any, columns: Any, keys: Any, message: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        confirm_affected_files(files, columns, keys)


@given(datasets(dataset_schemas(partitioned=False), null_source_keys=True))
@settings(max_examples=25)
def test_confirmed_files_are_those_of_brute_force(
    tmp_path_factory: pytest.TempPathFactory, data: GeneratedDataset
) -> None:
    paths = data.write(tmp_path_factory.mktemp("scan"))
    names = data.key_columns
    wanted = {values_of(row, names) for row in data.source.to_pylist()}
    expected = [
        path
        for path, table in zip(paths, data.files, strict=True)
        if wanted & {values_of(row, names) for row in table.to_pylist()}
    ]
    assert confirm_affected_files(paths, names, data.source.select(list(names))) == expected


def identifiers(count: int) -> list[str]:
    return [f"{number * 2_654_435_761 % 2**32:032x}" for number in range(count)]


def sifted_rows(path: Path, name: str, wanted: list[str]) -> list[tuple[int, str]]:
    """Rows of the first row group, by a scan with a sieve, that have a wanted key."""
    root = open_root(str(path))
    footer = read_footer(root, DataFile(root.path, path.stat().st_size), [name])
    column = key_column(name, pa.string())
    sieve = prefilter_for(pa.table({name: pa.array(wanted).cast(pa.binary())}), [column])
    assert sieve is not None
    ((_, rows, keys),) = scan_keys(root, footer, [0], [column], {}, sieve)
    texts = [key.as_py().decode() for key in keys.column(name)]
    assert len(rows) < footer.rows, "nothing was held back"
    return [(row, text) for row, text in zip(rows.tolist(), texts, strict=True) if text in wanted]


def test_row_groups_without_a_key_are_not_looked_up(tmp_path: Path) -> None:
    path, texts = tmp_path / "x.parquet", identifiers(24_000)
    pq.write_table(pa.table({"id": texts}), path, row_group_size=12_000)
    root = open_root(str(path))
    footer = read_footer(root, DataFile(root.path, path.stat().st_size), ["id"])
    column = key_column("id", pa.string())
    wanted = pa.table({"id": pa.array([texts[12_005], "0" * 32 + "1"]).cast(pa.binary())})
    prefilter = prefilter_for(wanted, [column])
    ((group, rows, _),) = scan_keys(root, footer, [0, 1], [column], {}, prefilter)
    assert (group, rows.tolist()) == (1, [5])


@pytest.mark.parametrize("is_nullable", [(False, True), (True, False), (False, False)])
def test_a_column_inside_another_is_not_the_key_of_the_same_path(
    tmp_path: Path, is_nullable: tuple[bool, bool]
) -> None:
    texts = identifiers(12_000)
    inner = pa.struct([pa.field("b", pa.string(), nullable=is_nullable[1])])
    outer = pa.StructArray.from_arrays([pa.array(texts[::-1])], fields=list(inner))
    schema = pa.schema([pa.field("a", inner, nullable=is_nullable[0]), ("a.b", pa.string())])
    pq.write_table(pa.table([outer, pa.array(texts)], schema=schema), tmp_path / "x.parquet")
    assert sifted_rows(tmp_path / "x.parquet", "a.b", [texts[7]]) == [(7, texts[7])]


def test_a_page_without_rows_before_the_others_is_damage(tmp_path: Path) -> None:
    """pyarrow reads no row of such a column, without an error; its keys would be taken as new."""
    path = tmp_path / "x.parquet"
    schema = pa.schema([pa.field("id", pa.string(), nullable=False)])
    texts = pa.table([identifiers(12_000)], schema=schema)
    pq.write_table(texts, path, use_dictionary=False, compression="none")
    path.write_bytes(with_page_without_rows(path.read_bytes()))
    assert pq.read_metadata(path).num_rows == 12_000
    with pytest.raises(UnreadableFileError, match="a column has 0 of 12,000 rows"):
        sifted_rows(path, "id", identifiers(1))
    assert confirm_affected_files([str(path)], ["id"], ["none of them"]) == [str(path)]


def with_page_without_rows(data: bytes) -> bytes:
    """A file of one column chunk, begun by a page that holds nothing."""
    inside = Struct({1: 0, 2: 0, 3: 3, 4: 3}, {}, dict.fromkeys(range(1, 5), I32))
    page = encode(Struct({1: 0, 2: 0, 3: 0, 5: inside}, {}, {1: I32, 2: I32, 3: I32, 5: STRUCT}))
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    footer, _ = decode(data[start:-8], FILE_SPEC)
    metadata = footer.values[4][0].values[1][0].values[3]
    metadata.values[6] += len(page)
    metadata.values[7] += len(page)
    written = encode(footer)
    body = data[:4] + page + data[4:start]
    return body + written + len(written).to_bytes(4, "little") + data[-4:]
