"""The data source of Spark: ``df.write.format("fsspeckit")``, streams, and sinks of pipelines.

Tasks write their rows as Parquet into the control directory of the dataset. When all have ended,
Spark calls ``commit`` in a Python process of the driver that has no session. It merges the files
that the messages of successful tasks name: in one process, or on a Connect server.
"""

from __future__ import annotations

import logging
import os
import sys
import uuid
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow.dataset as ds
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from fsspeckit.core.arrow_compat import check_storable, open_data_file
from fsspeckit.core.conditions import Condition
from fsspeckit.datasets.batches import check_arrow, commit_batch
from fsspeckit.datasets.pipeline import SourcePath, check_unique_names
from fsspeckit.datasets.spark.data_source_options import DataSourceOptions
from fsspeckit.datasets.spark.gates import FrameGate
from fsspeckit.datasets.spark.session import all_nullable, arrow_schema, check_types
from fsspeckit.datasets.spark.source import fit_batch, write_batches
from fsspeckit.display import log_to_stream
from fsspeckit.errors import FsspeckitError, InvalidArgumentError
from fsspeckit.storage import IncomingBatch, Transaction, arrow_filesystem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from fsspeckit.datasets.batches import CheckedBatch
    from fsspeckit.storage import Root

    Messages = Sequence[WriterCommitMessage | None]

__all__ = [
    "BatchWriter",
    "DataSourceOptions",
    "StreamWriter",
    "WrittenRows",
    "refuse_reading",
]

_QUERY = "sql.streaming.queryId"
_BATCH = "streaming.sql.batchId"
_LOCAL_REMOTE = "SPARK_LOCAL_REMOTE"
logger = logging.getLogger("fsspeckit")


@dataclass(frozen=True)
class WrittenRows(WriterCommitMessage):
    """What a task has written."""

    path: str | None
    """The file in the control directory; None if there were no rows."""

    rows: int
    query: str
    batch: int


class _Writer:
    """What writers of batches and of streams share; Spark pickles it for tasks and commits.

    Args:
        options: What the user wants.
        schema: The columns of the rows.
        overwrite: Whether the save mode is overwrite, or the output mode complete.
        streaming: Whether it writes a stream.

    Raises:
        InvalidArgumentError: If an option does not fit the mode or the columns.
        SchemaMismatchError: If a column cannot be stored.
    """

    def __init__(
        self, options: DataSourceOptions, schema: StructType, overwrite: bool, *, streaming: bool
    ) -> None:
        self._options = options
        self._target = options.target(overwrite=overwrite, streaming=streaming)
        self._frame = all_nullable(schema)
        self._schema = storable_schema(self._frame)
        self._check()

    def _check(self) -> None:
        """Refuse what would only fail when tasks have written their rows."""
        self._options.check_columns(self._schema.names)
        empty = self._schema.empty_table()
        if self._options.remote is None:
            check_arrow(empty, self._target.expectations)
        deletes = self._target.arguments.get("apply_as_deletes")
        if deletes is not None:
            Condition.of(deletes, self._schema, "apply_as_deletes")

    def _incoming(self, query: str, batch: int) -> IncomingBatch:
        return IncomingBatch(self._options.storage(), query, batch)

    def receive(self, batches: Iterator[pa.RecordBatch], query: str, batch: int) -> WrittenRows:
        """Write the rows of a task into a file of its own."""
        incoming = self._incoming(query, batch)
        path = incoming.new_file(_attempt())
        fitted = (fit_batch(each, self._schema, self._schema) for each in batches)
        try:
            sizes, _ = write_batches(lambda: incoming.open(path), self._schema, fitted)
        except BaseException:
            with suppress(OSError):
                incoming.discard_files([path])
            raise
        return WrittenRows(path if sizes else None, sum(sizes), query, batch)

    def _commit(
        self,
        written: Sequence[WrittenRows],
        transaction: Transaction | None,
        incoming: IncomingBatch,
    ) -> None:
        """Merge the files that messages name, then remove what the batch has received."""
        _log_to_driver(self._options.log_level)
        paths = [one.path for one in written if one.path is not None]
        commit = self._commit_here if self._options.remote is None else self._commit_with_spark
        rows = sum(one.rows for one in written)
        try:
            commit(paths, incoming.storage.root, transaction, lambda: rows)
        except FileNotFoundError as error:
            incoming.check_files(paths)
            raise error
        incoming.discard()

    def _commit_here(
        self,
        paths: Sequence[str],
        root: Root,
        transaction: Transaction | None,
        count: Callable[[], int],
    ) -> None:
        """Merge in this process."""

        def check(_: Any) -> CheckedBatch:
            rows = self._schema.empty_table()
            if paths:
                where = arrow_filesystem(root)
                rows = ds.dataset(list(paths), self._schema, format="parquet", filesystem=where)
            return check_arrow(rows, self._target.expectations, transaction)

        with self._options.open_engine() as io:
            commit_batch(
                io, self._target, self._rows(paths, root), check, transaction, count_rows=count
            )

    def _commit_with_spark(
        self,
        paths: Sequence[str],
        root: Root,
        transaction: Transaction | None,
        count: Callable[[], int],
    ) -> None:
        """Merge on a Connect server; predicates are those of Spark."""
        from fsspeckit.datasets.spark import SparkDatasetIO

        options = self._options
        with _connected(str(options.remote)) as session:
            io = SparkDatasetIO(
                session,
                storage_options=options.storage_options,
                control_dir=options.control_dir,
                publish=options.publish,
                lock_timeout=options.lock_timeout,
            )
            if not self._target.expectations:
                rows = self._rows(paths, root)
                commit_batch(io, self._target, rows, None, transaction, count_rows=count)
                return
            frame = io.jobs.map_items_to_rows(_ReadIncoming(root), list(paths), self._frame)
            with FrameGate(io.jobs, self._target.expectations, transaction) as gate:
                commit_batch(io, self._target, frame, gate, transaction, count_rows=count)

    def _rows(self, paths: Sequence[str], root: Root) -> Any:
        """Return the rows as a source that need not be in memory."""
        return [SourcePath(path, root.filesystem) for path in paths] or self._schema.empty_table()


class BatchWriter(_Writer, DataSourceArrowWriter):
    """Writes the rows of ``df.write``."""

    def __init__(self, options: DataSourceOptions, schema: StructType, overwrite: bool) -> None:
        super().__init__(options, schema, overwrite, streaming=False)
        if options.app is not None and options.version is None:
            raise InvalidArgumentError(
                f"option 'app' is {options.app!r}, and option 'version' is missing: only a stream "
                'counts its batches.\nHint: .option("version", "17"), the number of this batch, or '
                "leave out both.",
                argument="version",
            )
        self._id = uuid.uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenRows:
        """Write the rows of one task; called in a Python worker."""
        return self.receive(iterator, self._id, 0)

    def commit(self, messages: Messages) -> None:
        """Merge the rows of all tasks."""
        options = self._options
        transaction = None
        if options.app is not None and options.version is not None:
            transaction = Transaction(options.app, options.version)
        self._commit(_written(messages), transaction, self._incoming(self._id, 0))

    def abort(self, messages: Messages) -> None:
        """Remove what the tasks have written."""
        self._incoming(self._id, 0).discard()


class StreamWriter(_Writer, DataSourceStreamArrowWriter):
    """Writes the batches of ``df.writeStream``, each of them once."""

    def __init__(self, options: DataSourceOptions, schema: StructType, overwrite: bool) -> None:
        super().__init__(options, schema, overwrite, streaming=True)
        if options.version is not None:
            raise InvalidArgumentError(
                "option 'version' is for batch writes: a stream counts its own batches.\n"
                "Hint: leave it out.",
                argument="version",
            )

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenRows:
        """Write the rows of one task; called in a Python worker."""
        context: Any = TaskContext.get()
        query, batch = (context.getLocalProperty(name) for name in (_QUERY, _BATCH))
        if query is None or batch is None:
            raise FsspeckitError(
                "Spark does not say which query and batch a task belongs to "
                f"({_QUERY} is {query!r}, {_BATCH} is {batch!r}), so batches could be applied "
                "twice.\nHint: use a streaming query with micro-batches."
            )
        return self.receive(iterator, query, int(batch))

    def commit(self, messages: Messages, batchId: int) -> None:
        """Merge the rows of a batch, unless it is committed already."""
        written = _written(messages)
        if not written:
            logger.info("batch %s has no tasks, and changes nothing", batchId)
            return
        query = written[0].query
        transaction = Transaction(self._options.app or query, batchId, run=query)
        self._commit(written, transaction, self._incoming(query, batchId))

    def abort(self, messages: Messages, batchId: int) -> None:
        """Remove what the messages name; the next commit of the query removes the rest."""
        written = _written(messages)
        if written:
            paths = [one.path for one in written if one.path is not None]
            self._incoming(written[0].query, batchId).discard_files(paths)


def _written(messages: Messages) -> list[WrittenRows]:
    """Return the messages of tasks that succeeded."""
    return [message for message in messages if isinstance(message, WrittenRows)]


def _attempt() -> str:
    """Name the attempt of a task, for people that look into the directory."""
    context: Any = TaskContext.get()
    return "part" if context is None else f"{context.partitionId()}-{context.attemptNumber()}"


@dataclass(frozen=True)
class _ReadIncoming:
    """Reads files that tasks have written, in a worker."""

    root: Root

    def __call__(self, path: str) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one file."""
        with open_data_file(self.root, path) as file:
            for number in range(file.num_row_groups):
                yield from file.read_row_group(number).to_batches()


@contextmanager
def _connected(url: str) -> Iterator[Any]:
    """Open a session of its own on a Connect server."""
    try:
        from pyspark.sql.connect.session import SparkSession

        session = SparkSession.builder.remote(url).create()
    except PySparkException as error:
        raise FsspeckitError(
            f"option 'remote': the Connect server does not answer: {error}.\n"
            "Hint: start it, or leave the option out to merge in one process."
        ) from error
    try:
        yield session
    finally:
        # Inherited from the process that has started the server, which a session stops with it.
        inherited = os.environ.pop(_LOCAL_REMOTE, None)
        session.stop()
        if inherited is not None:
            os.environ[_LOCAL_REMOTE] = inherited


def _log_to_driver(level: str) -> None:
    """Print log lines to standard error, which is that of the driver, if nobody else does."""
    wanted = logging.getLevelNamesMapping()[level.upper()]
    log_to_stream(sys.stderr, wanted)
    logger.setLevel(wanted)


def storable_schema(schema: StructType) -> pa.Schema:
    """Return Spark's columns in Arrow, instants in UTC.

    Raises:
        SchemaMismatchError: If a column has a type that plain Parquet does not have.
        InvalidArgumentError: If a name occurs twice.
    """
    check_types(schema, "variant", "interval", "geometry", "geography")
    found = arrow_schema(schema)
    check_unique_names(found.names)
    check_storable(found)
    return found


def refuse_reading(options: DataSourceOptions) -> InvalidArgumentError:
    """Return the error for a query that reads."""
    return InvalidArgumentError(
        f"format 'fsspeckit' writes, and does not read {options.path!r}.\n"
        "Hint: read it as what it is, spark.read.parquet(path); or with "
        "SparkDatasetIO(spark).read_dataset(path), which never sees half a commit. A temporary "
        "view that is written by INSERT INTO needs a list of its columns."
    )
