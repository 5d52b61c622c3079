"""Dagster: an IO manager that merges assets, and the transaction of a run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, time, timedelta
from functools import reduce
from itertools import groupby
from math import prod
from operator import and_, or_
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from dagster import (
    ConfigurableIOManager,
    DagsterRun,
    InputContext,
    MultiPartitionKey,
    MultiPartitionsDefinition,
    OutputContext,
    PartitionsDefinition,
    TimeWindowPartitionsDefinition,
)

from fsspeckit.datasets.registry import open_engine
from fsspeckit.errors import InvalidArgumentError
from fsspeckit.storage import Transaction

__all__ = ["PlainParquetIOManager", "run_transaction"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_RESUMED = ("dagster/is_resume_retry", "dagster/is_asset_resume_retry")
_MODES = ("upsert", "insert", "update", "full_merge", "append", "overwrite")


class PlainParquetIOManager(ConfigurableIOManager):
    """Stores each asset as a plain Parquet dataset, and loads it as an Arrow table.

    The metadata of an asset says how: ``key`` names the key columns and ``mode`` is ``"upsert"``,
    ``"insert"``, ``"update"``, ``"full_merge"``, ``"append"`` or ``"overwrite"``. Without a mode,
    an asset with a key is merged by ``"upsert"``, and one without is replaced. ``partition_by`` has
    the hive partition columns of a new dataset. ``partition_expr`` names the column by which an
    asset is partitioned, or one for each dimension; only rows of the partitions that are asked for
    are loaded. These are the rows in the time window of a partition, if the column has dates or
    timestamps, and those with its key in any other column.

    Each output is one commit, in the transaction of its run, see :func:`run_transaction`.
    """

    base_path: str
    """The directory or URL below which assets are, by their keys."""

    engine: str = "pyarrow"
    """``"pyarrow"`` or ``"duckdb"``."""

    storage_options: dict[str, Any] = {}  # noqa: RUF012 - pydantic copies it
    """What fsspec needs to open the filesystem."""

    def path_of(self, context: InputContext | OutputContext) -> str:
        """Return the dataset of an asset, or of an output of an op."""
        parts = context.asset_key.path if context.has_asset_key else context.get_identifier()
        return "/".join([self.base_path.rstrip("/"), *parts])

    def handle_output(self, context: OutputContext, obj: Any) -> None:
        """Merge or write what an asset has returned; nothing, if that is None."""
        if obj is None:
            return
        metadata = context.definition_metadata
        key = _as_list(metadata.get("key"))
        mode: Any = metadata.get("mode") or ("upsert" if key else "overwrite")
        _check(context, mode, key)
        arguments: dict[str, Any] = {
            "partition_by": _as_list(metadata.get("partition_by")) or None,
            "transaction": run_transaction(context),
        }
        path = self.path_of(context)
        with open_engine(self.engine, None, self.storage_options or None) as io:
            if mode in {"append", "overwrite"}:
                done: Any = io.write_dataset(obj, path, mode=mode, **arguments)
            else:
                done = io.merge(obj, path, mode, key, **arguments)
        context.add_output_metadata({"path": path, "commit": done.metrics["commit"]["number"]})
        context.log.info("%s: %s", path, done)

    def load_input(self, context: InputContext) -> pa.Table:
        """Return the rows of an asset; of a partitioned one, those of its partitions."""
        path = self.path_of(context)
        with open_engine(self.engine, None, self.storage_options or None) as io:
            if not context.has_asset_partitions:
                return io.read_dataset(path)
            schema = io.read_dataset(path, filters=pc.scalar(False)).schema
            return io.read_dataset(path, filters=_partition_filter(context, schema))


def run_transaction(context: Any, name: str | None = None) -> Transaction:
    """Return the transaction of the step that runs.

    The application is the asset, with its partition, or job and step; the version is the time when
    the run was created. A retry of a step is the same run, and skipped if the run is committed; so
    is a run that goes on from the failure of another. A run that was created before the last one
    that is committed is refused with a :class:`~fsspeckit.errors.TransactionResetError`.

    Args:
        context: The context of an asset, an op or an IO manager.
        name: What the transaction is for, where a step commits to one dataset more than once.
    """
    if isinstance(context, OutputContext):
        instance, run = context.step_context.instance, context.step_context.dagster_run
    else:
        instance, run = context.instance, context.run
    while _goes_on(run) and run.parent_run_id is not None:
        run = instance.get_run_by_id(run.parent_run_id)
    created = instance.get_run_record_by_id(run.run_id).create_timestamp
    if created.tzinfo is None:
        created = created.replace(tzinfo=UTC)
    purpose = "" if name is None else f":{name}"
    version = (created - _EPOCH) // timedelta(microseconds=1)
    return Transaction(f"dagster:{_subject(context)}{purpose}", version, run=run.run_id)


def _goes_on(run: DagsterRun) -> bool:
    """Whether a run repeats only what another one has not done, as the user interface does it."""
    return any(run.tags.get(tag) == "true" for tag in _RESUMED)


def _subject(context: Any) -> str:
    """Return what the step makes: an asset with its partitions, or job and step."""
    if not _has_asset(context):
        step = context.step_key if isinstance(context, OutputContext) else context.op_handle
        return f"{context.job_name}.{step}"
    name: str = context.asset_key.to_user_string()
    if isinstance(context, OutputContext):
        keys = context.asset_partition_keys if context.has_asset_partitions else ()
    else:
        is_partitioned = context.has_partition_key or context.has_partition_key_range
        keys = context.partition_keys if is_partitioned else ()
    if not keys:
        return name
    return f"{name}[{keys[0]}]" if len(keys) == 1 else f"{name}[{keys[0]}...{keys[-1]}]"


def _has_asset(context: Any) -> bool:
    return bool(
        context.has_asset_key if isinstance(context, OutputContext) else context.has_assets_def
    )


def _check(context: OutputContext, mode: str, key: list[str]) -> None:
    name = _subject(context)
    if mode not in _MODES:
        raise InvalidArgumentError.choice(f"mode of {name!r}", mode, _MODES)
    if not key and mode not in {"append", "overwrite"}:
        raise InvalidArgumentError(
            f"mode {mode!r} of {name!r} needs a key.\n"
            'Hint: metadata={"key": "id"} names the key columns.'
        )
    if mode == "overwrite" and context.has_asset_partitions:
        raise InvalidArgumentError(
            f"{name!r} is partitioned, and each of its partitions would replace all others.\n"
            'Hint: name the key columns, metadata={"key": "id"}, or choose the mode "append".'
        )


def _partition_filter(context: InputContext, schema: pa.Schema) -> pc.Expression:
    """Return the condition that rows of the wanted partitions satisfy."""
    upstream = context.upstream_output
    expression = None if upstream is None else upstream.definition_metadata.get("partition_expr")
    name, keys = context.asset_key.to_user_string(), context.asset_partition_keys
    if expression is None:
        raise InvalidArgumentError(
            f"{name!r} is partitioned, and its metadata does not say "
            'by which column.\nHint: metadata={"partition_expr": "day"}.'
        )
    if not keys:
        return pc.scalar(False)
    definition = context.asset_partitions_def
    if not isinstance(definition, MultiPartitionsDefinition):
        return _has_key(schema, expression, definition, keys)
    dimensions = [dimension.name for dimension in definition.partitions_defs]
    if not (isinstance(expression, Mapping) and set(expression) == set(dimensions)):
        example = ", ".join(f'"{dimension}": "…"' for dimension in dimensions)
        raise InvalidArgumentError(
            f"partition_expr of {name!r} must name the column of each dimension, got "
            f'{expression!r}.\nHint: metadata={{"partition_expr": {{{example}}}}}.'
        )
    wanted = [_keys_by_dimension(definition, key) for key in keys]
    conditions = [
        [
            _has_key(
                schema,
                expression[dimension],
                definition.get_partitions_def_for_dimension(dimension),
                sorted({key[dimension] for key in block}),
            )
            for dimension in dimensions
        ]
        for block in _blocks(wanted, dimensions)
    ]
    return reduce(or_, (reduce(and_, block) for block in conditions))


def _keys_by_dimension(definition: MultiPartitionsDefinition, key: str) -> Mapping[str, str]:
    parsed: Any = key
    if not isinstance(parsed, MultiPartitionKey):
        parsed = definition.get_partition_key_from_str(key)
    found: Mapping[str, str] = parsed.keys_by_dimension
    return found


def _blocks(
    keys: Sequence[Mapping[str, str]], dimensions: Sequence[str]
) -> Iterable[Sequence[Mapping[str, str]]]:
    """Yield keys together where they are every combination of those of each dimension."""
    if len(keys) == prod(len({key[name] for key in keys}) for name in dimensions):
        yield keys
        return
    first = dimensions[0]
    for _, group in groupby(sorted(keys, key=lambda key: key[first]), lambda key: key[first]):
        block = list(group)
        if len(block) == len(keys):
            yield from _blocks(block, [*dimensions[1:], first])
        else:
            yield from _blocks(block, dimensions)


def _has_key(
    schema: pa.Schema, column: Any, definition: PartitionsDefinition, keys: Sequence[str]
) -> pc.Expression:
    """Return the condition that a column is in one of some partitions."""
    if column not in schema.names:
        raise InvalidArgumentError.missing_columns("partition_expr", [str(column)], schema.names)
    data_type = schema.field(column).type
    is_time = pa.types.is_date(data_type) or pa.types.is_timestamp(data_type)
    if not (is_time and isinstance(definition, TimeWindowPartitionsDefinition)):
        # The keys of partitions are text, whatever the column is.
        return pc.field(column).cast(pa.string()).isin(keys)
    windows = [definition.time_window_for_partition_key(key) for key in keys]
    ranges: list[tuple[datetime, datetime]] = []
    for window in sorted(windows, key=lambda window: window.start):
        if ranges and ranges[-1][1] == window.start:
            ranges[-1] = (ranges[-1][0], window.end)
        else:
            ranges.append((window.start, window.end))
    return reduce(
        or_,
        (
            (pc.field(column) >= _moment(start, column, data_type))
            & (pc.field(column) < _moment(end, column, data_type))
            for start, end in ranges
        ),
    )


def _moment(moment: datetime, column: str, data_type: pa.DataType) -> pa.Scalar:
    """Return the limit of a time window as a value of a column.

    A timestamp without a time zone is one of the time zone of the partitions.
    """
    if not pa.types.is_date(data_type):
        value = moment if data_type.tz is not None else moment.replace(tzinfo=None)
        return pa.scalar(value, data_type)
    if moment.time() != time.min:
        raise InvalidArgumentError(
            f"the partitions begin at {moment.time()}, and {column!r} has dates without a time.\n"
            "Hint: partition_expr has to name a column of timestamps, or of partition keys."
        )
    return pa.scalar(moment.date(), data_type)


def _as_list(names: Any) -> list[str]:
    return [names] if isinstance(names, str) else list(names or ())
