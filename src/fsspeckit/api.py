"""The calls of the package itself: those of the engines, with the engine as an argument."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from fsspeckit.datasets.interfaces import parameters_of
from fsspeckit.datasets.pipeline import DEFAULT_RETENTION, DEFAULT_TARGET_BYTES, get_planned_merge
from fsspeckit.datasets.registry import engine_of, open_engine
from fsspeckit.storage import Retention, Transaction, clean, history, recover, restore, undo

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import timedelta

    import pyarrow as pa
    import pyarrow.compute as pc
    from pyspark.sql import Column

    from fsspeckit.core.keys import DuplicatePolicy, NullPolicy
    from fsspeckit.core.matching import KeepPolicy
    from fsspeckit.core.merge import MergeResult
    from fsspeckit.core.planning import MergePlan
    from fsspeckit.core.schema_changes import SchemaChanges
    from fsspeckit.datasets.pipeline import (
        CompactPlan,
        CompactResult,
        EvolveResult,
        PartitionChange,
        Progress,
        RepartitionResult,
        WriteDatasetResult,
        WriteMode,
    )
    from fsspeckit.datasets.verification import VerifyNulls, VerifyReport

__all__ = [
    "Retention",
    "Transaction",
    "apply_changes",
    "clean",
    "compact",
    "deduplicate",
    "delete",
    "evolve",
    "execute",
    "history",
    "merge",
    "plan_apply_changes",
    "plan_compact",
    "plan_deduplicate",
    "plan_delete",
    "plan_evolve",
    "plan_merge",
    "read_dataset",
    "recover",
    "repartition",
    "restore",
    "undo",
    "upsert",
    "verify",
    "write_dataset",
]


def merge(  # noqa: PLR0913, PLR0917 - one signature for every engine
    data: Any,
    path: str,
    strategy: str,
    key_columns: str | Sequence[str],
    partition_columns: str | Sequence[str] | None = None,
    filesystem: Any = None,
    compression: str | None = "snappy",
    max_rows_per_file: int | None = 5_000_000,
    row_group_size: int | None = 500_000,
    *,
    partition_by: str | Sequence[str] | None = None,
    schema: pa.Schema | None = None,
    null_keys: NullPolicy = "error",
    duplicate_keys: DuplicatePolicy = "error",
    order_by: str | Sequence[str] | None = None,
    trust_partitions: bool = False,
    allow_empty: bool = False,
    bloom_columns: str | Sequence[str] | None = None,
    key_index: bool | None = None,
    max_rewrite_fraction: float | None = None,
    max_rewrite_bytes: int | None = None,
    delete_when: str | None = None,
    only_newer: str | None = None,
    partition_change: PartitionChange = "refuse",
    schema_changes: SchemaChanges = "refuse",
    transaction: Transaction | None = None,
    target_file_bytes: int | None = None,
    auto_compact: bool = False,
    progress: Progress | bool | None = None,
    engine: str = "spark",
    storage_options: Mapping[str, Any] | None = None,
) -> MergeResult:
    """Merge data into a dataset, rewriting only the files in which a value changes.

    Args:
        data: The source, as for :meth:`fsspeckit.datasets.base.DatasetIO.merge`.
        path: The dataset's directory, path or URL.
        strategy: ``insert``, ``update``, ``upsert``, ``full_merge``, ``deduplicate`` or ``delete``.
        key_columns: The key columns: rows with equal keys are the same row. A single name may be
            given as a string, here and wherever columns are named.
        partition_columns: The hive partition columns; by default those of the dataset.
        filesystem: An fsspec or pyarrow filesystem; None to find it from the path.
        compression: The codec of new files; None to compress nothing.
        max_rows_per_file: No new file gets more rows; None for no limit.
        row_group_size: No row group of a new file gets more rows; None for 500,000.
        partition_by: Another name for ``partition_columns``.
        schema: The schema that the source is converted to first.
        null_keys: ``"error"``, or ``"match"`` to make NULL equal NULL.
        duplicate_keys: ``"error"``, ``"first"`` or ``"last"``.
        order_by: Of rows with one key keep the one with the greatest value of these columns.
        trust_partitions: Do not look for keys in partitions that the source has no rows for.
        allow_empty: Let ``full_merge`` delete every row.
        bloom_columns: The columns that get bloom filters in new files.
        key_index: True to keep an index of the keys beside the dataset, False to remove it.
        max_rewrite_fraction: Refuse to rewrite more than this share of the target's bytes.
        max_rewrite_bytes: Refuse to rewrite files of more bytes than this.
        delete_when: A boolean column of the source that is true in rows whose key is deleted; it is
            not stored.
        only_newer: A column that must be greater in a source row than in the target row that it
            replaces or deletes.
        partition_change: ``"refuse"``, or ``"move"`` to move rows whose partition columns change.
        schema_changes: ``"refuse"``, ``"add"`` new columns of the source to every file, or also
            ``"widen"`` types that do not hold its values.
        transaction: Which batch of which application this is; skipped if it is committed already.
        target_file_bytes: Append new rows to files below this size that are rewritten anyway.
        auto_compact: Compact the partitions whose files change, if they have many small ones.
        progress: True for a bar on standard error, or a function of phase, done and total.
        engine: ``"spark"``, ``"duckdb"`` or ``"pyarrow"``.
        storage_options: What fsspec needs to open the filesystem of the path.

    Examples:
        >>> import pyarrow as pa
        >>> rows = pa.table({"id": [1, 2], "v": ["a", "b"]})
        >>> result = merge(rows, "memory://doc-merge", "upsert", ["id"], engine="pyarrow")
        >>> result.inserted
        2
    """
    rows: Any = {"delete_when": delete_when, "only_newer": only_newer, "null_keys": null_keys}
    files: Any = {"target_file_bytes": target_file_bytes, "auto_compact": auto_compact}
    taken: Any = {"schema": schema, "duplicate_keys": duplicate_keys, "order_by": order_by}
    kept: Any = {"partition_change": partition_change, "schema_changes": schema_changes}
    with open_engine(engine, None, storage_options) as opened:
        return opened.merge(
            data,
            path,
            strategy,
            key_columns,
            partition_columns,
            filesystem,
            compression,
            max_rows_per_file,
            row_group_size,
            partition_by=partition_by,
            trust_partitions=trust_partitions,
            allow_empty=allow_empty,
            bloom_columns=bloom_columns,
            key_index=key_index,
            max_rewrite_fraction=max_rewrite_fraction,
            max_rewrite_bytes=max_rewrite_bytes,
            transaction=transaction,
            progress=progress,
            **(taken | rows | kept | files),
        )


def upsert(
    data: Any,
    /,
    path: str,
    key: str | Sequence[str],
    *,
    engine: str | None = None,
    **options: Any,
) -> MergeResult:
    """Upsert data into a dataset: :func:`merge` as the end of a chain, ``df.pipe(upsert, …)``.

    Args:
        data: The source, as for :func:`merge`.
        path: The dataset's directory, path or URL; it is created if it does not exist.
        key: The key columns: rows with equal keys are the same row.
        engine: ``"spark"``, ``"duckdb"`` or ``"pyarrow"``; None for the engine whose library the
            data comes from, and ``"pyarrow"`` for other data, such as pandas and Polars frames.
        options: What else :func:`merge` takes, by name.

    Examples:
        >>> import pandas as pd
        >>> frame = pd.DataFrame({"id": [1, 2], "v": ["a", "b"]})
        >>> frame.pipe(upsert, "memory://doc-upsert", key="id").inserted
        2
        >>> frame.query("id == 2").pipe(upsert, "memory://doc-upsert", key="id").updated
        1
    """
    return merge(data, path, "upsert", key, engine=engine or engine_of(data), **options)


def delete(  # noqa: PLR0913 - one signature for every engine
    keys: Any,
    path: str,
    key_columns: str | Sequence[str] | None = None,
    *,
    where: str | pc.Expression | Column | None = None,
    filesystem: Any = None,
    null_keys: NullPolicy = "error",
    max_rewrite_fraction: float | None = None,
    max_rewrite_bytes: int | None = None,
    purge: bool = False,
    transaction: Transaction | None = None,
    progress: Progress | bool | None = None,
    engine: str = "spark",
    storage_options: Mapping[str, Any] | None = None,
) -> MergeResult:
    """Delete the rows with some keys, or those that a condition selects.

    See :meth:`fsspeckit.datasets.base.DatasetIO.delete`.

    Examples:
        >>> import pyarrow as pa
        >>> rows = pa.table({"id": [1, 2, 3], "v": ["a", "b", "c"]})
        >>> _ = write_dataset(rows, "memory://doc-delete", engine="pyarrow")
        >>> result = delete([2, 9], "memory://doc-delete", ["id"], engine="pyarrow")
        >>> result.deleted, result.not_found
        (1, 1)
        >>> delete(None, "memory://doc-delete", where="v = 'c'", engine="pyarrow").deleted
        1
    """
    with open_engine(engine, None, storage_options) as opened:
        return opened.delete(
            keys,
            path,
            key_columns,
            where=where,
            filesystem=filesystem,
            null_keys=null_keys,
            max_rewrite_fraction=max_rewrite_fraction,
            max_rewrite_bytes=max_rewrite_bytes,
            purge=purge,
            transaction=transaction,
            progress=progress,
        )


def apply_changes(  # noqa: PLR0913 - one signature for every engine
    changes: Any,
    path: str,
    keys: str | Sequence[str],
    sequence_by: str,
    apply_as_deletes: str | pc.Expression | Column | None = None,
    *,
    except_column_list: str | Sequence[str] | None = None,
    column_list: str | Sequence[str] | None = None,
    stored_as_scd_type: Literal[1, 2, "1", "2"] = 1,
    tombstone_retention: timedelta = DEFAULT_RETENTION,
    partition_by: str | Sequence[str] | None = None,
    partition_change: PartitionChange = "refuse",
    schema_changes: SchemaChanges = "refuse",
    filesystem: Any = None,
    compression: str | None = "snappy",
    max_rows_per_file: int | None = 5_000_000,
    row_group_size: int | None = 500_000,
    schema: pa.Schema | None = None,
    bloom_columns: str | Sequence[str] | None = None,
    key_index: bool | None = None,
    max_rewrite_fraction: float | None = None,
    max_rewrite_bytes: int | None = None,
    transaction: Transaction | None = None,
    target_file_bytes: int | None = None,
    auto_compact: bool = False,
    progress: Progress | bool | None = None,
    engine: str = "spark",
    storage_options: Mapping[str, Any] | None = None,
) -> MergeResult:
    """Apply a feed of changes, in whatever order and batches they arrive.

    See :meth:`fsspeckit.datasets.base.DatasetIO.apply_changes`.

    Examples:
        >>> import pyarrow as pa
        >>> path = "memory://doc-apply-changes"
        >>> new = pa.table({"id": [1], "v": ["b"], "at": [2]})
        >>> old = pa.table({"id": [1], "v": ["a"], "at": [1]})
        >>> apply_changes(new, path, "id", "at", engine="pyarrow").inserted
        1
        >>> apply_changes(old, path, "id", "at", engine="pyarrow").late
        1
    """
    with open_engine(engine, None, storage_options) as opened:
        return opened.apply_changes(
            changes,
            path,
            keys,
            sequence_by,
            apply_as_deletes,
            except_column_list=except_column_list,
            column_list=column_list,
            stored_as_scd_type=stored_as_scd_type,
            tombstone_retention=tombstone_retention,
            partition_by=partition_by,
            partition_change=partition_change,
            schema_changes=schema_changes,
            filesystem=filesystem,
            compression=compression,
            max_rows_per_file=max_rows_per_file,
            row_group_size=row_group_size,
            schema=schema,
            bloom_columns=bloom_columns,
            key_index=key_index,
            max_rewrite_fraction=max_rewrite_fraction,
            max_rewrite_bytes=max_rewrite_bytes,
            transaction=transaction,
            target_file_bytes=target_file_bytes,
            auto_compact=auto_compact,
            progress=progress,
        )


@parameters_of(apply_changes)
def plan_apply_changes(
    engine: str = "spark", storage_options: Mapping[str, Any] | None = None, **arguments: Any
) -> MergePlan:
    """Return what :func:`apply_changes` would do with the same arguments; nothing is changed.

    Examples:
        >>> import pyarrow as pa
        >>> feed = pa.table({"id": [1], "v": ["a"], "at": [1]})
        >>> path = "memory://doc-plan-apply-changes"
        >>> plan = plan_apply_changes(feed, path, "id", "at", engine="pyarrow")
        >>> execute(plan).inserted
        1
    """
    with open_engine(engine, None, storage_options) as opened:
        return opened.plan_apply_changes(**arguments)


@parameters_of(merge)
def plan_merge(
    engine: str = "spark", storage_options: Mapping[str, Any] | None = None, **arguments: Any
) -> MergePlan:
    """Return what :func:`merge` would do with the same arguments; the dataset is not changed.

    Returns:
        A plan whose ``str()`` explains the decision about every file.

    Examples:
        >>> import pyarrow as pa
        >>> rows = pa.table({"id": [1, 2, 8, 9], "v": ["a", "b", "c", "d"]})
        >>> path = "memory://doc-plan"
        >>> _ = write_dataset(rows, path, max_rows_per_file=2, engine="pyarrow")
        >>> plan = plan_merge(rows.slice(3), path, "upsert", ["id"], engine="pyarrow")
        >>> sorted((file.decision, file.evidence.kind) for file in plan.files)
        [('affected', 'key scan'), ('pruned', 'statistics')]
    """
    with open_engine(engine, None, storage_options) as opened:
        return opened.plan_merge(**arguments)


@parameters_of(delete)
def plan_delete(
    engine: str = "spark", storage_options: Mapping[str, Any] | None = None, **arguments: Any
) -> MergePlan:
    """Return what :func:`delete` would do with the same arguments; the dataset is not changed.

    Examples:
        >>> import pyarrow as pa
        >>> rows = pa.table({"id": [1, 2, 8, 9]})
        >>> path = "memory://doc-plan-delete"
        >>> _ = write_dataset(rows, path, max_rows_per_file=2, engine="pyarrow")
        >>> plan = plan_delete(None, path, where="id < 3", engine="pyarrow")
        >>> sorted((file.decision, file.evidence.kind) for file in plan.files)
        [('affected', 'row scan'), ('pruned', 'statistics')]
    """
    with open_engine(engine, None, storage_options) as opened:
        return opened.plan_delete(**arguments)


def execute(plan: MergePlan, *, progress: Progress | bool | None = None) -> MergeResult:
    """Do what a plan of :func:`plan_merge` says, or nothing if the files have changed since.

    See :meth:`fsspeckit.datasets.base.DatasetIO.execute`. The engine is that of the plan.

    Examples:
        >>> import pyarrow as pa
        >>> rows = pa.table({"id": [1, 2], "v": ["a", "b"]})
        >>> plan = plan_merge(rows, "memory://doc-execute", "upsert", ["id"], engine="pyarrow")
        >>> execute(plan).inserted
        2
    """
    with open_engine(get_planned_merge(plan).engine) as opened:
        return opened.execute(plan, progress=progress)


def write_dataset(  # noqa: PLR0913 - one signature for every engine
    data: Any,
    path: str,
    *,
    mode: WriteMode = "append",
    partition_by: str | Sequence[str] | None = None,
    basename_template: str | None = None,
    schema: pa.Schema | None = None,
    compression: str | None = "snappy",
    max_rows_per_file: int | None = 5_000_000,
    row_group_size: int | None = 500_000,
    bloom_columns: str | Sequence[str] | None = None,
    schema_changes: SchemaChanges = "refuse",
    max_rewrite_fraction: float | None = None,
    max_rewrite_bytes: int | None = None,
    transaction: Transaction | None = None,
    progress: Progress | bool | None = None,
    engine: str = "spark",
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
) -> WriteDatasetResult:
    """Write data as new files, see :meth:`fsspeckit.datasets.base.DatasetIO.write_dataset`.

    Examples:
        >>> import pyarrow as pa
        >>> rows = pa.table({"id": [1, 2, 3], "day": ["mon", "mon", "tue"]})
        >>> result = write_dataset(
        ...     rows, "memory://doc-write", partition_by=["day"], engine="pyarrow"
        ... )
        >>> [(file.partition_values, file.row_count) for file in result.files]
        [({'day': 'mon'}, 2), ({'day': 'tue'}, 1)]
    """
    with open_engine(engine, filesystem, storage_options) as opened:
        return opened.write_dataset(
            data,
            path,
            mode=mode,
            partition_by=partition_by,
            basename_template=basename_template,
            schema=schema,
            compression=compression,
            max_rows_per_file=max_rows_per_file,
            row_group_size=row_group_size,
            bloom_columns=bloom_columns,
            schema_changes=schema_changes,
            max_rewrite_fraction=max_rewrite_fraction,
            max_rewrite_bytes=max_rewrite_bytes,
            transaction=transaction,
            progress=progress,
        )


def read_dataset(
    path: str,
    *,
    columns: str | Sequence[str] | None = None,
    filters: Any = None,
    commit: int | None = None,
    engine: str = "spark",
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Any:
    """Read a consistent state of a dataset; a table, and with Spark a DataFrame.

    See :meth:`fsspeckit.datasets.base.DatasetIO.read_dataset`.

    Examples:
        >>> import pyarrow as pa
        >>> rows = pa.table({"id": [1, 2, 3], "v": ["a", "b", "c"]})
        >>> _ = write_dataset(rows, "memory://doc-read", engine="pyarrow")
        >>> found = read_dataset(
        ...     "memory://doc-read", columns=["v"], filters=[("id", ">", 1)], engine="pyarrow"
        ... )
        >>> found.to_pylist()
        [{'v': 'b'}, {'v': 'c'}]
    """
    with open_engine(engine, filesystem, storage_options) as opened:
        return opened.read_dataset(path, columns=columns, filters=filters, commit=commit)


def compact(  # noqa: PLR0913 - one signature for every engine
    path: str,
    target_file_bytes: int = DEFAULT_TARGET_BYTES,
    min_files: int = 2,
    partitions: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
    sort_by: str | Sequence[str] | None = None,
    bloom_columns: str | Sequence[str] | None = None,
    *,
    progress: Progress | bool | None = None,
    engine: str = "spark",
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
) -> CompactResult:
    """Make large files of the small ones in each partition, while others go on writing.

    See :meth:`fsspeckit.datasets.base.DatasetIO.compact`.

    Args:
        path: The dataset's directory, path or URL.
        target_file_bytes: The size that files should have; those of half of it are left alone.
        min_files: Fewer files are not made one.
        partitions: The partitions to compact, as a mapping of their columns to values, or a list
            of such mappings; None for all.
        sort_by: The columns by which the rows of each partition are sorted.
        bloom_columns: The columns that get bloom filters in the new files.
        progress: True for a bar on standard error, or a function of phase, done and total.
        engine: ``"spark"``, ``"duckdb"`` or ``"pyarrow"``.
        filesystem: An fsspec or pyarrow filesystem; None to find it from the path.
        storage_options: What fsspec needs to open the filesystem of the path.

    Examples:
        >>> import pyarrow as pa
        >>> path = "memory://doc-compact"
        >>> for number in range(3):
        ...     _ = write_dataset(pa.table({"id": [number]}), path, engine="pyarrow")
        >>> result = compact(path, engine="pyarrow")
        >>> result.files_before, result.files_after
        (3, 1)
        >>> compact(path, engine="pyarrow").bins
        []
    """
    with open_engine(engine, filesystem, storage_options) as opened:
        return opened.compact(
            path,
            target_file_bytes,
            min_files,
            partitions,
            sort_by,
            bloom_columns,
            progress=progress,
        )


def plan_compact(  # noqa: PLR0913 - one signature for every engine
    path: str,
    target_file_bytes: int = DEFAULT_TARGET_BYTES,
    min_files: int = 2,
    partitions: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
    sort_by: str | Sequence[str] | None = None,
    bloom_columns: str | Sequence[str] | None = None,
    *,
    progress: Progress | bool | None = None,
    engine: str = "spark",
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
) -> CompactPlan:
    """Return what :func:`compact` would do with the same arguments; nothing is written.

    Examples:
        >>> import pyarrow as pa
        >>> path = "memory://doc-plan-compact"
        >>> for number in range(3):
        ...     _ = write_dataset(pa.table({"id": [number, 9]}), path, engine="pyarrow")
        >>> plan = plan_compact(path, sort_by="id", engine="pyarrow")
        >>> len(plan.bins[0].files), plan.files_after
        (3, 1)
        >>> plan.overlap_before.files, plan.overlap_after.files
        (3.0, 1.0)
    """
    with open_engine(engine, filesystem, storage_options) as opened:
        return opened.plan_compact(
            path,
            target_file_bytes,
            min_files,
            partitions,
            sort_by,
            bloom_columns,
            progress=progress,
        )


def evolve(  # noqa: PLR0913 - one signature for every engine
    path: str,
    schema: pa.Schema | None = None,
    *,
    add: Mapping[str, pa.DataType] | pa.Schema | None = None,
    widen: Mapping[str, pa.DataType] | pa.Schema | None = None,
    drop: str | Sequence[str] | None = None,
    rename: Mapping[str, str] | None = None,
    order: str | Sequence[str] | None = None,
    nullable: str | Sequence[str] | Mapping[str, bool] | None = None,
    filesystem: Any = None,
    max_rewrite_fraction: float | None = None,
    max_rewrite_bytes: int | None = None,
    progress: Progress | bool | None = None,
    engine: str = "spark",
    storage_options: Mapping[str, Any] | None = None,
) -> EvolveResult:
    """Change the columns of a dataset, see :meth:`fsspeckit.datasets.base.DatasetIO.evolve`.

    Examples:
        >>> import pyarrow as pa
        >>> rows = pa.table({"id": [1, 2], "v": ["a", "b"]})
        >>> _ = write_dataset(rows, "memory://doc-evolve", engine="pyarrow")
        >>> done = evolve(
        ...     "memory://doc-evolve", add={"n": pa.int32()}, rename={"v": "name"}, engine="pyarrow"
        ... )
        >>> [column.name for column in done.columns], done.total_rows
        (['id', 'name', 'n'], 2)
    """
    with open_engine(engine, None, storage_options) as opened:
        return opened.evolve(
            path,
            schema,
            add=add,
            widen=widen,
            drop=drop,
            rename=rename,
            order=order,
            nullable=nullable,
            filesystem=filesystem,
            max_rewrite_fraction=max_rewrite_fraction,
            max_rewrite_bytes=max_rewrite_bytes,
            progress=progress,
        )


@parameters_of(evolve)
def plan_evolve(
    engine: str = "spark", storage_options: Mapping[str, Any] | None = None, **arguments: Any
) -> MergePlan:
    """Return what :func:`evolve` would do with the same arguments; the dataset is not changed.

    Examples:
        >>> import pyarrow as pa
        >>> path = "memory://doc-plan-evolve"
        >>> _ = write_dataset(pa.table({"id": [1, 2]}), path, engine="pyarrow")
        >>> plan = plan_evolve(path, add={"n": pa.int32()}, engine="pyarrow")
        >>> [(file.decision, str(file.evidence)) for file in plan.files]
        [('affected', "schema: 'n' added as int32")]
    """
    with open_engine(engine, None, storage_options) as opened:
        return opened.plan_evolve(**arguments)


def verify(
    path: str,
    key_columns: str | Sequence[str] | None = None,
    checksums: bool = True,
    *,
    null_keys: VerifyNulls = "ignore",
    progress: Progress | bool | None = None,
    engine: str = "spark",
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
) -> VerifyReport:
    """Verify that every reader gets all rows of a dataset, and none twice; changes nothing.

    See :meth:`fsspeckit.datasets.base.DatasetIO.verify`.

    Examples:
        >>> import pyarrow as pa
        >>> path = "memory://doc-verify"
        >>> _ = write_dataset(pa.table({"id": [1, 2]}), path, engine="pyarrow")
        >>> verify(path, "id", engine="pyarrow").ok
        True
        >>> _ = write_dataset(pa.table({"id": [2, 3]}), path, engine="pyarrow")
        >>> report = verify(path, "id", engine="pyarrow")
        >>> report.ok, report.errors[0].what[:35]
        (False, '1 keys of id occur more than once, ')
    """
    with open_engine(engine, filesystem, storage_options) as opened:
        return opened.verify(path, key_columns, checksums, null_keys=null_keys, progress=progress)


def deduplicate(  # noqa: PLR0913 - one signature for every engine
    path: str,
    key_columns: str | Sequence[str] | None = None,
    order_by: str | Sequence[str] | None = None,
    *,
    keep: KeepPolicy | None = None,
    null_keys: Literal["keep", "match"] = "keep",
    filesystem: Any = None,
    max_rewrite_fraction: float | None = None,
    max_rewrite_bytes: int | None = None,
    transaction: Transaction | None = None,
    progress: Progress | bool | None = None,
    engine: str = "spark",
    storage_options: Mapping[str, Any] | None = None,
) -> MergeResult:
    """Delete rows of a dataset until every key occurs once.

    See :meth:`fsspeckit.datasets.base.DatasetIO.deduplicate`. The strategy ``deduplicate`` of
    :func:`merge` is about the rows of its source.

    Examples:
        >>> import pyarrow as pa
        >>> rows = pa.table({"id": [1, 1, 2, 2], "seq": [7, 8, 9, 9]})
        >>> _ = write_dataset(rows, "memory://doc-deduplicate", engine="pyarrow")
        >>> deduplicate("memory://doc-deduplicate", engine="pyarrow").deleted  # equal rows
        1
        >>> deduplicate("memory://doc-deduplicate", "id", "seq", engine="pyarrow").deleted
        1
    """
    with open_engine(engine, None, storage_options) as opened:
        return opened.deduplicate(
            path,
            key_columns,
            order_by,
            keep=keep,
            null_keys=null_keys,
            filesystem=filesystem,
            max_rewrite_fraction=max_rewrite_fraction,
            max_rewrite_bytes=max_rewrite_bytes,
            transaction=transaction,
            progress=progress,
        )


@parameters_of(deduplicate)
def plan_deduplicate(
    engine: str = "spark", storage_options: Mapping[str, Any] | None = None, **arguments: Any
) -> MergePlan:
    """Return what :func:`deduplicate` would do with the same arguments; nothing is changed.

    Examples:
        >>> import pyarrow as pa
        >>> rows = pa.table({"id": [1, 1, 2]})
        >>> _ = write_dataset(rows, "memory://doc-plan-deduplicate", engine="pyarrow")
        >>> plan = plan_deduplicate("memory://doc-plan-deduplicate", "id", engine="pyarrow")
        >>> [(file.decision, file.evidence.kind) for file in plan.files]
        [('affected', 'key scan')]
    """
    with open_engine(engine, None, storage_options) as opened:
        return opened.plan_deduplicate(**arguments)


def repartition(  # noqa: PLR0913 - one signature for every engine
    path: str,
    partition_by: str | Sequence[str],
    *,
    schema: pa.Schema | None = None,
    filesystem: Any = None,
    compression: str | None = "snappy",
    max_rows_per_file: int | None = 5_000_000,
    row_group_size: int | None = 500_000,
    bloom_columns: str | Sequence[str] | None = None,
    dry_run: bool = False,
    progress: Progress | bool | None = None,
    engine: str = "spark",
    storage_options: Mapping[str, Any] | None = None,
) -> RepartitionResult:
    """Write a dataset again with other partition columns, or none, in one commit.

    See :meth:`fsspeckit.datasets.base.DatasetIO.repartition`.

    Examples:
        >>> import pyarrow as pa
        >>> rows = pa.table({"id": [1, 2, 3], "day": ["mon", "mon", "tue"]})
        >>> _ = write_dataset(rows, "memory://doc-repartition", engine="pyarrow")
        >>> result = repartition("memory://doc-repartition", "day", engine="pyarrow")
        >>> [(file.partition_values, file.row_count) for file in result.files]
        [({'day': 'mon'}, 2), ({'day': 'tue'}, 1)]
    """
    with open_engine(engine, None, storage_options) as opened:
        return opened.repartition(
            path,
            partition_by,
            schema=schema,
            filesystem=filesystem,
            compression=compression,
            max_rows_per_file=max_rows_per_file,
            row_group_size=row_group_size,
            bloom_columns=bloom_columns,
            dry_run=dry_run,
            progress=progress,
        )
