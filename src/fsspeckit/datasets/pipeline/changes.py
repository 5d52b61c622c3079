"""The source of a merge that applies a change feed: rows that depend on what is there already.

Changes are marked and reduced once. In each attempt, those that a deletion has overtaken are left
out; and for versions (SCD type 2), the stored versions of their keys are read and new ones are
made. What is left is merged like any other source. The tombstones of the commit depend on the feed
and on the tombstones before it, not on the rows of the target.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic

import pyarrow as pa

from fsspeckit.core.changes import (
    END,
    RESERVED,
    SEQUENCE,
    START,
    DropOvertaken,
    MarkChanges,
    SelectDeletes,
    VersionRows,
    decode_tombstones,
    known_tombstones,
    plan_tombstones,
    shared_columns,
)
from fsspeckit.core.conditions import Condition
from fsspeckit.core.keys import (
    are_comparable,
    as_names,
    check_columns,
    check_names,
    family,
    plain_type,
)
from fsspeckit.core.merge import MergeStrategy
from fsspeckit.core.planning import plan_files
from fsspeckit.core.schema_conform import resolve_null_types
from fsspeckit.datasets.engine import SourceT
from fsspeckit.datasets.pipeline.target_checks import evolved_target, plan_schema_changes
from fsspeckit.errors import Argument, InvalidArgumentError, SchemaMismatchError
from fsspeckit.storage import TombstoneChange, Tombstones, read_tombstones

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fsspeckit.core.planning import Target
    from fsspeckit.datasets.engine import Engine, OpenStage
    from fsspeckit.datasets.pipeline.options import MergeOptions
    from fsspeckit.display import Progress
    from fsspeckit.storage import Snapshot, Storage

    ReadTarget = Callable[[Snapshot, Sequence[str], pa.Schema], Target]

DEFAULT_RETENTION = timedelta(days=7)
_TYPES = (1, 2)


@dataclass(frozen=True)
class ChangeOptions:
    """What a caller decides about a change feed."""

    keys: tuple[str, ...]
    sequence_by: str
    apply_as_deletes: Any = None
    column_list: tuple[str, ...] | None = None
    except_column_list: tuple[str, ...] | None = None
    stored_as_scd_type: int = 1
    tombstone_seconds: float = DEFAULT_RETENTION.total_seconds()
    unstored: tuple[str, ...] = ()
    """Columns that an engine has added to the changes, which are not stored."""

    @classmethod
    def of(
        cls,
        keys: Any,
        sequence_by: Any,
        apply_as_deletes: Any,
        column_list: Any,
        except_column_list: Any,
        stored_as_scd_type: Any,
        tombstone_retention: Any,
    ) -> ChangeOptions:
        """Make options of what a caller may pass to ``apply_changes``."""
        check_names("keys", as_names(keys))
        if not isinstance(sequence_by, str) or not sequence_by:
            raise InvalidArgumentError(
                f"sequence_by must be the name of a column, got {sequence_by!r}.\n"
                "Hint: compute the column first, if it is an expression.",
                argument="sequence_by",
            )
        if column_list is not None and except_column_list is not None:
            raise InvalidArgumentError(
                "column_list and except_column_list cannot be given together.\n"
                "Hint: name the columns that are stored, or those that are not.",
                argument="column_list",
                mentions=(Argument("except_column_list"),),
            )
        given = {"column_list": column_list, "except_column_list": except_column_list}
        lists: dict[str, Any] = {
            name: None if one is None else as_names(one) for name, one in given.items()
        }
        for name, one in lists.items():
            if one is not None:
                check_names(name, one)
        kind = stored_as_scd_type
        if isinstance(kind, str):
            kind = {"1": 1, "2": 2}.get(kind)
        if isinstance(kind, bool) or kind not in _TYPES:
            raise InvalidArgumentError(
                f"stored_as_scd_type must be 1 or 2, got {stored_as_scd_type!r}.\n"
                "Hint: 1 keeps the last version of each row, 2 keeps every version.",
                argument="stored_as_scd_type",
            )
        return cls(
            as_names(keys),
            sequence_by,
            apply_as_deletes,
            **lists,
            stored_as_scd_type=kind,
            tombstone_seconds=_seconds(tombstone_retention),
        )

    @property
    def keeps_versions(self) -> bool:
        """Whether every version of a row is kept."""
        return self.stored_as_scd_type == 2

    @property
    def merge_keys(self) -> tuple[str, ...]:
        """The columns that identify a row of the target."""
        return (*self.keys, START) if self.keeps_versions else self.keys

    def stored(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the columns of the feed that are stored.

        Raises:
            InvalidArgumentError: If a column is not there, or must be stored and is not.
        """
        names = [name for name in names if name not in self.unstored]
        check_columns("keys", self.keys, names)
        check_columns("sequence_by", [self.sequence_by], names)
        if used := [name for name in RESERVED if name in names]:
            raise InvalidArgumentError(
                f"the changes have a column {used[0]!r}, a name that is used for what is computed "
                "from them.\nHint: rename the column."
            )
        wanted = list(names)
        if self.column_list is not None:
            check_columns("column_list", self.column_list, names)
            wanted = [name for name in names if name in self.column_list]
        if self.except_column_list is not None:
            check_columns("except_column_list", self.except_column_list, names)
            wanted = [name for name in names if name not in self.except_column_list]
        needed = self.keys if self.keeps_versions else (*self.keys, self.sequence_by)
        if missing := [name for name in needed if name not in wanted]:
            what = "key" if missing[0] in self.keys else "sequence_by"
            raise InvalidArgumentError(
                f"the {what} column {missing[0]!r} must be stored: later changes are compared with "
                "it.\nHint: add it to column_list, or leave it out of except_column_list.",
                argument="column_list" if self.column_list is not None else "except_column_list",
                mentions=(*map(Argument, ("column_list", "except_column_list", "sequence_by")),),
            )
        return tuple(wanted)


def _seconds(retention: Any) -> float:
    if not isinstance(retention, timedelta) or retention < timedelta(0):
        raise InvalidArgumentError(
            f"tombstone_retention must be a timedelta that is not negative, got {retention!r}.\n"
            "Hint: pass datetime.timedelta(days=7), or as long as changes can be late.",
            argument="tombstone_retention",
        )
    return retention.total_seconds()


class ChangeFeed(Generic[SourceT]):
    """The changes of one call, and what is made of them in each attempt."""

    def __init__(
        self,
        engine: Engine[SourceT, Any, Any],
        storage: Storage,
        stage: OpenStage,
        options: MergeOptions,
        report: Progress,
    ) -> None:
        assert options.changes is not None
        self._engine = engine
        self._storage = storage
        self._stage = stage
        self._options = options
        self._changes: ChangeOptions = options.changes
        self._report = report
        self._marked: SourceT
        self._columns: tuple[str, ...] = ()
        self._deletes: pa.Table | None = None
        self._base = Tombstones()
        self._tables: list[pa.Table | None] = []
        self.late = 0
        """The changes of the last attempt that the deletion of their key has overtaken."""

    @property
    def count(self) -> int:
        """The number of changes."""
        return self._marked.num_rows

    def take(self, source: SourceT) -> SourceT:
        """Mark the changes, reduce them to their columns, and return them.

        Raises:
            InvalidArgumentError: If a column or the condition is wrong, or a sequence is NULL.
        """
        changes, schema = self._changes, source.schema
        self._columns = changes.stored(schema.names)
        kind = plain_type(schema.field(changes.sequence_by).type)
        if family(kind) in (None, "null"):
            raise InvalidArgumentError(
                f"sequence_by {changes.sequence_by!r} of type {kind} has no order.\n"
                "Hint: use numbers, strings, binaries, dates, times or timestamps.",
                argument="sequence_by",
            )
        deletes = None
        if changes.apply_as_deletes is not None:
            deletes = Condition.of(changes.apply_as_deletes, schema, "apply_as_deletes")
        extra = () if changes.sequence_by in self._columns else (changes.sequence_by,)
        mark = MarkChanges((*self._columns, *extra), changes.keys, changes.sequence_by, deletes)
        self._marked = self._engine.transform(source, mark, self._stage, self._report)
        if deletes is not None:
            select = SelectDeletes(changes.keys, changes.sequence_by)
            found = self._engine.transform(self._marked, select, self._stage, self._report)
            most = self._storage.tombstone_limits.max_rows
            _check_deletes(found.num_rows, most, self._changes.tombstone_seconds)
            self._deletes = found.columns(found.schema.names)
        return self._marked

    def rows_at(self, snapshot: Snapshot, read_target: ReadTarget) -> SourceT:
        """Return the rows to merge into the dataset as it is.

        ``read_target`` reads the target with some key columns, and the schema of the source.
        """
        self.late = 0
        self._base, data = read_tombstones(self._storage, self._changes.tombstone_seconds)
        self._tables = [None if one is None else decode_tombstones(one) for one in data]
        oldest = time.time() - self._changes.tombstone_seconds
        known = known_tombstones(self._tables, self._changes.keys, oldest)
        if known is not None:
            _check_comparable(self._changes, self._marked.schema, known.schema)
        if self._changes.keeps_versions:
            return self._versions(snapshot, read_target, known)
        if known is None:
            return self._marked
        drop = DropOvertaken(self._changes.keys, self._changes.sequence_by, known)
        left = self._engine.transform(self._marked, drop, self._stage, self._report)
        self.late = self._marked.num_rows - left.num_rows
        return left

    def tombstones(self) -> TombstoneChange:
        """Return what the commit of this attempt does to tombstones."""
        return plan_tombstones(
            self._base,
            self._tables,
            self._deletes,
            keys=self._changes.keys,
            only_last=not self._changes.keeps_versions,
            seconds=self._changes.tombstone_seconds,
            now=time.time(),
            limits=self._storage.tombstone_limits,
        )

    def _versions(
        self, snapshot: Snapshot, read_target: ReadTarget, known: pa.Table | None
    ) -> SourceT:
        """Make versions of the changes and of the versions that are stored."""
        schema = self._version_schema(self._marked.schema)
        target = read_target(snapshot, self._changes.keys, schema)
        if target.footers:
            changes = plan_schema_changes(schema, target, self._options.schema_changes)
            schema = _stored_schema(target, schema)
            if changes is not None:
                schema = _with_types_of(schema, changes.schema)
                target = evolved_target(target, changes)
        stored = self._stored_versions(snapshot, target, schema)
        make = VersionRows(self._changes.keys, self._changes.sequence_by, schema, known)
        columns = shared_columns(self._changes.keys, self._marked.schema, schema)
        return self._engine.combine(self._marked, stored, make, columns, self._stage, self._report)

    def _version_schema(self, changes: pa.Schema) -> pa.Schema:
        """Return the columns of versions, with the types of the feed."""
        kind = plain_type(changes.field(self._changes.sequence_by).type)
        fields = [changes.field(name) for name in self._columns]
        return pa.schema([*fields, pa.field(START, kind), pa.field(END, kind)])

    def _stored_versions(self, snapshot: Snapshot, target: Target, schema: pa.Schema) -> SourceT:
        """Read the versions of all keys of the feed, in whatever partition they are."""
        look_up = replace(
            self._options,
            strategy=MergeStrategy.DELETE,
            key_columns=self._changes.keys,
            partition_change="refuse",
            only_plans=True,
            changes=None,
            schema_changes="refuse",
        )
        searched = replace(target, partition_columns=())
        keys = self._engine.keys(self._marked, searched, look_up, self._report)
        plan = plan_files(searched, keys, look_up.strategy.value, snapshot=snapshot)
        matches = self._engine.match(self._marked, keys, searched, plan, self._report)
        return self._engine.matched_rows(
            self._marked, target, matches, schema, self._stage, self._report
        )


def _check_comparable(changes: ChangeOptions, feed: pa.Schema, known: pa.Schema) -> None:
    """Refuse a feed whose types are not those of the keys that are remembered.

    Raises:
        SchemaMismatchError: If a key column, or the sequence, has another kind of type.
    """
    named = {**{name: name for name in changes.keys}, changes.sequence_by: SEQUENCE}
    for name, theirs in named.items():
        kinds = feed.field(name).type, known.field(theirs).type
        if not are_comparable(*map(plain_type, kinds)):
            raise SchemaMismatchError(
                f"column {name!r} is {kinds[0]} in the changes and {kinds[1]} in the deletions "
                "that are remembered; their values are never equal.\nHint: convert the column of "
                "the changes; or, if the dataset is a new one, pass "
                "tombstone_retention=timedelta(0) once, which forgets all deleted keys."
            )


def _check_deletes(count: int, most: int, seconds: float) -> None:
    """Refuse more deletions than can be remembered, before one process reads them all.

    Raises:
        InvalidArgumentError: If there are too many.
    """
    if count > most:
        raise InvalidArgumentError(
            f"the changes delete {count:,} times, and at most {most:,} deletions can be remembered "
            f"(here for {seconds / 86400:g} days). Nothing was changed.\n"
            "Hint: apply the changes in several calls, with a short tombstone_retention; or delete "
            "by key with delete().",
            argument="changes",
        )


def _with_types_of(schema: pa.Schema, other: pa.Schema) -> pa.Schema:
    types = dict(zip(other.names, other.types, strict=True))
    return pa.schema([field.with_type(types.get(field.name, field.type)) for field in schema])


def _stored_schema(target: Target, schema: pa.Schema) -> pa.Schema:
    """Return the columns of versions with the types that the target stores.

    Raises:
        SchemaMismatchError: If the target keeps no versions.
    """
    parts = {part.name for part in target.partition_columns}
    if missing := [name for name in (START, END) if name not in target.types.names]:
        raise SchemaMismatchError(
            f"{target.root.display_path!r} has no column {missing[0]!r}: it keeps no versions.\n"
            "Hint: pass stored_as_scd_type=1, or the path of a new dataset."
        )
    known = {*target.types.names} - parts
    found = pa.schema([target.types.field(f.name) if f.name in known else f for f in schema])
    typed = pa.schema([(part.name, part.type) for part in target.partition_columns])
    return resolve_null_types(found, typed)
