"""A dataset under test: every merge into it is compared with the model, file by file.

What a merge must do to each file follows from the model alone: the rows a file holds afterwards, in
their order, tell whether it is preserved, rewritten or removed. So one comparison proves the rows,
their order inside files, that nothing else was touched, and every counter of the result.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fsspeckit.core.arrow_compat import cast_table, physical_types, with_int96_as
from fsspeckit.testing.conformance.stores import data_files, partition_names, read_rows
from fsspeckit.testing.duplicates_model import remaining_rows
from fsspeckit.testing.model import ModelResult, merge_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from fsspeckit.core.incremental import MergePlan, MergeResult
    from fsspeckit.testing.conformance.stores import Store, Tree
    from fsspeckit.testing.model_source import Row

__all__ = ["Expected", "Target", "as_table", "expect_duplicates", "lines", "numbers"]

_MODEL_OPTIONS = (
    "null_keys",
    "duplicate_keys",
    "order_by",
    "allow_empty",
    "delete_when",
    "only_newer",
    "partition_change",
)


def numbers(*ids: int | None, v: str = "old") -> pa.Table:
    """A table of an ``id`` and a ``v``."""
    return pa.table({"id": pa.array(ids, pa.int64()), "v": pa.array([v] * len(ids), pa.string())})


def line(row: Row) -> str:
    """A row as text: equal only if every bit is, but NaN = NaN."""
    return repr(sorted(row.items()))


def lines(rows: pa.Table | Iterable[Row]) -> tuple[str, ...]:
    """Rows as texts, in their order."""
    return tuple(map(line, rows.to_pylist() if isinstance(rows, pa.Table) else rows))


def as_table(data: Any) -> pa.Table:
    """What `read_dataset` returned, as a table: some engines return a frame of their own."""
    return data if isinstance(data, pa.Table) else data.toArrow()


@dataclass(frozen=True)
class Expected:
    """What the model says about a merge."""

    whole: ModelResult
    before: int
    """The rows of the target before."""

    preserved: frozenset[str]
    """Files in which no value changes."""

    rewritten: Counter[tuple[str, ...]]
    """The rows of each rewritten file, in their order."""

    inserted: Counter[str]
    """The rows of new files, inserted or moved, in any order and any number of files."""


def expect(
    files: Mapping[str, list[Row]],
    source: Sequence[Row],
    strategy: str,
    keys: Sequence[str],
    options: Mapping[str, Any],
) -> Expected:
    """Ask the model about a whole dataset, and about each of its files."""
    asked = {name: options[name] for name in _MODEL_OPTIONS if options.get(name) is not None}
    parts = next((partition_names(name) for name in files), [])
    everything = [row for rows in files.values() for row in rows]
    whole = merge_rows(
        everything if files else None, source, strategy, keys, partition_columns=parts, **asked
    )
    after: dict[str, list[Row]] = {}
    for name, rows in files.items():
        alone = merge_rows(rows, source, strategy, keys, partition_columns=parts, **asked)
        after[name] = alone.rows[: len(rows) - alone.deleted - alone.moved]
    kept = len(everything) - whole.deleted - whole.moved
    preserved = {name for name, rows in files.items() if lines(rows) == lines(after[name])}
    # A file that loses all of its rows is removed, but a dataset keeps one file for its schema.
    changed = [lines(rows) for name, rows in after.items() if name not in preserved]
    left = [rows for rows in changed if rows]
    if changed and not left and not preserved and not whole.rows[kept:]:
        left = [()]
    inserted = Counter(lines(whole.rows[kept:]))
    return Expected(whole, len(everything), frozenset(preserved), Counter(left), inserted)


def expect_duplicates(
    files: Mapping[str, list[Row]], keys: Sequence[str] | None, options: Mapping[str, Any]
) -> Expected:
    """Ask the model which rows stay, file by file."""
    given = {name: value for name, value in options.items() if value is not None}
    every = [(name, row) for name, rows in files.items() for row in rows]
    kept = remaining_rows([row for _, row in every], keys, **given)
    after: dict[str, list[Row]] = {name: [] for name in files}
    for number in kept:
        name, row = every[number]
        after[name].append(row)
    changed = [name for name, rows in files.items() if len(rows) > len(after[name])]
    rewritten = Counter(lines(after[name]) for name in changed if after[name])
    rows = [every[number][1] for number in kept]
    result = ModelResult(rows, 0, 0, len(every) - len(kept), 0, 0)
    return Expected(
        result, len(every), frozenset(files.keys() - set(changed)), rewritten, Counter()
    )


class Target:
    """A dataset in a store, and the engine that merges into it."""

    def __init__(self, io: Any, store: Store) -> None:
        self.io = io
        self.store = store
        self._types: dict[str, pa.DataType] = {}

    def write(self, name: str, table: pa.Table, **options: Any) -> None:
        """Put a file into the dataset; its types are those the target has from now on."""
        self.store.write(name, table, **options)
        self.knows(table.schema)

    def knows(self, schema: pa.Schema) -> None:
        """Say what types columns of the target have, if not those of the source."""
        self._types.update({column.name: column.type for column in schema})

    def schema(self, source: pa.Table) -> pa.Schema:
        """The columns of the source with the types of the target."""
        return pa.schema([pa.field(f.name, self._types.get(f.name, f.type)) for f in source.schema])

    def files(self, schema: pa.Schema) -> dict[str, list[Row]]:
        """The rows of each data file."""
        return _rows_of_files(self.store.tree(), schema)

    def rows(self, schema: pa.Schema) -> Counter[str]:
        """All rows on disk."""
        return Counter(line(row) for rows in self.files(schema).values() for row in rows)

    def merge(
        self,
        source: pa.Table,
        strategy: str = "upsert",
        keys: Sequence[str] = ("id",),
        *,
        data: Any = None,
        by_plan: bool = False,
        **options: Any,
    ) -> MergeResult:
        """Merge, compare everything with the model, and merge again: that must change nothing.

        Args:
            source: The rows to merge.
            strategy: The strategy.
            keys: The key columns.
            data: The same rows in another form, for the first merge.
            by_plan: Plan the first merge, then execute the plan.
            options: Passed on.
        """
        schema = self.schema(source)
        rows = cast_table(source.select(schema.names), schema).to_pylist()
        schema = self._stored(schema, strategy, options)
        before = self.store.tree()
        expected = expect(_rows_of_files(before, schema), rows, strategy, keys, options)
        leftovers = self.store.leftovers()  # of plans that the test still has
        given = source if data is None else data
        result: MergeResult = (
            self.io.execute(self.plan(given, strategy, keys, **options))
            if by_plan
            else self.io.merge(given, self.store.path, strategy, keys, **options)
        )
        assert (result.strategy, result.source_count) == (strategy, source.num_rows)
        self._check_counts(result, expected)
        after = self.store.tree()
        self._check_files(result, expected, before, after, schema)
        self._check_repeated(source, strategy, keys, options, after)
        assert set(self.store.leftovers()) <= set(leftovers)
        return result

    def deduplicate(self, keys: Sequence[str] | None = ("id",), **options: Any) -> MergeResult:
        """Delete duplicates, compare with the model, and do it again: that must change nothing.

        Args:
            keys: The key columns; None for all columns.
            options: Passed on.
        """
        schema = pa.schema(list(self._types.items()))
        before = self.store.tree()
        files = _rows_of_files(before, schema)
        expected = expect_duplicates(files, keys, options)
        result: MergeResult = self.io.deduplicate(self.store.path, keys, **options)
        assert (result.strategy, result.source_count) == ("deduplicate_target", 0)
        self._check_counts(result, expected)
        after = self.store.tree()
        self._check_files(result, expected, before, after, schema)
        again = self.io.deduplicate(self.store.path, keys, **options)
        assert (again.rewritten_files, again.inserted_files, again.deleted) == ([], [], 0)
        assert self.store.tree() == after
        assert self.store.leftovers() == []
        return result

    def _stored(self, schema: pa.Schema, strategy: str, options: Mapping[str, Any]) -> pa.Schema:
        """The columns of the target: those of the source, except for what says to delete."""
        if strategy == "delete":
            return pa.schema(list(self._types.items()))
        return pa.schema([field for field in schema if field.name != options.get("delete_when")])

    def _check_counts(self, result: MergeResult, expected: Expected) -> None:
        whole = expected.whole
        counted = (result.inserted, result.updated, result.deleted)
        assert counted == (whole.inserted, whole.updated, whole.deleted)
        effects = (result.moved, result.late, result.not_found)
        assert effects == (whole.moved, whole.late, whole.not_found)
        assert result.target_count_before == expected.before
        assert result.target_count_after == len(whole.rows)
        assert result.target_count_after == expected.before + whole.inserted - whole.deleted
        assert sum(file.row_count for file in result.files) == result.target_count_after

    def _check_files(
        self,
        result: MergeResult,
        expected: Expected,
        before: Tree,
        after: Tree,
        schema: pa.Schema,
    ) -> None:
        found = data_files(after)
        named = {
            "rewritten": [self.store.relative(path) for path in result.rewritten_files],
            "inserted": [self.store.relative(path) for path in result.inserted_files],
            "preserved": [self.store.relative(path) for path in result.preserved_files],
        }
        assert sorted(name for names in named.values() for name in names) == found
        assert set(named["preserved"]) == expected.preserved
        new = [*named["rewritten"], *named["inserted"]]
        assert not before.keys() & set(new), "a name was used again"
        gone = set(data_files(before)) - expected.preserved
        _check_untouched(before, after, gone, checksums=bool(self.store.local))
        stored = {name: lines(read_rows(name, after[name].data, schema)) for name in new}
        assert Counter(stored[name] for name in named["rewritten"]) == expected.rewritten
        arrived = [row for name in named["inserted"] for row in stored[name]]
        assert Counter(arrived) == expected.inserted
        assert sorted(
            (self.store.relative(file.path), file.operation, file.row_count, file.size_bytes)
            for file in result.files
        ) == sorted(
            (name, operation, _footer(after[name].data).num_rows, len(after[name].data))
            for operation, names in named.items()
            for name in names
        )
        self._check_schemas(new, before, after)

    def _check_schemas(self, new: Iterable[str], before: Tree, after: Tree) -> None:
        """New files have columns, order, types and nullability of those that were there."""
        old = [self._meant(before[name].data) for name in data_files(before)]
        for name in new if old else ():
            schema = self._meant(after[name].data)
            assert any(schema.equals(one) for one in old), f"{name!r} has {schema}, not {old[0]}"

    @staticmethod
    def _meant(data: bytes) -> pa.Schema:
        """The schema of a file; INT96 is another spelling of an instant."""
        with pq.ParquetFile(pa.BufferReader(data)) as file:
            physical = physical_types(file.schema)
            return with_int96_as(file.schema_arrow, physical, pa.timestamp("us", "UTC"))

    def _check_repeated(
        self,
        source: pa.Table,
        strategy: str,
        keys: Sequence[str],
        options: Mapping[str, Any],
        before: Tree,
    ) -> None:
        options = {**options, "transaction": None}  # merged again, not skipped
        again = self.io.merge(source, self.store.path, strategy, keys, **options)
        assert (again.rewritten_files, again.inserted_files) == ([], [])
        assert (again.inserted, again.deleted, again.moved) == (0, 0, 0)
        assert again.target_count_before == again.target_count_after
        assert self.store.tree() == before

    def refuses(
        self,
        error: type[BaseException],
        source: Any,
        strategy: str = "upsert",
        keys: Sequence[str] = ("id",),
        *,
        match: str | None = None,
        **options: Any,
    ) -> str:
        """Merge what must be refused before anything is written; return the message."""
        before = self.store.tree()
        with pytest.raises(error, match=match) as caught:
            self.io.merge(source, self.store.path, strategy, keys, **options)
        assert self.store.tree() == before
        assert self.store.leftovers() == []
        return str(caught.value)

    def plan(
        self,
        source: pa.Table,
        strategy: str = "upsert",
        keys: Sequence[str] = ("id",),
        **options: Any,
    ) -> MergePlan:
        """Plan a merge: every data file is in it once, and nothing is written."""
        before = self.store.tree()
        plan: MergePlan = self.io.plan_merge(source, self.store.path, strategy, keys, **options)
        assert self.store.tree() == before
        assert sorted(self.store.relative(f.path) for f in plan.files) == data_files(before)
        return plan

    def decisions(self, plan: MergePlan) -> dict[str, str]:
        """What a plan says about each file."""
        return {self.store.relative(file.path): file.decision for file in plan.files}


def _rows_of_files(tree: Tree, schema: pa.Schema) -> dict[str, list[Row]]:
    return {name: read_rows(name, tree[name].data, schema).to_pylist() for name in data_files(tree)}


def _footer(data: bytes) -> pq.FileMetaData:
    return pq.read_metadata(pa.BufferReader(data))


def _check_untouched(before: Tree, after: Tree, gone: set[str], *, checksums: bool) -> None:
    """Preserved and foreign files keep bytes, name and time; nothing else comes or goes.

    On local disks Hadoop keeps checksums in side files, which go with the files they are about.
    """
    leave = {*gone, *(map(_checksum_of, gone) if checksums else ())} & before.keys()
    assert not leave & after.keys(), "a replaced file or its checksum was left"
    stays = before.keys() - leave
    assert {name: after.get(name) for name in stays} == {name: before[name] for name in stays}
    assert after.keys() - set(data_files(after)) == stays - set(data_files(before))


def _checksum_of(name: str) -> str:
    directory, _, base = name.rpartition("/")
    return f"{directory}/.{base}.crc" if directory else f".{base}.crc"
