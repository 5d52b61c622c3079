"""Columns: names, order, types and nesting."""

# ruff: noqa: D102 - the names of the tests explain

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from fsspeckit import errors
from fsspeckit.testing.conformance.target import numbers
from fsspeckit.testing.strategies import COLUMN_NAMES

if TYPE_CHECKING:
    from collections.abc import Callable

    from fsspeckit.testing.conformance.target import Target

__all__ = ["ColumnNameTests", "NestedTests", "SchemaTests", "UnfitTests"]

NESTED: dict[str, pa.Array] = {
    "struct": pa.array([{"a": 1, "b": "x"}, {"a": None, "b": "y"}, None, {"a": 4, "b": None}]),
    "list": pa.array([[1, 2], [], None, [None, 3]], pa.list_(pa.int32())),
    "large list": pa.array([["a"], [], None, [None]], pa.large_list(pa.string())),
    "map": pa.array(
        [[("a", 1)], [], None, [("b", None), ("c", 3)]], pa.map_(pa.string(), pa.int64())
    ),
    "list of structs": pa.array(
        [[{"id": 1, "x": ["p", None]}], [], None, [{"id": None, "x": []}, None]],
        pa.list_(pa.struct([("id", pa.int64()), ("x", pa.list_(pa.string()))])),
    ),
    "struct of a map": pa.array(
        [{"m": [("k", [1])]}, {"m": []}, {"m": None}, None],
        pa.struct([("m", pa.map_(pa.string(), pa.list_(pa.int8())))]),
    ),
}
"""Four values each, NULL among them."""

_ON = dt.datetime(2024, 1, 2, 3, 4, 5, 678901)
PAYLOAD: dict[str, pa.Array] = {
    "uint8": pa.array([0, 255, None, 7], pa.uint8()),
    "uint64": pa.array([0, 2**64 - 1, None, 7], pa.uint64()),
    "half float": pa.array([0.5, None, float("inf"), -0.0], pa.float16()),
    "decimal of 76 digits": pa.array(
        [Decimal(10**60), None, Decimal(-1), Decimal(0)], pa.decimal256(76, 2)
    ),
    "fixed binary": pa.array([b"abcd", None, b"\0\0\0\0", b"wxyz"], pa.binary(4)),
    "large_binary": pa.array([b"", None, b"\xff", b"x" * 99], pa.large_binary()),
    "date64": pa.array([_ON.date(), None, dt.date(1, 1, 1), _ON.date()], pa.date64()),
    "time in ms": pa.array(
        [dt.time(1, 2, 3, 4000), None, dt.time(0), dt.time(23)], pa.time32("ms")
    ),
    "time in us": pa.array([_ON.time(), None, dt.time(0), dt.time(23)], pa.time64("us")),
    "time in ns": pa.array([1, None, 0, 999], pa.time64("ns")),
    "duration": pa.array([1, None, 0, -999], pa.duration("us")),
    "timestamp in ns": pa.array([1, None, -1, 999_999_999], pa.timestamp("ns")),
    "NULL": pa.nulls(4),
    "list of fixed size": pa.array([[1, 2], None, [3, None], [4, 5]], pa.list_(pa.int8(), 2)),
    "dictionary": pa.array(["a", None, "b", "a"]).dictionary_encode(),
    "string_view": pa.array(["a", None, "x" * 99, ""], pa.string_view()),
    "uuid": pa.ExtensionArray.from_storage(
        pa.uuid(), pa.array([bytes(16), None, b"\xff" * 16, b"a" * 16], pa.binary(16))
    ),
    "json": pa.ExtensionArray.from_storage(pa.json_(), pa.array(["{}", None, "[1]", "2"])),
}
"""Four values each of types that a key or a nested column does not have already."""

TEMPORARIES = (
    *("__fsspeckit_position", "__fsspeckit_source_row", "__fsspeckit__", "_position", "_file"),
    *("position", "source_row", "row_number", "file", "key_0", "__key_0", "k0", "index", "_k0"),
)
"""Names that look like columns which an engine adds for itself."""

FITTING: dict[str, tuple[pa.Array, pa.Array]] = {
    "int8 into int64": (pa.array([1, 2]), pa.array([3, 4], pa.int8())),
    "int64 into int8": (pa.array([1, 2], pa.int8()), pa.array([3, 127])),
    "large_string into string": (pa.array(["a", "b"]), pa.array(["c", "d"], pa.large_string())),
    "dictionary into string": (pa.array(["a", "b"]), pa.array(["c", "d"]).dictionary_encode()),
    "float into double": (pa.array([0.5, 1.5]), pa.array([2.5, 3.5], pa.float32())),
    "decimal of fewer digits": (
        pa.array([Decimal("1.50"), Decimal("2.00")], pa.decimal128(18, 2)),
        pa.array([Decimal("3.5"), None], pa.decimal128(9, 1)),
    ),
    "ms into us": (
        pa.array([dt.datetime(2024, 1, 1)] * 2, pa.timestamp("us")),
        pa.array([dt.datetime(2025, 1, 1)] * 2, pa.timestamp("ms")),
    ),
    "all NULL without a type": (pa.array(["a", "b"]), pa.nulls(2)),
}
"""Payload of a target, and what a source may have instead."""

UNTYPED: dict[str, tuple[pa.Array, pa.Array]] = {
    "list": (pa.array([[1], [2, None]]), pa.array([[], [None], None])),
    "large list": (
        pa.array([["a"], None], pa.large_list(pa.string())),
        pa.array([[], [None], None], pa.large_list(pa.null())),
    ),
    "large list into list": (
        pa.array([["a"], None]),
        pa.array([[], [None], None], pa.large_list(pa.null())),
    ),
    "list of fixed size": (
        pa.array([[1, 2], None], pa.list_(pa.int8(), 2)),
        pa.array([[None, None], None, [None, None]], pa.list_(pa.null(), 2)),
    ),
    "struct": (
        pa.array([{"a": 1, "b": "x"}, None]),
        pa.array([{"a": 2, "b": None}, None, {"a": None, "b": None}]),
    ),
    "struct of NULL alone": (pa.array([{"b": 1.5}, None]), pa.array([{"b": None}, None, None])),
    "map": (
        pa.array([[("k", 1)], []], pa.map_(pa.string(), pa.int32())),
        pa.array([[("k", None)], [], None], pa.map_(pa.string(), pa.null())),
    ),
    "list of structs of lists": (
        pa.array([[{"b": ["x"], "c": 1}], None]),
        pa.array([[{"b": [], "c": 2}], [{"b": None, "c": None}], []]),
    ),
    "dictionary in a list": (
        pa.array([["a"], None], pa.list_(pa.dictionary(pa.int32(), pa.string()))),
        pa.array([[None], [], None]),
    ),
    "NULL for a list": (pa.array([[1], None]), pa.nulls(3)),
    "NULL for a struct": (pa.array([{"a": {"b": 1}}, None]), pa.nulls(3)),
}
"""Payload of a target, and what frames make of NULL and of empty lists inside: types of NULL."""

ONLY_NULL: dict[str, tuple[pa.Array, pa.Array]] = {
    "empty lists": (pa.array([[], []]), pa.array([[], []])),
    "lists of NULL": (pa.array([[None, None], []]), pa.array([[None], None])),
    "lists of NULL in a struct": (
        pa.array([{"q": [None, None]}, None]),
        pa.array([{"q": [None]}, {"q": None}]),
    ),
    "a field of structs in lists": (
        pa.array([[{"a": 1, "b": None}, {"a": 2, "b": None}], None]),
        pa.array([[{"a": 3, "b": None}, {"a": 4, "b": None}], [None, None]]),
    ),
    "values of a map": (
        pa.array([[("k", None), ("l", None)], []], pa.map_(pa.string(), pa.null())),
        pa.array([[("m", None), ("n", None)], None], pa.map_(pa.string(), pa.null())),
    ),
}
"""Payload of a target and of a source in which some type is that of NULL, in both."""

NOT_FITTING: dict[str, tuple[pa.Array, pa.Array]] = {
    "300 into int8": (pa.array([1, 2], pa.int8()), pa.array([300, 1])),
    "0.1 into float": (pa.array([0.5, 1.5], pa.float32()), pa.array([0.1, 0.5])),
    "text into int64": (pa.array([1, 2]), pa.array(["3", "4"])),
    "int64 into text": (pa.array(["1", "2"]), pa.array([3, 4])),
    "microseconds into ms": (
        pa.array([dt.datetime(2024, 1, 1)] * 2, pa.timestamp("ms")),
        pa.array([dt.datetime(2024, 1, 1, 0, 0, 0, 1)] * 2, pa.timestamp("us")),
    ),
    "1.55 into one decimal place": (
        pa.array([Decimal("1.5"), Decimal("2.0")], pa.decimal128(9, 1)),
        pa.array([Decimal("1.55"), None], pa.decimal128(9, 2)),
    ),
}
"""Payload of a target, and what would lose something."""


WIDER: dict[str, tuple[pa.Array, pa.Array]] = {
    "integers": (pa.array([1, 2], pa.int8()), pa.array([300, 2**40])),
    "floats": (pa.array([0.5, 1.5], pa.float32()), pa.array([0.1, 0.2])),
    "instants": (
        pa.array([1, 2], pa.timestamp("ms", "UTC")),
        pa.array([1, 2001], pa.timestamp("us", "UTC")),
    ),
    "decimals": (
        pa.array([Decimal("1.5"), None], pa.decimal128(9, 1)),
        pa.array([Decimal("1.55"), Decimal("12345678901.25")], pa.decimal128(18, 2)),
    ),
    "inside of a list": (
        pa.array([[1], []], pa.list_(pa.int8())),
        pa.array([[300], None], pa.list_(pa.int32())),
    ),
}
"""Payload of the file that is first by name, and what another file holds."""


ALIKE: dict[str, tuple[pa.Array, pa.Array]] = {
    "lists of texts": (
        pa.array([["a"]]),
        pa.array([["b"]], pa.large_list(pa.large_string())),
    ),
    "the order of fields": (
        pa.array([{"a": 1, "b": "x"}]),
        pa.array([{"b": "y", "a": 2}], pa.struct([("b", pa.string()), ("a", pa.int64())])),
    ),
    "the order of fields in lists": (
        pa.array([[{"a": 1, "b": "x"}]]),
        pa.array(
            [[{"b": "y", "a": 2}]],
            pa.large_list(pa.struct([("b", pa.large_string()), ("a", pa.int8())])),
        ),
    ),
    "maps": (
        pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int8())),
        pa.array([[("k", 2)]], pa.map_(pa.large_string(), pa.int64())),
    ),
    "lists of a fixed size": (
        pa.array([[1, 2]]),
        pa.array([[3, 4]], pa.list_(pa.int64(), 2)),
    ),
    "dictionaries in lists": (
        pa.array([["a"]], pa.list_(pa.dictionary(pa.int32(), pa.string()))),
        pa.array([["b"]]),
    ),
}
"""Payload of two files that a merge takes for the same type."""


def _stamps(unit: str, zone: str | None, year: int = 2020) -> pa.Array:
    return pa.array([dt.datetime(year, 12, 31)], pa.timestamp("us", zone)).cast(
        pa.timestamp(unit, zone)
    )


KEPT: dict[str, tuple[pa.Array, pa.Array, pa.Array, pa.DataType]] = {
    "the last day of timestamps": (
        _stamps("us", None),
        _stamps("ns", None),
        _stamps("us", None, 9999),
        pa.timestamp("us"),
    ),
    "the last day of timestamps, fine ones first": (
        _stamps("ns", None),
        _stamps("us", None),
        _stamps("us", None, 9999),
        pa.timestamp("us"),
    ),
    "a zone": (
        _stamps("us", "Asia/Tokyo"),
        _stamps("ns", "Asia/Tokyo"),
        _stamps("us", "Asia/Tokyo"),
        pa.timestamp("us", "Asia/Tokyo"),
    ),
    "signed beside unsigned": (
        pa.array([-5]),
        pa.array([2**63], pa.uint64()),
        pa.array([7]),
        pa.int64(),
    ),
    "unsigned beside signed": (
        pa.array([-5]),
        pa.array([2**63], pa.uint64()),
        pa.array([2**63], pa.uint64()),
        pa.uint64(),
    ),
    "integers beside decimals": (
        pa.array([-5]),
        pa.array([1], pa.decimal128(9, 4)),
        pa.array([7]),
        pa.int64(),
    ),
    "narrow before wide": (pa.array([1], pa.int8()), pa.array([300]), pa.array([7]), pa.int8()),
    "too wide for the first": (
        pa.array([1], pa.int8()),
        pa.array([300]),
        pa.array([301]),
        pa.int64(),
    ),
    "after nothing but NULL": (
        pa.nulls(1),
        pa.array([1], pa.int16()),
        pa.array([7]),
        pa.int16(),
    ),
}
"""Payload of two files and of the source, and the type that a new file has."""


def _pandas(make: Callable[[Any], Any]) -> Callable[[], Any]:
    return lambda: make(pytest.importorskip("pandas"))


def _polars(make: Callable[[Any], Any]) -> Callable[[], Any]:
    return lambda: make(pytest.importorskip("polars"))


def _frame_of(pd: Any, payload: Any, kind: Any = object) -> Any:
    """A frame of pandas, of a class of its own, with a column of objects."""
    own = type("Own", (pd.DataFrame,), {})
    return own({"id": range(len(payload)), "v": pd.Series(payload, dtype=kind)})


def _objects(payload: list[Any]) -> Callable[[], Any]:
    return _pandas(lambda pd: _frame_of(pd, payload))


_NAIVE = dt.datetime(2024, 1, 1)
_ZONED = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
_MIXED: dict[str, tuple[list[Any], str]] = {
    "datetimes with and without zone": ([_NAIVE, _ZONED], "datetimes with zone and datetimes"),
    "dates and datetimes in lists": ([[_NAIVE.date()], [_NAIVE]], "dates and datetimes"),
    "dates and datetimes in dicts": ([{"a": _NAIVE.date()}, {"a": _NAIVE}], "dates and datetimes"),
    "text and bytes in lists": ([["a"], None, [b"b"]], "bytes and strings"),
    "numbers and booleans of NumPy": ([np.True_, 5], "booleans and numbers"),
}

UNFIT: dict[str, tuple[Callable[[], Any], str]] = {
    **{
        what: (
            _objects(payload),
            rf"'v' mixes {kinds}.*\nHint: ",
        )
        for what, (payload, kinds) in _MIXED.items()
    },
    "nanoseconds as objects": (
        _pandas(lambda pd: _frame_of(pd, [pd.Timestamp("2024-01-01 00:00:00.000000001")])),
        r"'v' holds Timestamp.*nanoseconds.*\nHint: ",
    ),
    "nanoseconds of a duration": (
        _pandas(lambda pd: _frame_of(pd, [[pd.Timedelta(1, "ns")]])),
        r"'v' holds Timedelta.*nanoseconds.*\nHint: ",
    ),
    "intervals as categories": (
        _pandas(lambda pd: pd.DataFrame({"id": [1, 2], "v": pd.cut([1, 2], 2)})),
        r"'v' .*cannot be stored.*\nHint: ",
    ),
    "periods in a frame of another class": (
        _pandas(lambda pd: _frame_of(pd, pd.period_range("2024", periods=2), "period[D]")),
        r"'v' holds pandas periods.*\nHint: ",
    ),
    "a pandas Series": (
        _pandas(lambda pd: pd.Series([1, 2], name="id")),
        r"pandas\.Series.*named columns.*\nHint: .*to_frame",
    ),
    "a Polars Series": (
        _polars(lambda pl: pl.Series("id", [1, 2])),
        r"polars\.Series.*named columns.*\nHint: .*to_frame",
    ),
    "a column of text and numbers": (
        _pandas(lambda pd: pd.DataFrame({"id": [1, 2], "v": ["a", 7]})),
        r"'v' mixes numbers and strings.*\nHint: ",
    ),
    "a column of dates and numbers": (
        _pandas(lambda pd: pd.DataFrame({"id": [1, 2], "v": [dt.date(2024, 1, 1), 7]})),
        r"'v' mixes dates and numbers.*\nHint: ",
    ),
    "a column of text and bytes": (
        _pandas(lambda pd: pd.DataFrame({"id": [1, 2], "v": ["a", b"b"]})),
        r"'v' mixes bytes and strings.*\nHint: ",
    ),
    "a column of lists of text and of numbers": (
        _pandas(lambda pd: pd.DataFrame({"id": [1, 2], "v": [["a"], [7]]})),
        r"'v' mixes numbers and strings.*\nHint: ",
    ),
    "pandas periods": (
        _pandas(lambda pd: pd.DataFrame({"id": [1], "v": pd.period_range("2024", periods=1)})),
        r"'v' holds pandas periods.*\nHint: .*to_timestamp",
    ),
    "Int128 of Polars": (
        _polars(lambda pl: pl.DataFrame({"id": [1], "v": [1]}, schema_overrides={"v": pl.Int128})),
        r"'v' is of the Polars type Int128.*\nHint: ",
    ),
    "objects of Polars": (
        _polars(lambda pl: pl.DataFrame({"id": [1], "v": [object()]})),
        r"'v' is of the Polars type Object.*\nHint: ",
    ),
}
"""Sources that no dataset can hold as they are, and what the message says."""


def with_payload(payload: pa.Array) -> pa.Table:
    """A table of an ``id`` and a column of that payload."""
    return pa.table({"id": pa.array(range(len(payload)), pa.int64()), "payload": payload})


class UnfitTests:
    """Sources that no dataset can hold as they are."""

    @pytest.mark.parametrize("what", UNFIT)
    def test_an_unfit_source_is_refused_and_named(self, target: Target, what: str) -> None:
        make, message = UNFIT[what]
        target.write("a.parquet", numbers(1))
        target.refuses(ValueError, make(), match=message)
        before = target.store.tree()
        with pytest.raises(ValueError, match=message):
            target.io.write_dataset(make(), target.store.path)
        assert target.store.tree() == before

    @pytest.mark.parametrize("call", ["append", "merge"])
    def test_other_columns_are_refused_with_a_hint_that_helps(
        self, target: Target, call: str
    ) -> None:
        target.write("a.parquet", numbers(1))
        source = pa.table({"id": [2], "w": ["x"]})
        options = {} if call == "append" else {"strategy": "upsert", "key_columns": ["id"]}
        with pytest.raises(errors.SchemaMismatchError) as caught:
            target.io.write_parquet_dataset(source, target.store.path, **options)
        what, _, hint = str(caught.value).partition("\nHint: ")
        assert "lacks the columns ['v']" in what
        assert "columns ['w'] that the target does not have" in what
        assert "merge" not in hint
        assert "add the missing columns" in hint
        assert "drop the others" in hint


class SchemaTests:
    """Same names in any order, casts that lose nothing."""

    def test_columns_of_the_source_may_be_in_any_order(self, target: Target) -> None:
        target.write("a.parquet", numbers(1, 2))
        target.merge(numbers(2, 3, v="new").select(["v", "id"]))

    @pytest.mark.parametrize("case", FITTING)
    def test_lossless_cast_of(self, target: Target, case: str) -> None:
        existing, given = FITTING[case]
        target.write("a.parquet", with_payload(existing))
        target.merge(with_payload(given))

    @pytest.mark.parametrize("case", NOT_FITTING)
    def test_lossy_cast_of(self, target: Target, case: str) -> None:
        existing, given = NOT_FITTING[case]
        target.write("a.parquet", with_payload(existing))
        target.refuses(errors.SchemaMismatchError, with_payload(given), match="'payload'")

    @pytest.mark.parametrize("case", WIDER)
    def test_new_rows_may_have_the_type_of_any_file(self, target: Target, case: str) -> None:
        narrow, wide = WIDER[case]
        target.write("a.parquet", with_payload(narrow))
        target.write("b.parquet", pa.table({"id": [8, 9], "payload": wide}))
        result = target.merge(pa.table({"id": [9, 20], "payload": wide}))
        assert (result.updated, result.inserted) == (1, 1)

    @pytest.mark.parametrize("case", KEPT)
    def test_new_files_have_a_type_that_a_file_has(self, target: Target, case: str) -> None:
        first, other, given, expected = KEPT[case]
        target.write("a.parquet", with_payload(first))
        target.write("b.parquet", pa.table({"id": [8], "payload": other}))
        result = target.io.merge(
            pa.table({"id": [20], "payload": given}), target.store.path, "upsert", ["id"]
        )
        name = target.store.relative(result.inserted_files[0])
        assert target.store.schema(name).field("payload").type == expected
        schema = pa.schema([("id", pa.int64()), ("payload", expected)])
        assert target.store.read(name, schema).column("payload").to_pylist() == given.to_pylist()

    @pytest.mark.parametrize("case", ALIKE)
    def test_what_merges_can_be_read(self, target: Target, case: str) -> None:
        """Files that differ in how they store the same values."""
        first, other = ALIKE[case]
        target.write("a.parquet", pa.table({"id": [1], "payload": first}))
        target.write("b.parquet", pa.table({"id": [2], "payload": other}))
        target.io.merge(
            pa.table({"id": [2, 3], "payload": pa.concat_arrays([other, other])}),
            target.store.path,
            "upsert",
            ["id"],
        )
        found = target.io.read_dataset(target.store.path)
        rows = found if isinstance(found, pa.Table) else found.toArrow()
        assert sorted(rows["id"].to_pylist()) == [1, 2, 3]

    def test_a_missing_source_column_is_named(self, target: Target) -> None:
        target.write("a.parquet", numbers(1))
        source = numbers(1).drop_columns(["v"])
        target.refuses(errors.SchemaMismatchError, source, match="'v'")

    def test_an_extra_source_column_is_named(self, target: Target) -> None:
        target.write("a.parquet", numbers(1))
        source = numbers(1).append_column("extra", pa.array([1]))
        target.refuses(errors.SchemaMismatchError, source, match="'extra'")

    def test_null_does_not_fit_a_required_column(self, target: Target) -> None:
        required = pa.schema([pa.field("id", pa.int64()), pa.field("v", pa.string(), False)])
        target.write("a.parquet", numbers(1).cast(required))
        source = pa.table({"id": [1, 2], "v": ["new", None]})
        target.refuses(errors.SchemaMismatchError, source, match="'v'")

    def test_required_columns_stay_required(self, target: Target) -> None:
        required = pa.schema([pa.field("id", pa.int64(), False), pa.field("v", pa.string(), False)])
        target.write("a.parquet", numbers(1).cast(required))
        target.merge(numbers(1, 2, v="new"))

    def test_schema_types_the_source_of_a_new_dataset(self, target: Target) -> None:
        wanted = pa.schema([("id", pa.int32()), ("v", pa.large_string())])
        result = target.io.merge(numbers(1), target.store.path, "upsert", ["id"], schema=wanted)
        name = target.store.relative(result.inserted_files[0])
        assert target.store.schema(name).equals(wanted)


class NestedTests:
    """Nested payload."""

    @pytest.mark.parametrize("kind", NESTED)
    def test_nested_payload(self, target: Target, kind: str) -> None:
        existing = with_payload(NESTED[kind])
        target.write("a.parquet", existing, row_group_size=2)
        source = pa.table({"id": [2, 3, 4], "payload": NESTED[kind].take(pa.array([0, 2, 3]))})
        result = target.merge(source)
        assert (result.updated, result.inserted) == (2, 1)

    @pytest.mark.parametrize("kind", UNTYPED)
    def test_null_and_nothing_inside_fit_every_type(self, target: Target, kind: str) -> None:
        existing, given = UNTYPED[kind]
        target.write("a.parquet", with_payload(existing))
        result = target.merge(pa.table({"id": [1, 2, 3], "payload": given}))
        assert (result.updated, result.inserted) == (1, 2)

    @pytest.mark.parametrize("strategy", ["upsert", "update", "full_merge", "deduplicate"])
    @pytest.mark.parametrize("kind", ONLY_NULL)
    def test_nothing_but_null_inside_on_both_sides(
        self, target: Target, kind: str, strategy: str
    ) -> None:
        existing, given = ONLY_NULL[kind]
        target.write("a.parquet", with_payload(existing))
        target.merge(with_payload(existing), strategy)
        source = pa.table({"id": [1, 3], "payload": given})
        assert target.merge(source, strategy).updated == 1

    @pytest.mark.parametrize("library", ["pandas", "polars"])
    def test_a_frame_with_nothing_inside_of_a_column(self, target: Target, library: str) -> None:
        existing = pa.table({"id": [1, 2], "l": [[1], [2]], "s": [{"b": "x"}, None]})
        target.write("a.parquet", existing)
        columns = {"id": [2, 3], "l": [[], [None]], "s": [{"b": None}, {"b": None}]}
        frame = pytest.importorskip(library).DataFrame(columns)
        target.merge(pa.table(columns).cast(existing.schema), data=frame)

    @pytest.mark.parametrize("kind", ["NULL", *(k for k in UNTYPED if "into" not in k)])
    def test_files_without_a_type_for_a_column(self, target: Target, kind: str) -> None:
        """As pandas writes a column of None, or of empty lists; the file is the first by name."""
        if kind == "NULL":
            typed, untyped = pa.array(["x", "y"]), pa.nulls(3)
        else:
            typed, untyped = UNTYPED[kind]
        target.write("a.parquet", pa.table({"id": [1, 2, 3], "payload": untyped}))
        target.write("b.parquet", pa.table({"id": [4, 5], "payload": typed}))
        new = pa.concat_arrays([typed, typed])
        result = target.merge(pa.table({"id": [2, 5, 6, 7], "payload": new}))
        assert (result.updated, result.inserted) == (2, 2)
        found = target.io.read_dataset(target.store.path, columns=["id"])
        assert (found.num_rows if isinstance(found, pa.Table) else found.count()) == 7

    @pytest.mark.parametrize("kind", ["NULL", "list", "struct"])
    def test_a_column_gets_its_type_with_its_first_value(self, target: Target, kind: str) -> None:
        typed, untyped = UNTYPED[kind] if kind in UNTYPED else (pa.array(["x", "y"]), pa.nulls(3))
        target.write("a.parquet", pa.table({"id": [1, 2, 3], "payload": untyped}))
        target.io.merge(
            pa.table({"id": [2, 4], "payload": typed}), target.store.path, "upsert", ["id"]
        )
        schema = pa.schema([("id", pa.int64()), ("payload", typed.type)])
        rows = sorted(
            (row for rows in target.files(schema).values() for row in rows), key=lambda r: r["id"]
        )
        old, new = untyped.to_pylist(), typed.to_pylist()
        assert [row["payload"] for row in rows] == [old[0], new[0], old[2], new[1]]

    @pytest.mark.parametrize("form", ["list", "stream", "chunks"])
    def test_categories_of_which_each_part_has_others(self, target: Target, form: str) -> None:
        """Codes of 8 bits have room for those of each part, and not for all."""
        kind = pa.dictionary(pa.int8(), pa.string())
        tables = [
            pa.table(
                {"id": range(k, k + 100), "v": pa.array(map(str, range(k, k + 100))).cast(kind)}
            )
            for k in (0, 100, 200)
        ]
        whole = pa.concat_tables(tables)
        data = {
            "list": tables,
            "stream": pa.RecordBatchReader.from_batches(whole.schema, whole.to_batches()),
            "chunks": whole,
        }[form]
        target.write("a.parquet", numbers(1, 1000))
        wanted = pa.table({"id": whole["id"], "v": whole["v"].cast(pa.string())})
        target.merge(wanted, data=data)

    @pytest.mark.parametrize("kind", PAYLOAD)
    def test_payload_of_type(self, target: Target, kind: str) -> None:
        existing = with_payload(PAYLOAD[kind])
        target.write("a.parquet", existing, row_group_size=2)
        given = pa.concat_arrays([PAYLOAD[kind].slice(row, 1) for row in (0, 1, 3)])
        result = target.merge(pa.table({"id": [2, 3, 4], "payload": given}))
        assert (result.updated, result.inserted) == (2, 1)

    @pytest.mark.parametrize("given", [5000, 5001])
    def test_int96_payload_keeps_its_nanoseconds(self, target: Target, given: int) -> None:
        existing = with_payload(pa.array([1, 2, 999], pa.timestamp("ns", "UTC")))
        target.write("a.parquet", existing, use_deprecated_int96_timestamps=True)
        new = pa.array([given, given], pa.timestamp("ns", "UTC"))
        assert target.merge(pa.table({"id": [1, 9], "payload": new})).updated == 1

    def test_int96_inside_of_lists(self, target: Target) -> None:
        """An instant like any other, nanoseconds included."""
        instants = pa.list_(pa.timestamp("ns", "UTC"))
        existing = with_payload(pa.array([[1, 2], None, [999]], instants))
        target.write("a.parquet", existing, use_deprecated_int96_timestamps=True)
        source = pa.table({"id": [1, 9], "payload": pa.array([[3], [4]], instants)})
        assert target.merge(source).updated == 1

    def test_int96_with_nanoseconds_beside_early_dates_is_refused(self, target: Target) -> None:
        """Arrow cannot hold both, and must not lose one silently."""
        whole = pa.array([dt.datetime(1500, 1, 1), None], pa.timestamp("us", "UTC"))
        fine = pa.array([None, 999], pa.timestamp("ns", "UTC"))
        schema = pa.schema([("id", pa.int64()), ("a", whole.type), ("b", fine.type)])
        existing = pa.table([[1, 2], whole, fine], schema=schema)
        target.write("a.parquet", existing, use_deprecated_int96_timestamps=True)
        source = pa.table([[1], whole[1:], fine[:1]], schema=schema)
        target.refuses(errors.SchemaMismatchError, source, match="before 1677")

    def test_a_nested_column_cannot_be_a_key(self, target: Target) -> None:
        existing = with_payload(NESTED["struct"])
        target.write("a.parquet", existing)
        target.refuses(ValueError, existing, "upsert", ["payload"], match="payload")


class ColumnNameTests:
    """Names that quoting, globbing or an engine's own columns could break."""

    @pytest.mark.parametrize("name", [*COLUMN_NAMES, *TEMPORARIES])
    def test_column_named(self, target: Target, name: str) -> None:
        """As a key in the first merge, as payload in the second."""
        target.write("a.parquet", pa.table({name: [1, 2, 3], "other": ["x", "y", "z"]}))
        target.merge(pa.table({name: [2, 9], "other": ["new", "w"]}), "upsert", [name])
        target.merge(pa.table({name: [5], "other": ["x"]}), "upsert", ["other"])

    def test_all_odd_names_at_once(self, target: Target) -> None:
        names = list(dict.fromkeys([*COLUMN_NAMES, *TEMPORARIES]))
        existing = pa.table({name: [number, -1] for number, name in enumerate(names)})
        target.write("a.parquet", existing)
        source = pa.table({name: [number, -2] for number, name in enumerate(reversed(names))})
        target.merge(source.select(names[::-1]), "upsert", names[:3])

    @pytest.mark.parametrize("name", COLUMN_NAMES)
    def test_order_by_a_column_named(self, target: Target, name: str) -> None:
        """A column that would win otherwise has the name without its punctuation."""
        alike = "".join(char for char in name if char.isalnum()) or "other"
        alike = alike if alike != name else "other"
        target.write("a.parquet", pa.table({"key": [1], name: [0], alike: [0]}))
        source = pa.table({"key": [1, 1, 2, 2], name: [1, 2, 4, 3], alike: [2, 1, 3, 4]})
        target.merge(source, "upsert", ["key"], order_by=[name])

    def test_order_by_columns_that_differ_by_a_leading_dot(self, target: Target) -> None:
        target.write("a.parquet", pa.table({"id": [1], ".x": [0], "x": [0]}))
        source = pa.table({"id": [1, 1, 1], ".x": [1, 2, 2], "x": [9, 1, 2]})
        target.merge(source, order_by=[".x", "x"])
        assert next(iter(target.files(source.schema).values()))[0] == {"id": 1, ".x": 2, "x": 2}

    @pytest.mark.parametrize("role", ["key", "order", "payload"])
    def test_a_name_that_is_the_path_to_a_field_of_a_struct(
        self, target: Target, role: str
    ) -> None:
        inside = [{"a": 5, "b": 6}, {"a": 3, "b": 4}]
        existing = pa.table({"id": [1, 2], "s": inside, "s.a": [1, 2], ".s.b": [1, 2]})
        target.write("a.parquet", existing)
        source = pa.table(
            {"id": [2, 2, 3], "s": [inside[0], *inside], "s.a": [2, 2, 5], ".s.b": [8, 7, 9]}
        )
        keys = ["s.a", ".s.b"] if role == "key" else ["id"]
        order = [".s.b", "s.a"] if role == "order" else None
        target.merge(source, "upsert", keys, order_by=order, duplicate_keys="last")

    def test_names_that_differ_by_case_alone_cannot_be_keys(self, target: Target) -> None:
        existing = pa.table({"id": [1], "ID": [2]})
        target.write("a.parquet", existing)
        target.refuses(ValueError, existing, "upsert", ["id"], match="case")
