"""Merges in a Spark session: fsspeckit, the table formats, and what Spark can do by itself.

Every table format takes over the files of plain Parquet that all start from, where it can.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from benchmarks.peers.environments import jars_of
from benchmarks.peers.protocol import link_tree
from benchmarks.peers.tables import KEY, PARTITION
from benchmarks.spark_session import local_session

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from benchmarks.peers.protocol import Files, Phases
    from benchmarks.peers.workloads import Strategy

_MERGE = (
    f"MERGE INTO {{table}} AS t USING source AS s ON t.{KEY} = s.{KEY} {{matched}} "
    "WHEN NOT MATCHED THEN INSERT *"
)
_UPDATE = "WHEN MATCHED THEN UPDATE SET *"


class _OnSpark:
    """What all of them share: a session, a source, and reading without keeping."""

    jars: str | None = None

    def __init__(self, **settings: str) -> None:
        self._scratch = Path(tempfile.mkdtemp(prefix="peers-spark-"))
        self._spark = _session(self._scratch, self.jars, settings)

    def versions(self) -> dict[str, str]:
        found = {"Spark": str(self._spark.version)}
        if self.jars is not None:
            found["jar"] = next(jar.name for jar in jars_of(self.jars) if self.jars in jar.name)
        return found

    def frame(self, source: pa.Table) -> DataFrame:
        """The source as a data frame over a file."""
        path = self._scratch / "source.parquet"
        pq.write_table(source, path)
        frame = self._spark.read.parquet(str(path))
        frame.createOrReplaceTempView("source")
        return frame

    def prepare(self, place: Path) -> None:
        """Forget what the session knows about an earlier copy of the table."""

    def table(self, place: Path) -> DataFrame:
        """The whole table."""
        raise NotImplementedError

    def read(self, place: Path) -> None:
        self.table(place).write.format("noop").mode("overwrite").save()

    def fetch(self, place: Path) -> pa.Table:
        """What a read gives, brought to this process."""
        out = self._scratch / "fetched"
        fast = {"compression": "none", "parquet.enable.dictionary": "false"}
        self.table(place).write.mode("overwrite").options(**fast).parquet(str(out))
        found = pq.read_table(out)
        shutil.rmtree(out)
        return found

    def close(self) -> None:
        """End the session."""
        self._spark.stop()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def _statement(self, table: str, strategy: Strategy) -> None:
        matched = _UPDATE if strategy == "upsert" else ""
        self._spark.sql(_MERGE.format(table=table, matched=matched)).collect()


def _session(scratch: Path, jars: str | None, settings: dict[str, str]) -> SparkSession:
    chosen = {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.local.dir": str(scratch / "local"),
        **settings,
    }
    if jars is not None:
        chosen["spark.jars"] = ",".join(str(jar) for jar in jars_of(jars))
    return local_session("peers", chosen)


class _Fsspeckit(_OnSpark):
    def __init__(self) -> None:
        super().__init__()
        from fsspeckit.datasets.spark import SparkDatasetIO

        self._io = SparkDatasetIO(self._spark)

    def make(self, files: Files, place: Path) -> None:
        link_tree(files.directory, place / "table")

    def merge(self, place: Path, source: DataFrame, strategy: Strategy) -> Phases:
        merged = self._io.merge(source, str(place / "table"), strategy, [KEY])
        return dict(merged.metrics["seconds"])

    def table(self, place: Path) -> DataFrame:
        # By Spark's own reader, as everyone may: it is plain Parquet.
        return self._spark.read.parquet(f"{place}/table")


class _Delta(_OnSpark):
    jars = "delta-spark"

    def __init__(self) -> None:
        super().__init__(
            **{
                "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
                "spark.sql.catalog.spark_catalog": (
                    "org.apache.spark.sql.delta.catalog.DeltaCatalog"
                ),
                # As its users do on few cores; the default of 50 is for clusters.
                "spark.databricks.delta.snapshotPartitions": "2",
            }
        )

    def make(self, files: Files, place: Path) -> None:
        link_tree(files.directory, place / "table")
        hive = f"PARTITIONED BY ({PARTITION} STRING)" if files.layout.partitioned else ""
        self._spark.sql(f"CONVERT TO DELTA parquet.`{place}/table` {hive}")

    def prepare(self, place: Path) -> None:
        jvm: Any = self._spark._jvm
        jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()

    def merge(self, place: Path, source: DataFrame, strategy: Strategy) -> None:
        self._statement(f"delta.`{place}/table`", strategy)

    def table(self, place: Path) -> DataFrame:
        return self._spark.read.format("delta").load(f"{place}/table")


class _Iceberg(_OnSpark):
    jars = "iceberg-spark-runtime"

    def __init__(self) -> None:
        extensions = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
        super().__init__(**{"spark.sql.extensions": extensions})

    def make(self, files: Files, place: Path) -> None:
        link_tree(files.directory, place / "files")
        name = self._name(place)
        rows = self._spark.read.parquet(str(place / "files"))
        columns = ", ".join(
            f"{field.name} {field.dataType.simpleString()}" for field in rows.schema
        )
        hive = f"PARTITIONED BY ({PARTITION})" if files.layout.partitioned else ""
        self._spark.sql(f"CREATE TABLE {name} ({columns}) USING iceberg {hive}")
        catalog = name.partition(".")[0]
        self._spark.sql(
            f"CALL {catalog}.system.add_files("
            f"table => '{name.partition('.')[2]}', source_table => '`parquet`.`{place}/files`')"
        )

    def _name(self, place: Path) -> str:
        """The table's name in a catalog of its own; nothing is cached, the place is used again."""
        catalog = f"at_{place.name.replace('-', '_')}"
        key = f"spark.sql.catalog.{catalog}"
        self._spark.conf.set(key, "org.apache.iceberg.spark.SparkCatalog")
        self._spark.conf.set(f"{key}.type", "hadoop")
        self._spark.conf.set(f"{key}.warehouse", str(place / "warehouse"))
        self._spark.conf.set(f"{key}.cache-enabled", "false")
        return f"{catalog}.bench.rows"

    def merge(self, place: Path, source: DataFrame, strategy: Strategy) -> None:
        self._statement(self._name(place), strategy)

    def table(self, place: Path) -> DataFrame:
        return self._spark.table(self._name(place))


class _Hudi(_OnSpark):
    """Copy-on-write, one partition for each file, since Hudi looks for keys in partitions."""

    jars = "hudi-spark"

    def __init__(self) -> None:
        super().__init__(
            **{
                "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
                "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
                "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
                "spark.sql.catalog.spark_catalog": (
                    "org.apache.spark.sql.hudi.catalog.HoodieCatalog"
                ),
                # A MERGE that only inserts inserts keys that are there already, unless told.
                "spark.hoodie.merge.allow.duplicate.on.inserts": "false",
                # It has no timestamps without a time zone.
                "spark.sql.parquet.inferTimestampNTZ.enabled": "false",
            }
        )

    def make(self, files: Files, place: Path) -> None:
        rows = self._spark.read.parquet(str(files.directory))
        options = {
            "hoodie.table.name": "hudi_rows",
            "hoodie.datasource.write.operation": "bulk_insert",
            "hoodie.datasource.write.recordkey.field": KEY,
            "hoodie.datasource.write.partitionpath.field": PARTITION,
            "hoodie.bulkinsert.shuffle.parallelism": str(min(files.layout.files, 64)),
        }
        writer = rows.write.format("hudi").options(**options)
        writer.mode("overwrite").save(f"{place}/table")

    def prepare(self, place: Path) -> None:
        self._spark.sql("DROP TABLE IF EXISTS hudi_rows")
        self._spark.sql(f"CREATE TABLE hudi_rows USING hudi LOCATION '{place}/table'")

    def merge(self, place: Path, source: DataFrame, strategy: Strategy) -> None:
        self._statement("hudi_rows", strategy)

    def table(self, place: Path) -> DataFrame:
        rows = self._spark.read.format("hudi").load(f"{place}/table")
        return rows.select([name for name in rows.columns if not name.startswith("_hoodie")])


class _Overwrite(_OnSpark):
    """Plain Parquet in one partition for each file; those that the source names are replaced."""

    def make(self, files: Files, place: Path) -> None:
        rows = self._spark.read.parquet(str(files.directory))
        rows.repartition(PARTITION).write.partitionBy(PARTITION).parquet(f"{place}/table")

    def merge(self, place: Path, source: DataFrame, strategy: Strategy) -> None:
        named = [row[0] for row in source.select(PARTITION).distinct().collect()]
        table = self.table(place)
        old = table.where(table[PARTITION].isin(named)).select(source.columns)
        if strategy == "upsert":
            old = old.join(source, KEY, "left_anti").select(source.columns)
        else:
            source = source.join(old, KEY, "left_anti").select(source.columns)
        merged = old.unionByName(source).repartition(PARTITION)
        writer = merged.write.option("partitionOverwriteMode", "dynamic").mode("overwrite")
        writer.partitionBy(PARTITION).parquet(f"{place}/table")

    def table(self, place: Path) -> DataFrame:
        return self._spark.read.parquet(f"{place}/table")


def fsspeckit() -> _Fsspeckit:
    """This package."""
    return _Fsspeckit()


def delta() -> _Delta:
    """Delta Lake."""
    return _Delta()


def iceberg() -> _Iceberg:
    """Apache Iceberg."""
    return _Iceberg()


def hudi() -> _Hudi:
    """Apache Hudi."""
    return _Hudi()


def overwrite() -> _Overwrite:
    """Spark's own join and dynamic partition overwrite."""
    return _Overwrite()
