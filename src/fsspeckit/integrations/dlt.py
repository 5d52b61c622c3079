"""A destination of dlt: tables as plain Parquet datasets, with the write disposition ``merge``.

dlt's own ``filesystem`` destination appends where a table of plain Parquet should be merged. This
one is the same in everything but how rows get into a table: each load package is one commit to
each table, in a transaction of the package, so that a package which is loaded again changes
nothing. Nested tables are committed before the table that they belong to, because what they have to
remove is found by the old rows of that table.
"""

from __future__ import annotations

import dataclasses
from contextlib import contextmanager
from decimal import Decimal
from functools import cached_property, reduce
from itertools import chain
from operator import and_
from typing import TYPE_CHECKING, Any, Final

import dlt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from dlt.common import logger
from dlt.common.configuration import configspec, resolve_type
from dlt.common.configuration.exceptions import ConfigurationValueError
from dlt.common.destination.exceptions import DestinationTerminalException
from dlt.common.schema.exceptions import SchemaCorruptedException
from dlt.common.schema.utils import (
    get_columns_names_with_prop,
    get_dedup_sort_tuple,
    get_first_column_name_with_prop,
    get_nested_tables,
    get_root_table,
    is_nested_table,
)
from dlt.common.storages.load_package import ParsedLoadJobFileName
from dlt.destinations import filesystem
from dlt.destinations.impl.filesystem.configuration import FilesystemDestinationClientConfiguration
from dlt.destinations.impl.filesystem.filesystem import FilesystemClient, ReferenceFollowupJob
from dlt.destinations.utils import verify_unsupported_merge_options

from fsspeckit.datasets.registry import open_engine
from fsspeckit.errors import DuplicateKeyError
from fsspeckit.storage import Transaction

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from dlt.common.destination import DestinationCapabilitiesContext

__all__ = ["plain_parquet"]

DELETED = "_fsspeckit_deleted"
"""The column of a source that is true in rows whose key is deleted; it is not stored."""

_BATCH_ROWS = 65_536
_DUPLICATES_HINT = (
    "\nHint: in dlt this is the hint `dedup_sort` of a column, or the strategy `delete-insert`, "
    "which keeps one row of each `primary_key`."
)
_NANOSECONDS = 9


@configspec
class PlainParquetConfiguration(FilesystemDestinationClientConfiguration):
    """What ``filesystem`` is configured by, and the engine."""

    destination_type: Final[str] = dataclasses.field(
        default="fsspeckit.integrations.dlt.plain_parquet", init=False, repr=False, compare=False
    )
    engine: str = "pyarrow"
    """``"pyarrow"`` or ``"duckdb"``."""

    @resolve_type("credentials")
    def resolve_credentials_type(self) -> Any:
        """Return the credentials that the URL needs; dlt asks the class itself, not its bases."""
        return super().resolve_credentials_type()

    def on_resolved(self) -> None:
        """Refuse an engine that does not work in the process of dlt."""
        super().on_resolved()
        if self.engine not in {"pyarrow", "duckdb"}:
            raise ConfigurationValueError(
                f"engine must be 'pyarrow' or 'duckdb', got {self.engine!r}: dlt loads in one "
                "process."
            )


class plain_parquet(filesystem):
    """Tables as plain Parquet datasets on any filesystem that dlt's ``filesystem`` reaches.

    Args:
        bucket_url: Where datasets are: a directory, or a URL such as ``s3://lake``.
        credentials: Those of the filesystem, as for dlt's ``filesystem``.
        engine: ``"pyarrow"`` or ``"duckdb"``: what merges.
        arguments: What else dlt's ``filesystem`` takes.

    Examples:
        >>> pipeline = dlt.pipeline("shop", destination=plain_parquet("lake"))  # doctest: +SKIP
        >>> pipeline.run(
        ...     [{"id": 1}], table_name="orders", write_disposition="merge", primary_key="id"
        ... )  # doctest: +SKIP
    """

    @property
    def spec(self) -> type[PlainParquetConfiguration]:
        """The configuration."""
        return PlainParquetConfiguration

    @property
    def client_class(self) -> type[PlainParquetClient]:
        """The client."""
        return PlainParquetClient

    def _raw_capabilities(self) -> DestinationCapabilitiesContext:
        capabilities = super()._raw_capabilities()
        capabilities.preferred_loader_file_format = "parquet"
        capabilities.supported_loader_file_formats = ["parquet", "reference"]
        capabilities.loader_file_format_selector = None
        capabilities.supported_table_formats = []
        capabilities.supported_merge_strategies = ["delete-insert", "upsert", "insert-only"]
        capabilities.merge_strategies_selector = None
        capabilities.supported_replace_strategies = ["truncate-and-insert"]
        capabilities.replace_strategies_selector = None
        return capabilities


class PlainParquetClient(FilesystemClient):
    """Loads the files of a package table by table, and leaves dlt's own tables to dlt."""

    batch_table_chain = True

    def __init__(
        self,
        schema: Any,
        config: PlainParquetConfiguration,
        capabilities: DestinationCapabilitiesContext,
    ) -> None:
        super().__init__(schema, config, capabilities)
        self._names_with_jobs: set[str] = set()
        if not self.table_prefix_layout.endswith("/"):
            raise ConfigurationValueError(
                f"layout must give each table a directory of its own, got {config.layout!r}. Use "
                'one that begins with "{table_name}/", or leave it out.'
            )

    @cached_property
    def io(self) -> Any:
        """The engine, on the filesystem that dlt has opened."""
        return open_engine(self.config.engine, self.fs_client)

    def table_path(self, name: str) -> str:
        """Return the directory of a table."""
        directory: str = self.get_table_dir(name)
        return directory.rstrip("/\\")

    def verify_schema(
        self, only_tables: Iterable[str] | None = None, new_jobs: Any = None
    ) -> list[Any]:
        """Refuse what cannot be merged, before anything is loaded."""
        self._names_with_jobs = {job.table_name for job in new_jobs or ()}
        tables: list[Any] = super().verify_schema(only_tables, new_jobs)
        errors = verify_unsupported_merge_options(
            self.schema,
            [table for table in tables if not is_nested_table(table)],
            self.capabilities,
            self.config.destination_type,
            ("source_filter", "destination_scope", "skip_unchanged_rows"),
        )
        for error in errors:
            raise error
        for table in tables:
            if _is_merged_by_merge_key(table) and _row_key(table) is None:
                raise SchemaCorruptedException(
                    self.schema.name,
                    f"table `{table['name']}` has a `merge_key`, but neither a `primary_key` nor "
                    "dlt's `_dlt_id`, so that nothing identifies the rows to delete. Add a "
                    "`primary_key`, or set `normalize.parquet_normalizer.add_dlt_id = true`.",
                )
        return tables

    def truncate_tables(self, table_names: list[str]) -> None:
        """Empty tables, each in one commit; those that their load replaces stay until then."""
        ours = [
            name
            for name in table_names
            if name in self.schema.tables and not self.is_dlt_table(name)
        ]
        super().truncate_tables([name for name in table_names if name not in ours])
        for name in ours:
            is_replaced = self.prepare_load_table(name)["write_disposition"] == "replace"
            if is_replaced and name in self._names_with_jobs:
                continue
            path = self.table_path(name)
            stored = stored_schema(self.io, path)
            if stored is not None:
                self.io.write_dataset(stored.empty_table(), path, mode="overwrite")

    def __exit__(self, *exception: Any) -> None:
        """Release what the engine holds."""
        if "io" in self.__dict__:
            self.__dict__.pop("io").close()
        super().__exit__(*exception)

    @staticmethod
    def get_reference_followup_job_class(table: Any) -> type[LoadTables]:
        """Return the job that loads all files of a table and of its nested tables."""
        return LoadTables


class LoadTables(ReferenceFollowupJob):
    """Loads a table and its nested tables, each in one commit."""

    def run(self) -> None:
        """Load the tables."""
        client = self._job_client
        root = get_root_table(self._schema.tables, self.load_table_name)
        names = [table["name"] for table in get_nested_tables(self._schema.tables, root["name"])]
        tables = [client.prepare_load_table(name) for name in names]
        files: dict[str, list[str]] = {name: [] for name in names}
        for path in sorted(self.file_paths):
            name = ParsedLoadJobFileName.parse(client.pathlib.basename(path)).table_name
            files[name].append(path)
        loads = [
            TableLoad(client, table, files[table["name"]], self._transaction())
            for table in tables
            if files[table["name"]] or stored_schema(client.io, client.table_path(table["name"]))
        ]
        if loads[0].is_merged:
            merge_tables(loads[0], loads[1:])
            return
        for load in reversed(loads):
            load.write()

    def _transaction(self) -> Transaction:
        """Return the transaction: load ids of a pipeline grow, and packages load in their order."""
        version = int(Decimal(self._load_id).scaleb(_NANOSECONDS))
        name = f"dlt:{dlt.current.pipeline().pipeline_name}:{self._schema.name}"
        return Transaction(name, version, run=self._load_id)


class TableLoad:
    """The files of one table in one load package, and the dataset that they go into."""

    def __init__(
        self, client: PlainParquetClient, table: Any, files: list[str], batch: Any
    ) -> None:
        self.io = client.io
        self.name = table["name"]
        self.path = client.table_path(self.name)
        self.batch = batch
        self.primary_key = get_columns_names_with_prop(table, "primary_key")
        self.merge_key = get_columns_names_with_prop(table, "merge_key")
        self.hard_delete = get_first_column_name_with_prop(table, "hard_delete")
        self.row_key: Any = _row_key(table)
        self.parent = table.get("parent")
        self.parent_key = get_first_column_name_with_prop(table, "parent_key")
        self.root_key = get_first_column_name_with_prop(table, "root_key") or self.parent_key
        self._table = table
        self._files = files

    @property
    def strategy(self) -> str:
        """The merge strategy."""
        return str(self._table.get("x-merge-strategy"))

    @property
    def is_merged(self) -> bool:
        """Whether rows are merged; without a key dlt appends."""
        has_key = self.primary_key or self.merge_key
        return self._table["write_disposition"] == "merge" and bool(has_key)

    @cached_property
    def stored(self) -> pa.Schema | None:
        """The columns of the dataset; None if it has none yet."""
        return stored_schema(self.io, self.path)

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns of all files, and those of the dataset that the files lack."""
        schemas = [pq.read_schema(path).remove_metadata() for path in self._files]
        known = (
            pa.unify_schemas(schemas, promote_options="permissive") if schemas else pa.schema([])
        )
        missing = [field for field in self.stored or () if field.name not in known.names]
        for field in missing:
            known = known.append(field.with_nullable(True))
        return known

    @property
    def stored_key(self) -> list[str]:
        """The columns that identify a nested row in the dataset."""
        if self.stored is not None and self.root_key not in self.stored.names:
            return [self.row_key]  # all rows were appended, which needs no root key
        return [self.root_key, self.row_key]

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the rows of all files, in the same order each time."""
        wanted = self.schema if columns is None else _fields(self.schema, columns)
        for path in self._files:
            with pq.ParquetFile(path) as file:
                names = [name for name in wanted.names if name in file.schema_arrow.names]
                for batch in file.iter_batches(_BATCH_ROWS, columns=names):
                    yield _conform(batch, wanted)

    def columns(self, names: Sequence[str]) -> pa.Table:
        """Return some columns of all rows."""
        wanted = list(dict.fromkeys(names))
        return pa.Table.from_batches(self.batches(wanted), _fields(self.schema, wanted))

    def is_deleted(self, rows: pa.Table | pa.RecordBatch) -> pa.Array:
        """Return which rows are marked as deleted: by true, or by any value but NULL."""
        if self.hard_delete is None:
            return pa.repeat(pa.scalar(False), rows.num_rows)
        marks = rows.column(self.hard_delete)
        is_flag = pa.types.is_boolean(marks.type)
        return pc.fill_null(marks, False) if is_flag else pc.is_valid(marks)

    def chosen_rows(self) -> pa.BooleanArray | None:
        """Return which rows take part, where several may have one primary key; None for all."""
        sort = get_dedup_sort_tuple(self._table)
        is_unique = self.strategy != "delete-insert" or self._table.get("x-stage-data-deduplicated")
        if not self.primary_key or (sort is None and is_unique):
            return None
        keys = self.columns([*self.primary_key, *((sort[0],) if sort else ())])
        keys = keys.append_column(DELETED, pa.array(range(keys.num_rows), pa.int64()))
        if sort is not None:  # the first of each key stays, and NULL is last
            order = "ascending" if sort[1] == "asc" else "descending"
            keys = keys.sort_by([(sort[0], order), (DELETED, "descending")])
        else:
            keys = keys.sort_by([(DELETED, "descending")])
        first = keys.group_by(self.primary_key, use_threads=False).aggregate([(DELETED, "first")])
        return pc.is_in(
            pa.array(range(keys.num_rows), pa.int64()), first.column(f"{DELETED}_first")
        )

    def matching(
        self,
        by: Sequence[str],
        keys: pa.Table,
        columns: Sequence[str],
        where: pc.Expression | None = None,
    ) -> pa.Table:
        """Return columns of the rows in the dataset whose columns ``by`` are among some keys."""
        wanted = list(dict.fromkeys([*by, *columns]))
        if self.stored is None or not set(wanted) <= set(self.stored.names):
            return _fields(self.schema, wanted).empty_table()
        types = [field.with_nullable(True) for field in _fields(self.stored, by)]
        keys = keys.select(list(by)).cast(pa.schema(types))
        values = {name: pc.unique(keys.column(name)).drop_null() for name in by}
        among = reduce(and_, (pc.field(name).isin(found) for name, found in values.items()))
        filters = among if where is None else among & where
        rows = self.io.read_dataset(self.path, columns=wanted, filters=filters)
        return rows.join(keys.group_by(list(by)).aggregate([]), list(by), join_type="left semi")

    def write(self) -> None:
        """Append the rows, or replace all rows of the dataset."""
        if not self._files:
            return
        mode = "overwrite" if self._table["write_disposition"] == "replace" else "append"
        changes = {} if mode == "overwrite" else {"schema_changes": "widen"}
        with self.naming_table():
            self.io.write_dataset(
                pa.RecordBatchReader.from_batches(self.schema, self.batches()),
                self.path,
                mode=mode,
                partition_by=get_columns_names_with_prop(self._table, "partition") or None,
                transaction=self.batch,
                **changes,
            )

    def merge(self, rows: MergedRows) -> None:
        """Merge the rows in one commit."""
        with self.naming_table():
            self._collapse_duplicates(self.io.merge(**self._arguments(rows)))

    def plan(self, rows: MergedRows) -> Any:
        """Plan the merge, which finds out whether it would be refused."""
        with self.naming_table():
            return self.io.plan_merge(**self._arguments(rows))

    def execute(self, plan: Any) -> None:
        """Merge as planned; if others have changed the dataset since, dlt tries again."""
        with self.naming_table():
            self._collapse_duplicates(self.io.execute(plan))

    def _collapse_duplicates(self, done: Any) -> None:
        """Keep one row of each key of the package, where the dataset had several.

        ``delete-insert`` deletes all rows with a key and inserts one; a merge replaces each of
        them. So they are equal now, their ids included, and all but one can go. If the merge is
        skipped, a load before this one may have ended between the two commits.
        """
        matched = done.inserted + done.updated + done.deleted + done.not_found
        is_skipped = done.metrics["commit"]["skipped"]
        if self.strategy != "delete-insert" or not self.primary_key:
            return
        if self.row_key is not None and (is_skipped or matched > done.source_count):
            self.io.deduplicate(self.path)
        elif matched > done.source_count:
            logger.warning(
                f"table `{self.name}` has several rows with one `primary_key`, and no `_dlt_id` by "
                "which they differ: each of them is replaced."
            )

    def _arguments(self, rows: MergedRows) -> dict[str, Any]:
        inserts = self.strategy == "insert-only"
        marked = [] if inserts else [pa.field(DELETED, pa.bool_())]
        schema = pa.schema([*self.schema, *marked])
        batches = chain(
            self._merged_batches(rows.chosen, with_marks=not inserts),
            _deletions(schema, rows.stale),
        )
        return {
            "data": pa.RecordBatchReader.from_batches(schema, batches),
            "path": self.path,
            "strategy": "insert" if inserts else "upsert",
            "key_columns": list(rows.key),
            "partition_by": get_columns_names_with_prop(self._table, "partition") or None,
            "partition_change": "refuse" if inserts else "move",
            "schema_changes": "widen",
            "delete_when": None if inserts else DELETED,
            # Where only the merge key is known, it may be NULL.
            "null_keys": "error" if self.primary_key else "match",
            "transaction": self.batch,
        }

    @contextmanager
    def naming_table(self) -> Iterator[None]:
        """Fail the job, with the name of the table, if a repetition cannot mend the error."""
        try:
            yield
        except ValueError as error:
            hint = _DUPLICATES_HINT if isinstance(error, DuplicateKeyError) else ""
            raise DestinationTerminalException(f"table `{self.name}`: {error}{hint}") from error

    def _merged_batches(
        self, chosen: pa.BooleanArray | None, *, with_marks: bool
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows that take part; without marks only those that are not deleted."""
        start = 0
        for batch in self.batches():
            deleted = self.is_deleted(batch)
            mask = pc.invert(deleted)
            if with_marks:
                batch = batch.append_column(pa.field(DELETED, pa.bool_()), deleted)
                mask = pa.repeat(pa.scalar(True), batch.num_rows)
            if chosen is not None:
                mask = pc.and_(mask, chosen.slice(start, batch.num_rows))
            start += batch.num_rows
            yield batch.filter(mask)


@dataclasses.dataclass(frozen=True)
class MergedRows:
    """Which rows of a package are merged into a table."""

    key: Sequence[str]
    """The key columns."""

    chosen: pa.BooleanArray | None = None
    """Which rows take part; None for all."""

    stale: pa.Table | None = None
    """Keys of rows in the dataset that are deleted in the same commit."""


def merge_tables(root: TableLoad, nested: Sequence[TableLoad]) -> None:
    """Merge a table and its nested tables.

    The table itself is committed last: nested tables need its old rows, also if this is the second
    try. It is planned first, so that what refuses it is found before anything is committed.
    """
    rows = _root_rows(root)
    if not nested:
        root.merge(rows)
        return
    merged_ids, replaced_ids = _root_ids(root, rows.chosen)
    found = {} if root.strategy == "insert-only" else _rows_below(root, nested, replaced_ids)
    plan = root.plan(rows)
    for load in reversed(nested):
        load.merge(_nested_rows(load, merged_ids, found.get(load.name)))
    root.execute(plan)


def _root_rows(root: TableLoad) -> MergedRows:
    key = root.primary_key or [*root.merge_key, root.row_key]
    chosen = root.chosen_rows()
    if root.strategy != "delete-insert" or not root.merge_key:
        return MergedRows(key, chosen)
    staged = root.columns([*root.merge_key, *key])
    found = root.matching(root.merge_key, staged, key).select(key)
    return MergedRows(key, chosen, _without(found, staged.select(key)))


def _root_ids(root: TableLoad, chosen: pa.BooleanArray | None) -> tuple[pa.Array, pa.Array]:
    """Return the ids of rows whose nested rows are taken, and of those whose nested rows go."""
    columns = [*root.primary_key, *root.merge_key, root.row_key]
    staged = root.columns([*columns, *((root.hard_delete,) if root.hard_delete else ())])
    is_merged_row = pc.invert(root.is_deleted(staged))
    if chosen is not None:
        is_merged_row = pc.and_(is_merged_row, chosen)
    ids = staged.column(root.row_key)
    merged_ids = pc.unique(ids.filter(is_merged_row))
    replaced_ids = [pc.unique(ids)]
    if root.strategy != "insert-only":  # rows get new ids, at least if they had been appended
        for by in filter(None, (root.primary_key, root.merge_key)):
            old = root.matching(by, staged, [root.row_key]).column(root.row_key)
            replaced_ids.append(pc.unique(old.cast(ids.type)))
    return merged_ids, pa.concat_arrays(replaced_ids)


def _rows_below(
    root: TableLoad, nested: Sequence[TableLoad], replaced_ids: pa.Array
) -> dict[str, pa.Table]:
    """Return the keys of rows in the nested datasets that belong to some rows of the table.

    Rows know the row of the table that they belong to only if they were merged. Those that were
    appended, or written by ``replace``, are found through the rows that they are nested in.
    """
    found: dict[str, pa.Table] = {}
    ids = {root.name: replaced_ids}
    for load in nested:
        key = load.stored_key
        parents = pa.table({load.parent_key: ids[load.parent]})
        if load.root_key in key:
            roots = pa.table({load.root_key: replaced_ids})
            parts = [load.matching([load.root_key], roots, key)]
            if load.root_key != load.parent_key:
                is_appended = pc.field(load.root_key).is_null()
                parts.append(load.matching([load.parent_key], parents, key, is_appended))
        else:
            parts = [load.matching([load.parent_key], parents, key)]
        found[load.name] = pa.concat_tables([part.select(key) for part in parts])
        ids[load.name] = pc.unique(found[load.name].column(load.row_key))
    return found


def _nested_rows(load: TableLoad, merged_ids: pa.Array, found: pa.Table | None) -> MergedRows:
    """Take the nested rows of rows that are taken, and delete what their lists have no longer."""
    staged = load.columns([load.root_key, load.row_key])
    chosen = pc.is_in(staged.column(load.root_key), merged_ids).combine_chunks()
    key = load.stored_key
    if found is None:
        return MergedRows(key, chosen)
    return MergedRows(key, chosen, _without(found, staged.filter(chosen).select(key)))


def stored_schema(io: Any, path: str) -> pa.Schema | None:
    """Return the columns of a dataset; None if there is none."""
    try:
        return io.read_dataset(path, filters=pc.scalar(False)).schema
    except FileNotFoundError:
        return None


def _row_key(table: Any) -> str | None:
    """Return the column that identifies a row, which dlt fills unless rows come from Arrow."""
    name: str | None = get_first_column_name_with_prop(table, "row_key")
    return name or get_first_column_name_with_prop(table, "unique")


def _is_merged_by_merge_key(table: Any) -> bool:
    return (
        table["write_disposition"] == "merge"
        and not is_nested_table(table)
        and bool(get_columns_names_with_prop(table, "merge_key"))
        and not get_columns_names_with_prop(table, "primary_key")
    )


def _fields(schema: pa.Schema, names: Sequence[str]) -> pa.Schema:
    return pa.schema([schema.field(name) for name in names])


def _conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch with these columns; those that it lacks are NULL."""
    columns = [
        batch.column(field.name).cast(field.type)
        if field.name in batch.schema.names
        else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _deletions(schema: pa.Schema, keys: pa.Table | None) -> Iterator[pa.RecordBatch]:
    """Yield rows that delete keys; what is not a key is NULL in them."""
    for batch in () if keys is None else keys.to_batches(_BATCH_ROWS):
        marks = pa.repeat(pa.scalar(True), batch.num_rows)
        yield _conform(batch.append_column(schema.field(DELETED), marks), schema)


def _without(rows: pa.Table, others: pa.Table) -> pa.Table:
    """Return the rows that are not among others; both have the same columns, which are keys."""
    names = rows.column_names
    return rows.join(
        others.cast(rows.schema).group_by(names).aggregate([]), names, join_type="left anti"
    )
