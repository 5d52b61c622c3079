"""What a merge reads: key columns only, until a file is known to be affected."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from fsspec.implementations.memory import MemoryFile, MemoryFileSystem

from fsspeckit.datasets.pyarrow import PyarrowDatasetIO


class RecordingFileSystem(MemoryFileSystem):  # type: ignore[misc]
    """A memory filesystem that remembers which bytes of which file were read."""

    protocol = "recording"
    store: dict[str, Any] = {}  # noqa: RUF012 - as its parent has it
    pseudo_dirs: list[str] = [""]  # noqa: RUF012
    ranges: list[tuple[str, int, int]] = []  # noqa: RUF012

    def cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **options: Any
    ) -> bytes:
        size = self.size(path)
        begin = start if start is not None else 0
        self.ranges.append((self._strip_protocol(path), begin, end if end is not None else size))
        return bytes(super().cat_file(path, start=start, end=end, **options))

    def _open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        file = super()._open(path, mode, **options)
        return _Recorder(file, self._strip_protocol(path), self) if mode == "rb" else file


class _Recorder:
    """A file that tells its filesystem what is read."""

    def __init__(self, file: MemoryFile, path: str, filesystem: RecordingFileSystem) -> None:
        self._file, self._path, self._filesystem = file, path, filesystem

    def read(self, count: int = -1) -> bytes:
        start = self._file.tell()
        data = bytes(self._file.read(count))
        self._filesystem.ranges.append((self._path, start, start + len(data)))
        return data

    def __enter__(self) -> _Recorder:
        return self

    def __exit__(self, *exception: object) -> None:
        self._file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def _write(filesystem: RecordingFileSystem, name: str, ids: list[int]) -> pq.FileMetaData:
    rows = pa.table({"id": ids, "v": [f"{i}" * 2000 for i in ids], "w": [1.5] * len(ids)})
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, row_group_size=2, use_dictionary=False, compression="none")
    filesystem.pipe_file(f"/data/{name}", sink.getvalue().to_pybytes())
    return pq.read_metadata(pa.BufferReader(sink.getvalue()))


def _chunk(metadata: pq.FileMetaData, group: int, column: int) -> range:
    chunk = metadata.row_group(group).column(column)
    return range(chunk.data_page_offset, chunk.data_page_offset + chunk.total_compressed_size)


def _touches(filesystem: RecordingFileSystem, name: str, chunk: range) -> bool:
    path = f"/data/{name}"
    return any(
        file == path and start < chunk.stop and chunk.start < end
        for file, start, end in filesystem.ranges
    )


def test_only_key_columns_are_read_until_a_file_is_known_to_be_affected() -> None:
    filesystem = RecordingFileSystem()
    # Large enough that the payload is not in the tail that holds the footer.
    hit = _write(filesystem, "hit.parquet", list(range(0, 100, 2)))
    miss = _write(filesystem, "miss.parquet", list(range(1, 200, 2)))
    pruned = _write(filesystem, "pruned.parquet", list(range(1000, 1100)))
    filesystem.ranges.clear()
    source = pa.table({"id": [6, 50], "v": ["new", "new"], "w": [0.0, 0.0]})
    result = PyarrowDatasetIO(filesystem).merge(source, "/data", "update", ["id"])
    assert result.updated == 2
    assert [path for path in result.preserved_files if "hit" in path] == []

    # Row group 1 of the file that is hit holds ids 4 and 6; that of the miss holds 5 and 7.
    assert _touches(filesystem, "hit.parquet", _chunk(hit, 1, 1))
    assert _touches(filesystem, "miss.parquet", _chunk(miss, 1, 0))
    groups = range(miss.num_row_groups // 2)
    assert not any(_touches(filesystem, "miss.parquet", _chunk(miss, g, 1)) for g in groups)
    # A pruned file gives its footer and nothing else.
    early = range(pruned.num_row_groups // 2)
    columns = range(pruned.num_columns)
    assert not any(
        _touches(filesystem, "pruned.parquet", _chunk(pruned, g, c)) for g in early for c in columns
    )
