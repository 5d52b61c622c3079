"""Schema changes: columns that are added or get wider types, by rows or without them."""

# ruff: noqa: D102 - the names of the tests explain

from __future__ import annotations

import datetime as dt
from collections import Counter
from contextlib import ExitStack
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsspeckit import errors
from fsspeckit.core.keys import as_names
from fsspeckit.core.schema_changes import stored_type
from fsspeckit.storage import history, recover
from fsspeckit.testing.columns_model import ColumnsModel, evolutions_of, tables_of
from fsspeckit.testing.conformance.crashes import EVERY_DISK, Failing, committed, some
from fsspeckit.testing.conformance.merging import three_files
from fsspeckit.testing.conformance.stores import data_files, hive, open_store
from fsspeckit.testing.conformance.target import Target, as_table, lines, numbers

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from fsspeckit.testing.model_source import Row

__all__ = ["EvolveTests", "SchemaChangeTests"]

_DAY = dt.datetime(2024, 1, 2, 3, 4, 5, 6000)

WIDER: dict[str, tuple[pa.Array, pa.Array, pa.DataType]] = {
    "int8 and int16": (pa.array([1, None], pa.int8()), pa.array([300], pa.int16()), pa.int16()),
    "int32 and int64": (pa.array([1, None], pa.int32()), pa.array([2**40]), pa.int64()),
    "uint8 and int8": (pa.array([200, 1], pa.uint8()), pa.array([-1], pa.int8()), pa.int16()),
    "uint32 and uint64": (
        pa.array([1, 2], pa.uint32()),
        pa.array([2**63], pa.uint64()),
        pa.uint64(),
    ),
    "float and double": (pa.array([0.5, None], pa.float32()), pa.array([0.1]), pa.float64()),
    "int16 and float": (
        pa.array([1, 2], pa.int16()),
        pa.array([0.5], pa.float32()),
        pa.float32(),
    ),
    "int32 and double": (pa.array([1, 2], pa.int32()), pa.array([0.1]), pa.float64()),
    "decimals": (
        pa.array([Decimal("1.50"), None], pa.decimal128(5, 2)),
        pa.array([Decimal("12345678.125")], pa.decimal128(11, 3)),
        pa.decimal128(11, 3),
    ),
    "int32 and decimal": (
        pa.array([7, None], pa.int32()),
        pa.array([Decimal("0.25")], pa.decimal128(5, 2)),
        pa.decimal128(12, 2),
    ),
    "units of a timestamp": (
        pa.array([_DAY, None], pa.timestamp("ms", "UTC")),
        pa.array([_DAY.replace(microsecond=1)], pa.timestamp("us", "UTC")),
        pa.timestamp("us", "UTC"),
    ),
    "units of a time": (
        pa.array([dt.time(1), None], pa.time32("ms")),
        pa.array([dt.time(1, 2, 3, 4)], pa.time64("us")),
        pa.time64("us"),
    ),
    "NULL and string": (pa.nulls(2), pa.array(["a"]), pa.string()),
    "a field of a struct": (
        pa.array([{"a": 1}, None], pa.struct([("a", pa.int32())])),
        pa.array([{"a": 2**40, "b": "x"}]),
        pa.struct([("a", pa.int64()), ("b", pa.string())]),
    ),
    "elements of a list": (
        pa.array([[1, None], None], pa.list_(pa.int8())),
        pa.array([[2**40], [3]][:1]),
        pa.list_(pa.int64()),
    ),
    "values of a map": (
        pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int32())),
        pa.array([[("k", 2**40)]], pa.map_(pa.string(), pa.int64())),
        pa.map_(pa.string(), pa.int64()),
    ),
}
"""Two values of the target, one of the source, and the type that holds them all."""

LOSSY: dict[str, tuple[pa.Array, pa.Array]] = {
    "int64 and double": (pa.array([1, 2]), pa.array([0.5])),
    "int64 and float": (pa.array([1, 2]), pa.array([0.5], pa.float32())),
    "date and timestamp": (
        pa.array([_DAY.date()] * 2, pa.date32()),
        pa.array([_DAY], pa.timestamp("us")),
    ),
    "naive and zoned timestamps": (
        pa.array([_DAY] * 2, pa.timestamp("us")),
        pa.array([_DAY], pa.timestamp("us", "UTC")),
    ),
    "string and number": (pa.array(["1", "2"]), pa.array([3])),
    "string and binary": (pa.array(["1", "2"]), pa.array([b"3"])),
    "bool and number": (pa.array([True, False]), pa.array([3])),
}
"""Two values of the target and one of the source, for which there is no type."""

ADDED: dict[str, pa.Array] = {
    "string": pa.array(["x"]),
    "bool": pa.array([True]),
    "decimal": pa.array([Decimal("1.5")], pa.decimal128(9, 2)),
    "timestamp": pa.array([_DAY], pa.timestamp("us", "UTC")),
    "dictionary": pa.array(["x"]).dictionary_encode(),
    "struct of a list": pa.array([{"a": [1], "b": {"c": None}}]),
    "map": pa.array([[("k", [1])]], pa.map_(pa.string(), pa.list_(pa.int8()))),
    "string view": pa.array(["x"], pa.string_view()),
}


def one_schema(target: Target) -> pa.Schema:
    """The schema of all files, which must be one, as far as Parquet stores it."""
    found = [target.store.schema(name) for name in data_files(target.store.tree())]
    first = _stored(found[0])
    assert all(_stored(schema).equals(first) for schema in found)
    return found[0]


def _stored(schema: pa.Schema) -> pa.Schema:
    fields = [pa.field(f.name, stored_type(f.type), f.nullable) for f in schema]
    return pa.schema(fields)


def _read(target: Target) -> Counter[str]:
    return Counter(lines(as_table(target.io.read_dataset(target.store.path))))


def _as(rows: Sequence[Row], schema: pa.Schema) -> Counter[str]:
    """Rows in the columns and types of a schema; a column that a row lacks is NULL."""
    names = schema.names
    return Counter(
        lines(pa.Table.from_pylist([{n: row.get(n) for n in names} for row in rows], schema))
    )


_REQUIRED = pa.field("n", pa.int32(), nullable=False)


class SchemaChangeTests:
    """Rows that change the schema: all files have it afterwards, and all rows are there."""

    @pytest.mark.parametrize("what", WIDER)
    def test_a_type_gets_as_wide_as_its_values(self, target: Target, what: str) -> None:
        old, new, wanted = WIDER[what]
        target.write("a.parquet", pa.table({"id": [1, 2], "v": old}))
        target.write("b.parquet", pa.table({"id": [3, 4], "v": old}))
        source = pa.table({"id": [2], "v": new})
        plan = target.plan(source, schema_changes="widen")
        assert {file.decision for file in plan.files} == {"affected"}
        assert "'v' widened from" in str(plan)
        del plan  # it keeps its source
        target.io.merge(source, target.store.path, "upsert", ["id"], schema_changes="widen")
        schema = one_schema(target)
        assert stored_type(schema.field("v").type) == stored_type(wanted)
        kept = [old[0], old[0], old[1]]
        before = [{"id": n, "v": v.as_py()} for n, v in zip((1, 3, 4), kept, strict=True)]
        given = {"id": 2, "v": new[0].as_py()}
        assert target.rows(schema) == _as([*before, given], schema)
        self._check_settled(target, source, "widen")

    def _check_settled(self, target: Target, source: pa.Table, changes: str) -> None:
        before = target.store.tree()
        target.io.merge(source, target.store.path, "upsert", ["id"], schema_changes=changes)
        assert target.store.tree() == before
        assert target.store.leftovers() == []

    @pytest.mark.parametrize("what", LOSSY)
    def test_a_type_that_no_other_holds_is_refused(self, target: Target, what: str) -> None:
        old, new = LOSSY[what]
        target.write("a.parquet", pa.table({"id": [1, 2], "v": old}))
        source = pa.table({"id": [2], "v": new, "n": [1]})
        message = target.refuses(errors.SchemaMismatchError, source, schema_changes="widen")
        assert "'v'" in message

    @pytest.mark.parametrize("what", ADDED)
    def test_a_new_column_is_null_in_old_rows(self, target: Target, what: str) -> None:
        three_files(target)
        source = numbers(2, 9, v="new").append_column("n", pa.concat_arrays([ADDED[what]] * 2))
        result = target.io.merge(source, target.store.path, "upsert", ["id"], schema_changes="add")
        assert (result.updated, result.inserted, len(result.rewritten_files)) == (1, 1, 3)
        schema = one_schema(target)
        assert schema.names == ["id", "v", "n"]
        old = [row for row in numbers(*range(1, 8)).to_pylist() if row["id"] != 2]
        plain = pa.schema([f.with_type(stored_type(f.type)) for f in schema])
        assert target.rows(plain) == _as([*old, *source.to_pylist()], plain)
        self._check_settled(target, source, "add")

    @pytest.mark.parametrize("strategy", ["insert", "update", "full_merge"])
    def test_every_strategy_may_add_columns(self, target: Target, strategy: str) -> None:
        three_files(target)
        source = numbers(2, 9, v="new").append_column("n", pa.array([1, 2]))
        target.io.merge(source, target.store.path, strategy, ["id"], schema_changes="add")
        schema = one_schema(target)
        old, new = numbers(*range(1, 8)).to_pylist(), source.to_pylist()
        others = [row for row in old if row["id"] != 2]
        expected = {
            "insert": [*old, new[1]],
            "update": [*others, new[0]],
            "full_merge": new,
        }
        assert target.rows(schema) == _as(expected[strategy], schema)

    def test_what_may_not_change_is_refused(self, target: Target) -> None:
        three_files(target)
        more = numbers(2).append_column("n", pa.array([1]))
        message = target.refuses(errors.SchemaMismatchError, more)
        assert 'schema_changes="add"' in message
        fewer = more.drop_columns(["v"])
        message = target.refuses(errors.SchemaMismatchError, fewer, schema_changes="add")
        assert "lacks the columns ['v']" in message
        wide = pa.table({"id": [2], "v": [b"x"]})
        target.refuses(errors.SchemaMismatchError, wide, schema_changes="add")
        twin = numbers(2).append_column("V", pa.array(["x"]))
        message = target.refuses(errors.SchemaMismatchError, twin, schema_changes="add")
        assert "upper and lower case" in message
        target.refuses(errors.InvalidArgumentError, more, schema_changes="replace")

    def test_add_keeps_types_and_lets_values_decide(self, target: Target) -> None:
        target.write("a.parquet", pa.table({"id": pa.array([1, 2], pa.int32())}))
        source = pa.table({"id": [2, 3], "n": ["x", "y"]})
        target.io.merge(source, target.store.path, "upsert", ["id"], schema_changes="add")
        assert one_schema(target).field("id").type == pa.int32()
        large = pa.table({"id": [2**40], "n": ["x"], "m": [1]})
        target.refuses(errors.SchemaMismatchError, large, schema_changes="add")

    def test_a_key_may_get_wider(self, target: Target) -> None:
        target.write("a.parquet", pa.table({"id": pa.array([1, 2], pa.int32()), "v": [1, 2]}))
        target.io.merge(
            pa.table({"id": pa.array([9], pa.int32()), "v": [9]}),
            target.store.path,
            "upsert",
            ["id"],
            key_index=True,
        )
        source = pa.table({"id": [2, 2**40, 9], "v": [20, 3, 90]})
        result = target.io.merge(
            source, target.store.path, "upsert", ["id"], schema_changes="widen"
        )
        assert (result.updated, result.inserted) == (2, 1)
        again = target.io.merge(source, target.store.path, "upsert", ["id"])
        assert (again.updated, again.inserted, again.rewritten_files) == (3, 0, [])

    def test_partitions_stay_in_paths(self, target: Target) -> None:
        for value in ("a", "b"):
            name = f"{hive('p', value)}/x.parquet"
            target.write(name, pa.table({"id": [ord(value)], "v": [1]}))
        source = pa.table({"id": [97, 99], "v": [2, 3], "p": ["a", "c"], "n": [0.5, None]})
        target.io.merge(source, target.store.path, "upsert", ["id"], schema_changes="add")
        schema = one_schema(target)
        assert schema.names == ["id", "v", "n"]
        rows = [
            {"id": 97, "v": 2, "p": "a", "n": 0.5},
            {"id": 98, "v": 1, "p": "b"},
            {"id": 99, "v": 3, "p": "c"},
        ]
        whole = schema.append(pa.field("p", pa.string()))
        assert target.rows(whole) == _as(rows, whole)

    def test_an_append_may_add_columns(self, target: Target) -> None:
        three_files(target)
        more = numbers(9).append_column("n", pa.array([1]))
        with pytest.raises(errors.SchemaMismatchError):
            target.io.write_dataset(more, target.store.path)
        target.io.write_dataset(more, target.store.path, schema_changes="add")
        schema = one_schema(target)
        rows = [*numbers(*range(1, 8)).to_pylist(), *more.to_pylist()]
        assert target.rows(schema) == _as(rows, schema)
        assert _read(target) == _as(rows, schema)
        with pytest.raises(errors.InvalidArgumentError, match="overwrite"):
            target.io.write_dataset(more, target.store.path, mode="overwrite", schema_changes="add")

    @pytest.mark.parametrize("kind", [1, 2])
    def test_a_change_feed_may_add_columns(self, target: Target, kind: int) -> None:
        path = target.store.path
        how: dict[str, Any] = {"stored_as_scd_type": kind}
        first = pa.table({"id": pa.array([1, 2], pa.int32()), "v": ["a", "b"], "s": [1, 1]})
        target.io.apply_changes(first, path, "id", "s", **how)
        second = pa.table({"id": [1, 2**40], "v": ["A", "C"], "s": [2, 2], "n": [7, None]})
        target.io.apply_changes(second, path, "id", "s", schema_changes="widen", **how)
        names = ["id", "v", "s", "n"]
        schema = pa.schema([one_schema(target).field(name) for name in names])
        rows = [first.to_pylist()[1], *second.to_pylist()]
        old = [first.to_pylist()[0]] if kind == 2 else []
        assert target.rows(schema) == _as([*rows, *old], schema)

    def test_guard_rails_count_every_file(self, target: Target) -> None:
        three_files(target)
        more = numbers(2).append_column("n", pa.array([1]))
        guards: dict[str, Any] = {"schema_changes": "add", "max_rewrite_fraction": 0.5}
        target.refuses(errors.RewriteLimitError, more, **guards)
        target.refuses(errors.RewriteLimitError, more, "insert", **guards)

    def test_an_append_has_guard_rails_too(self, target: Target) -> None:
        three_files(target)
        before, source = target.store.tree(), numbers(9).append_column("n", pa.array([1]))
        for limit in ({"max_rewrite_fraction": 0.5}, {"max_rewrite_bytes": 10}):
            with pytest.raises(errors.RewriteLimitError, match="the append may rewrite"):
                target.io.write_dataset(source, target.store.path, schema_changes="add", **limit)
            assert target.store.tree() == before
            target.io.write_dataset(numbers(9), target.store.path, mode="append", **limit)
            before = target.store.tree()

    def test_the_history_says_what_changed(self, target: Target) -> None:
        three_files(target)
        more = numbers(2).append_column("n", pa.array([1]))
        target.io.merge(more, target.store.path, "upsert", ["id"], schema_changes="add")
        target.io.merge(more, target.store.path, "upsert", ["id"], schema_changes="add")
        entries = history(target.store.path, **target.store.opening)
        assert [entry.schema_changes for entry in entries] == [("'n' added as int64",)]

    def test_a_merge_without_rows_changes_nothing(self, target: Target) -> None:
        three_files(target)
        before = target.store.tree()
        empty = numbers().append_column("n", pa.array([], pa.int64()))
        target.io.merge(empty, target.store.path, "upsert", ["id"], schema_changes="add")
        assert target.store.tree() == before

    @pytest.mark.parametrize("call", ["merge", "append", "evolve"])
    def test_others_change_the_schema_meanwhile(
        self, connect: Callable[..., Any], target: Target, call: str
    ) -> None:
        """Whoever is second sees what the first one did, and all files have one schema."""
        events, at = 1, 1
        while at <= events:
            for name in target.store.tree():
                target.store.filesystem.rm_file(target.store.at(name))
            three_files(target)
            events = max(events, self._with_guest(connect, target, call, at))
            schema = one_schema(target)
            assert set(schema.names) >= {"id", "v", "n"}
            found = target.rows(pa.schema([schema.field("id")]))
            assert found.total() == (8 if call != "evolve" else 7)
            at += 1
        assert events > 3

    @staticmethod
    def _with_guest(connect: Callable[..., Any], target: Target, call: str, at: int) -> int:
        seen = 0

        def progress(*_: Any) -> None:
            nonlocal seen
            seen += 1
            if seen == at:
                with connect(**target.store.options) as io:
                    io.evolve(target.store.path, add={"guest": pa.string()})

        source = numbers(9).append_column("n", pa.array([1]))
        options: dict[str, Any] = {"schema_changes": "add", "progress": progress}

        def act(source: pa.Table) -> None:
            if call == "merge":
                target.io.merge(source, target.store.path, "upsert", ["id"], **options)
            elif call == "append":
                target.io.write_dataset(source, target.store.path, **options)
            else:
                target.io.evolve(target.store.path, add={"n": pa.int64()}, progress=progress)

        try:
            act(source)
        except errors.SchemaMismatchError:
            # The source lacks the column of the other writer, and nothing was changed.
            assert "n" not in one_schema(target).names
            act(source.append_column("guest", pa.array(["x"])))
        return seen


ROWS = pa.table(
    {
        "id": pa.array([1, 2, 3, 4], pa.int32()),
        "v": ["a", None, "c", "d"],
        "x": pa.array([0.5, 1.5, None, 2.5], pa.float32()),
        "r": pa.array([{"a": 1}, None, {"a": None}, {"a": 4}], pa.struct([("a", pa.int32())])),
    }
)

EVOLUTIONS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "add": (
        {"add": {"n": pa.int64(), "t": pa.list_(pa.string())}},
        ["id", "v", "x", "r", "n", "t"],
    ),
    "widen": (
        {"widen": {"id": pa.int64(), "x": pa.float64(), "r": pa.struct([("a", pa.int64())])}},
        ["id", "v", "x", "r"],
    ),
    "drop": ({"drop": ["v", "r"]}, ["id", "x"]),
    "rename": ({"rename": {"v": "w", "r": "s"}}, ["id", "w", "x", "s"]),
    "swap names": ({"rename": {"v": "x", "x": "v"}}, ["id", "x", "v", "r"]),
    "add a column with a name that another had": (
        {"rename": {"v": "w"}, "drop": "x", "add": {"v": pa.string(), "x": pa.float32()}},
        ["id", "w", "r", "v", "x"],
    ),
    "order": ({"order": ["r", "x"]}, ["r", "x", "id", "v"]),
    "required": ({"nullable": {"id": False}}, ["id", "v", "x", "r"]),
    "all at once": (
        {
            "add": {"n": pa.decimal128(9, 2)},
            "widen": {"key": pa.int64()},
            "drop": "v",
            "rename": {"id": "key"},
            "order": "n",
            "nullable": {"key": False},
        },
        ["n", "key", "x", "r"],
    ),
}
"""What is asked for, and the columns afterwards."""


def _renamed(rows: pa.Table, asked: Mapping[str, Any]) -> list[Row]:
    names, gone = asked.get("rename", {}), as_names(asked.get("drop", ()))
    kept = rows.drop_columns([name for name in gone if name in rows.column_names])
    return [{names.get(n, n): value for n, value in row.items()} for row in kept.to_pylist()]


class EvolveTests:
    """Schema changes without rows."""

    @pytest.mark.parametrize("what", EVOLUTIONS)
    def test_evolve_changes_columns_and_no_row(self, target: Target, what: str) -> None:
        asked, names = EVOLUTIONS[what]
        target.write("a.parquet", ROWS.slice(0, 2), row_group_size=1)
        target.write("b.parquet", ROWS.slice(2), write_page_index=True, compression="zstd")
        before = target.store.tree()
        plan = target.io.plan_evolve(target.store.path, **asked)
        assert target.store.tree() == before
        assert len(plan.with_decision("affected")) == 2
        result = target.io.evolve(target.store.path, **asked)
        schema = one_schema(target)
        assert schema.names == names == [column.name for column in result.columns]
        assert (len(result.rewritten_files), result.total_rows) == (2, 4)
        assert target.rows(schema) == _as(_renamed(ROWS, asked), schema)
        assert _read(target) == _as(_renamed(ROWS, asked), schema)
        assert target.store.leftovers() == []
        groups = [target.store.footer(name) for name in data_files(target.store.tree())]
        assert sorted(footer.num_row_groups for footer in groups) == [1, 2]
        self._check_files(target)

    @staticmethod
    def _check_files(target: Target) -> None:
        for name, entry in target.store.tree().items():
            table = pq.read_table(pa.BufferReader(entry.data), page_checksum_verification=True)
            table.validate(full=True)
            assert name.startswith(("a", "b"))

    def test_evolve_by_schema(self, target: Target) -> None:
        target.write("a.parquet", ROWS)
        fields = [("n", pa.int64()), ("x", pa.float64()), ("id", pa.int64()), ("r", ROWS["r"].type)]
        wanted = pa.schema(fields)
        path = target.store.path
        with pytest.raises(errors.InvalidArgumentError, match=r"lacks the columns \['v'\]"):
            target.io.evolve(path, wanted)
        target.io.evolve(path, wanted, drop="v")
        assert _stored(one_schema(target)).equals(_stored(wanted))
        assert target.rows(wanted) == _as(ROWS.to_pylist(), wanted)
        before = target.store.tree()
        again = target.io.evolve(path, wanted)
        assert (again.changes, again.rewritten_files, len(again.preserved_files)) == ([], [], 1)
        assert target.store.tree() == before

    def test_evolve_makes_files_alike(self, target: Target) -> None:
        target.write("a.parquet", pa.table({"id": pa.array([1], pa.int32()), "v": ["a"]}))
        target.write("b.parquet", pa.table({"n": [0.5], "id": [2]}))
        target.write("c.parquet", pa.table({"id": [3], "v": ["c"], "n": [1.5]}))
        kept = target.store.tree()["c.parquet"]
        result = target.io.evolve(target.store.path)
        assert len(result.rewritten_files) == 2
        assert target.store.tree()["c.parquet"] == kept
        schema = one_schema(target)
        rows: list[Row] = [{"id": 1, "v": "a"}, {"id": 2, "n": 0.5}, {"id": 3, "v": "c", "n": 1.5}]
        assert target.rows(schema) == _as(rows, schema)

    def test_nullable_columns_may_become_required_and_back(self, target: Target) -> None:
        target.write("a.parquet", ROWS)
        with pytest.raises(errors.SchemaMismatchError, match="'v' cannot be made required"):
            target.io.evolve(target.store.path, nullable={"v": False})
        target.io.evolve(target.store.path, nullable={"id": False})
        assert not one_schema(target).field("id").nullable
        target.io.evolve(target.store.path, nullable=["id"])
        assert one_schema(target).field("id").nullable
        assert target.rows(ROWS.schema) == _as(ROWS.to_pylist(), ROWS.schema)

    @pytest.mark.parametrize(
        ("asked", "error"),
        [
            ({"drop": "p"}, "partition column"),
            ({"rename": {"p": "q"}}, "partition column"),
            ({"widen": {"p": pa.string()}}, "partition column"),
            ({"drop": "nothing"}, "not found"),
            ({"drop": ["id", "v"]}, "nothing would be left"),
            ({"rename": {"id": "v"}}, "another column has"),
            ({"rename": {"id": "p"}}, "another column has"),
            ({"rename": {"v": "w"}, "drop": "v"}, "drop and rename both name 'v'"),
            ({"add": {"v": pa.int8()}}, "already"),
            ({"add": {"V": pa.int8()}}, "upper and lower case"),
            ({"add": {"P": pa.int8()}}, "upper and lower case"),
            ({"rename": {"v": "P"}}, "upper and lower case"),
            ({"add": ["n"]}, "mapping"),
            ({"drop": 0}, "drop must"),
            ({"add": {"": pa.int8()}}, "mapping of column names"),
            ({"add": {"n": pa.null()}}, "gives 'n' the type null"),
            ({"add": pa.schema([_REQUIRED])}, "new column 'n', which must not be NULL"),
            (
                {"schema": pa.schema([("id", pa.int64()), ("v", pa.string()), _REQUIRED])},
                "new column 'n', which must not be NULL",
            ),
            ({"widen": {"id": pa.float64()}}, "not every value"),
            ({"widen": {"id": pa.int8()}}, "not every value"),
            ({"widen": {"v": pa.binary()}}, "not every value"),
            ({"schema": ["id"]}, "pyarrow.Schema"),
            ({"schema": pa.schema([]), "order": ["id"]}, "no use with it"),
        ],
    )
    def test_evolve_refuses(self, target: Target, asked: dict[str, Any], error: str) -> None:
        name = f"{hive('p', 'a')}/x.parquet"
        target.write(name, pa.table({"id": [1], "v": ["a"]}))
        before = target.store.tree()
        with pytest.raises(ValueError, match=error):
            target.io.evolve(target.store.path, **asked)
        assert target.store.tree() == before
        assert target.store.leftovers() == []

    def test_evolve_of_nothing_is_refused(self, target: Target) -> None:
        with pytest.raises(errors.InvalidArgumentError, match="non-existent"):
            target.io.evolve(target.store.path, add={"n": pa.int64()})

    def test_evolve_has_guard_rails(self, target: Target) -> None:
        three_files(target)
        with pytest.raises(errors.RewriteLimitError, match="max_rewrite_bytes"):
            target.io.evolve(target.store.path, add={"n": pa.int64()}, max_rewrite_bytes=10)

    def test_keys_of_remembered_deletions_keep_their_names(self, target: Target) -> None:
        path = target.store.path
        feed = pa.table({"id": [1, 2], "v": ["a", "b"], "s": [1, 1], "op": ["u", "d"]})
        how: dict[str, Any] = {"apply_as_deletes": "op = 'd'", "except_column_list": "op"}
        target.io.apply_changes(feed, path, "id", "s", **how)
        for asked in ({"rename": {"id": "key"}}, {"drop": "id"}):
            with pytest.raises(errors.InvalidArgumentError, match="remembered"):
                target.io.evolve(path, **asked)
        target.io.evolve(path, rename={"v": "w"}, add={"n": pa.int64()})
        late = pa.table({"id": [2], "w": ["late"], "s": [0], "n": [1], "op": ["u"]})
        assert target.io.apply_changes(late, path, "id", "s", **how).late == 1

    @pytest.mark.parametrize("asked", [{"rename": {"id": "key"}}, {"drop": "id"}])
    def test_the_key_index_follows_its_column(self, target: Target, asked: dict[str, Any]) -> None:
        path, key = target.store.path, "key" if "rename" in asked else "v"
        rows = pa.table({"id": [1, 2], "v": ["a", "b"]})
        target.io.merge(rows, path, "upsert", ["id"], key_index=True)
        notes = target.io.evolve(path, **asked).metrics["commit"]["notes"]
        assert any("key index" in note for note in notes) == ("drop" in asked)
        new = pa.table({"key": [2], "v": ["B"]}) if key == "key" else pa.table({"v": ["b"]})
        assert target.io.merge(new, path, "upsert", [key]).updated == 1

    def test_the_key_index_does_not_outlive_its_column(self, target: Target) -> None:
        path = target.store.path
        rows = pa.table({"id": [1, 2], "v": [8, 9]})
        target.io.merge(rows, path, "upsert", ["id"], key_index=True)
        notes = target.io.evolve(path, drop="id", rename={"v": "id"}).metrics["commit"]["notes"]
        assert any("key index" in note for note in notes)
        result = target.io.merge(pa.table({"id": [9, 10]}), path, "upsert", ["id"])
        assert (result.updated, result.inserted) == (1, 1)

    @EVERY_DISK
    def test_an_evolution_that_dies_at_any_call(
        self, connect: Callable[..., Any], kind: str
    ) -> None:
        outcomes = Counter[bool]()
        calls = self._evolve_and_die(connect, kind, 10**9, outcomes)
        for at in range(0, calls, max(1, calls // 12)):
            self._evolve_and_die(connect, kind, at, outcomes)
        assert outcomes[True] > 1
        assert outcomes[False] > 1

    @staticmethod
    def _evolve_and_die(
        connect: Callable[..., Any], kind: str, at: int, outcomes: Counter[bool]
    ) -> int:
        with ExitStack() as stack:
            store = stack.enter_context(open_store(kind))
            target = Target(stack.enter_context(connect(**store.options)), store)
            three_files(target)
            failing = Failing(at)
            asked: dict[str, Any] = {"rename": {"v": "w"}, "add": {"n": pa.int64()}}
            done = committed(failing, lambda: target.io.evolve(store.path, **asked))
            outcomes[done] += 1
            rows = numbers(*range(1, 8))
            if done:
                rows = rows.rename_columns(["id", "w"])
                rows = rows.append_column("n", pa.nulls(7, pa.int64()))
            assert _read(target) == Counter(lines(rows))
            recover(store.path, **store.opening)
            assert one_schema(target).names == rows.column_names
            assert target.rows(rows.schema) == Counter(lines(rows))
            return failing.count

    @given(data=st.data())
    @some(8)
    def test_generated_evolutions_and_merges_agree_with_the_model(
        self, connect: Callable[..., Any], data: st.DataObject
    ) -> None:
        with ExitStack() as stack:
            store = stack.enter_context(open_store("exchange"))
            target = Target(stack.enter_context(connect(**store.options)), store)
            model = ColumnsModel()
            first = data.draw(tables_of(model))
            target.io.write_dataset(first, store.path, max_rows_per_file=2)
            model.upsert(first)
            for _ in range(data.draw(st.integers(1, 4), label="steps")):
                if data.draw(st.booleans(), label="evolve"):
                    change = data.draw(evolutions_of(model))
                    target.io.evolve(store.path, **change)
                    model.evolve(**change)
                else:
                    source = data.draw(tables_of(model, more=True))
                    target.io.merge(source, store.path, "upsert", ["id"], schema_changes="widen")
                    model.upsert(source)
                schema = one_schema(target)
                assert _stored(schema).equals(model.schema())
                assert target.rows(schema) == _as([*model.rows.values()], schema)
