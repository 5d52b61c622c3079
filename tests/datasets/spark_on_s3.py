"""A process with a Spark session of its own, which merges into a dataset on S3 and prints its rows.

Started as ``python -m tests.datasets.spark_on_s3``, with its request on standard input. The jars
on Spark's class path are part of the request: they cannot be changed while the JVM runs.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from pyspark.sql import SparkSession

from fsspeckit.datasets.spark import SparkDatasetIO, SparkLimits

WAYS = {"driver": SparkLimits(), "tasks": SparkLimits(driver_max_files=0)}
"""Where the data of a merge is read and written."""


def session(settings: dict[str, str]) -> SparkSession:
    """Start a session with settings of S3A."""
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    for name, value in {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        "spark.log.level": "ERROR",
        **settings,
    }.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def rows_of(frame: Any) -> list[list[Any]]:
    return sorted([row.id, row.v] for row in frame.collect())


def read_by_spark(spark: SparkSession, path: str) -> list[list[Any]] | str:
    """What Spark itself reads, or its error."""
    try:
        return rows_of(spark.read.parquet(path))
    except Exception as error:  # of the JVM, whose classes the client does not know
        return str(error)


def merged(spark: SparkSession, path: str, limits: SparkLimits) -> dict[str, Any]:
    """Merge into a new dataset, and read it in both ways."""
    io = SparkDatasetIO(spark, limits=limits)
    old = spark.createDataFrame([(key, "old") for key in range(40)], "id long, v string")
    io.write_dataset(old, path, max_rows_per_file=10)
    # The source is a dataset on S3, too.
    new = spark.createDataFrame([(key, "new") for key in (3, 25, 100)], "id long, v string")
    io.write_dataset(new, f"{path}-changes")
    result = io.merge(f"{path}-changes", path, "upsert", ["id"])
    return {
        "updated": result.updated,
        "inserted": result.inserted,
        "ours": rows_of(io.read_dataset(path)),
        "spark": read_by_spark(spark, path),
    }


def main() -> None:
    request = json.load(sys.stdin)
    spark = session(request["settings"])
    found = {way: merged(spark, f"{request['path']}/{way}", WAYS[way]) for way in WAYS}
    spark.stop()
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
