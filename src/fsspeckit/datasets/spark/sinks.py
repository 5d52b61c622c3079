"""Sinks of streams: each micro-batch is one commit, applied once.

An instance is the function that ``foreachBatch`` takes. On a classic session it is called in this
process. On Connect it is pickled, and called in a process that the server starts for the query.
"""

from __future__ import annotations

import logging
import os
import pickle
import sys
from collections.abc import Mapping
from types import FunctionType
from typing import TYPE_CHECKING, Any, Literal

from pyspark import cloudpickle
from pyspark.sql import DataFrame

import fsspeckit
from fsspeckit.core.expectations import parse_expectations
from fsspeckit.core.merge import MergeStrategy
from fsspeckit.datasets.batches import BatchTarget, commit_batch
from fsspeckit.datasets.pipeline import DEFAULT_RETENTION
from fsspeckit.datasets.spark.gates import FrameGate, violated
from fsspeckit.datasets.spark.limits import DEFAULT_LIMITS, SparkLimits
from fsspeckit.datasets.spark.queries import StartedQueries, find_query, is_worker_of_server
from fsspeckit.datasets.spark.session import Jobs
from fsspeckit.errors import InvalidArgumentError
from fsspeckit.storage import Transaction

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

    import pyarrow as pa
    import pyarrow.compute as pc

    from fsspeckit.core.expectations import Action
    from fsspeckit.core.keys import DuplicatePolicy, NullPolicy
    from fsspeckit.datasets.batches import BatchCall, BatchResult
    from fsspeckit.datasets.pipeline import PartitionChange

__all__ = ["ApplyChangesSink", "MergeSink"]

METRICS = "fsspeckit"
"""The name of the metrics that :meth:`Sink.observe` adds to the progress of a query."""


class Sink:
    """What all sinks share: how a batch is committed, observed and sent to a server."""

    def __init__(
        self,
        call: BatchCall,
        path: str | os.PathLike[str],
        arguments: Mapping[str, Any],
        gates: Mapping[str, Any],
        opening: Mapping[str, Any],
        app: str | None,
    ) -> None:
        is_local = opening["filesystem"] is None
        expectations = parse_expectations(gates["expect"], gates["on_violation"])
        quarantine = _absolute(gates["quarantine"], is_local)
        self._target = BatchTarget(
            _absolute(path, is_local), call, dict(arguments), expectations, quarantine
        )
        self._opening = _checked_opening(opening, is_local)
        self._app = _checked_app(app)
        self._started: StartedQueries | None = None
        self._last_result: BatchResult | None = None

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Commit one micro-batch; Spark calls it.

        Args:
            batch: The rows.
            batch_id: The number of the batch, which is the version of the transaction.
        """
        # The package imports this module.
        from fsspeckit.datasets.spark import SparkDatasetIO

        transaction = self._transaction(batch, batch_id)
        if is_worker_of_server():
            log_to_server()
        io = SparkDatasetIO(batch.sparkSession, **self._opening)
        with FrameGate(io.jobs.functions, self._target.expectations, transaction) as check:
            self._last_result = commit_batch(io, self._target, batch, check, transaction)

    def _transaction(self, batch: DataFrame, batch_id: int) -> Transaction:
        if not isinstance(batch, DataFrame):
            raise InvalidArgumentError(
                f"{type(self).__name__} takes the DataFrame of a micro-batch and its number, got "
                f"a {type(batch).__name__}.\n"
                f"Hint: pass the sink itself: writeStream.foreachBatch({type(self).__name__}(...))."
            )
        query = find_query(batch, self._started)
        application = query if self._app is None else self._app
        if application is None:
            raise InvalidArgumentError(
                f"{type(self).__name__} was called outside of a streaming query, so nothing says "
                "which batch of which feed this is.\n"
                "Hint: pass it to writeStream.foreachBatch(), or name the feed with app=; to "
                "apply a single data frame call fsspeckit.merge() or fsspeckit.apply_changes().",
                argument="app",
            )
        return Transaction(application, batch_id, query)

    @property
    def last_result(self) -> BatchResult | None:
        """What became of the last batch.

        None before the first one, and on Connect, where batches run in a process of the server.
        """
        return self._last_result

    def observe(self, stream: DataFrame) -> DataFrame:
        """Return the stream with metrics for the progress of its query.

        ``StreamingQuery.lastProgress`` then has, in ``observedMetrics`` under ``fsspeckit``, the
        ``rows`` of the batch, its ``deletes``, and ``violations of`` each expectation. What became
        of the rows is not there, because Spark observes what goes into a sink.

        Args:
            stream: The stream, just before ``writeStream``.

        Examples:
            >>> sink = MergeSink("orders", "id", expect={"valid amount": "amount >= 0"})
            >>> sink.observe(stream).writeStream.foreachBatch(sink)  # doctest: +SKIP
        """
        sql = Jobs(stream.sparkSession).functions
        metrics = {"rows": sql.count(sql.lit(1))}
        if (deletes := self._deletes(sql)) is not None:
            metrics["deletes"] = sql.count_if(deletes)
        for each in self._target.expectations:
            metrics[f"violations of {each.name}"] = sql.count_if(violated(sql, each.predicate))
        return stream.observe(METRICS, *(value.alias(name) for name, value in metrics.items()))

    def _deletes(self, functions: Any) -> Any:
        """Return whether a row deletes, as a column; None if none does."""
        raise NotImplementedError

    def __repr__(self) -> str:
        # Without what opens the filesystem: it may have credentials.
        return f"{type(self).__name__}({self._target.path!r}, app={self._app!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle so that a process without this package fails with a message that says so."""
        parts = (type(self), self._target, self._opening, self._app)
        payload = cloudpickle.dumps(parts)
        call = _PickledCall(_by_value(_unpack), payload, fsspeckit.__version__)
        return pickle.loads, (cloudpickle.dumps(call),)

    @classmethod
    def _restore(cls, target: BatchTarget, opening: Mapping[str, Any], app: str | None) -> Sink:
        sink = cls.__new__(cls)
        sink._target, sink._opening, sink._app = target, opening, app
        sink._last_result = None
        sink._started = StartedQueries.since_now()
        return sink


class MergeSink(Sink):
    """Merges each micro-batch of a stream into a dataset, once.

    An instance is the function that ``foreachBatch`` takes, on classic sessions and on Connect. A
    batch is one commit, in a transaction of the streaming query: a batch that Spark repeats,
    because the driver died before it could note in the checkpoint that the batch is done, is
    skipped.

    Args:
        path: The dataset's directory, path or URL. A relative path is made absolute now.
        key_columns: The key columns.
        strategy: ``insert``, ``update``, ``upsert``, ``deduplicate`` or ``delete``, as for
            :meth:`~fsspeckit.datasets.base.DatasetIO.merge`, which also explains the arguments that
            are not explained here.
        delete_when: The boolean column that is true in rows that delete their key.
        only_newer: The column that has to be greater than in the row that is replaced.
        order_by: Of rows of one batch with one key keep the one with the greatest value of these
            columns.
        duplicate_keys: What to do with a key that occurs twice in a batch.
        null_keys: What to do with NULL in a key.
        partition_by: The hive partition columns of a new dataset.
        partition_change: What to do with a row whose source row belongs to another partition.
        trust_partitions: Do not look for keys in partitions that the batch has no rows for.
        schema: The schema that the rows are converted to first.
        compression: The codec of new files.
        max_rows_per_file: No new file gets more rows.
        row_group_size: No new row group gets more rows.
        bloom_columns: The columns that get bloom filters in new files.
        key_index: Whether the dataset gets or loses a key index.
        max_rewrite_fraction: Refuse to rewrite more than this share of the target's bytes.
        max_rewrite_bytes: Refuse to rewrite files of more bytes than this.
        app: The name of the feed, if it has to survive a new checkpoint; by default the id of the
            streaming query, which is stored in the checkpoint. With a name, a batch of a new
            checkpoint is refused if its number is not new.
        expect: Quality gates: by name, a predicate as Spark SQL, or a pair of the predicate and its
            action. A row violates an expectation if the predicate is false or NULL.
        on_violation: The action of expectations that do not name their own: ``"warn"`` counts the
            row and keeps it, ``"drop"`` leaves it out, ``"fail"`` refuses the batch and with it
            ends the query, ``"quarantine"`` appends the row to the dataset ``quarantine``.
        quarantine: The path of that dataset; one of its own for each sink.
        filesystem: An fsspec or pyarrow filesystem for the paths; None to find it from each path.
        storage_options: What fsspec needs to open the filesystem of a URL.
        control_dir: Where staging, records and lock live, if not beside the dataset.
        lock_timeout: How many seconds to wait for another writer.
        limits: How large the work of the driver and of each task may be.

    Raises:
        ValueError: If an argument is invalid.

    Examples:
        >>> sink = MergeSink("orders", "id", only_newer="updated_at")
        >>> query = (
        ...     stream.writeStream.foreachBatch(sink)
        ...     .option("checkpointLocation", "checkpoints/orders")
        ...     .trigger(availableNow=True)
        ...     .start()
        ... )  # doctest: +SKIP
    """

    def __init__(  # noqa: PLR0913 - the arguments of ``merge``
        self,
        path: str | os.PathLike[str],
        key_columns: str | Sequence[str],
        strategy: str = "upsert",
        *,
        delete_when: str | None = None,
        only_newer: str | None = None,
        order_by: str | Sequence[str] | None = None,
        duplicate_keys: DuplicatePolicy = "error",
        null_keys: NullPolicy = "error",
        partition_by: str | Sequence[str] | None = None,
        partition_change: PartitionChange = "refuse",
        trust_partitions: bool = False,
        schema: pa.Schema | None = None,
        compression: str | None = "snappy",
        max_rows_per_file: int | None = 5_000_000,
        row_group_size: int | None = 500_000,
        bloom_columns: str | Sequence[str] | None = None,
        key_index: bool | None = None,
        max_rewrite_fraction: float | None = None,
        max_rewrite_bytes: int | None = None,
        app: str | None = None,
        expect: Mapping[str, Any] | None = None,
        on_violation: Action = "warn",
        quarantine: str | os.PathLike[str] | None = None,
        filesystem: Any = None,
        storage_options: Mapping[str, Any] | None = None,
        control_dir: str | os.PathLike[str] | None = None,
        lock_timeout: float = 30.0,
        limits: SparkLimits = DEFAULT_LIMITS,
    ) -> None:
        if MergeStrategy.of(strategy) is MergeStrategy.FULL_MERGE:
            raise InvalidArgumentError(
                "full_merge deletes the rows that a source does not have, and a batch of a stream "
                "is only a part of the source.\n"
                "Hint: use upsert, with delete_when= for rows that delete.",
                argument="strategy",
            )
        super().__init__(
            "merge",
            path,
            {
                "key_columns": key_columns,
                "strategy": strategy,
                "delete_when": delete_when,
                "only_newer": only_newer,
                "order_by": order_by,
                "duplicate_keys": duplicate_keys,
                "null_keys": null_keys,
                "partition_by": partition_by,
                "partition_change": partition_change,
                "trust_partitions": trust_partitions,
                "schema": schema,
                "compression": compression,
                "max_rows_per_file": max_rows_per_file,
                "row_group_size": row_group_size,
                "bloom_columns": bloom_columns,
                "key_index": key_index,
                "max_rewrite_fraction": max_rewrite_fraction,
                "max_rewrite_bytes": max_rewrite_bytes,
            },
            {"expect": expect, "on_violation": on_violation, "quarantine": quarantine},
            {
                "filesystem": filesystem,
                "storage_options": storage_options,
                "control_dir": control_dir,
                "lock_timeout": lock_timeout,
                "limits": limits,
            },
            app,
        )

    def _deletes(self, functions: Any) -> Any:
        column = self._target.arguments["delete_when"]
        if column is not None:
            quoted = column.replace("`", "``")
            return functions.col(f"`{quoted}`")
        is_delete = self._target.arguments["strategy"] == MergeStrategy.DELETE
        return functions.lit(True) if is_delete else None


class ApplyChangesSink(Sink):
    """Applies each micro-batch of a change feed to a dataset, once, in whatever order changes come.

    An instance is the function that ``foreachBatch`` takes, as :class:`MergeSink`. The names of the
    arguments are those of Spark's AUTO CDC; they are explained at
    :meth:`~fsspeckit.datasets.base.DatasetIO.apply_changes`.

    Args:
        path: The dataset's directory, path or URL. A relative path is made absolute now.
        keys: The columns that identify a row.
        sequence_by: The column that orders the changes of a key.
        apply_as_deletes: Which changes delete, as SQL text.
        except_column_list: Columns of the changes that are not stored.
        column_list: The columns that are stored, if not all.
        stored_as_scd_type: 1 keeps the last version of each row, 2 keeps every version.
        tombstone_retention: How long a deleted key is remembered for changes that are late.
        partition_by: The hive partition columns of a new dataset.
        partition_change: What to do with a row whose change belongs to another partition.
        schema: The schema that the changes are converted to first.
        compression: The codec of new files.
        max_rows_per_file: No new file gets more rows.
        row_group_size: No new row group gets more rows.
        bloom_columns: The columns that get bloom filters in new files.
        key_index: Whether the dataset gets or loses a key index.
        max_rewrite_fraction: Refuse to rewrite more than this share of the target's bytes.
        max_rewrite_bytes: Refuse to rewrite files of more bytes than this.
        app: As for :class:`MergeSink`, like all others.
        expect: Quality gates, which check changes that delete like any other.
        on_violation: The action of expectations that do not name their own.
        quarantine: The dataset of rows that are set apart.
        filesystem: An fsspec or pyarrow filesystem for the paths.
        storage_options: What fsspec needs to open the filesystem of a URL.
        control_dir: Where staging, records and lock live, if not beside the dataset.
        lock_timeout: How many seconds to wait for another writer.
        limits: How large the work of the driver and of each task may be.

    Raises:
        ValueError: If an argument is invalid.

    Examples:
        >>> sink = ApplyChangesSink(
        ...     "orders", "id", "seq", "op = 'd'", except_column_list="op", stored_as_scd_type=2
        ... )
        >>> stream.writeStream.foreachBatch(sink)  # doctest: +SKIP
    """

    def __init__(  # noqa: PLR0913 - the arguments of ``apply_changes``
        self,
        path: str | os.PathLike[str],
        keys: str | Sequence[str],
        sequence_by: str,
        apply_as_deletes: str | pc.Expression | None = None,
        *,
        except_column_list: str | Sequence[str] | None = None,
        column_list: str | Sequence[str] | None = None,
        stored_as_scd_type: Literal[1, 2, "1", "2"] = 1,
        tombstone_retention: timedelta = DEFAULT_RETENTION,
        partition_by: str | Sequence[str] | None = None,
        partition_change: PartitionChange = "refuse",
        schema: pa.Schema | None = None,
        compression: str | None = "snappy",
        max_rows_per_file: int | None = 5_000_000,
        row_group_size: int | None = 500_000,
        bloom_columns: str | Sequence[str] | None = None,
        key_index: bool | None = None,
        max_rewrite_fraction: float | None = None,
        max_rewrite_bytes: int | None = None,
        app: str | None = None,
        expect: Mapping[str, Any] | None = None,
        on_violation: Action = "warn",
        quarantine: str | os.PathLike[str] | None = None,
        filesystem: Any = None,
        storage_options: Mapping[str, Any] | None = None,
        control_dir: str | os.PathLike[str] | None = None,
        lock_timeout: float = 30.0,
        limits: SparkLimits = DEFAULT_LIMITS,
    ) -> None:
        super().__init__(
            "apply_changes",
            path,
            {
                "keys": keys,
                "sequence_by": sequence_by,
                "apply_as_deletes": apply_as_deletes,
                "except_column_list": except_column_list,
                "column_list": column_list,
                "stored_as_scd_type": stored_as_scd_type,
                "tombstone_retention": tombstone_retention,
                "partition_by": partition_by,
                "partition_change": partition_change,
                "schema": schema,
                "compression": compression,
                "max_rows_per_file": max_rows_per_file,
                "row_group_size": row_group_size,
                "bloom_columns": bloom_columns,
                "key_index": key_index,
                "max_rewrite_fraction": max_rewrite_fraction,
                "max_rewrite_bytes": max_rewrite_bytes,
            },
            {"expect": expect, "on_violation": on_violation, "quarantine": quarantine},
            {
                "filesystem": filesystem,
                "storage_options": storage_options,
                "control_dir": control_dir,
                "lock_timeout": lock_timeout,
                "limits": limits,
            },
            app,
        )

    def _deletes(self, functions: Any) -> Any:
        condition = self._target.arguments["apply_as_deletes"]
        return functions.expr(condition) if isinstance(condition, str) else None


# Arguments that all sinks have


def _absolute(path: Any, is_local: bool) -> Any:
    """Return a path that means the same in a process of a server, whose directory is another."""
    if isinstance(path, os.PathLike):
        path = os.fspath(path)
    if is_local and isinstance(path, str) and path and "://" not in path:
        return os.path.abspath(path)
    return path


def _checked_opening(opening: Mapping[str, Any], is_local: bool) -> dict[str, Any]:
    options = opening["storage_options"]
    if options is not None and not isinstance(options, Mapping):
        raise InvalidArgumentError(
            "storage_options must be a mapping of names to values, got a "
            f"{type(options).__name__}.",
            argument="storage_options",
        )
    if not isinstance(opening["limits"], SparkLimits):
        raise InvalidArgumentError(
            f"limits must be SparkLimits, got {opening['limits']!r}.", argument="limits"
        )
    return {**opening, "control_dir": _absolute(opening["control_dir"], is_local)}


def _checked_app(app: Any) -> str | None:
    if app is None:
        return None
    try:
        return Transaction(app, 0).application
    except InvalidArgumentError:
        raise InvalidArgumentError(
            f"app must be the name of a feed, a text of printable characters, got {app!r}.\n"
            'Hint: pass a name such as "orders-feed", or leave it out to use the id of the query.',
            argument="app",
        ) from None


# How a sink gets to a server


class _PickledCall:
    """Something that is unpickled by a call."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self._call = (function, arguments)

    def __reduce__(self) -> tuple[Any, ...]:
        return self._call


def _by_value(function: FunctionType) -> FunctionType:
    """Return a function that is pickled with its code, and not by its name in a module."""
    copied = FunctionType(function.__code__, {}, function.__name__)
    copied.__module__ = "__main__"
    return copied


def _unpack(payload: bytes, version: str) -> Any:
    """Unpickle a sink, or say what its process lacks; it imports everything that it uses."""
    import pickle
    import sys

    hint = (
        "\nHint: the sink runs in the Python that the Spark Connect server starts. Run "
        f"'{sys.executable} -m pip install fsspeckit=={version}' on the machine of the server, or "
        "start the server with a PYSPARK_PYTHON that has it. What addArtifacts() sends does not "
        "reach this process."
    )
    try:
        import fsspeckit

        if fsspeckit.__version__ != version:
            raise ImportError(
                f"the Spark Connect server has fsspeckit {fsspeckit.__version__}, and the client "
                f"that made the sink has {version}.{hint}"
            )
        kind, *parts = pickle.loads(payload)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"the Python of the Spark Connect server has no module {error.name!r}.{hint}",
            name=error.name,
        ) from None
    return kind._restore(*parts)


def log_to_server() -> None:
    """Write log lines to the log of the server, unless this process has its own settings."""
    log = logging.getLogger("fsspeckit")
    if not log.hasHandlers():
        handler = logging.StreamHandler(sys.stderr)
        handler.addFilter(lambda record: record.name == log.name)  # not what each job does
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        log.addHandler(handler)
        log.setLevel(logging.INFO)
