"""Streams of changes into systems on Spark, as their documentation says that it is done.

A change has a key, a sequence, and a column that says whether it deletes. Of each key the change
with the greatest sequence counts, in whatever order they arrive.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.peers.protocol import link_tree
from benchmarks.peers.systems.on_spark import _Delta, _Fsspeckit, _Hudi, _OnSpark
from benchmarks.stream_feed import SPARK_SCHEMA, STORED

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

_COLUMNS = ", ".join(STORED)
_DELTA = f"""
MERGE INTO delta.`{{path}}` AS t
USING (
  SELECT last.* FROM (SELECT max_by(struct(*), seq) AS last FROM changes GROUP BY id)
) AS s
ON t.id = s.id
WHEN MATCHED AND s.seq > t.seq AND s.gone THEN DELETE
WHEN MATCHED AND s.seq > t.seq THEN UPDATE SET {", ".join(f"{c} = s.{c}" for c in STORED)}
WHEN NOT MATCHED AND NOT s.gone
  THEN INSERT ({_COLUMNS}) VALUES ({", ".join(f"s.{c}" for c in STORED)})
"""


class Streaming(_OnSpark):
    """What all of them share: a table that files are made into, and a query that ends."""

    def make_table(self, files: Path, place: Path) -> None:
        """Make the table of files of plain Parquet."""
        raise NotImplementedError

    def into_table(self, changes: DataFrame, place: Path) -> DataStreamWriter:
        """The query that applies changes."""
        raise NotImplementedError

    def stream(self, landing: Path, place: Path) -> list[dict[str, float]]:
        """Apply what has landed, each file as a batch; gives how long Spark says that each took."""
        reader = self._spark.readStream.schema(SPARK_SCHEMA).option("maxFilesPerTrigger", 1)
        writer = self.into_table(reader.json(str(landing)), place)
        writer = writer.option("checkpointLocation", f"{place}/checkpoint")
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        progress = [one for one in query.recentProgress if one["numInputRows"]]
        return [
            {name: milliseconds / 1000 for name, milliseconds in one["durationMs"].items()}
            for one in progress
        ]


class _FsspeckitStream(Streaming, _Fsspeckit):
    def make_table(self, files: Path, place: Path) -> None:
        link_tree(files, place / "table")

    def into_table(self, changes: DataFrame, place: Path) -> DataStreamWriter:
        from fsspeckit import ApplyChangesSink

        sink = ApplyChangesSink(f"{place}/table", "id", "seq", "gone", except_column_list="gone")
        return changes.writeStream.foreachBatch(sink)


class _DeltaStream(Streaming, _Delta):
    def make_table(self, files: Path, place: Path) -> None:
        link_tree(files, place / "table")
        self._spark.sql(f"CONVERT TO DELTA parquet.`{place}/table`")

    def into_table(self, changes: DataFrame, place: Path) -> DataStreamWriter:
        def merge(batch: DataFrame, number: int) -> None:
            batch.createOrReplaceTempView("changes")
            batch.sparkSession.sql(_DELTA.format(path=f"{place}/table")).collect()

        return changes.writeStream.foreachBatch(merge)


class _HudiStream(Streaming, _Hudi):
    """Copy-on-write; it deletes rows whose column ``_hoodie_is_deleted`` is true."""

    def make_table(self, files: Path, place: Path) -> None:
        rows = self._spark.read.parquet(str(files)).selectExpr("*", "false AS _hoodie_is_deleted")
        number = len(list(files.glob("*.parquet")))
        options = {
            **_HUDI,
            "hoodie.datasource.write.operation": "bulk_insert",
            "hoodie.bulkinsert.shuffle.parallelism": str(number),
        }
        ranges = rows.repartitionByRange(number, "id")
        ranges.write.format("hudi").options(**options).mode("overwrite").save(f"{place}/table")

    def into_table(self, changes: DataFrame, place: Path) -> DataStreamWriter:
        marked = changes.withColumnRenamed("gone", "_hoodie_is_deleted")
        options = {**_HUDI, "hoodie.datasource.write.operation": "upsert"}
        writer = marked.writeStream.format("hudi").options(**options).outputMode("append")
        return writer.option("path", f"{place}/table")


_HUDI = {
    "hoodie.table.name": "hudi_changes",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.precombine.field": "seq",
    "hoodie.datasource.write.keygenerator.class": (
        "org.apache.hudi.keygen.NonpartitionedKeyGenerator"
    ),
    "hoodie.datasource.write.table.type": "COPY_ON_WRITE",
    "hoodie.write.record.merge.mode": "EVENT_TIME_ORDERING",
}

STREAMS: dict[str, Callable[[], Streaming]] = {
    "spark-fsspeckit": _FsspeckitStream,
    "spark-delta": _DeltaStream,
    "spark-hudi": _HudiStream,
}
"""By the names of their entries."""
