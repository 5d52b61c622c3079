"""The options of a merge and of a write, checked once and the same way for every engine."""

from __future__ import annotations

from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, Literal, Self

import pyarrow as pa

from fsspeckit.core.changes import MARK
from fsspeckit.core.keys import as_keys, as_names, check_names
from fsspeckit.core.merge import (
    DEDUPLICATE_TARGET,
    MergeStrategy,
    validate_rewrite_mode_compatibility,
)
from fsspeckit.core.rewrite import BufferLimits, FileLimits, RowRules, basename_of
from fsspeckit.core.schema_changes import SCHEMA_CHANGES
from fsspeckit.datasets.pipeline.changes import DEFAULT_RETENTION, ChangeOptions
from fsspeckit.errors import (
    Argument,
    Call,
    InvalidArgumentError,
    RewriteLimitError,
)
from fsspeckit.storage import Transaction

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import timedelta

    from fsspeckit.core.keys import DuplicatePolicy, NullPolicy
    from fsspeckit.core.matching import KeepPolicy
    from fsspeckit.core.planning import MergePlan
    from fsspeckit.core.schema_changes import SchemaChanges
    from fsspeckit.display import Progress

WriteMode = Literal["append", "overwrite", "overwrite_partitions"]
PartitionChange = Literal["refuse", "move"]
_WRITE_MODES = ("append", "overwrite", "overwrite_partitions")
_POLICIES = {
    "null_keys": ("error", "match"),
    "duplicate_keys": ("error", "first", "last"),
    "partition_change": ("refuse", "move"),
    "schema_changes": SCHEMA_CHANGES,
}
_CODECS = ("snappy", "zstd", "gzip", "lz4", "brotli", "none")

_DEFAULT_ROW_GROUP_ROWS = 500_000
"""A row group has to fit into memory, so it has a limit even if the caller sets none."""

_UNLIMITED_ROWS = 2**62


@dataclass(frozen=True)
class FileOptions:
    """How new files are written."""

    compression: str = "snappy"
    max_rows_per_file: int = 5_000_000
    row_group_size: int = _DEFAULT_ROW_GROUP_ROWS
    bloom_columns: tuple[str, ...] = ()
    basename_template: str | None = None
    buffers: BufferLimits = field(default_factory=BufferLimits)
    """How much waits to be written; callers of the library do not choose it."""

    @classmethod
    def of(
        cls,
        compression: str | None,
        max_rows_per_file: int | None,
        row_group_size: int | None,
        bloom_columns: str | Sequence[str] | None = None,
        basename_template: str | None = None,
    ) -> Self:
        """Make options of what a caller may pass."""
        codec = compression.lower() if isinstance(compression, str) else compression
        return cls(
            "none" if codec is None or codec == "uncompressed" else codec,
            _UNLIMITED_ROWS if max_rows_per_file is None else max_rows_per_file,
            _DEFAULT_ROW_GROUP_ROWS if row_group_size is None else row_group_size,
            _as_names(bloom_columns),
            basename_template,
        )

    def __post_init__(self) -> None:
        for name in ("max_rows_per_file", "row_group_size"):
            value = getattr(self, name)
            if not (_is_whole(value) and value > 0):
                raise InvalidArgumentError(
                    f"{name} must be > 0, a whole number, got {value!r}.", argument=name
                )
        if self.compression not in _CODECS:
            raise InvalidArgumentError.choice("compression", self.compression, _CODECS)
        _check_optional_names("bloom_columns", self.bloom_columns)
        basename_of(self.basename_template, 0)

    @property
    def limits(self) -> FileLimits:
        """How large files may get."""
        counts = (self.max_rows_per_file, self.row_group_size)
        # Arrow counts in 64 bits.
        per_file, per_group = (min(int(count), _UNLIMITED_ROWS) for count in counts)
        return FileLimits(per_file, per_group, self.buffers)


def _is_whole(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def check_whole(name: str, value: Any, least: int) -> None:
    """Refuse what is not a whole number of at least so much."""
    if not _is_whole(value) or value < least:
        raise InvalidArgumentError(
            f"{name} must be a whole number, {least} or more, got {value!r}.", argument=name
        )


def _as_names(given: str | Sequence[str] | None) -> tuple[str, ...]:
    # Compared with None: an array of names has no truth value.
    return () if given is None else as_names(given)


@dataclass(frozen=True)
class RewriteLimits:
    """How much of a target a merge may rewrite: a guard against keys that match too much."""

    max_rewrite_fraction: float | None = None
    """The share of the target's bytes, from 0 to 1."""

    max_rewrite_bytes: int | None = None
    """Bytes of files."""

    def __post_init__(self) -> None:
        fraction: Any = self.max_rewrite_fraction
        is_number = isinstance(fraction, Real) and not isinstance(fraction, bool)
        if fraction is not None and not (is_number and 0 <= fraction <= 1):
            raise InvalidArgumentError(
                f"max_rewrite_fraction must be a number from 0 to 1, got {fraction!r}.\n"
                "Hint: 0.25 lets a merge rewrite a quarter of the bytes.",
                argument="max_rewrite_fraction",
            )
        most: Any = self.max_rewrite_bytes
        if most is not None and not (_is_whole(most) and most >= 0):
            raise InvalidArgumentError(
                f"max_rewrite_bytes must be a whole number of bytes, 0 or more, got {most!r}.",
                argument="max_rewrite_bytes",
            )

    def check(self, plan: MergePlan) -> None:
        """Refuse a plan whose affected files have too many bytes.

        They are an upper bound: a file in which no value changes is not rewritten.
        """
        affected = plan.with_decision("affected")
        needed = sum(file.bytes for file in affected)
        most = self.max_rewrite_bytes
        if most is not None and needed > most:
            raise RewriteLimitError.exceeded(
                "max_rewrite_bytes",
                f"{most:,} bytes",
                f"{needed:,} bytes",
                len(affected),
                plan.strategy,
            )
        share = needed / max(1, sum(file.bytes for file in plan.files))
        if self.max_rewrite_fraction is not None and share > self.max_rewrite_fraction:
            raise RewriteLimitError.exceeded(
                "max_rewrite_fraction",
                f"{self.max_rewrite_fraction:g} of it",
                f"{share:.3g} of the target's bytes",
                len(affected),
                plan.strategy,
            )


@dataclass(frozen=True)
class DuplicateOptions:
    """Which rows of a dataset are duplicates, and which of them stays."""

    key_columns: Any
    """The key columns; None for all columns."""

    order_by: Any
    """The columns whose greatest value stays; None if nothing orders rows."""

    keep: KeepPolicy | None
    """Which row stays if the order does not say; None if only equal rows may go."""

    null_keys: Literal["keep", "match"]
    """Whether rows with NULL in a key column all stay, or NULL equals NULL."""

    def __post_init__(self) -> None:
        for name in ("key_columns", "order_by"):
            if (given := getattr(self, name)) is not None:
                check_names(name, given)
        if self.keep not in ("first", "last", None):
            raise InvalidArgumentError.choice("keep", self.keep, ("first", "last"))
        if self.null_keys not in ("keep", "match"):
            raise InvalidArgumentError.choice("null_keys", self.null_keys, ("keep", "match"))
        if self.key_columns is None and self.order_by is not None:
            raise InvalidArgumentError(
                f"order_by {list(self.order_by)!r} has no use without key_columns: rows that are "
                "equal in every column have no greatest one.\nHint: name the key columns.",
                argument="order_by",
            )


@dataclass(frozen=True)
class MergeOptions:
    """Everything that a caller decides about a merge, except its data and where it goes."""

    strategy: MergeStrategy
    key_columns: tuple[str, ...]
    partition_columns: tuple[str, ...] | None = None
    files: FileOptions = field(default_factory=FileOptions)
    schema: pa.Schema | None = None
    null_keys: NullPolicy = "error"
    duplicate_keys: DuplicatePolicy = "error"
    order_by: tuple[str, ...] = ()
    trust_partitions: bool = False
    allow_empty: bool = False
    progress: Progress | bool | None = None
    rewrite_all: bool = False
    """Whether files with rows are rewritten even if no value changes; not by ``insert``."""

    only_plans: bool = False
    """Whether nothing will be written, so that an engine need not prepare for it."""

    limits: RewriteLimits = RewriteLimits()
    """How much may be rewritten; a plan is never refused for it."""

    key_index: bool | None = None
    """Whether the dataset gets or loses a key index; None if that stays as it is."""

    delete_when: str | None = None
    """The boolean column of the source that is true in rows that delete their key."""

    only_newer: str | None = None
    """The column that must be greater in a source row than in the target row it replaces."""

    partition_change: PartitionChange = "refuse"
    """What happens to a target row whose source row belongs to another partition."""

    transaction: Transaction | None = None
    """Which batch of which application this is; skipped if it is committed already."""

    purge: bool = False
    """Whether older versions of files are removed from the trash at once."""

    where: Any = None
    """The condition whose rows are deleted, as text or an expression, instead of keys."""

    changes: ChangeOptions | None = None
    """How the source is a change feed, if it is one."""

    duplicates_of: DuplicateOptions | None = None
    """Which duplicates are deleted from the dataset, instead of keys."""

    extra_counts: Mapping[str, int] = field(default_factory=dict)
    """Counts that the caller adds to the commit record: rows that it has set apart before."""

    schema_changes: SchemaChanges = "refuse"
    """What the source may change about the columns of the dataset."""

    target_file_bytes: int | None = None
    """New rows go to rewritten files below this size; None for new files only."""

    auto_compact: bool = False
    """Whether partitions with changed files are compacted after the merge, if they need it."""

    @classmethod
    def of(  # noqa: PLR0913 - the options of ``merge``
        cls,
        *,
        strategy: str,
        key_columns: str | Sequence[str] | None,
        partition_columns: str | Sequence[str] | None = None,
        partition_by: str | Sequence[str] | None = None,
        compression: str | None = "snappy",
        max_rows_per_file: int | None = 5_000_000,
        row_group_size: int | None = 500_000,
        bloom_columns: str | Sequence[str] | None = None,
        order_by: str | Sequence[str] | None = None,
        max_rewrite_fraction: float | None = None,
        max_rewrite_bytes: int | None = None,
        **fields: Any,
    ) -> Self:
        """Make options of what a caller may pass to ``merge``; ``fields`` stay as they are."""
        return cls(
            MergeStrategy.of(strategy),
            as_names(key_columns),
            resolve_partition_columns(partition_columns, partition_by),
            FileOptions.of(compression, max_rows_per_file, row_group_size, bloom_columns),
            order_by=_as_names(order_by),
            limits=RewriteLimits(max_rewrite_fraction, max_rewrite_bytes),
            **fields,
        )

    @classmethod
    def of_delete(
        cls, keys: Any, key_columns: str | Sequence[str] | None, where: Any, **arguments: Any
    ) -> Self:
        """Make options of what a caller may pass to ``delete``: keys, or a condition."""
        if (keys is None) == (where is None):
            raise InvalidArgumentError(
                "delete takes keys or where, and "
                f"{'neither was given' if where is None else 'both were given'}.\n"
                "Hint: delete(keys, path, key_columns), or delete(None, path, where=...).",
                argument="where",
            )
        if where is not None and key_columns is not None:
            raise InvalidArgumentError(
                f"key_columns {key_columns!r} have no use with where.\nHint: leave them out.",
                argument="key_columns",
            )
        given = [] if where is not None else key_columns
        return cls.of(strategy="delete", key_columns=given, where=where, **arguments)

    @classmethod
    def of_deduplicate(
        cls,
        key_columns: str | Sequence[str] | None,
        order_by: str | Sequence[str] | None,
        keep: KeepPolicy | None,
        null_keys: Literal["keep", "match"],
        **arguments: Any,
    ) -> Self:
        """Make options of what a caller may pass to ``deduplicate``."""
        keys, order = (None if n is None else as_names(n) for n in (key_columns, order_by))
        duplicates = DuplicateOptions(keys, order, keep, null_keys)
        return cls.of(strategy="delete", key_columns=[], duplicates_of=duplicates, **arguments)

    @classmethod
    def of_changes(
        cls,
        *,
        keys: str | Sequence[str],
        sequence_by: str,
        apply_as_deletes: Any = None,
        column_list: str | Sequence[str] | None = None,
        except_column_list: str | Sequence[str] | None = None,
        stored_as_scd_type: Any = 1,
        tombstone_retention: timedelta = DEFAULT_RETENTION,
        **arguments: Any,
    ) -> Self:
        """Make options of what a caller may pass to ``apply_changes``."""
        changes = ChangeOptions.of(
            keys,
            sequence_by,
            apply_as_deletes,
            column_list,
            except_column_list,
            stored_as_scd_type,
            tombstone_retention,
        )
        deciding: dict[str, Any] = {}
        if not changes.keeps_versions:
            # Of two changes with one sequence, a deletion wins.
            marks = () if changes.apply_as_deletes is None else (MARK,)
            deciding = {
                "only_newer": changes.sequence_by,
                "order_by": (changes.sequence_by, *marks),
                "delete_when": MARK if marks else None,
            }
        return cls.of(
            strategy="upsert",
            key_columns=changes.merge_keys,
            changes=changes,
            **deciding,
            **arguments,
        )

    @property
    def name(self) -> str:
        """What the call is named in results and in the history."""
        if self.duplicates_of is not None:
            return DEDUPLICATE_TARGET
        return self.strategy.value if self.changes is None else "apply_changes"

    @property
    def call(self) -> str:
        """The function that the caller has called, for log lines and spans."""
        if self.duplicates_of is not None:
            return "deduplicate"
        if self.changes is not None:
            return "apply_changes"
        return "delete" if self.only_keys else "merge"

    @property
    def selects(self) -> bool:
        """Whether rows of the target are deleted for what they are, not for keys of a source."""
        return self.where is not None or self.duplicates_of is not None

    @property
    def recorded_keys(self) -> tuple[str, ...]:
        """The key columns that the commit record names."""
        if self.duplicates_of is not None:
            return self.duplicates_of.key_columns or ()
        return self.key_columns

    def keys_of(self, given: Any) -> Any:
        """Return keys as data; for a condition, data without rows."""
        return pa.table({}) if self.selects else as_keys(given, self.key_columns)

    def __post_init__(self) -> None:
        if not self.selects:
            check_names("key_columns", self.key_columns)
        _check_optional_names("order_by", self.order_by)
        _check_optional_names("partition_columns", self.partition_columns)
        _check_schema(self.schema)
        check_progress(self.progress)
        _check_transaction(self.transaction)
        if self.target_file_bytes is not None:
            check_whole("target_file_bytes", self.target_file_bytes, 1)
        for name in ("trust_partitions", "allow_empty", "purge", "auto_compact"):
            _check_flag(name, getattr(self, name))
        if not isinstance(self.key_index, bool | None):
            raise InvalidArgumentError(
                f"key_index must be True, False or None, got {self.key_index!r}."
            )
        for name, policies in _POLICIES.items():
            if getattr(self, name) not in policies:
                raise InvalidArgumentError.choice(name, getattr(self, name), policies)
        for name in ("delete_when", "only_newer"):
            self._check_deciding(name, getattr(self, name))
        self._check_schema_changes()
        if self.moves:
            self._check_use("partition_change")
            if self.trust_partitions:
                raise InvalidArgumentError(
                    'partition_change="move" looks for keys in every partition, and '
                    "trust_partitions=True says that they are only in their own.\n"
                    "Hint: leave out one of them.",
                    argument="partition_change",
                    mentions=(
                        Argument("partition_change", ("move",)),
                        Argument("trust_partitions", (True,)),
                    ),
                )

    def _check_schema_changes(self) -> None:
        if self.schema_changes != "refuse" and self.only_keys:
            raise InvalidArgumentError(
                "schema_changes has no use with the strategy 'delete', which stores no row.\n"
                "Hint: leave it out; evolve() changes columns without rows.",
                argument="schema_changes",
                mentions=(Call("evolve"),),
            )

    def _check_deciding(self, name: str, column: object) -> None:
        """Check an argument that names a column which decides about rows."""
        if column is None:
            return
        if not isinstance(column, str) or not column:
            raise InvalidArgumentError(
                f"{name} must be the name of a column, got {column!r}.", argument=name
            )
        self._check_use(name)
        used = () if self.changes is not None else (*self.key_columns, *self.order_by)
        if name == "delete_when" and column in used:
            raise InvalidArgumentError(
                f"delete_when {column!r} cannot be a key column or a column to order by: it is "
                "not stored.",
                argument=name,
            )

    def _check_use(self, name: str) -> None:
        """Refuse an argument about rows that are replaced, if the strategy replaces none."""
        if self.strategy in (MergeStrategy.INSERT, MergeStrategy.DELETE):
            what = "changes no existing row" if not self.updates else "deletes every matching row"
            raise InvalidArgumentError(
                f"{name} has no use with the strategy {self.strategy.value!r}, which {what}.\n"
                f"Hint: leave out {name}, or use upsert.",
                argument=name,
            )

    @property
    def moves(self) -> bool:
        """Whether rows go to the partition of their source row."""
        return self.partition_change == "move"

    @property
    def duplicates(self) -> DuplicatePolicy:
        """What happens to a source key that occurs twice: ``deduplicate`` keeps the last row.

        To delete a key twice is to delete it.
        """
        reducing = (MergeStrategy.DEDUPLICATE, MergeStrategy.DELETE)
        if self.strategy in reducing and self.duplicate_keys == "error":
            return "last"
        return self.duplicate_keys

    @property
    def inserts(self) -> bool:
        """Whether unknown keys are appended."""
        return self.strategy not in (MergeStrategy.UPDATE, MergeStrategy.DELETE)

    @property
    def updates(self) -> bool:
        """Whether rows of known keys are replaced or deleted."""
        return self.strategy is not MergeStrategy.INSERT

    @property
    def only_keys(self) -> bool:
        """Whether only the keys of the source are used."""
        return self.strategy is MergeStrategy.DELETE

    @property
    def rules(self) -> RowRules:
        """What happens to the rows of an affected file."""
        return RowRules(
            keep_others=not self.deletes,
            force=self.rewrite_all,
            deletes=self.only_keys,
            delete_when=self.delete_when,
            only_newer=self.only_newer,
            moves=self.moves,
        )

    @property
    def deletes(self) -> bool:
        """Whether rows whose key the source does *not* have are deleted."""
        return self.strategy is MergeStrategy.FULL_MERGE


@dataclass(frozen=True)
class WriteOptions:
    """Everything that a caller decides about a write, except its data and where it goes."""

    mode: WriteMode
    partition_columns: tuple[str, ...] | None = None
    files: FileOptions = field(default_factory=FileOptions)
    schema: pa.Schema | None = None
    progress: Progress | bool | None = None
    transaction: Transaction | None = None
    extra_counts: Mapping[str, int] = field(default_factory=dict)
    """Counts that the caller adds to the commit record: rows that it has set apart before."""

    purpose: str = ""
    """What the write is named in the history, if not by its mode."""

    schema_changes: SchemaChanges = "refuse"
    """What the data may change about the columns of the dataset."""

    limits: RewriteLimits = field(default_factory=RewriteLimits)
    """How much of the dataset may be rewritten for that."""

    @classmethod
    def of(  # noqa: PLR0913 - what a caller may pass
        cls,
        *,
        mode: WriteMode,
        partition_by: str | Sequence[str] | None = None,
        basename_template: str | None = None,
        compression: str | None = "snappy",
        max_rows_per_file: int | None = 5_000_000,
        row_group_size: int | None = 500_000,
        bloom_columns: str | Sequence[str] | None = None,
        max_rewrite_fraction: float | None = None,
        max_rewrite_bytes: int | None = None,
        **fields: Any,
    ) -> Self:
        """Make options of what a caller may pass to ``write_dataset``; ``fields`` stay as given."""
        files = FileOptions.of(
            compression, max_rows_per_file, row_group_size, bloom_columns, basename_template
        )
        limits = RewriteLimits(max_rewrite_fraction, max_rewrite_bytes)
        parts = resolve_partition_columns(None, partition_by)
        return cls(mode, parts, files, limits=limits, **fields)

    @property
    def name(self) -> str:
        """What the write is named in the history."""
        return self.purpose or self.mode

    def __post_init__(self) -> None:
        if self.mode not in _WRITE_MODES:
            raise InvalidArgumentError.choice("mode", self.mode, _WRITE_MODES)
        if self.schema_changes not in SCHEMA_CHANGES:
            raise InvalidArgumentError.choice("schema_changes", self.schema_changes, SCHEMA_CHANGES)
        if self.schema_changes != "refuse" and self.mode != "append":
            why = "the new files have the columns of the data anyway.\nHint: leave it out."
            if self.mode != "overwrite":
                why = (
                    f"other partitions stay.\nHint: leave it out, and call {Call('evolve')} first."
                )
            raise InvalidArgumentError(
                f"schema_changes has no use with mode={self.mode!r}: {why}",
                argument="schema_changes",
                mentions=(Call("evolve"),),
            )
        _check_schema(self.schema)
        check_progress(self.progress)
        _check_transaction(self.transaction)


@dataclass(frozen=True)
class RepartitionOptions:
    """Everything that a caller decides about repartitioning a dataset."""

    partition_columns: tuple[str, ...]
    files: FileOptions = field(default_factory=FileOptions)
    schema: pa.Schema | None = None
    """The types of columns that only the directories have, if not those they look like."""

    dry_run: bool = False
    progress: Progress | bool | None = None

    def __post_init__(self) -> None:
        given: Any = self.partition_columns
        if given is None:
            raise InvalidArgumentError(
                "partition_by must name columns, got None.\nHint: pass [] for no partitions.",
                argument="partition_by",
            )
        if given != ():
            check_names("partition_by", given)
        _check_flag("dry_run", self.dry_run)
        _check_schema(self.schema)
        check_progress(self.progress)


def _check_optional_names(name: str, names: Any) -> None:
    """Check columns that need not be given."""
    if names not in (None, ()):
        check_names(name, names)


def _check_flag(name: str, value: object) -> None:
    if not isinstance(value, bool):
        raise InvalidArgumentError.flag(name, value)


def _check_schema(schema: object) -> None:
    if schema is not None and not isinstance(schema, pa.Schema):
        raise InvalidArgumentError(
            f"schema must be a pyarrow.Schema, got {schema!r}.\n"
            'Hint: pass pyarrow.schema([("id", pyarrow.int64()), ...]).'
        )


def check_progress(progress: object) -> None:
    """Refuse what can neither be called nor be asked for."""
    if not (progress is None or isinstance(progress, bool) or callable(progress)):
        raise InvalidArgumentError(
            f"progress must be True or a function of phase, done and total, got {progress!r}."
        )


def _check_transaction(transaction: object) -> None:
    if not isinstance(transaction, Transaction | None):
        raise InvalidArgumentError(
            f"transaction must be a Transaction, got {transaction!r}.\n"
            'Hint: pass fsspeckit.Transaction("name of the feed", 17), the number of a batch.',
            argument="transaction",
        )


def check_write_or_merge(
    mode: str,
    strategy: str | None,
    rewrite_mode: str,
    key_columns: str | Sequence[str] | None,
    order_by: str | Sequence[str] | None,
) -> None:
    """Refuse arguments that contradict each other about whether data is written or merged."""
    if strategy is not None:
        validate_rewrite_mode_compatibility(strategy, rewrite_mode)
    if mode not in _WRITE_MODES:
        raise InvalidArgumentError.choice("mode", mode, _WRITE_MODES)
    if strategy is not None and mode != "append":
        raise InvalidArgumentError(
            f"mode={mode!r} replaces data, but strategy={strategy!r} merges into it.\n"
            "Hint: leave out one of them."
        )
    only_merging = {"key_columns": key_columns, "order_by": order_by}
    given = [name for name, value in only_merging.items() if value is not None]
    given += ["rewrite_mode"] if rewrite_mode != "full" else []
    if strategy is None and given:
        raise InvalidArgumentError(
            f"without a strategy there is no use for {' and '.join(given)}.\n"
            'Hint: pass a strategy, for example "upsert", to merge; to write, leave out the rest.'
        )


def resolve_partition_columns(
    partition_columns: str | Sequence[str] | None, partition_by: str | Sequence[str] | None
) -> tuple[str, ...] | None:
    """Return the partition columns, which may be given under two names if both are equal."""
    both = (partition_columns, partition_by)
    given = [as_names(names) for names in both if names is not None]
    if len(given) == 2 and list(given[0]) != list(given[1]):
        raise InvalidArgumentError(
            f"partition_columns is {list(given[0])!r} and partition_by is {list(given[1])!r}.\n"
            "Hint: they are two names for one thing; pass one of them."
        )
    return given[0] if given else None
