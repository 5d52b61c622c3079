"""Sinks of streams: each micro-batch is one commit, applied once.

An instance is the function that ``foreachBatch`` takes. On a classic session it is called in this
process. On Connect it is pickled, and called in a process that the server starts for the query.
"""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field, fields
from types import FunctionType
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pyspark import cloudpickle
from pyspark.sql import DataFrame

import fsspeckit
from fsspeckit.core.expectations import parse_expectations
from fsspeckit.core.merge import MergeStrategy
from fsspeckit.datasets.batches import BatchTarget, commit_batch
from fsspeckit.datasets.pipeline import DEFAULT_RETENTION, MergeOptions
from fsspeckit.datasets.spark.engine import check_order
from fsspeckit.datasets.spark.gates import FrameGate, check_predicates, violated
from fsspeckit.datasets.spark.limits import SparkLimits
from fsspeckit.datasets.spark.queries import (
    StartedQueries,
    find_query,
    find_run,
    is_worker_of_server,
)
from fsspeckit.datasets.spark.session import Jobs, absolute_path
from fsspeckit.display import log_to_stream
from fsspeckit.errors import InvalidArgumentError
from fsspeckit.storage import Transaction, check_lock_timeout, open_root, without_credentials

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import timedelta

    import pyarrow as pa
    import pyarrow.compute as pc

    from fsspeckit.core.expectations import Action
    from fsspeckit.core.keys import DuplicatePolicy, NullPolicy
    from fsspeckit.core.schema_changes import SchemaChanges
    from fsspeckit.datasets.batches import BatchCall, BatchResult
    from fsspeckit.datasets.pipeline import PartitionChange

__all__ = ["ApplyChangesSink", "MergeSink"]

METRICS = "fsspeckit"
"""The name of the metrics that :meth:`Sink.observe` adds to the progress of a query."""


_OPENING = ("filesystem", "storage_options", "control_dir", "lock_timeout", "limits")
_OF_EVERY_SINK = ("path", "app", "expect", "on_violation", "quarantine", *_OPENING)
_SCHEMELESS = ("path", "quarantine", "control_dir")
_last_batches: dict[tuple[str, str, str | None], int] = {}
"""By application, dataset and run of a query: the last batch that this process has applied."""


@dataclass(frozen=True, eq=False, repr=False)
class Sink:
    """What all sinks share: how a batch is committed, observed and sent to a server."""

    _call: ClassVar[BatchCall]

    path: str
    """The dataset's directory, path or URL. A relative path is made absolute when the sink is
    created."""

    _: KW_ONLY

    app: str | None = None
    """The name of the feed, if it has to survive a new checkpoint; by default the id of the
    streaming query, which is stored in the checkpoint. With a name, a batch of a new checkpoint is
    refused if its number is not new."""

    expect: Mapping[str, Any] | None = None
    """Quality gates: by name, a predicate as Spark SQL, or a pair of the predicate and its action.
    A row violates an expectation if the predicate is false or NULL; rows that delete are checked
    like any other."""

    on_violation: Action = "warn"
    """The action of expectations that do not name their own: ``"warn"`` counts the row and keeps
    it, ``"drop"`` leaves it out, ``"fail"`` refuses the batch and with it ends the query,
    ``"quarantine"`` appends the row to the dataset ``quarantine``."""

    quarantine: str | None = None
    """The path of that dataset; one of its own for each sink."""

    partition_by: str | Sequence[str] | None = None
    """The hive partition columns of a new dataset."""

    partition_change: PartitionChange = "refuse"
    """What to do with a row whose source row belongs to another partition: ``"refuse"`` or
    ``"move"``."""

    schema_changes: SchemaChanges = "refuse"
    """What a batch may change about columns: ``"refuse"`` any difference, ``"add"`` new ones, or
    also ``"widen"`` types that do not hold its values."""

    schema: pa.Schema | None = None
    """The schema that the rows are converted to first."""

    compression: str | None = "snappy"
    """The codec of new files."""

    max_rows_per_file: int | None = 5_000_000
    """No new file gets more rows."""

    row_group_size: int | None = 500_000
    """No new row group gets more rows."""

    bloom_columns: str | Sequence[str] | None = None
    """The columns that get bloom filters in new files."""

    key_index: bool | None = None
    """Whether the dataset gets or loses a key index."""

    max_rewrite_fraction: float | None = None
    """Refuse to rewrite more than this share of the target's bytes."""

    max_rewrite_bytes: int | None = None
    """Refuse to rewrite files of more bytes than this."""

    target_file_bytes: int | None = None
    """Append new rows to files below this size that are rewritten anyway."""

    auto_compact: bool = False
    """Compact partitions whose files a batch changed, once they have many small ones."""

    filesystem: Any = None
    """An fsspec or pyarrow filesystem for the paths; None to find it from each path."""

    storage_options: Mapping[str, Any] | None = None
    """What fsspec needs to open the filesystem of a URL."""

    control_dir: str | None = None
    """Where staging, records and lock live, if not beside the dataset."""

    lock_timeout: float = 30.0
    """How many seconds to wait for another writer."""

    limits: SparkLimits | None = None
    """How large the work of the driver and of each task may be; None for what suits the session."""

    _state: _State = field(init=False)

    def __post_init__(self) -> None:
        if self.filesystem is None:
            for name in _SCHEMELESS:
                object.__setattr__(self, name, _absolute(getattr(self, name)))
        _check_opening(self)
        check_lock_timeout(self.lock_timeout)
        if self.app is not None:
            _check_app(self.app)
        arguments = {
            each.name: getattr(self, each.name)
            for each in fields(self)
            if each.init and each.name not in _OF_EVERY_SINK
        }
        expectations = parse_expectations(self.expect, self.on_violation)
        target = BatchTarget(self.path, self._call, arguments, expectations, self.quarantine)
        object.__setattr__(self, "_state", _State(target))

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
        opening = {name: getattr(self, name) for name in _OPENING}
        io = SparkDatasetIO(batch.sparkSession, **opening)
        target = self._state.target
        with (
            self._applying(batch, transaction),
            FrameGate(io.jobs, target.expectations, transaction) as check,
        ):
            self._state.last_result = commit_batch(
                io, target, batch, check, transaction, count_rows=batch.count
            )

    @contextmanager
    def _applying(self, batch: DataFrame, transaction: Transaction) -> Iterator[None]:
        """Refuse a batch that a sink of the same run has applied to this dataset.

        Spark calls its function once for each batch of a run. So this is another sink, or another
        part of the batch, and it would be skipped as if it were repeated.
        """
        run = (transaction.application, self.path, find_run(batch))
        if _last_batches.get(run) == transaction.version:
            raise InvalidArgumentError(
                f"batch {transaction.version} of {transaction.application!r} was applied to "
                f"{without_credentials(self.path)!r} by this run already, and is a transaction: "
                "what another sink writes in it would be skipped.\n"
                "Hint: give each sink a name of its own with app=, or let one sink do both: with "
                "delete_when= a batch upserts and deletes.",
                argument="app",
            )
        yield
        _last_batches[run] = transaction.version

    def _transaction(self, batch: DataFrame, batch_id: int) -> Transaction:
        if not isinstance(batch, DataFrame):
            raise InvalidArgumentError(
                f"{type(self).__name__} takes the DataFrame of a micro-batch and its number, got "
                f"a {type(batch).__name__}.\n"
                f"Hint: pass the sink itself: writeStream.foreachBatch({type(self).__name__}(...))."
            )
        query = find_query(batch, self._state.started)
        if query is None:
            raise InvalidArgumentError(
                f"{type(self).__name__} was called outside of a streaming query, or in a thread "
                "that Spark did not start, so nothing says which batch of which query this is.\n"
                "Hint: pass it to foreachBatch of writeStream, or call it in the thread of your "
                "own function; to apply a single data frame call fsspeckit.merge() or "
                "fsspeckit.apply_changes(), which take a transaction=."
            )
        return Transaction(query if self.app is None else self.app, batch_id, query)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({without_credentials(self.path)!r}, app={self.app!r})"

    @property
    def last_result(self) -> BatchResult | None:
        """What became of the last batch.

        None before the first one, and on Connect, where batches run in a process of the server.
        """
        return self._state.last_result

    def observe(self, stream: DataFrame) -> DataFrame:
        """Return the stream with metrics for the progress of its query.

        ``StreamingQuery.lastProgress`` then has, in ``observedMetrics`` under ``fsspeckit``, the
        ``rows`` of the batch, its ``deletes``, and ``violations of`` each expectation. What became
        of the rows is not there, because Spark observes what goes into a sink.

        Args:
            stream: The stream, just before ``writeStream``.

        Raises:
            InvalidArgumentError: If a predicate does not fit the columns.

        Examples:
            >>> sink = MergeSink("orders", "id", expect={"valid amount": "amount >= 0"})
            >>> sink.observe(stream).writeStream.foreachBatch(sink)  # doctest: +SKIP
        """
        sql = Jobs(stream.sparkSession).functions
        check_predicates(sql, stream, self._state.target.expectations)
        metrics = {"rows": sql.count(sql.lit(1))}
        if (deletes := self._deletes(sql)) is not None:
            metrics["deletes"] = sql.count_if(deletes)
        for each in self._state.target.expectations:
            metrics[f"violations of {each.name}"] = sql.count_if(violated(sql, each.predicate))
        return stream.observe(METRICS, *(value.alias(name) for name, value in metrics.items()))

    def _deletes(self, functions: Any) -> Any:
        """Return whether a row deletes, as a column; None if none does."""
        raise NotImplementedError

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle so that a process without this package fails with a message that says so."""
        arguments = {each.name: getattr(self, each.name) for each in fields(self) if each.init}
        payload = _pickled((_restore, type(self), arguments))
        call = _PickledCall(_by_value(_unpack), payload, fsspeckit.__version__)
        return pickle.loads, (_pickled(call),)


@dataclass(eq=False)
class _State:
    """What a sink knows beside its arguments; it is not pickled."""

    target: BatchTarget
    started: StartedQueries | None = None
    last_result: BatchResult | None = None


@dataclass(frozen=True, eq=False, repr=False)
class MergeSink(Sink):
    """Merges each micro-batch of a stream into a dataset, once.

    An instance is the function that ``foreachBatch`` takes, on classic sessions and on Connect. A
    batch is one commit, in a transaction of the streaming query: a batch that Spark repeats,
    because the driver died before it could note in the checkpoint that the batch is done, is
    skipped. Arguments are checked when the sink is created; they mean what they mean for
    :meth:`~fsspeckit.datasets.base.DatasetIO.merge`.

    Examples:
        >>> sink = MergeSink("orders", "id", only_newer="updated_at")
        >>> query = (
        ...     stream.writeStream.foreachBatch(sink)
        ...     .option("checkpointLocation", "checkpoints/orders")
        ...     .trigger(availableNow=True)
        ...     .start()
        ... )  # doctest: +SKIP
    """

    _call = "merge"

    key_columns: str | Sequence[str]
    """The key columns: rows with equal keys are the same row."""

    strategy: str = "upsert"
    """``insert``, ``update``, ``upsert``, ``deduplicate`` or ``delete``."""

    _: KW_ONLY

    delete_when: str | None = None
    """The boolean column that is true in rows that delete their key."""

    only_newer: str | None = None
    """The column that has to be greater than in the row that is replaced."""

    order_by: str | Sequence[str] | None = None
    """Of rows of one batch with one key keep the one with the greatest value of these columns."""

    duplicate_keys: DuplicatePolicy = "error"
    """What to do with a key that occurs twice in a batch."""

    null_keys: NullPolicy = "error"
    """What to do with NULL in a key."""

    trust_partitions: bool = False
    """Do not look for keys in partitions that the batch has no rows for."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.strategy == MergeStrategy.FULL_MERGE:
            raise InvalidArgumentError(
                "full_merge deletes the rows that a source does not have, and a batch of a stream "
                "is only a part of the source.\n"
                "Hint: use upsert, with delete_when= for rows that delete.",
                argument="strategy",
            )
        options = self._state.target.options()
        assert isinstance(options, MergeOptions)
        check_order(options)

    def _deletes(self, functions: Any) -> Any:
        if self.delete_when is not None:
            quoted = self.delete_when.replace("`", "``")
            return functions.col(f"`{quoted}`")
        return functions.lit(True) if self.strategy == MergeStrategy.DELETE else None


@dataclass(frozen=True, eq=False, repr=False)
class ApplyChangesSink(Sink):
    """Applies each micro-batch of a change feed to a dataset, once, in whatever order changes come.

    An instance is the function that ``foreachBatch`` takes, as :class:`MergeSink`. The names of the
    arguments are those of Spark's AUTO CDC; they mean what they mean for
    :meth:`~fsspeckit.datasets.base.DatasetIO.apply_changes`.

    Examples:
        >>> sink = ApplyChangesSink(
        ...     "orders", "id", "seq", "op = 'd'", except_column_list="op", stored_as_scd_type=2
        ... )
        >>> stream.writeStream.foreachBatch(sink)  # doctest: +SKIP
    """

    _call = "apply_changes"

    keys: str | Sequence[str]
    """The columns that identify a row."""

    sequence_by: str
    """The column that orders the changes of a key."""

    apply_as_deletes: str | pc.Expression | None = None
    """Which changes delete, as SQL text or a pyarrow expression."""

    _: KW_ONLY

    except_column_list: str | Sequence[str] | None = None
    """Columns of the changes that are not stored."""

    column_list: str | Sequence[str] | None = None
    """The columns that are stored, if not all."""

    stored_as_scd_type: Literal[1, 2, "1", "2"] = 1
    """1 keeps the last version of each row, 2 keeps every version."""

    tombstone_retention: timedelta = DEFAULT_RETENTION
    """How long a deleted key is remembered, for changes that are late."""

    def _deletes(self, functions: Any) -> Any:
        condition = self.apply_as_deletes
        return functions.expr(condition) if isinstance(condition, str) else None


# Arguments that all sinks have


def _absolute(path: Any) -> Any:
    """Return a path that means the same in a process of a server, whose directory is another."""
    if isinstance(path, os.PathLike):
        path = os.fspath(path)
    return absolute_path(path) if isinstance(path, str) and path else path


def _check_opening(sink: Sink) -> None:
    """Check the arguments that open the dataset, as far as possible without opening it."""
    control: Any = sink.control_dir
    if not (control is None or (isinstance(control, str | os.PathLike) and os.fspath(control))):
        raise InvalidArgumentError(
            f"control_dir must be the path or URL of a directory, got {control!r}.",
            argument="control_dir",
        )
    if sink.filesystem is not None:
        open_root(sink.path, sink.filesystem)
    options: Any = sink.storage_options
    if not isinstance(options, Mapping | None):
        raise InvalidArgumentError(
            "storage_options must be a mapping of names to values, got a "
            f"{type(options).__name__}.",
            argument="storage_options",
        )
    if not isinstance(sink.limits, SparkLimits | None):
        raise InvalidArgumentError(
            f"limits must be SparkLimits, got {sink.limits!r}.", argument="limits"
        )


def _check_app(app: Any) -> None:
    try:
        Transaction(app, 0)
    except InvalidArgumentError:
        raise InvalidArgumentError(
            f"app must be the name of a feed, a text of printable characters, got {app!r}.\n"
            'Hint: pass a name such as "orders-feed", or leave it out to use the id of the query.',
            argument="app",
        ) from None


# How a sink gets to a server


def _pickled(value: Any) -> bytes:
    data: bytes = cloudpickle.dumps(value)  # type: ignore[no-untyped-call]
    return data


class _PickledCall:
    """Something that is unpickled by a call."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self._call = (function, arguments)

    def __reduce__(self) -> tuple[Any, ...]:
        return self._call


def _by_value(function: Any) -> FunctionType:
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
        f"'{sys.executable} -m pip install FILE' on the machine of the server, with the wheel of "
        f"fsspeckit {version} that the client has, or start the server with a PYSPARK_PYTHON that "
        "has it. What addArtifacts() sends does not reach this process."
    )
    try:
        import fsspeckit

        if fsspeckit.__version__ != version:
            raise ImportError(
                f"the Spark Connect server has fsspeckit {fsspeckit.__version__}, and the client "
                f"that made the sink has {version}.{hint}"
            )
        restore, *parts = pickle.loads(payload)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"the Python of the Spark Connect server has no module {error.name!r}.{hint}",
            name=error.name,
        ) from None
    return restore(*parts)


def _restore(kind: type[Sink], arguments: dict[str, Any]) -> Sink:
    """Create a sink again, in a process that may be one of a server."""
    sink = kind(**arguments)
    sink._state.started = StartedQueries.since_now()
    return sink


def log_to_server() -> None:
    """Write log lines to the log of the server, unless this process has its own settings."""
    log_to_stream(sys.stderr)
