"""What every engine offers to its users, as a protocol: code against it runs on all of them.

>>> from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
>>> def latest(io: DatasetHandler, rows: object, path: str) -> int:
...     return io.merge(rows, path, "upsert", ["id"]).target_count_after
>>> import pyarrow as pa
>>> with PyarrowDatasetIO() as io:
...     latest(io, pa.table({"id": [1, 2]}), "memory://doc-interfaces")
2
"""

from __future__ import annotations

import inspect
from datetime import timedelta
from functools import wraps
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    ParamSpec,
    Protocol,
    Self,
    TypedDict,
    TypeVar,
    overload,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Unpack

    import pyarrow as pa
    import pyarrow.compute as pc
    from pyspark.sql import Column

    from fsspeckit.core.keys import DuplicatePolicy, NullPolicy
    from fsspeckit.core.matching import KeepPolicy
    from fsspeckit.core.merge import MergeResult, RewriteMode
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
    from fsspeckit.storage import CleanReport, RestoreResult, Retention, Transaction

__all__ = ["DatasetHandler"]

_P = ParamSpec("_P")
_T = TypeVar("_T")


def parameters_of(model: Callable[_P, object]) -> Callable[[Callable[..., _T]], Callable[_P, _T]]:
    """Give a function the parameters of another; it gets by name what its caller passes."""
    signature = inspect.signature(model)

    def share(function: Callable[..., _T]) -> Callable[_P, _T]:
        @wraps(function)
        def call(*args: _P.args, **kwargs: _P.kwargs) -> _T:
            try:
                bound = signature.bind(*args, **kwargs)
            except TypeError as error:  # which does not say whose arguments these are
                raise TypeError(f"{function.__qualname__}() {error}") from None
            return function(**bound.arguments)

        returned = inspect.signature(function).return_annotation
        call.__signature__ = signature.replace(return_annotation=returned)  # type: ignore[attr-defined]
        return call

    return share


class WriteOrMergeArguments(TypedDict, total=False):
    """What ``write_parquet_dataset`` takes whether it writes or merges."""

    mode: WriteMode
    key_columns: str | Sequence[str] | None
    rewrite_mode: RewriteMode
    partition_by: str | Sequence[str] | None
    basename_template: str | None
    schema: pa.Schema | None
    compression: str | None
    max_rows_per_file: int | None
    row_group_size: int | None
    order_by: str | Sequence[str] | None
    transaction: Transaction | None
    progress: Progress | bool | None


class DatasetHandler(Protocol):
    """Reads, writes and merges datasets of plain Parquet files.

    Whatever the engine: the same rows, the same counts, the same files rewritten and preserved. A
    call that raises has changed nothing, unless it raises ``CommitPendingError``. Arguments are
    explained where they are implemented, in :class:`~fsspeckit.datasets.base.DatasetIO`.
    """

    def __enter__(self) -> Self: ...

    def __exit__(self, *exception: object) -> None: ...

    def close(self) -> None:
        """Release what the handler opened, and nothing that the caller opened."""
        ...

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
        """Merge data; a file in which no value changes stays as it is, byte for byte.

        Matching rows are replaced where they stand; new rows go to new files; names are never
        reused. Other writers of the dataset lose nothing.
        """
        ...

    @parameters_of(merge)
    def plan_merge(self, **arguments: Any) -> MergePlan:
        """Return what :meth:`merge` would do; its affected files include all that it rewrites.

        The dataset is not changed. Every data file is in the plan once.
        """
        ...

    def execute(self, plan: MergePlan, *, progress: Progress | bool | None = None) -> MergeResult:
        """Do what a plan says; refused, with nothing changed, if the files have changed since.

        The plan was made by the same engine in the same process, and is executed once.
        """
        ...

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

        A file that has none of them stays as it is; one that loses all its rows is removed.
        """
        ...

    @parameters_of(delete)
    def plan_delete(self, **arguments: Any) -> MergePlan:
        """Return what :meth:`delete` would do; the dataset is not changed."""
        ...

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
        tombstone_retention: timedelta = timedelta(days=7),
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
        """Apply a feed of changes; the rows are those of the feed in the order of its sequence.

        In whatever order and batches the changes arrive, and however often.
        """
        ...

    @parameters_of(apply_changes)
    def plan_apply_changes(self, **arguments: Any) -> MergePlan:
        """Return what :meth:`apply_changes` would do; the dataset is not changed."""
        ...

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
        """Delete rows of the dataset until every key occurs once; nothing is merged.

        Rows with one key that differ are refused if nothing says which one stays. A file that
        loses no row stays as it is, byte for byte.
        """
        ...

    @parameters_of(deduplicate)
    def plan_deduplicate(self, **arguments: Any) -> MergePlan:
        """Return what :meth:`deduplicate` would do; the dataset is not changed."""
        ...

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
        """Write all rows below other partition columns, in one commit.

        Rows and values stay; a column that only directories had is stored from then on.
        """
        ...

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
        """Write data as new files with names that no file had before.

        ``"append"`` leaves every existing file. ``"overwrite"`` removes only data files, and only
        once the new ones are safe; it keeps the partition columns unless ``partition_by`` names
        others. ``"overwrite_partitions"`` removes only those of the partitions that it writes.
        """
        ...

    def compact(
        self,
        path: str,
        target_file_bytes: int = 128 * 1024 * 1024,
        min_files: int = 2,
        partitions: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
        sort_by: str | Sequence[str] | None = None,
        bloom_columns: str | Sequence[str] | None = None,
        *,
        filesystem: Any = None,
        progress: Progress | bool | None = None,
    ) -> CompactResult:
        """Make large files of small ones, in commits that give up what others touch meanwhile.

        The rows of the dataset stay the same; without ``sort_by`` those of a new file have the
        order of the old files. A second call has nothing left to do.
        """
        ...

    def plan_compact(
        self,
        path: str,
        target_file_bytes: int = 128 * 1024 * 1024,
        min_files: int = 2,
        partitions: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
        sort_by: str | Sequence[str] | None = None,
        bloom_columns: str | Sequence[str] | None = None,
        *,
        filesystem: Any = None,
        progress: Progress | bool | None = None,
    ) -> CompactPlan:
        """Return what ``compact`` would do; nothing is written."""
        ...

    def read_dataset(
        self,
        path: str,
        *,
        columns: str | Sequence[str] | None = None,
        filters: Any = None,
        commit: int | None = None,
    ) -> Any:
        """Read one state of a dataset: never half a commit, also after a crash.

        Returns a ``pa.Table``, or the engine's own frame where that is larger than memory. With
        ``commit`` it is the state after that commit, as long as its files are there.
        """
        ...

    def undo(self, path: str, *, filesystem: Any = None, dry_run: bool = False) -> RestoreResult:
        """Take back the last commit that changed files, by a new commit."""
        ...

    def restore(
        self, path: str, commit: int, *, filesystem: Any = None, dry_run: bool = False
    ) -> RestoreResult:
        """Bring back the state after a commit, by a new commit.

        Refused, with nothing changed, if its files are gone or others have changed them since.
        """
        ...

    def clean(
        self,
        path: str,
        *,
        filesystem: Any = None,
        dry_run: bool = True,
        retention: Retention | None = None,
    ) -> CleanReport:
        """Remove what nobody needs from the control directory, and nothing that a writer owns."""
        ...

    def verify(
        self,
        path: str,
        key_columns: str | Sequence[str] | None = None,
        checksums: bool = True,
        *,
        null_keys: VerifyNulls = "ignore",
        progress: Progress | bool | None = None,
    ) -> VerifyReport:
        """Read every value, and find what makes some reader fail, or lose or repeat rows.

        Nothing is changed, and damaged bytes are findings, not errors.
        """
        ...

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
        """Without ``strategy`` :meth:`write_dataset`, with one :meth:`merge_parquet_dataset`.

        ``mode="overwrite"`` beside a strategy is refused, and so are ``key_columns``, ``order_by``
        and ``rewrite_mode="incremental"`` without one.
        """
        ...

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
        """Do what :meth:`merge` does; with ``rewrite_mode="full"`` rewrite every file.

        The rows and the counts of both modes are the same. ``"incremental"`` is refused for
        ``full_merge`` and ``deduplicate`` before anything else is checked; ``insert`` rewrites
        nothing in either mode.
        """
        ...

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
        """Change the columns of all files in one commit; the rows stay as they are.

        A type may only become one that holds all its values, and no column is dropped unless it is
        named.
        """
        ...

    @parameters_of(evolve)
    def plan_evolve(self, **arguments: Any) -> MergePlan:
        """What :meth:`evolve` would do with the same arguments; the dataset is not changed."""
        ...
