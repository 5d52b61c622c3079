"""`DuckDBParquetHandler` writes datasets: names, modes, sizes, places, errors, and many writers."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import uuid
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fsspec
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from fsspeckit import datasets
from fsspeckit.datasets import duckdb as engine
from fsspeckit.datasets.duckdb import DuckDBDatasetIO
from fsspeckit.storage import history
from fsspeckit.utils.duckdb import DuckDBParquetHandler

if TYPE_CHECKING:
    from collections.abc import Iterator

UNIQUE = re.compile(r"-[0-9a-f]{32}\.parquet$")


def rows(count: int, start: int = 0) -> pa.Table:
    ids = range(start, start + count)
    return pa.table({"id": pa.array(ids, pa.int64()), "v": [f"value {i}" for i in ids]})


def names_in(path: Path) -> list[str]:
    return sorted(file.name for file in path.iterdir())


@pytest.fixture
def handler() -> Iterator[DuckDBParquetHandler]:
    with DuckDBParquetHandler() as opened:
        yield opened


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """A path for a dataset that is not there yet."""
    return tmp_path / "dataset"


@pytest.fixture
def filled(handler: DuckDBParquetHandler, dataset: Path) -> Path:
    """A dataset of ten rows in two files, with things beside them that are no data."""
    handler.write_parquet_dataset(rows(10), str(dataset), max_rows_per_file=5)
    (dataset / "_SUCCESS").touch()
    (dataset / "README.txt").write_text("not data")
    (dataset / ".hidden.parquet").write_bytes(b"not data")
    return dataset


class TestImports:
    def test_one_class_under_three_paths(self) -> None:
        assert datasets.DuckDBParquetHandler is engine.DuckDBParquetHandler is DuckDBParquetHandler
        assert issubclass(DuckDBParquetHandler, DuckDBDatasetIO)

    def test_the_package_does_not_load_duckdb(self) -> None:
        program = "import sys, fsspeckit.datasets, fsspeckit.utils; print('duckdb' in sys.modules)"
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True
        )
        assert done.stdout == "False\n"

    def test_a_name_that_is_not_there(self) -> None:
        with pytest.raises(AttributeError, match="no attribute 'PolarsDatasetIO'"):
            datasets.PolarsDatasetIO  # noqa: B018 - the access is the test


class TestNames:
    def test_names_are_unique_by_default(
        self, handler: DuckDBParquetHandler, dataset: Path
    ) -> None:
        for _ in range(3):
            handler.write_parquet_dataset(rows(4), str(dataset), max_rows_per_file=2)
        names = names_in(dataset)
        assert len(names) == 6
        assert all(UNIQUE.search(name) for name in names)

    @pytest.mark.parametrize(
        ("template", "start"),
        [
            ("day-{}.parquet", "day-{}-"),
            ("day-{i}.parquet", "day-{}-"),
            ("day.parquet", "day-"),
            ("day-{i}", "day-{}-"),
            ("{i}-ä b'\".parquet", "{}-ä b'\"-"),
        ],
    )
    def test_a_template_with_either_placeholder_or_none(
        self, handler: DuckDBParquetHandler, dataset: Path, template: str, start: str
    ) -> None:
        for _ in range(2):
            result = handler.write_parquet_dataset(
                rows(5), str(dataset), basename_template=template, max_rows_per_file=2
            )
            names = [file.path.rpartition("/")[2] for file in result.files]
            for number, name in enumerate(names):
                assert name.startswith(start.format(number))
                assert UNIQUE.search(name)
        assert len(names_in(dataset)) == 6

    @pytest.mark.parametrize("template", ["{day}.parquet", "{0}{1}.parquet", "a/{i}.parquet", "{"])
    def test_other_templates_are_refused(
        self, handler: DuckDBParquetHandler, dataset: Path, template: str
    ) -> None:
        with pytest.raises(ValueError, match=r"basename_template|not allowed"):
            handler.write_parquet_dataset(rows(1), str(dataset), basename_template=template)
        assert not dataset.exists()

    @pytest.mark.parametrize("template", [None, "day-{}.parquet", "day-{i}.parquet", "day"])
    def test_generated_names_never_repeat(
        self, handler: DuckDBParquetHandler, template: str | None
    ) -> None:
        names = {handler._generate_unique_filename(template, 7) for _ in range(100)}
        assert len(names) == 100
        assert all(UNIQUE.search(name) for name in names)
        assert all(("7" in name.partition("-")[2][:2]) for name in names if "{" in (template or ""))


class TestModes:
    def test_append_preserves_every_file(self, handler: DuckDBParquetHandler, filled: Path) -> None:
        before = {file.name: file.read_bytes() for file in filled.iterdir()}
        result = handler.write_parquet_dataset(rows(3, 10), str(filled), mode="append")
        after = {file.name: file.read_bytes() for file in filled.iterdir()}
        assert before.items() <= after.items()
        assert (result.mode, len(after) - len(before)) == ("append", 1)
        assert handler.read_dataset(str(filled)).num_rows == 13

    def test_overwrite_replaces_data_files_and_nothing_else(
        self, handler: DuckDBParquetHandler, filled: Path
    ) -> None:
        result = handler.write_parquet_dataset(rows(3, 10), str(filled), mode="overwrite")
        (new,) = result.files
        kept = [".hidden.parquet", "README.txt", "_SUCCESS"]
        assert names_in(filled) == sorted([*kept, new.path.rpartition("/")[2]])
        assert handler.read_dataset(str(filled))["id"].to_pylist() == [10, 11, 12]

    def test_overwrite_leaves_the_old_data_where_it_fails(
        self, handler: DuckDBParquetHandler, filled: Path
    ) -> None:
        def batches() -> Iterator[pa.RecordBatch]:
            yield from rows(3).to_batches()
            raise OSError("the source broke")

        before = names_in(filled)
        reader = pa.RecordBatchReader.from_batches(rows(0).schema, batches())
        with pytest.raises(OSError, match="the source broke"):
            handler.write_parquet_dataset(reader, str(filled), mode="overwrite")
        assert names_in(filled) == before

    def test_clearing_removes_data_files_only(
        self, handler: DuckDBParquetHandler, filled: Path
    ) -> None:
        handler._clear_dataset(str(filled))
        assert names_in(filled) == [".hidden.parquet", "README.txt", "_SUCCESS"]
        assert history(str(filled))[-1].strategy == "clear"

    def test_clearing_what_is_empty_or_not_there(
        self, handler: DuckDBParquetHandler, tmp_path: Path
    ) -> None:
        handler._clear_dataset(str(tmp_path / "nothing"))
        assert names_in(tmp_path) == []

    @pytest.mark.parametrize("mode", ["replace", "Append", "", None])
    def test_other_modes_are_refused(
        self, handler: DuckDBParquetHandler, dataset: Path, mode: Any
    ) -> None:
        message = f"mode must be one of 'append', 'overwrite', 'overwrite_partitions', got {mode!r}"
        with pytest.raises(ValueError, match=message):
            handler.write_parquet_dataset(rows(1), str(dataset), mode=mode)
        assert not dataset.exists()


class TestSizes:
    @pytest.mark.parametrize(
        ("count", "limit", "expected"),
        [(10, 3, [3, 3, 3, 1]), (10, 5, [5, 5]), (10, 10, [10]), (10, 99, [10]), (3, 1, [1, 1, 1])],
    )
    def test_max_rows_per_file_splits_exactly(
        self,
        handler: DuckDBParquetHandler,
        dataset: Path,
        count: int,
        limit: int,
        expected: list[int],
    ) -> None:
        result = handler.write_parquet_dataset(rows(count), str(dataset), max_rows_per_file=limit)
        on_disk = [pq.read_metadata(file.path).num_rows for file in result.files]
        assert on_disk == [file.row_count for file in result.files] == expected
        found = [i for file in result.files for i in pq.read_table(file.path)["id"].to_pylist()]
        assert found == list(range(count))

    @pytest.mark.parametrize("value", [0, -1, 1.5, True, "9"])
    def test_other_sizes_are_refused(
        self, handler: DuckDBParquetHandler, dataset: Path, value: Any
    ) -> None:
        with pytest.raises(ValueError, match=f"max_rows_per_file must be > 0.* got {value!r}"):
            handler.write_parquet_dataset(rows(1), str(dataset), max_rows_per_file=value)
        assert not dataset.exists()

    def test_an_empty_table_is_one_file_with_the_schema(
        self, handler: DuckDBParquetHandler, dataset: Path
    ) -> None:
        result = handler.write_parquet_dataset(rows(0), str(dataset))
        (file,) = result.files
        assert (result.total_rows, file.row_count) == (0, 0)
        assert pq.read_schema(file.path).equals(rows(0).schema)
        assert handler.read_dataset(str(dataset)).equals(rows(0))

    def test_reported_sizes_and_rows_are_those_on_disk(
        self, handler: DuckDBParquetHandler, dataset: Path
    ) -> None:
        result = handler.write_parquet_dataset(rows(7), str(dataset), max_rows_per_file=4)
        assert result.total_rows == 7
        assert [file.size_bytes for file in result.files] == [
            os.path.getsize(file.path) for file in result.files
        ]


class TestDirectories:
    def test_directories_are_created(self, handler: DuckDBParquetHandler, tmp_path: Path) -> None:
        handler.write_parquet_dataset(rows(1), str(tmp_path / "a" / "b c" / "d"))
        assert len(names_in(tmp_path / "a" / "b c" / "d")) == 1

    @pytest.mark.parametrize("below", ["", "/below"])
    @pytest.mark.parametrize("mode", ["append", "overwrite"])
    def test_a_file_where_a_directory_should_be(
        self, handler: DuckDBParquetHandler, dataset: Path, mode: Any, below: str
    ) -> None:
        dataset.write_text("a file")
        with pytest.raises(NotADirectoryError, match="dataset"):
            handler.write_parquet_dataset(rows(1), f"{dataset}{below}", mode=mode)
        assert dataset.read_text() == "a file"

    @pytest.mark.parametrize("path", ["", "  ", "a\0b"])
    def test_no_path_at_all(self, handler: DuckDBParquetHandler, path: str) -> None:
        with pytest.raises(ValueError, match="path must"):
            handler.write_parquet_dataset(rows(1), path)

    @pytest.mark.parametrize("name", ["it's", 'a "b"', "[x]*?", "ünï ✓", "a=b; DROP TABLE t"])
    def test_any_path_and_any_column_name(
        self, handler: DuckDBParquetHandler, tmp_path: Path, name: str
    ) -> None:
        table = rows(3).rename_columns([name, f"{name}."])
        path = str(tmp_path / name)
        handler.write_parquet_dataset(table, path)
        result = handler.write_parquet_dataset(
            table, path, strategy="upsert", key_columns=[name], rewrite_mode="incremental"
        )
        assert (result.updated, result.inserted) == (3, 0)

    @pytest.mark.skipif(os.geteuid() == 0, reason="nothing is forbidden to root")
    def test_a_directory_that_may_not_be_written(
        self, handler: DuckDBParquetHandler, tmp_path: Path
    ) -> None:
        tmp_path.chmod(0o500)
        try:
            with pytest.raises(PermissionError, match=rf"control directory '{tmp_path}/\.dataset"):
                handler.write_parquet_dataset(rows(1), str(tmp_path / "dataset"))
        finally:
            tmp_path.chmod(0o700)

    def test_a_filesystem_that_refuses_to_write(self) -> None:
        handler = DuckDBParquetHandler(filesystem=Forbidden())
        with pytest.raises(
            PermissionError, match=r"control directory '/forbidden/\.dataset"
        ) as told:
            handler.write_parquet_dataset(rows(1), "/forbidden/dataset")
        assert "Hint: let this process write there, or pass control_dir=" in str(told.value)
        assert Forbidden().find("/forbidden") == []

    def test_the_control_directory_may_be_elsewhere(self, dataset: Path, tmp_path: Path) -> None:
        with DuckDBParquetHandler(control_dir=str(tmp_path / "control")) as handler:
            handler.write_parquet_dataset(rows(1), str(dataset))
            assert handler.read_dataset(str(dataset)).num_rows == 1
        assert (tmp_path / "control" / "commits").is_dir()


class Forbidden(MemoryFileSystem):  # type: ignore[misc]
    """A filesystem on which nothing may be written."""

    store: dict[str, Any] = {}  # noqa: RUF012 - as in the class above
    pseudo_dirs = [""]  # noqa: RUF012 - as in the class above
    protocol = "forbidden"

    def _open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        if mode != "rb":
            raise PermissionError(13, "Permission denied", path)
        return super()._open(path, mode, **options)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        raise PermissionError(13, "Permission denied", path)

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **options: Any) -> None:
        raise PermissionError(13, "Permission denied", path)


OBJECT_STORE = """
import sys
from moto.server import ThreadedMotoServer

server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()  # ends with the tests, however they end
server.stop()
"""


@pytest.fixture(scope="module")
def s3() -> Iterator[dict[str, Any]]:
    """What fsspec needs to open an object store: a process of its own, on a free loopback port."""
    with subprocess.Popen(
        [sys.executable, "-c", OBJECT_STORE], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as server:
        assert server.stdout is not None
        url = f"http://127.0.0.1:{int(server.stdout.readline())}"
        options = {
            "key": "key",
            "secret": "secret",
            "client_kwargs": {"endpoint_url": url, "region_name": "eu-west-1"},
        }
        fsspec.filesystem("s3", **options).mkdir("bucket")
        yield options
        assert server.stdin is not None
        server.stdin.close()
    assert server.returncode == 0


class TestRemote:
    @pytest.fixture
    def memory(self) -> Iterator[str]:
        name = uuid.uuid4().hex
        yield f"memory://{name}/data"
        MemoryFileSystem().rm(f"/{name}", recursive=True)

    def test_memory(self, memory: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        self._write_and_merge(DuckDBParquetHandler(), memory)
        assert names_in(tmp_path) == [], "something went through the local disk"

    @pytest.mark.slow
    def test_s3_by_storage_options(self, s3: dict[str, Any]) -> None:
        self._write_and_merge(DuckDBParquetHandler(s3), "s3://bucket/by-options/data")

    @pytest.mark.slow
    def test_s3_by_filesystem(self, s3: dict[str, Any]) -> None:
        filesystem = fsspec.filesystem("s3", **s3)
        handler = DuckDBParquetHandler(filesystem=filesystem)
        self._write_and_merge(handler, "bucket/by-filesystem/data")
        names = filesystem.find("bucket/by-filesystem/data")
        table = ds.dataset(names, filesystem=filesystem).to_table()
        assert sorted(table["id"].to_pylist()) == list(range(12))

    def _write_and_merge(self, handler: DuckDBParquetHandler, path: str) -> None:
        with handler:
            handler.write_parquet_dataset(rows(99), path)
            handler.write_parquet_dataset(rows(5), path, mode="overwrite", max_rows_per_file=2)
            handler.write_parquet_dataset(rows(5, 5), path)
            result = handler.write_parquet_dataset(
                rows(4, 8), path, strategy="upsert", key_columns=["id"], rewrite_mode="incremental"
            )
            assert (result.updated, result.inserted) == (2, 2)
            found = handler.read_dataset(path)
        assert sorted(found["id"].to_pylist()) == list(range(12))


class TestManyWriters:
    def test_threads_append_side_by_side(
        self, handler: DuckDBParquetHandler, dataset: Path
    ) -> None:
        failures: list[BaseException] = []

        def work(number: int) -> None:
            try:
                for turn in range(3):
                    start = 100 * number + 10 * turn
                    handler.write_parquet_dataset(
                        rows(10, start), str(dataset), max_rows_per_file=4
                    )
            except BaseException as error:  # a thread's error must reach the test
                failures.append(error)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        found = Counter(handler.read_dataset(str(dataset))["id"].to_pylist())
        assert found == Counter(n * 100 + i for n in range(4) for i in range(30))
        assert len(names_in(dataset)) == 36

    @pytest.mark.slow
    def test_processes_append_and_merge_side_by_side(self, dataset: Path) -> None:
        program = """
import sys
import pyarrow as pa
from fsspeckit.errors import ConcurrentModificationError
from fsspeckit.utils.duckdb import DuckDBParquetHandler

path, number = sys.argv[1], int(sys.argv[2])
ids = pa.array(range(100 * number, 100 * number + 30), pa.int64())
table = pa.table({"id": ids, "v": ["old"] * len(ids)})
with DuckDBParquetHandler() as handler:
    for turn in range(3):
        handler.write_parquet_dataset(table.slice(turn * 10, 10), path)
    while True:
        try:
            handler.merge(table.set_column(1, "v", [["new"] * len(ids)]), path, "update", ["id"])
            break
        except ConcurrentModificationError:
            pass  # it says: nothing was changed, repeat it
"""
        DuckDBParquetHandler().write_parquet_dataset(rows(10, 1000), str(dataset))
        running = [
            subprocess.Popen([sys.executable, "-c", program, str(dataset), str(number)])
            for number in range(3)
        ]
        assert [process.wait() for process in running] == [0, 0, 0]
        table = pq.read_table(dataset)
        expected = [n * 100 + i for n in range(3) for i in range(30)] + [*range(1000, 1010)]
        assert sorted(table["id"].to_pylist()) == sorted(expected)
        assert Counter(table["v"].to_pylist())["new"] == 90
        assert len(history(str(dataset))) == 1 + 3 * 4


class TestReadAndWrite:
    def test_a_partitioned_dataset_round_trips(
        self, handler: DuckDBParquetHandler, dataset: Path
    ) -> None:
        table = pa.table({"day": ["a", "b", "a", None], "id": [1, 2, 3, 4]})
        result = handler.write_parquet_dataset(table, str(dataset), partition_by=["day"])
        assert {str(file.partition_values["day"]) for file in result.files} == {"a", "b", "None"}
        found = handler.read_dataset(str(dataset)).select(["day", "id"])
        assert Counter(map(str, found.to_pylist())) == Counter(map(str, table.to_pylist()))

    def test_a_schema_converts_first(self, handler: DuckDBParquetHandler, dataset: Path) -> None:
        schema = pa.schema([("id", pa.int32()), ("v", pa.large_string())])
        result = handler.write_parquet_dataset(rows(2), str(dataset), schema=schema)
        assert pq.read_schema(result.files[0].path).equals(schema)

    def test_columns_that_are_not_those_of_the_dataset(
        self, handler: DuckDBParquetHandler, filled: Path
    ) -> None:
        with pytest.raises(ValueError, match="extra"):
            handler.write_parquet_dataset(
                rows(1).append_column("extra", pa.array([1])), str(filled)
            )

    def test_a_context_manager_closes_what_it_opened(self, filled: Path) -> None:
        with DuckDBParquetHandler() as handler:
            handler.merge(rows(1), str(filled), "update", ["id"])
            own = handler._duckdb._own
            assert own is not None
        with pytest.raises(Exception, match="closed"):
            own.execute("SELECT 1")


class TestTools:
    """The module is clean for the tools that `make lint` and `make types` run on everything."""

    MODULE = "src/fsspeckit/utils/duckdb.py"

    @pytest.mark.parametrize("command", [["ruff", "check"], ["ruff", "format", "--check"]])
    def test_ruff(self, command: list[str]) -> None:
        self._run(*command)

    @pytest.mark.slow
    def test_mypy(self) -> None:
        self._run("mypy")

    def _run(self, *command: str) -> None:
        done = subprocess.run(
            [sys.executable, "-m", *command, self.MODULE],
            cwd=Path(__file__).parents[2],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
