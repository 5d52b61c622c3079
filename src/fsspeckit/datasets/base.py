"""The calls that every engine has: they check their arguments, the pipeline does the rest."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, Self, overload

from fsspeckit.core.keys import as_names
from fsspeckit.core.merge import MergeStrategy, validate_rewrite_mode_compatibility
from fsspeckit.datasets.interfaces import parameters_of
from fsspeckit.datasets.pipeline import (
    DEFAULT_RETENTION,
    DEFAULT_TARGET_BYTES,
    CompactOptions,
    EvolveOptions,
    FileOptions,
    MergeOptions,
    RepartitionOptions,
    WriteOptions,
    check_write_or_merge,
    compact_after,
    locate_paths,
    plan_compact,
    plan_evolve,
    plan_merge,
    read_table,
    resolve_partition_columns,
    run_compact,
    run_evolve,
    run_merge,
    run_plan,
    run_repartition,
    run_write,
    split_path,
)
from fsspeckit.datasets.verification import run_verify
from fsspeckit.errors import InvalidArgumentError
from fsspeckit.storage import clean_storage, open_storage, restore_storage, undo_storage

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta
    from typing import Unpack

    import pyarrow as pa
    import pyarrow.compute as pc
    from pyspark.sql import Column

    from fsspeckit.core.keys import DuplicatePolicy, NullPolicy
    from fsspeckit.core.matching import KeepPolicy
    from fsspeckit.core.merge import MergeResult, RewriteMode
    from fsspeckit.core.planning import MergePlan
    from fsspeckit.core.schema_changes import SchemaChanges
    from fsspeckit.datasets.engine import Engine
    from fsspeckit.datasets.interfaces import WriteOrMergeArguments
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
    from fsspeckit.storage import (
        CleanReport,
        FileSelection,
        PublishMode,
        RestoreResult,
        Retention,
        Storage,
        Transaction,
    )

__all__ = ["DatasetIO"]


class DatasetIO:
    """Reads, writes and merges datasets of plain Parquet files; a context manager.

    The functions of the package, such as :func:`fsspeckit.api.merge`, have an example each; these
    methods take the same arguments.

    Args:
        engine: The engine that does the work on data.
        filesystem: An fsspec or pyarrow filesystem for paths; None to find it from each path.
        storage_options: What fsspec needs to open the filesystem of a URL.
        control_dir: Where staging, records and lock live, if not beside the dataset.
        publish: ``"auto"`` exchanges directories at once where the disk can; ``"plain"`` adds the
            new files first, then removes the old ones.
        lock_timeout: How many seconds to wait for another writer.
        retention: How long replaced files are kept in the trash; None for the default, which is
            three commits or a day.
    """

    def __init__(
        self,
        engine: Engine[Any, Any, Any],
        filesystem: Any = None,
        storage_options: Mapping[str, Any] | None = None,
        control_dir: str | None = None,
        publish: PublishMode = "auto",
        lock_timeout: float = 30.0,
        retention: Retention | None = None,
    ) -> None:
        options: Any = storage_options
        if options is not None and not isinstance(options, Mapping):
            raise InvalidArgumentError(
                "storage_options must be a mapping of names to values, got a "
                f"{type(options).__name__}."
            )
        self._engine = engine
        self._filesystem = filesystem
        self._storage_options = storage_options
        self._control_dir = control_dir
        self._publish: PublishMode = publish
        self._lock_timeout = lock_timeout
        self._retention = retention

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Release what the engine holds."""

    def merge(  # noqa: PLR0913, PLR0917 - one signature for every engine
        self,
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
    ) -> MergeResult:
        """Merge data into a dataset, rewriting only the files in which a value changes.

        Args:
            data: The source: an Arrow table or batch, a list of them, a reader, a pyarrow dataset,
                a pandas or Polars frame, anything with the Arrow C stream, or a path or list of
                paths of Parquet. A path without a scheme is on the filesystem of the dataset, if
                one is given; a URL of the dataset's scheme is opened with its storage options.
            path: The dataset's directory, path or URL.
            strategy: ``insert``, ``update``, ``upsert``, ``full_merge``, ``deduplicate`` or
                ``delete``.
            key_columns: The key columns: rows with equal keys are the same row. A single name may
                be given as a string, here and wherever columns are named.
            partition_columns: The hive partition columns; by default those of the dataset.
            filesystem: An fsspec or pyarrow filesystem for this call.
            compression: The codec of new files: ``"snappy"``, ``"zstd"``, ``"gzip"``, ``"lz4"`` or
                ``"brotli"``, in any case of letters; ``"none"`` or None to compress nothing.
            max_rows_per_file: No new file gets more rows; None for no limit.
            row_group_size: No row group of a new file gets more rows; None for 500,000, because
                a row group has to fit into memory.
            partition_by: Another name for ``partition_columns``.
            schema: The schema that the source is converted to first.
            null_keys: ``"error"`` refuses NULL in a source key; ``"match"`` makes NULL equal NULL.
            duplicate_keys: What to do with a key that occurs twice in the source: ``"error"``,
                or keep the ``"first"`` or the ``"last"`` row.
            order_by: Of rows with one key keep the one with the greatest value of these columns.
                NULL is below every value and NaN above; of equal rows the later one stays.
            trust_partitions: Do not look for keys in partitions that the source has no rows for.
            allow_empty: Let ``full_merge`` delete every row.
            bloom_columns: The columns that get bloom filters in new files.
            key_index: True to keep an index of the keys beside the dataset from now on, which saves
                key scans of random keys; False to remove it. By default an index of these key
                columns is used and kept up to date, if there is one.
            max_rewrite_fraction: Refuse to rewrite more than this share of the target's bytes.
            max_rewrite_bytes: Refuse to rewrite files of more bytes than this.
            delete_when: A boolean column of the source, which is not stored. Where it is true, the
                row of the target with this key is deleted, in whatever partition it is; of such a
                source row only the key is used. A key that is not there is counted in
                ``not_found``.
            only_newer: A column of source and target. A source row replaces or deletes a target
                row only if its value there is greater; NULL is below every value and NaN above.
                Rows that stay because of this are counted in ``late``.
            partition_change: What to do with a target row whose source row belongs to another
                partition: ``"refuse"`` the merge, or ``"move"`` the row: it leaves its file, and
                the source row goes to a new file of its partition, in one commit. Such rows are
                counted in ``updated`` and ``moved``.
            schema_changes: What the source may change about columns: ``"refuse"`` any difference;
                ``"add"`` columns that only the source has, NULL in all other rows; ``"widen"`` also
                types that do not hold every value of the source's type. Every file is rewritten
                then, in the same commit: columns that stay are copied as bytes.
            transaction: Which batch of which application this is. It is applied once: if this
                version or a later one is committed, nothing is read or changed.
            target_file_bytes: New rows are appended to files that are rewritten anyway, as long as
                these stay below this size. By default new rows go to new files.
            auto_compact: After the merge, compact those partitions whose files it changed, if they
                have at least 16 small files that fit into one of ``target_file_bytes`` (128 MiB).
                What fails then is a note in the result; the merge is committed.
            progress: True for a bar on standard error, or a function of phase, done and total.

        Returns:
            Counts of rows, and every file with what happened to it.

        Raises:
            ValueError: If an argument, the source or the target is invalid; nothing was changed.
            ConcurrentModificationError: If others kept changing the dataset; nothing was changed.
            CommitPendingError: If the merge is committed but could not be completed.

        Examples:
            >>> import pyarrow as pa
            >>> from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
            >>> io = PyarrowDatasetIO()
            >>> old = pa.table({"id": [1, 2], "v": ["a", "b"]})
            >>> new = pa.table({"id": [2, 3], "v": ["B", "C"]})
            >>> _ = io.write_dataset(old, "memory://doc-io-merge")
            >>> result = io.merge(new, "memory://doc-io-merge", "upsert", ["id"])
            >>> result.updated, result.inserted, result.target_count_after
            (1, 1, 3)
            >>> [(file.operation, file.row_count) for file in result.files]
            [('rewritten', 2), ('inserted', 1)]
        """
        options = MergeOptions.of(
            strategy=strategy,
            key_columns=key_columns,
            partition_columns=partition_columns,
            compression=compression,
            max_rows_per_file=max_rows_per_file,
            row_group_size=row_group_size,
            partition_by=partition_by,
            schema=schema,
            null_keys=null_keys,
            duplicate_keys=duplicate_keys,
            order_by=order_by,
            trust_partitions=trust_partitions,
            allow_empty=allow_empty,
            bloom_columns=bloom_columns,
            key_index=key_index,
            max_rewrite_fraction=max_rewrite_fraction,
            max_rewrite_bytes=max_rewrite_bytes,
            delete_when=delete_when,
            only_newer=only_newer,
            partition_change=partition_change,
            schema_changes=schema_changes,
            transaction=transaction,
            target_file_bytes=target_file_bytes,
            auto_compact=auto_compact,
            progress=progress,
        )
        return self._merge(data, path, filesystem, options)

    def _merge(self, data: Any, path: str, filesystem: Any, options: MergeOptions) -> MergeResult:
        storage, source = self._open(data, path, filesystem, merges=True)
        return self._run_merge(storage, source, options)

    def _run_merge(self, storage: Storage, source: Any, options: MergeOptions) -> MergeResult:
        result = run_merge(self._engine, storage, source, options)
        if options.auto_compact:
            compact_after(self._engine, storage, result, options)
        return result

    def delete(  # noqa: PLR0913 - one signature for every engine
        self,
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
    ) -> MergeResult:
        """Delete the rows with some keys, or those that a condition selects.

        Only files that have such a row are rewritten. A file that loses all its rows is removed;
        the last one of a dataset stays, without rows.

        Args:
            keys: The keys: a list of values for one key column or of tuples for several, an Arrow
                array, or data as for :meth:`merge`, of which only the key columns are used; None
                with ``where``.
            path: The dataset's directory, path or URL.
            key_columns: The key columns. Other columns of the dataset, its partition columns too,
                play no part.
            where: Instead of keys, a condition as SQL text or a pyarrow expression, see
                :doc:`conditions </concepts/conditions>`; on Spark also a ``Column``. Files and row
                groups are ruled out by their statistics, but not for an expression or a ``Column``.
            filesystem: An fsspec or pyarrow filesystem for this call.
            null_keys: ``"error"`` refuses NULL in a key; ``"match"`` deletes rows with NULL there.
            max_rewrite_fraction: Refuse to rewrite more than this share of the target's bytes.
            max_rewrite_bytes: Refuse to rewrite files of more bytes than this.
            purge: Also empty the trash, which keeps older versions of files for a while, so that no
                copy of a deleted row is left in it. The history says so. On an object store
                there is no trash; whether the bucket keeps versions is for its owner to settle.
            transaction: Which batch of which application this is; it is applied once.
            progress: True for a bar on standard error, or a function of phase, done and total.

        Returns:
            Counts of rows, and every file with what happened to it. ``deleted`` counts rows of the
            target, ``not_found`` keys that it does not have; a key may be given several times.

        Raises:
            ValueError: If an argument is invalid or there is no dataset; nothing was changed.
            ConcurrentModificationError: If others kept changing the dataset; nothing was changed.
            CommitPendingError: If the deletion is committed but could not be completed.

        Examples:
            >>> import pyarrow as pa
            >>> from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
            >>> io = PyarrowDatasetIO()
            >>> _ = io.write_dataset(pa.table({"id": [1, 2, 3]}), "memory://doc-io-delete")
            >>> result = io.delete([2, 9], "memory://doc-io-delete", ["id"])
            >>> result.deleted, result.not_found, result.target_count_after
            (1, 1, 2)
            >>> io.delete(None, "memory://doc-io-delete", where="id >= 3").deleted
            1
        """
        options = MergeOptions.of_delete(
            keys,
            key_columns,
            where,
            null_keys=null_keys,
            max_rewrite_fraction=max_rewrite_fraction,
            max_rewrite_bytes=max_rewrite_bytes,
            purge=purge,
            transaction=transaction,
            progress=progress,
        )
        storage, source = self._open(options.keys_of(keys), path, filesystem, merges=True)
        source, options = self._with_own_conditions(source, options)
        return run_merge(self._engine, storage, source, options)

    @parameters_of(delete)
    def plan_delete(
        self,
        keys: Any,
        path: str,
        key_columns: str | Sequence[str] | None = None,
        where: Any = None,
        filesystem: Any = None,
        **arguments: Any,
    ) -> MergePlan:
        """Return what :meth:`delete` would do with the same arguments; nothing is changed.

        Returns:
            A plan whose ``str()`` explains the decision about every file.
        """
        options = MergeOptions.of_delete(keys, key_columns, where, **arguments)
        storage, source = self._open(options.keys_of(keys), path, filesystem)
        source, options = self._with_own_conditions(source, options)
        return plan_merge(self._engine, storage, source, options)

    def apply_changes(  # noqa: PLR0913 - one signature for every engine
        self,
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
    ) -> MergeResult:
        """Apply a feed of changes, in whatever order and batches they arrive.

        The rows are those that the changes give in the order of their sequence. A change that is
        older than the row it would change, or than the deletion of its key, has no effect. The
        names of the arguments are those of Spark's AUTO CDC.

        Args:
            changes: The changes, as ``data`` of :meth:`merge`. Each has a key, a sequence, and the
                values of all columns that are stored; in one that deletes, other values than the
                first two have no effect and may be NULL.
            path: The dataset's directory, path or URL. It is created if it does not exist.
            keys: The columns that identify a row.
            sequence_by: The column that orders the changes of a key. Its values must differ; of
                two changes with the same one, a deletion wins, else any of them.
            apply_as_deletes: Which changes delete, as SQL text or a pyarrow expression, see
                :doc:`conditions </concepts/conditions>`; on Spark also a ``Column``, if the changes
                are a DataFrame. None if none does.
            except_column_list: Columns of the changes that are not stored.
            column_list: The columns that are stored, if not all.
            stored_as_scd_type: 1 keeps the last version of each row, and has to store
                ``sequence_by``. 2 keeps every version, with the sequences from which and until
                which it held in ``__START_AT`` and ``__END_AT``.
            tombstone_retention: How long a deleted key is remembered, so that a change that is
                older than the deletion, and arrives later, does not bring the row back.
            partition_by: The partition columns of a new dataset.
            partition_change: As for :meth:`merge`: ``"move"`` moves a row whose change belongs to
                another partition.
            schema_changes: As for :meth:`merge`.
            filesystem: An fsspec or pyarrow filesystem for this call.
            compression: As for :meth:`merge`, like all others.
            max_rows_per_file: No new file gets more rows.
            row_group_size: No new row group gets more rows.
            schema: The schema that the changes are converted to first.
            bloom_columns: The columns of new files that get bloom filters.
            key_index: Whether the dataset gets or loses a key index.
            max_rewrite_fraction: Refuse to rewrite more than this share of the target's bytes.
            max_rewrite_bytes: Refuse to rewrite files of more bytes than this.
            transaction: Which batch of which application this is; it is applied once.
            target_file_bytes: As for :meth:`merge`: new rows may go into smaller files.
            auto_compact: As for :meth:`merge`: compact partitions that have many small files.
            progress: True for a bar on standard error, or a function of phase, done and total.

        Returns:
            Counts of rows, and every file with what happened to it. ``late`` counts rows that stay
            because they are newer than a change, and changes that are older than the deletion of
            their key.

        Raises:
            ValueError: If an argument or the changes are invalid; nothing was changed.
            ConcurrentModificationError: If others kept changing the dataset; nothing was changed.
            CommitPendingError: If the changes are committed but could not be completed.

        Examples:
            >>> import pyarrow as pa
            >>> from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
            >>> io = PyarrowDatasetIO()
            >>> feed = pa.table(
            ...     {"id": [1, 2, 1], "v": ["a", "b", None], "seq": [1, 2, 3], "op": list("ccd")}
            ... )
            >>> how = dict(apply_as_deletes="op = 'd'", except_column_list="op")
            >>> io.apply_changes(feed, "memory://doc-changes", "id", "seq", **how).inserted
            1
            >>> late = pa.table({"id": [1], "v": ["late"], "seq": [2], "op": ["u"]})
            >>> io.apply_changes(late, "memory://doc-changes", "id", "seq", **how).late
            1
            >>> io.read_dataset("memory://doc-changes").to_pylist()
            [{'id': 2, 'v': 'b', 'seq': 2}]
        """
        options = MergeOptions.of_changes(
            keys=keys,
            sequence_by=sequence_by,
            apply_as_deletes=apply_as_deletes,
            column_list=column_list,
            except_column_list=except_column_list,
            stored_as_scd_type=stored_as_scd_type,
            tombstone_retention=tombstone_retention,
            partition_by=partition_by,
            partition_change=partition_change,
            schema_changes=schema_changes,
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
        changes, options = self._with_own_conditions(changes, options)
        storage, data = self._open(changes, path, filesystem, merges=True)
        return self._run_merge(storage, data, options)

    @parameters_of(apply_changes)
    def plan_apply_changes(
        self, changes: Any, path: str, filesystem: Any = None, **arguments: Any
    ) -> MergePlan:
        """Return what :meth:`apply_changes` would do with the same arguments; nothing is changed.

        Returns:
            A plan whose ``str()`` explains the decision about every file.
        """
        options = MergeOptions.of_changes(**arguments)
        changes, options = self._with_own_conditions(changes, options)
        storage, source = self._open(changes, path, filesystem)
        return plan_merge(self._engine, storage, source, options)

    def deduplicate(  # noqa: PLR0913 - one signature for every engine
        self,
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
    ) -> MergeResult:
        """Delete rows of a dataset until every key occurs once.

        Nothing is merged: the strategy ``deduplicate`` of :meth:`merge` is about the rows of a
        source. Only files that lose a row are rewritten. A file that loses all its rows is removed.

        Args:
            path: The dataset's directory, path or URL.
            key_columns: Rows with equal values of these columns are duplicates, in whatever files
                and partitions they are; None for rows that are equal in every column.
            order_by: Of rows with one key, the one with the greatest value of these columns stays.
                NULL is below every value and NaN above.
            keep: Which row stays of those with one key, or of those that are equal in ``order_by``:
                the ``"first"`` or the ``"last"``, in the order of the paths of files and of rows
                in a file. By default it is the last one with ``order_by``; without, rows with one
                key must be equal in every column, and are refused if they are not.
            null_keys: ``"keep"`` keeps all rows with NULL in a key column; ``"match"`` makes NULL
                equal NULL. Without ``key_columns``, NULL always equals NULL.
            filesystem: An fsspec or pyarrow filesystem for this call.
            max_rewrite_fraction: Refuse to rewrite more than this share of the target's bytes.
            max_rewrite_bytes: Refuse to rewrite files of more bytes than this.
            transaction: Which batch of which application this is; it is applied once.
            progress: True for a bar on standard error, or a function of phase, done and total.

        Returns:
            Counts of rows, of which ``deleted`` are the duplicates, and every file with what
            happened to it.

        Raises:
            DuplicateRowsError: If rows with one key differ, and nothing says which one stays.
            ValueError: If an argument is invalid or there is no dataset; nothing was changed.
            ConcurrentModificationError: If others kept changing the dataset; nothing was changed.
            CommitPendingError: If the change is committed but could not be completed.

        Examples:
            >>> import pyarrow as pa
            >>> from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
            >>> io = PyarrowDatasetIO()
            >>> rows = pa.table({"id": [1, 1, 2], "seq": [1, 2, 1]})
            >>> _ = io.write_dataset(rows, "memory://doc-io-deduplicate")
            >>> io.deduplicate("memory://doc-io-deduplicate", "id", "seq").deleted
            1
            >>> io.read_dataset("memory://doc-io-deduplicate").to_pylist()
            [{'id': 1, 'seq': 2}, {'id': 2, 'seq': 1}]
        """
        options = MergeOptions.of_deduplicate(
            key_columns,
            order_by,
            keep,
            null_keys,
            max_rewrite_fraction=max_rewrite_fraction,
            max_rewrite_bytes=max_rewrite_bytes,
            transaction=transaction,
            progress=progress,
        )
        storage, source = self._open(options.keys_of(None), path, filesystem, merges=True)
        return run_merge(self._engine, storage, source, options)

    @parameters_of(deduplicate)
    def plan_deduplicate(
        self,
        path: str,
        key_columns: str | Sequence[str] | None = None,
        order_by: str | Sequence[str] | None = None,
        keep: KeepPolicy | None = None,
        null_keys: Literal["keep", "match"] = "keep",
        filesystem: Any = None,
        **arguments: Any,
    ) -> MergePlan:
        """Return what :meth:`deduplicate` would do with the same arguments; nothing is changed.

        Returns:
            A plan whose ``str()`` explains the decision about every file.
        """
        options = MergeOptions.of_deduplicate(key_columns, order_by, keep, null_keys, **arguments)
        storage, source = self._open(options.keys_of(None), path, filesystem)
        return plan_merge(self._engine, storage, source, options)

    @parameters_of(merge)
    def plan_merge(
        self, data: Any, path: str, filesystem: Any = None, **arguments: Any
    ) -> MergePlan:
        """Return what :meth:`merge` would do with the same arguments; the dataset is not changed.

        Returns:
            A plan whose ``str()`` explains the decision about every file.
        """
        options = MergeOptions.of(**arguments)
        storage, source = self._open(data, path, filesystem)
        return plan_merge(self._engine, storage, source, options)

    def execute(self, plan: MergePlan, *, progress: Progress | bool | None = None) -> MergeResult:
        """Do what a plan says, or nothing if the files have changed since it was made.

        Args:
            plan: What :meth:`plan_merge` of this engine returned, in this process. It holds the
                source as it was read then; the same plan is not executed twice.
            progress: True for a bar on standard error, or a function of phase, done and total.

        Returns:
            What :meth:`merge` would have returned.

        Raises:
            StalePlanError: If the files of the dataset are not those that were planned on; a
                ``ConcurrentModificationError``. Nothing was changed.
            InvalidArgumentError: If the plan cannot be executed, or not by this engine.
            CommitPendingError: If the merge is committed but could not be completed.
        """
        return run_plan(self._engine, plan, progress, compact_after)

    def write_dataset(  # noqa: PLR0913 - one signature for every engine
        self,
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
    ) -> WriteDatasetResult:
        """Write data as new files.

        Args:
            data: As for :meth:`merge`.
            path: The dataset's directory, path or URL.
            mode: ``"append"`` leaves the data files that are there; ``"overwrite"`` replaces them
                all, in the same moment, and leaves them if the write fails;
                ``"overwrite_partitions"`` replaces only those of the partitions that the data
                has rows of.
            partition_by: The hive partition columns; by default those of the dataset. Only
                ``"overwrite"`` may name others; an empty list is for none.
            basename_template: The name of new files, with ``{}`` or ``{i}`` for a number; a unique
                part is added to it.
            schema: The schema that the data is converted to first.
            compression: The codec, as for :meth:`merge`; None to compress nothing.
            max_rows_per_file: No file gets more rows; None for no limit.
            row_group_size: No row group gets more rows; None for 500,000.
            bloom_columns: The columns that get bloom filters.
            schema_changes: As for :meth:`merge`; only to append.
            max_rewrite_fraction: Refuse to rewrite more than this share of the dataset's bytes for
                ``schema_changes``.
            max_rewrite_bytes: Refuse to rewrite files of more bytes than this for them.
            transaction: As for :meth:`merge`.
            progress: True for a bar on standard error, or a function of phase, done and total.

        Raises:
            ValueError: If an argument or the data is invalid; nothing was changed.

        Examples:
            >>> import pyarrow as pa
            >>> from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
            >>> io = PyarrowDatasetIO()
            >>> old = pa.table({"day": [1, 1, 2], "v": ["a", "b", "c"]})
            >>> _ = io.write_dataset(old, "memory://doc-io-write", partition_by="day")
            >>> new = pa.table({"day": [1], "v": ["A"]})
            >>> _ = io.write_dataset(new, "memory://doc-io-write", mode="overwrite_partitions")
            >>> sorted(io.read_dataset("memory://doc-io-write")["v"].to_pylist())
            ['A', 'c']
        """
        options = WriteOptions.of(
            mode=mode,
            partition_by=partition_by,
            basename_template=basename_template,
            compression=compression,
            max_rows_per_file=max_rows_per_file,
            row_group_size=row_group_size,
            bloom_columns=bloom_columns,
            schema_changes=schema_changes,
            max_rewrite_fraction=max_rewrite_fraction,
            max_rewrite_bytes=max_rewrite_bytes,
            schema=schema,
            transaction=transaction,
            progress=progress,
        )
        storage, source = self._open(data, path)
        return run_write(self._engine, storage, source, options)

    @overload
    def write_parquet_dataset(
        self,
        data: Any,
        path: str,
        *,
        strategy: None = None,
        **arguments: Unpack[WriteOrMergeArguments],
    ) -> WriteDatasetResult: ...

    @overload
    def write_parquet_dataset(
        self, data: Any, path: str, *, strategy: str, **arguments: Unpack[WriteOrMergeArguments]
    ) -> MergeResult: ...

    def write_parquet_dataset(  # noqa: PLR0913 - one signature for every engine
        self,
        data: Any,
        path: str,
        *,
        mode: WriteMode = "append",
        strategy: str | None = None,
        key_columns: str | Sequence[str] | None = None,
        rewrite_mode: RewriteMode = "full",
        partition_by: str | Sequence[str] | None = None,
        basename_template: str | None = None,
        schema: pa.Schema | None = None,
        compression: str | None = "snappy",
        max_rows_per_file: int | None = 5_000_000,
        row_group_size: int | None = 500_000,
        order_by: str | Sequence[str] | None = None,
        transaction: Transaction | None = None,
        progress: Progress | bool | None = None,
    ) -> WriteDatasetResult | MergeResult:
        """Write data as new files or, with a strategy, merge it.

        Without ``strategy`` this is :meth:`write_dataset`, and ``key_columns``, ``order_by`` and
        ``rewrite_mode`` must be left out. With one it is :meth:`merge_parquet_dataset`, which does
        take a ``mode`` that replaces. The arguments are explained there.

        Returns:
            What was written: with a strategy a :class:`~fsspeckit.core.merge.MergeResult`.

        Raises:
            ValueError: If an argument or the data is invalid; nothing was changed.

        Examples:
            >>> import pyarrow as pa
            >>> from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
            >>> io = PyarrowDatasetIO()
            >>> rows = pa.table({"id": [1, 2], "v": ["a", "b"]})
            >>> io.write_parquet_dataset(rows, "memory://doc-write-parquet").total_rows
            2
            >>> io.write_parquet_dataset(
            ...     rows, "memory://doc-write-parquet", strategy="upsert", key_columns=["id"]
            ... ).updated
            2
        """
        check_write_or_merge(mode, strategy, rewrite_mode, key_columns, order_by)
        files = FileOptions.of(
            compression, max_rows_per_file, row_group_size, basename_template=basename_template
        )
        partitions = resolve_partition_columns(None, partition_by)
        storage, source = self._open(data, path)
        if strategy is None:
            write = WriteOptions(mode, partitions, files, schema, progress, transaction)
            return run_write(self._engine, storage, source, write)
        merge = MergeOptions(
            MergeStrategy.of(strategy),
            as_names(key_columns),
            partitions,
            files,
            schema,
            order_by=() if order_by is None else as_names(order_by),
            transaction=transaction,
            progress=progress,
            rewrite_all=rewrite_mode == "full",
        )
        return run_merge(self._engine, storage, source, merge)

    def merge_parquet_dataset(  # noqa: PLR0913 - one signature for every engine
        self,
        source: Any,
        target_path: str,
        key_columns: str | Sequence[str],
        strategy: str = "upsert",
        *,
        rewrite_mode: RewriteMode = "full",
        order_by: str | Sequence[str] | None = None,
        partition_by: str | Sequence[str] | None = None,
        schema: pa.Schema | None = None,
        compression: str | None = "snappy",
        max_rows_per_file: int | None = 5_000_000,
        row_group_size: int | None = 500_000,
        null_keys: NullPolicy = "error",
        duplicate_keys: DuplicatePolicy = "error",
        trust_partitions: bool = False,
        allow_empty: bool = False,
        bloom_columns: str | Sequence[str] | None = None,
        transaction: Transaction | None = None,
        progress: Progress | bool | None = None,
    ) -> MergeResult:
        """Merge data into a dataset, rewriting all of its files or only those that change.

        With ``rewrite_mode="incremental"`` this is :meth:`merge` with ``insert``, ``update`` or
        ``upsert``. ``"full"`` gives the same rows and counts, and rewrites every file that holds
        rows, as long as the source has rows; ``insert`` never does. ``source`` and ``target_path``
        are ``data`` and ``path`` of :meth:`merge`, and all other arguments are the same.

        Returns:
            Counts of rows, and every file with what happened to it.

        Raises:
            ValueError: If an argument, the source or the target is invalid; nothing was changed.

        Examples:
            >>> import pyarrow as pa
            >>> from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
            >>> io = PyarrowDatasetIO()
            >>> rows = pa.table({"id": [1, 2], "v": ["a", "b"]})
            >>> io.merge_parquet_dataset(rows, "memory://doc-merge-parquet", ["id"]).inserted
            2
        """
        validate_rewrite_mode_compatibility(strategy, rewrite_mode)
        options = MergeOptions.of(
            strategy=strategy,
            key_columns=key_columns,
            partition_by=partition_by,
            compression=compression,
            max_rows_per_file=max_rows_per_file,
            row_group_size=row_group_size,
            schema=schema,
            null_keys=null_keys,
            duplicate_keys=duplicate_keys,
            order_by=order_by,
            trust_partitions=trust_partitions,
            allow_empty=allow_empty,
            bloom_columns=bloom_columns,
            transaction=transaction,
            progress=progress,
            rewrite_all=rewrite_mode == "full",
        )
        storage, data = self._open(source, target_path)
        return run_merge(self._engine, storage, data, options)

    def compact(
        self,
        path: str,
        target_file_bytes: int = DEFAULT_TARGET_BYTES,
        min_files: int = 2,
        partitions: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
        sort_by: str | Sequence[str] | None = None,
        bloom_columns: str | Sequence[str] | None = None,
        *,
        filesystem: Any = None,
        progress: Progress | bool | None = None,
    ) -> CompactResult:
        """Make large files of the small ones in each partition, while others go on writing.

        Large row groups are copied as bytes, small ones are encoded together. No row changes, and
        a second call has nothing left to do. Files that others change or remove meanwhile stay as
        they are, together with those they would have been joined with; the result lists them.

        Args:
            path: The dataset's directory, path or URL.
            target_file_bytes: The size that files should have. Files of at least half this size are
                left alone.
            min_files: Fewer files are not made one.
            partitions: The partitions to compact, as a mapping of their columns to values, or a
                list of such mappings; None for all. A value may be a list of values.
            sort_by: The columns by which the rows of each partition are sorted, so that merges and
                readers can skip files and row groups. By default rows keep their order.
            bloom_columns: The columns that get bloom filters in the new files.
            filesystem: An fsspec or pyarrow filesystem; None for that of this object.
            progress: True for a bar on standard error, or a function of phase, done and total.

        Returns:
            Which files became one, and how many bytes were copied and encoded.

        Raises:
            ValueError: If an argument is wrong, or there is no such dataset; nothing was changed.
            UnreadableFileError: If a file is damaged.

        Examples:
            >>> import pyarrow as pa
            >>> from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
            >>> io = PyarrowDatasetIO()
            >>> for number in range(3):
            ...     rows = pa.table({"id": [number]})
            ...     _ = io.write_dataset(rows, "memory://doc-compact-method")
            >>> result = io.compact("memory://doc-compact-method")
            >>> result.files_before, result.files_after
            (3, 1)
        """
        options = CompactOptions.of(
            target_file_bytes=target_file_bytes,
            min_files=min_files,
            partitions=partitions,
            sort_by=sort_by,
            bloom_columns=bloom_columns,
            progress=progress,
        )
        return run_compact(self._engine, self._storage(path, filesystem), options)

    def plan_compact(
        self,
        path: str,
        target_file_bytes: int = DEFAULT_TARGET_BYTES,
        min_files: int = 2,
        partitions: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
        sort_by: str | Sequence[str] | None = None,
        bloom_columns: str | Sequence[str] | None = None,
        *,
        filesystem: Any = None,
        progress: Progress | bool | None = None,
    ) -> CompactPlan:
        """Return what :meth:`compact` would do with these arguments; nothing is written.

        Returns:
            Which files would become one, about how many bytes would be copied and encoded, and
            with ``sort_by`` how much less files would overlap.

        Raises:
            ValueError: If an argument is wrong, or there is no such dataset.
            UnreadableFileError: If a file is damaged.
        """
        options = CompactOptions.of(
            target_file_bytes=target_file_bytes,
            min_files=min_files,
            partitions=partitions,
            sort_by=sort_by,
            bloom_columns=bloom_columns,
            progress=progress,
        )
        return plan_compact(self._engine, self._storage(path, filesystem), options)

    def read_dataset(
        self,
        path: str,
        *,
        columns: str | Sequence[str] | None = None,
        filters: Any = None,
        commit: int | None = None,
    ) -> pa.Table:
        """Read a consistent state of a dataset, also while others write or after a crash.

        Args:
            path: The dataset's directory, path or URL; or one data file, or a glob of them:
                ``data/year=2024/*.parquet``. Directories of partitions above the files give their
                columns, too. The first directory above these counts as the dataset; if commits
                are made to another one, further up, files may be of two states.
            columns: The columns to read, or one of them as a string; None for all.
            filters: SQL text as ``where`` of :meth:`delete`, or what pyarrow takes: an expression,
                or lists of tuples. The same rows are read on every engine.
            commit: The number of a commit: read the state after it, as long as its files are in
                the dataset or in the trash. 0 is the state before the first one.

        Returns:
            The rows. A partition column that no file stores is an int64, a date, a bool or a
            string, as its directories look. INT96 timestamps are instants in UTC, in microseconds.

        Raises:
            FileNotFoundError: If there is no such dataset.
            NotRestorableError: If files of the state after ``commit`` are gone; it names them.
            ValueError: If an argument is wrong, or the files contradict each other or their paths.
        """
        storage, selection = self._open_files(path)
        return read_table(storage, columns, filters, selection, commit)

    def undo(self, path: str, *, filesystem: Any = None, dry_run: bool = False) -> RestoreResult:
        """Take back the last commit that changed files, by a new commit.

        A second undo takes back the first. The files come out of the trash, under new names; what
        other programs have added stays. A batch of a transaction that is undone counts as not
        committed, and deleted keys that its feed remembers are forgotten again.

        Args:
            path: The dataset's directory, path or URL.
            filesystem: An fsspec or pyarrow filesystem for this call.
            dry_run: Whether to change nothing, and only say what would be done.

        Returns:
            The files that came back, and those that went.

        Raises:
            NotRestorableError: If a file is not in the trash any more, or other programs have
                changed files of that commit since; it names them, and nothing was changed.
            ConcurrentModificationError: If others commit meanwhile; nothing was changed.
        """
        return undo_storage(self._storage(path, filesystem), dry_run=dry_run)

    def restore(
        self, path: str, commit: int, *, filesystem: Any = None, dry_run: bool = False
    ) -> RestoreResult:
        """Bring back the state after a commit, by a new commit; see :meth:`undo`.

        Args:
            path: The dataset's directory, path or URL.
            commit: The number of the commit; 0 for the state before the first one.
            filesystem: An fsspec or pyarrow filesystem for this call.
            dry_run: Whether to change nothing, and only say what would be done.

        Returns:
            The files that came back, and those that went.

        Raises:
            NotRestorableError: If files are gone or changed; nothing was changed.
            ValueError: If there is no such commit.
            ConcurrentModificationError: If others commit meanwhile; nothing was changed.
        """
        return restore_storage(self._storage(path, filesystem), commit, dry_run=dry_run)

    def clean(
        self,
        path: str,
        *,
        filesystem: Any = None,
        dry_run: bool = True,
        retention: Retention | None = None,
    ) -> CleanReport:
        """Remove what nobody needs from the control directory of a dataset; no data file.

        That is what the trash keeps no longer, and what writers have left that are gone. Commits
        that were interrupted are completed first, and records of old commits are folded into one
        file. What a running writer owns stays.

        Args:
            path: The dataset's directory, path or URL.
            filesystem: An fsspec or pyarrow filesystem for this call.
            dry_run: Whether to change nothing, and only say what would be removed: the default.
            retention: How long replaced files are kept; None for that of this object.

        Returns:
            What is removed, or would be, with its bytes.

        Raises:
            FileNotFoundError: If there is neither a dataset nor a control directory.
            LockTimeoutError: If another writer is at work.
        """
        storage = self._storage(path, filesystem)
        storage = replace(storage, retention=retention or storage.retention)
        storage.check_exists()
        return clean_storage(storage, dry_run=dry_run)

    def evolve(  # noqa: PLR0913 - one signature for every engine
        self,
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
    ) -> EvolveResult:
        """Change the columns of a dataset: every file gets them, in one commit.

        Columns that stay are copied as bytes. A new one is NULL in every row. If files differ in
        their columns now, they do not afterwards, even if nothing else is asked for.

        Args:
            path: The dataset's directory, path or URL.
            schema: All columns in their order, instead of ``add``, ``widen``, ``order`` and
                ``nullable``. Columns of the dataset that are not in it must be named in ``drop``.
            add: New columns with their types.
            widen: New types of columns; each must hold every value of the old one.
            drop: Columns that are dropped.
            rename: New names by old ones. The other arguments use the new names.
            order: The columns that come first, in their order.
            nullable: Columns that may be NULL from now on; or a mapping, in which False is for
                columns that must not be NULL, which is refused if one is.
            filesystem: An fsspec or pyarrow filesystem for this call.
            max_rewrite_fraction: Refuse to rewrite more than this share of the dataset's bytes.
            max_rewrite_bytes: Refuse to rewrite files of more bytes than this.
            progress: True for a bar on standard error, or a function of phase, done and total.

        Returns:
            The columns, what changed about them, and every file with what happened to it.

        Raises:
            ValueError: If an argument is invalid, a type is not wider, or a value does not fit;
                nothing was changed.
            ConcurrentModificationError: If others kept changing the dataset; nothing was changed.
            CommitPendingError: If the change is committed but could not be completed.

        Examples:
            >>> import pyarrow as pa
            >>> from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
            >>> io = PyarrowDatasetIO()
            >>> rows = pa.table({"id": pa.array([1, 2], pa.int32()), "v": ["a", "b"]})
            >>> _ = io.write_dataset(rows, "memory://doc-io-evolve")
            >>> done = io.evolve(
            ...     "memory://doc-io-evolve", add={"price": pa.float64()}, widen={"id": pa.int64()}
            ... )
            >>> [str(change) for change in done.changes]
            ["'id' widened from int32 to int64", "'price' added as double"]
        """
        options = EvolveOptions.of(
            schema=schema,
            add=add,
            widen=widen,
            drop=drop,
            rename=rename,
            order=order,
            nullable=nullable,
            max_rewrite_fraction=max_rewrite_fraction,
            max_rewrite_bytes=max_rewrite_bytes,
            progress=progress,
        )
        return run_evolve(self._engine, self._storage(path, filesystem), options)

    @parameters_of(evolve)
    def plan_evolve(self, path: str, filesystem: Any = None, **arguments: Any) -> MergePlan:
        """Return what :meth:`evolve` would do with the same arguments; nothing is changed.

        Returns:
            A plan whose ``str()`` lists the changes, and the decision about every file.
        """
        options = EvolveOptions.of(**arguments)
        return plan_evolve(self._engine, self._storage(path, filesystem), options)

    def verify(
        self,
        path: str,
        key_columns: str | Sequence[str] | None = None,
        checksums: bool = True,
        *,
        null_keys: VerifyNulls = "ignore",
        progress: Progress | bool | None = None,
    ) -> VerifyReport:
        """Verify that every reader gets all rows of a dataset, and none twice; changes nothing.

        Every value is read, and compared with what footers, page indexes and bloom filters say of
        it: a wrong bound makes readers that prune lose rows. Files are compared with each other,
        with the commit records, and with what else the control directory keeps of them. Others
        may write meanwhile.

        Args:
            path: The dataset's directory, path or URL.
            key_columns: Columns whose values must be unique together; None to look for none.
            checksums: Compare the checksums of pages, where a writer has stored them.
            null_keys: ``"ignore"`` leaves out keys of which a column is NULL; ``"match"`` makes
                NULL equal NULL.
            progress: True for a bar on standard error, or a function of phase, done and total.

        Returns:
            What is wrong, where, and what to do about it; ``ok`` if no reader is affected.

        Raises:
            FileNotFoundError: If there is neither a dataset nor a control directory.
            InvalidArgumentError: If a key column is in no file.
        """
        return run_verify(
            self._engine,
            self._storage(path, None),
            key_columns,
            checksums=checksums,
            null_keys=null_keys,
            progress=progress,
        )

    def repartition(  # noqa: PLR0913 - one signature for every engine
        self,
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
    ) -> RepartitionResult:
        """Write a dataset again with other partition columns, in one commit.

        Every row is read and written. If others commit meanwhile, it starts again from what the
        dataset is then. A dataset that has these partition columns already stays as it is.

        Args:
            path: The dataset's directory, path or URL.
            partition_by: The partition columns, outermost first; an empty list for none. A column
                that is no longer one of them is stored in the files from then on.
            schema: The types of columns that only the directories have. By default they are an
                int64, a date, a bool or a string, as the directories look: as in
                :meth:`read_dataset`.
            filesystem: An fsspec or pyarrow filesystem for this call.
            compression: The codec of the new files, as for :meth:`merge`.
            max_rows_per_file: No file gets more rows; None for no limit.
            row_group_size: No row group gets more rows; None for 500,000.
            bloom_columns: The columns that get bloom filters.
            dry_run: Only check what can be checked without writing, and say how much there is.
            progress: True for a bar on standard error, or a function of phase, done and total.

        Returns:
            The new files, and how many they replace.

        Raises:
            ValueError: If an argument is invalid or there is no dataset; nothing was changed.
            ConcurrentModificationError: If others kept changing the dataset; nothing was changed.
            CommitPendingError: If the change is committed but could not be completed.

        Examples:
            >>> import pyarrow as pa
            >>> from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
            >>> io = PyarrowDatasetIO()
            >>> rows = pa.table({"id": [1, 2, 3], "day": [1, 1, 2]})
            >>> _ = io.write_dataset(rows, "memory://doc-io-repartition")
            >>> result = io.repartition("memory://doc-io-repartition", "day")
            >>> [file.partition_values for file in result.files]
            [{'day': 1}, {'day': 2}]
            >>> len(io.repartition("memory://doc-io-repartition", []).files)
            1
        """
        files = FileOptions.of(compression, max_rows_per_file, row_group_size, bloom_columns)
        options = RepartitionOptions(as_names(partition_by), files, schema, dry_run, progress)
        return run_repartition(self._engine, self._storage(path, filesystem), options)

    def _run(
        self, data: Any, path: str, options: MergeOptions | WriteOptions
    ) -> MergeResult | WriteDatasetResult:
        """Merge or write data with options that are made already, as those of a batch."""
        if isinstance(options, WriteOptions):
            storage, source = self._open(data, path)
            return run_write(self._engine, storage, source, options)
        data, options = self._with_own_conditions(data, options)
        storage, source = self._open(data, path)
        return self._run_merge(storage, source, options)

    def _with_own_control_dir(self) -> Self:
        """Return the same for another dataset, which has a control directory of its own."""
        other = copy(self)
        other._control_dir = None
        return other

    def _with_own_conditions(self, data: Any, options: MergeOptions) -> tuple[Any, MergeOptions]:
        """Return data and options with conditions that the pipeline takes.

        An engine that takes conditions of its own kind converts or evaluates them here.
        """
        return data, options

    def _open(
        self, data: Any, path: str, filesystem: Any = None, *, merges: bool = False
    ) -> tuple[Storage, Any]:
        """Open the dataset; data that is paths comes back with how to reach them."""
        storage = self._storage(path, filesystem, lists_files=merges)
        given = filesystem if filesystem is not None else self._filesystem
        own = self._storage_options
        return storage, locate_paths(data, given, storage.root, own, self._default_options)

    def _open_files(self, path: str) -> tuple[Storage, FileSelection | None]:
        """Open the dataset that a path, a file or a glob is about."""
        options = self._storage_options or self._default_options(path)
        root, selection = split_path(path, self._filesystem, options)
        return self._storage(root, None, only_reads=selection is not None), selection

    def _default_options(self, path: Any) -> Mapping[str, Any] | None:
        """Return what opens the filesystem of a path where the caller has given no options.

        An engine that has settings of its own for a filesystem returns them here.
        """
        return None

    def _storage(
        self, path: str, filesystem: Any, *, only_reads: bool = False, lists_files: bool = False
    ) -> Storage:
        return open_storage(
            path,
            filesystem if filesystem is not None else self._filesystem,
            self._storage_options or self._default_options(path),
            control_dir=self._control_dir,
            publish=self._publish,
            lock_timeout=self._lock_timeout,
            only_reads=only_reads,
            retention=self._retention,
            lists_files=lists_files,
        )
