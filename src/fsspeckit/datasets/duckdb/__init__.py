"""The DuckDB engine: one machine, keys joined by DuckDB, beyond memory where needed.

>>> import pyarrow as pa
>>> with DuckDBDatasetIO() as io:
...     written = io.write_dataset(pa.table({"id": [1, 2], "v": ["a", "b"]}), "memory://doc-duckdb")
...     result = io.merge(
...         pa.table({"id": [2, 3], "v": ["B", "C"]}), "memory://doc-duckdb", "upsert", ["id"]
...     )
>>> result.updated, result.inserted
(1, 1)

A relation is a source like any other. It is streamed, not pulled into memory:

>>> import duckdb
>>> connection = duckdb.connect()
>>> rows = connection.sql("SELECT 4::BIGINT AS id, 'D' AS v")
>>> with DuckDBDatasetIO(connection) as io:
...     io.merge(rows, "memory://doc-duckdb", "insert", ["id"]).target_count_after
4
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fsspeckit.core.rewrite import basename_of
from fsspeckit.datasets.base import DatasetIO
from fsspeckit.datasets.duckdb.engine import DuckDBEngine
from fsspeckit.datasets.pipeline import run_clear
from fsspeckit.storage import unique_basename

if TYPE_CHECKING:
    from collections.abc import Mapping

    from duckdb import DuckDBPyConnection

    from fsspeckit.storage import PublishMode, Retention

__all__ = ["DuckDBDatasetIO", "DuckDBParquetHandler"]


class DuckDBDatasetIO(DatasetIO):
    """Reads, writes and merges datasets with DuckDB and pyarrow; may be used by several threads.

    Args:
        connection: A connection to join keys on, so that its ``memory_limit``, ``threads`` and
            ``temp_directory`` hold. It stays open, and as it was. None to open one.
        filesystem: An fsspec or pyarrow filesystem for paths; None to find it from each path.
        storage_options: What fsspec needs to open the filesystem of a URL.
        control_dir: Where staging, records and lock live, if not beside the dataset.
        publish: ``"auto"`` or ``"plain"``, see :class:`~fsspeckit.datasets.base.DatasetIO`.
        lock_timeout: How many seconds to wait for another writer.
        retention: How long replaced files are kept in the trash; None for the default.

    Examples:
        A connection of the caller's, with its limits:

        >>> import duckdb
        >>> import pyarrow as pa
        >>> connection = duckdb.connect(config={"memory_limit": "1GB", "threads": 2})
        >>> with DuckDBDatasetIO(connection) as io:
        ...     rows = pa.table({"id": [1, 2], "v": ["a", "b"]})
        ...     io.merge(rows, "memory://doc-connection", "upsert", ["id"]).inserted
        2
        >>> connection.sql("SELECT 1").fetchall()  # it is still open
        [(1,)]
    """

    def __init__(
        self,
        connection: DuckDBPyConnection | None = None,
        *,
        filesystem: Any = None,
        storage_options: Mapping[str, Any] | None = None,
        control_dir: str | None = None,
        publish: PublishMode = "auto",
        lock_timeout: float = 30.0,
        retention: Retention | None = None,
    ) -> None:
        self._duckdb = DuckDBEngine(connection, filesystem)
        super().__init__(
            self._duckdb, filesystem, storage_options, control_dir, publish, lock_timeout, retention
        )

    def close(self) -> None:
        """Close the connection, unless it is the caller's; the next merge would open another.

        Examples:
            >>> io = DuckDBDatasetIO()
            >>> io.close()
        """
        self._duckdb.close()


class DuckDBParquetHandler(DuckDBDatasetIO):
    """A :class:`DuckDBDatasetIO` that opens its own connection, constructed from a filesystem.

    The arguments are those of :class:`DuckDBDatasetIO`, in another order.

    Examples:
        >>> import pyarrow as pa
        >>> with DuckDBParquetHandler() as handler:
        ...     handler.write_parquet_dataset(
        ...         pa.table({"id": range(5)}), "memory://doc-handler", max_rows_per_file=2
        ...     ).total_rows
        5
    """

    def __init__(
        self,
        storage_options: Mapping[str, Any] | None = None,
        filesystem: Any = None,
        *,
        control_dir: str | None = None,
        publish: PublishMode = "auto",
        lock_timeout: float = 30.0,
        retention: Retention | None = None,
    ) -> None:
        super().__init__(
            filesystem=filesystem,
            storage_options=storage_options,
            control_dir=control_dir,
            publish=publish,
            lock_timeout=lock_timeout,
            retention=retention,
        )

    def _generate_unique_filename(self, basename_template: str | None = None, i: int = 0) -> str:
        """A name as new files get it: from the template if there is one, unique in any case."""
        return unique_basename(basename_of(basename_template, i))

    def _clear_dataset(self, path: str) -> None:
        """Remove the data files of a dataset, and nothing else, in one commit.

        An overwrite does not call this: its commit removes the old files beside adding the new
        ones, so that there is no moment without data.
        """
        run_clear(self._engine, self._storage(path, None))
