"""A streaming query in a process of its own, which may be killed at any moment.

Started as ``python -m tests.datasets.stream_job '<json>'``. It applies the files of a landing
directory batch by batch, and quarantines bad rows, until it is killed or, if asked to, until all
files are applied.
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from fsspeckit.testing import landing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

Sink = Literal["foreachBatch", "format"]


@dataclass(frozen=True)
class StreamJob:
    """A query: where its files land, where its rows go, and who runs it."""

    directory: str
    """Where everything else is."""

    sink: Sink
    settings: dict[str, str] = field(default_factory=dict)
    """Of the session; ``spark.remote`` for that of a Connect server."""

    max_files: int = 4
    ends: bool = False
    """Whether it ends once everything that has landed is applied."""

    @property
    def landing(self) -> Path:
        return Path(self.directory, "landing")

    @property
    def path(self) -> Path:
        return Path(self.directory, "orders")

    @property
    def quarantine(self) -> Path:
        return Path(self.directory, "quarantine")

    @property
    def checkpoint(self) -> Path:
        return Path(self.directory, "checkpoint")

    @property
    def notes(self) -> Path:
        """What this job and those who kill it say to each other."""
        return Path(self.directory, "notes")

    def run(self) -> None:
        """Start the query, write that down, and stay with it until it ends."""
        query = self.start(self.session())
        (self.notes / "started").touch()
        query.awaitTermination()

    def session(self) -> SparkSession:
        from pyspark.sql import SparkSession

        os.environ["PYSPARK_PYTHON"] = sys.executable
        if url := self.settings.get("spark.remote"):
            from pyspark.sql.connect.session import SparkSession as ConnectSession

            remote: Any = ConnectSession.builder.remote(url).create()
            return remote  # type: ignore[no-any-return]
        builder = SparkSession.builder.appName("orders")
        for name, value in self.settings.items():
            builder = builder.config(name, value)
        return builder.getOrCreate()

    def start(self, spark: SparkSession) -> StreamingQuery:
        files = spark.readStream.schema(landing.SPARK_SCHEMA)
        orders = files.option("maxFilesPerTrigger", self.max_files).json(str(self.landing))
        writer = self.into_sink(orders).option("checkpointLocation", str(self.checkpoint))
        return (writer.trigger(availableNow=True) if self.ends else writer).start()

    def into_sink(self, orders: DataFrame) -> DataStreamWriter:
        if self.sink == "format":
            return orders.writeStream.format("fsspeckit").options(**self.options())
        from fsspeckit import ApplyChangesSink

        sink = ApplyChangesSink(
            str(self.path),
            landing.KEYS,
            landing.SEQUENCE_BY,
            landing.APPLY_AS_DELETES,
            except_column_list=landing.NOT_STORED,
            partition_by="day",
            expect=landing.EXPECT,
            on_violation="quarantine",
            quarantine=str(self.quarantine),
        )
        return orders.writeStream.foreachBatch(HeldSink(sink, str(self.notes)))

    def options(self) -> dict[str, str]:
        return {
            "path": str(self.path),
            "keys": ",".join(landing.KEYS),
            "sequenceBy": landing.SEQUENCE_BY,
            "applyAsDeletes": landing.APPLY_AS_DELETES,
            "exceptColumnList": ",".join(landing.NOT_STORED),
            "partitionBy": "day",
            "expect": json.dumps(landing.EXPECT),
            "onViolation": "quarantine",
            "quarantine": str(self.quarantine),
        }


@dataclass(frozen=True)
class HeldSink:
    """A sink that does not return while there is a note ``hold``.

    So the query stays between the commit of the sink and the checkpoint of Spark. On Connect it is
    pickled by value, since its module is the program, and runs on the server.
    """

    sink: Any
    notes: str

    def __call__(self, batch: DataFrame, number: int) -> None:
        self.sink(batch, number)
        while os.path.exists(f"{self.notes}/hold"):
            Path(self.notes, "held").touch()
            time.sleep(0.02)


if __name__ == "__main__":
    StreamJob(**json.loads(sys.argv[1])).run()
