"""Makes Spark find the format ``fsspeckit``.

Spark imports every top-level module whose name begins with ``pyspark_`` when a query names a data
source of Python for the first time, and takes the class ``DefaultSource`` in it. So this module
loads nothing but Spark's own base class before it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter
    from pyspark.sql.types import StructType

__all__ = ["DefaultSource"]


class DefaultSource(DataSource):
    """Writes rows into datasets of plain Parquet files: merges them by key, or appends them.

    See :mod:`fsspeckit.datasets.spark.data_source`.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        from fsspeckit.datasets.spark.data_source import DataSourceOptions

        self._parsed = DataSourceOptions.parse(dict(options))

    @classmethod
    def name(cls) -> str:
        """Return what ``format`` calls it."""
        return "fsspeckit"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer of ``df.write``."""
        from fsspeckit.datasets.spark.data_source import BatchWriter

        return BatchWriter(self._parsed, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Return the writer of ``df.writeStream``."""
        from fsspeckit.datasets.spark.data_source import StreamWriter

        return StreamWriter(self._parsed, schema, overwrite)

    def schema(self) -> NoReturn:
        """Refuse to read."""
        raise self._refusal()

    def reader(self, schema: StructType) -> NoReturn:
        """Refuse to read."""
        raise self._refusal()

    def streamReader(self, schema: StructType) -> NoReturn:
        """Refuse to read."""
        raise self._refusal()

    simpleStreamReader = streamReader

    def _refusal(self) -> Any:
        from fsspeckit.datasets.spark.data_source import refuse_reading

        return refuse_reading(self._parsed)
