"""The chain of evidence against brute force, for the files of four writers, and exact cases."""

from __future__ import annotations

import itertools
import math
import tempfile
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import datafusion
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import Phase, given, note, settings
from hypothesis import strategies as st
from tests.core.planning.edited_footers import candidates, column, edit_footer, remove, verdicts

from fsspeckit.core.incremental import (
    ConservativeMembershipChecker,
    ParquetMetadataAnalyzer,
    plan_incremental_rewrite,
)
from fsspeckit.core.keys.canonical import family
from fsspeckit.core.parquet.format.thrift import BINARY, BYTES
from fsspeckit.core.planning.pruning import Evidence
from fsspeckit.testing.model_source import values_of
from fsspeckit.testing.strategies import KEY_TYPES, arrays, source_keys
from fsspeckit.testing.writers import WRITERS, WriteOptions, WriterCannotError, drop_statistics

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hypothesis.strategies import DrawFn
    from pyspark.sql import SparkSession

ROW_GROUP_SIZE = 3


@st.composite
def columns_of_keys(
    draw: DrawFn, types: Sequence[pa.DataType], rows: int
) -> tuple[pa.Table, pa.Table]:
    """Draw a table of key columns, and keys to look for: values of it, neighbours, any others."""
    target = [draw(arrays(type_, rows)) for type_ in types]
    source = [draw(source_keys(column)) for column in target]
    # Tuples of any combination, with NULL among them.
    places = [st.sampled_from([*range(len(keys)), None]) for keys in source]
    tuples = draw(st.lists(st.tuples(*places), min_size=1, max_size=6))
    found = [
        keys.take(pa.array([place[number] for place in tuples], pa.int64()))
        for number, keys in enumerate(source)
    ]
    names = [f"k{number}" for number in range(len(types))]
    return pa.table(target, names=names), pa.table(found, names=names)


def python_values(table: pa.Table) -> list[dict[str, Any]]:
    """Rows of raw values: Python has no nanoseconds."""
    columns = []
    for values in table.columns:
        type_ = values.type
        if pa.types.is_timestamp(type_) or pa.types.is_date32(type_):
            values = values.cast(pa.int64() if type_.bit_width == 64 else pa.int32())
        columns.append(values.to_pylist())
    return [dict(zip(table.column_names, row, strict=True)) for row in zip(*columns, strict=True)]


def holding(path: Path, keys: pa.Table) -> set[int]:
    """The row groups that hold a key, by brute force over what the file really holds."""
    wanted = {values_of(row, keys.column_names) for row in python_values(keys)}
    with pq.ParquetFile(path, coerce_int96_timestamp_unit="us") as file:
        groups = [file.read_row_group(number) for number in range(file.num_row_groups)]
    rows = [python_values(group.select(keys.column_names).cast(keys.schema)) for group in groups]
    return {
        number
        for number, group in enumerate(rows)
        if any(values_of(row, keys.column_names) in wanted for row in group)
    }


def comparable(path: Path, keys: pa.Table) -> pa.Table:
    """The keys as a caller has to pass them: instants for INT96, without those it cannot hold."""
    schema = pq.read_metadata(path).schema
    for number, name in enumerate(keys.column_names):
        if schema.column(schema.names.index(name)).physical_type == "INT96":
            column = keys.column(name)
            whole = column.cast(pa.timestamp("us", column.type.tz), safe=False)
            same = pc.equal(whole.cast(column.type, safe=False), column)
            keys = keys.set_column(number, name, whole.cast(pa.timestamp("us", "UTC")))
            keys = keys.filter(pc.fill_null(same, True))
    return keys


def respelled(keys: pa.Table) -> pa.Table:
    """The same keys as another type of the same family, for columns that have one to hold them."""
    columns = []
    for values in keys.columns:
        for other in OTHER_TYPES:
            if family(other) == family(values.type) and not other.equals(values.type):
                with suppress(pa.ArrowInvalid):
                    values = values.cast(other)
                    break
        columns.append(values)
    return pa.table(columns, names=keys.column_names)


OTHER_TYPES = (
    *(pa.int64(), pa.uint64(), pa.float64(), pa.large_string(), pa.large_binary()),
    *(pa.timestamp(unit, zone) for unit in ("ns", "us", "ms") for zone in (None, "UTC")),
    *(pa.decimal128(38, scale) for scale in (18, 12, 1)),
)


def assert_never_pruned(directory: Path, keys: pa.Table) -> set[int]:
    """Check that row groups which hold a key are candidates, by every door; return those."""
    (path,) = directory.glob("*.parquet")
    truth = holding(path, keys)
    (verdict,) = verdicts(directory, keys.column_names, keys).values()
    (other,) = verdicts(directory, keys.column_names, respelled(keys)).values()
    assert other == verdict
    note(f"{path.name} {keys.to_pylist()}: {verdict}, truly {truth}")
    assert truth <= set(verdict.row_groups)
    affected = plan_incremental_rewrite(str(directory), keys, keys.column_names).affected_files
    (known,) = ParquetMetadataAnalyzer().analyze_dataset_files(str(directory))
    checker = ConservativeMembershipChecker()
    might = checker.file_might_contain_keys(known, keys.column_names, keys)
    if truth:
        assert affected == [str(path)]
        assert might
    return set(verdict.row_groups)


def assert_grows_with_less_metadata(directory: Path, keys: pa.Table) -> None:
    """Check with all statistics, with those of some row groups, and with none."""
    (path,) = directory.glob("*.parquet")
    keys = comparable(path, keys)
    seen = assert_never_pruned(directory, keys)
    metadata = pq.read_metadata(path)
    count = metadata.num_row_groups
    for fewer in (range(0, count, 2), range(count)):
        drop_statistics(str(path), list(fewer))
        now = assert_never_pruned(directory, keys)
        assert seen <= now
        seen = now
    with_rows = {number for number in range(count) if metadata.row_group(number).num_rows}
    assert seen == (with_rows if keys.num_rows else set())


OPTIONS = st.builds(
    WriteOptions,
    row_group_size=st.integers(1, 3),
    statistics=st.booleans(),
    int96=st.booleans(),
    decimal_as_integer=st.booleans(),
)


@pytest.mark.parametrize("writer", ["pyarrow", "duckdb", "polars"])
@pytest.mark.slow
@given(data=st.data())
@settings(max_examples=60)
def test_a_row_group_that_holds_a_key_is_never_pruned(
    writer: str, data: st.DataObject, tmp_path: Path
) -> None:
    types = data.draw(st.lists(st.sampled_from(KEY_TYPES), min_size=1, max_size=3))
    target, keys = data.draw(columns_of_keys(types, data.draw(st.integers(0, 8))))
    options = data.draw(OPTIONS)
    with tempfile.TemporaryDirectory(dir=tmp_path) as folder:
        path = Path(folder, "a.parquet")
        try:
            WRITERS[writer](target, str(path), options)
        except WriterCannotError:
            WRITERS[writer](target, str(path), WriteOptions(options.row_group_size))
        assert_grows_with_less_metadata(path.parent, keys)


SPARK_TYPES = [
    type_
    for type_ in KEY_TYPES
    if not (pa.types.is_timestamp(type_) and type_.unit == "ns")
    and type_ != pa.decimal128(18, 18)
    and not pa.types.is_dictionary(type_)
]


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        WriteOptions(ROW_GROUP_SIZE),
        WriteOptions(ROW_GROUP_SIZE, int96=False, decimal_as_integer=False),
        WriteOptions(ROW_GROUP_SIZE, statistics=False),
    ],
    ids=["default", "int64 timestamps, decimals as bytes", "no statistics"],
)
@given(data=st.data())
@settings(max_examples=1, phases=[Phase.generate])
def test_a_row_group_of_spark_that_holds_a_key_is_never_pruned(
    options: WriteOptions, data: st.DataObject, tmp_path: Path, spark: SparkSession
) -> None:
    # One job for all types: each column is then a key of its own, and the next one of a pair.
    # That makes some fifty plans of one example.
    target, keys = data.draw(columns_of_keys(SPARK_TYPES, 9))
    with tempfile.TemporaryDirectory(dir=tmp_path) as folder:
        path = Path(folder, "a.parquet")
        WRITERS["spark"](target, str(path), options)
        names = target.column_names
        for key in [*([name] for name in names), *itertools.pairwise(names)]:
            assert_never_pruned(path.parent, comparable(path, keys.select(key)))
        assert_grows_with_less_metadata(path.parent, keys.select(names[:2]))


def write(path: Path, values: Sequence[Any] | pa.Table, type_: Any = None, **options: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    table = values if isinstance(values, pa.Table) else column(values, type_ or pa.int64())
    pq.write_table(table, path, **options)
    return path


def test_an_outlier_among_the_keys_does_not_make_every_file_a_candidate(tmp_path: Path) -> None:
    for number in range(10):
        write(tmp_path / f"{number}.parquet", [100 * number, 100 * number + 50])
    # Between them the keys span all files, but only two files have one inside.
    found = candidates(tmp_path, [25, 999_999, -7, 720])
    assert [name for name, groups in found.items() if groups] == ["0.parquet", "7.parquet"]


def test_a_key_in_the_gap_between_two_row_groups_prunes_both(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", [0, 10, 20, 30], row_group_size=2)
    (verdict,) = verdicts(tmp_path, ["id"], [15]).values()
    assert verdict.row_groups == ()
    assert str(verdict.evidence) == "statistics of id: 0 to 30"
    assert candidates(tmp_path, [15, 20]) == {"a.parquet": (1,)}


def test_a_composite_key_is_pruned_when_no_tuple_fits_though_every_range_does(
    tmp_path: Path,
) -> None:
    write(tmp_path / "a.parquet", pa.table({"a": [0, 10], "b": ["a", "k"]}))
    # 5 and "c" each lie inside, never in one tuple.
    (verdict,) = verdicts(tmp_path, ["a", "b"], [(5, "z"), (50, "c")]).values()
    assert verdict.row_groups == ()
    assert verdict.evidence == Evidence("statistics", ("a", "b"), "no key fits all the bounds")
    (verdict,) = verdicts(tmp_path, ["a", "b"], [(5, "z"), (50, "c"), (7, "b")]).values()
    assert verdict.row_groups == (0,)


def test_one_column_of_a_composite_key_is_enough_to_rule_a_file_out(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", pa.table({"a": [0, 10], "b": ["a", "k"]}))
    (verdict,) = verdicts(tmp_path, ["a", "b"], [(5, "z"), (50, "x")]).values()
    assert verdict.evidence == Evidence("statistics", ("b",), "a to k")


@pytest.mark.parametrize("type_", [pa.float32(), pa.float64()], ids=str)
def test_nan_may_be_in_any_row_group_that_holds_values(tmp_path: Path, type_: pa.DataType) -> None:
    values = [1.0, 2.0, math.nan, math.nan, None, None, 5.0, math.nan]
    write(tmp_path / "a.parquet", values, type_, row_group_size=2)
    assert candidates(tmp_path, [math.nan]) == {"a.parquet": (0, 1, 3)}
    assert candidates(tmp_path, [1.5]) == {"a.parquet": (0, 1)}  # all NaN: no bounds
    assert candidates(tmp_path, [5.0, 9.0]) == {"a.parquet": (1, 3)}


@pytest.mark.parametrize("stored", [0.0, -0.0])
@pytest.mark.parametrize("asked", [0.0, -0.0])
def test_zero_is_one_key(tmp_path: Path, stored: float, asked: float) -> None:
    write(tmp_path / "a.parquet", [stored], pa.float64())
    assert candidates(tmp_path, [asked]) == {"a.parquet": (0,)}


def test_null_keys_keep_the_row_groups_that_hold_null(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", [1, 2, None, 3, None, None], row_group_size=2)
    assert candidates(tmp_path, pa.array([None], pa.int64())) == {"a.parquet": (1, 2)}
    assert candidates(tmp_path, pa.array([None, 2], pa.int64())) == {"a.parquet": (0, 1, 2)}
    assert candidates(tmp_path, [3]) == {"a.parquet": (1,)}
    (verdict,) = verdicts(tmp_path, ["id"], [9]).values()
    assert str(verdict.evidence) == "statistics of id: 1 to 3"


def test_a_file_of_null_alone_holds_no_key(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", [None, None])
    (verdict,) = verdicts(tmp_path, ["id"], [1]).values()
    assert str(verdict.evidence) == "statistics of id: only NULL"


def test_a_composite_key_with_null_is_looked_for_as_a_tuple(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", pa.table({"a": [1, 2], "b": [None, "x"]}))
    keys = pa.table({"a": [1, 9], "b": pa.array([None, "x"])})
    assert verdicts(tmp_path, ["a", "b"], keys)["a.parquet"].row_groups == (0,)
    keys = pa.table({"a": [9, 1], "b": pa.array([None, "z"])})
    assert verdicts(tmp_path, ["a", "b"], keys)["a.parquet"].row_groups == ()


def test_a_file_without_rows_holds_no_key(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", [])
    (verdict,) = verdicts(tmp_path, ["id"], pa.array([1, None])).values()
    assert verdict.row_groups == ()
    assert str(verdict.evidence) == "statistics: no rows"


def test_a_row_group_without_rows_holds_no_key_whatever_its_statistics_lack(
    tmp_path: Path,
) -> None:
    table = column([1, 2], pa.int64())
    with pq.ParquetWriter(tmp_path / "a.parquet", table.schema, write_statistics=False) as writer:
        writer.write_table(table)
        writer.write_table(table.slice(0, 0))
        writer.write_table(table)
    assert pq.read_metadata(tmp_path / "a.parquet").row_group(1).num_rows == 0
    assert candidates(tmp_path, pa.array([1, None])) == {"a.parquet": (0, 2)}


def test_statistics_of_some_row_groups_prune_those_alone(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", list(range(6)), row_group_size=2)
    drop_statistics(str(path), [1])
    assert candidates(tmp_path, [0, 99]) == {"a.parquet": (0, 1)}
    drop_statistics(str(path), [0, 2])
    (verdict,) = verdicts(tmp_path, ["id"], [99]).values()
    assert verdict.row_groups == (0, 1, 2)
    assert verdict.evidence == Evidence("none")


@pytest.mark.parametrize("bits", [8, 16, 32, 64])
def test_unsigned_keys_above_the_signed_range_are_in_order(tmp_path: Path, bits: int) -> None:
    type_ = {8: pa.uint8(), 16: pa.uint16(), 32: pa.uint32(), 64: pa.uint64()}[bits]
    half, last = 2 ** (bits - 1), 2**bits - 1
    write(tmp_path / "low.parquet", [0, half - 2], type_)
    write(tmp_path / "middle.parquet", [half - 1, half + 1], type_)
    write(tmp_path / "top.parquet", [last - 1, last], type_)
    for key, name in [(1, "low"), (half, "middle"), (last, "top")]:
        found = candidates(tmp_path, pa.array([key], type_))
        assert [file for file, groups in found.items() if groups] == [f"{name}.parquet"]


@pytest.mark.parametrize("writer", ["pyarrow", "duckdb", "polars"])
@pytest.mark.parametrize("digits", [(9, 2), (18, 4), (38, 10)], ids=str)
@pytest.mark.parametrize("as_integer", [True, False], ids=["integer", "bytes"])
def test_decimals_prune_in_every_physical_type_that_can_be_trusted(
    tmp_path: Path, writer: str, digits: tuple[int, int], as_integer: bool
) -> None:
    table = column([Decimal("-7.25"), Decimal("3.5")], pa.decimal128(*digits))
    options = WriteOptions(decimal_as_integer=as_integer)
    try:
        WRITERS[writer](table, str(tmp_path / "a.parquet"), options)
    except WriterCannotError as error:
        pytest.skip(str(error))
    physical = pq.read_metadata(tmp_path / "a.parquet").schema.column(0).physical_type
    assert candidates(tmp_path, [Decimal("-7.2")]) == {"a.parquet": (0,)}
    trusted = physical != "FIXED_LEN_BYTE_ARRAY" or writer == "pyarrow"
    assert candidates(tmp_path, [Decimal("4")]) == {"a.parquet": () if trusted else (0,)}
    assert candidates(tmp_path, [Decimal("-8"), 5]) == {"a.parquet": () if trusted else (0,)}


def test_decimals_in_byte_arrays_of_an_unknown_writer_do_not_prune(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", [Decimal(1), Decimal(2)], pa.decimal128(30, 0))
    assert candidates(tmp_path, [Decimal(9)]) == {"a.parquet": ()}
    edit_footer(path, {6: BYTES}, lambda footer: footer.values.update({6: b"somebody 1.0"}))
    assert candidates(tmp_path, [Decimal(9)]) == {"a.parquet": (0,)}


@pytest.mark.parametrize("writer", ["pyarrow", "duckdb"])
def test_int96_never_prunes(tmp_path: Path, writer: str) -> None:
    table = column([1_000_000, 2_000_000], pa.timestamp("us"))
    WRITERS[writer](table, str(tmp_path / "a.parquet"), WriteOptions(int96=True))
    for key in (0, 1_500_000, 10**15):
        keys = pa.array([key], pa.timestamp("us", "UTC"))
        assert candidates(tmp_path, keys) == {"a.parquet": (0,)}


@pytest.mark.parametrize(
    "type_", [pa.timestamp(u, z) for u in ("s", "ms", "us", "ns") for z in (None, "UTC")], ids=str
)
def test_timestamps_of_every_unit_prune_by_instant(tmp_path: Path, type_: pa.DataType) -> None:
    zone = type_.tz
    seconds = pa.array([1_000, 2_000], pa.timestamp("s", zone))
    write(tmp_path / "a.parquet", pa.table({"id": seconds.cast(type_)}))
    for unit in ("s", "ms", "us", "ns"):
        for second, groups in [(999, ()), (1_000, (0,)), (1_500, (0,)), (2_001, ())]:
            keys = pa.array([second], pa.timestamp("s", zone)).cast(pa.timestamp(unit, zone))
            assert candidates(tmp_path, keys) == {"a.parquet": groups}


def test_deprecated_statistics_of_strings_count_as_unknown(tmp_path: Path) -> None:
    # Signed bytes: "é" begins below every ASCII letter, so the bounds are é..z.
    path = write(tmp_path / "a.parquet", ["a", "z", "é"], pa.string())

    def as_of_old(footer: Any) -> None:
        remove(footer, 7)
        footer.values[6] = b"somebody 1.0"
        statistics = footer.values[4][0].values[1][0].values[3].values[12]
        remove(statistics, 5, 6, 7, 8)
        statistics.values.update({1: b"z", 2: "é".encode()})
        statistics.kinds = {1: BINARY, 2: BINARY, **statistics.kinds}

    edit_footer(path, {4: [{1: [{3: {12: {5: BYTES, 6: BYTES}}}]}], 6: BYTES, 7: [{}]}, as_of_old)
    assert candidates(tmp_path, ["a"]) == {"a.parquet": (0,)}
    assert candidates(tmp_path, ["0"]) == {"a.parquet": (0,)}


@pytest.mark.parametrize("type_", [pa.string(), pa.binary(1), pa.uint32()], ids=str)
def test_bounds_without_a_declared_order_count_as_unknown_where_signs_matter(
    tmp_path: Path, type_: pa.DataType
) -> None:
    values: list[Any] = [1, 2] if type_ == pa.uint32() else ["a", "b"]
    beyond: list[Any] = [3] if type_ == pa.uint32() else ["c"]
    path = write(tmp_path / "a.parquet", values, type_)
    assert candidates(tmp_path, pa.array(beyond, type_)) == {"a.parquet": ()}

    def undeclared(footer: Any) -> None:
        remove(footer, 7)
        footer.values[6] = b"somebody 1.0"
        statistics = footer.values[4][0].values[1][0].values[3].values[12]
        statistics.values.update({1: statistics.values[5], 2: statistics.values[6]})
        statistics.kinds = {1: BINARY, 2: BINARY, **statistics.kinds}

    edit_footer(path, {4: [{1: [{3: {12: {5: BYTES, 6: BYTES}}}]}], 6: BYTES}, undeclared)
    assert candidates(tmp_path, pa.array(beyond, type_)) == {"a.parquet": (0,)}


def test_bounds_in_the_wrong_order_count_as_unknown(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", [3, 5])

    def swap(footer: Any) -> None:
        statistics = footer.values[4][0].values[1][0].values[3].values[12].values
        statistics[5], statistics[6] = statistics[6], statistics[5]

    edit_footer(path, {4: [{1: [{3: {12: {5: BYTES, 6: BYTES}}}]}]}, swap)
    assert candidates(tmp_path, [99]) == {"a.parquet": (0,)}


LONG = "x" * 300


@pytest.mark.parametrize("writer", ["duckdb", "polars"])
def test_cut_bounds_of_strings_count_as_unknown(tmp_path: Path, writer: str) -> None:
    WRITERS[writer](column([LONG + "a", LONG + "b"], pa.string()), str(tmp_path / "a.parquet"))
    WRITERS[writer](column(["a", "b"], pa.string()), str(tmp_path / "b.parquet"))
    assert candidates(tmp_path, ["zzz"]) == {"a.parquet": (0,), "b.parquet": ()}


@pytest.mark.parametrize("length", [None, 1, 4])
@pytest.mark.parametrize("type_", [pa.string(), pa.binary(), pa.binary(100)], ids=str)
def test_bounds_that_arrow_rs_cut_count_as_unknown(
    tmp_path: Path, type_: pa.DataType, length: int | None
) -> None:
    settings = datafusion.SessionConfig()
    if length:
        name = "datafusion.execution.parquet.statistics_truncate_length"
        settings = settings.set(name, str(length))
    values = [letter * 100 for letter in ("b", "d")]
    table = column(values, type_)
    datafusion.SessionContext(settings).from_arrow(table).write_parquet(str(tmp_path))
    for key in (*values, "z" * 100):
        ((_, groups),) = candidates(tmp_path, pa.array([key], type_)).items()
        assert groups == (0,)


def test_an_exact_bound_of_any_length_prunes(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", [LONG + "a", LONG + "b"], pa.string())
    assert candidates(tmp_path, ["zzz"]) == {"a.parquet": ()}
    assert candidates(tmp_path, [LONG + "aa"]) == {"a.parquet": (0,)}


def test_a_nested_leaf_named_like_the_key_does_not_prune(tmp_path: Path) -> None:
    nested = pa.array([{"id": 1000, "b": 1}])
    write(tmp_path / "a.parquet", pa.table({"s": nested, "id": [5], "s.id": [9]}))
    assert candidates(tmp_path, [5]) == {"a.parquet": (0,)}
    assert candidates(tmp_path, [1000]) == {"a.parquet": ()}
    assert candidates(tmp_path, [9], "s.id") == {"a.parquet": (0,)}
    assert candidates(tmp_path, [1000], "s.id") == {"a.parquet": ()}


def test_a_file_that_lacks_the_key_column_is_a_candidate(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", [1, 2])
    write(tmp_path / "b.parquet", pa.table({"v": [1, 2]}))
    assert candidates(tmp_path, [99]) == {"a.parquet": (), "b.parquet": (0,)}


def test_an_unreadable_file_is_never_pruned(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", [1])
    (tmp_path / "b.parquet").write_bytes(b"PAR1 nothing")
    found = verdicts(tmp_path, ["id"], [99])
    assert found["a.parquet"].evidence.kind == "statistics"
    assert found["b.parquet"].evidence.kind == "unreadable"
    plan = plan_incremental_rewrite(str(tmp_path), [99], ["id"])
    assert plan.affected_files == [str(tmp_path / "b.parquet")]


def test_a_partition_of_another_value_is_ruled_out_by_its_path(tmp_path: Path) -> None:
    for part in ("1", "02", "__HIVE_DEFAULT_PARTITION__", "many"):
        write(tmp_path / f"p={part}" / "a.parquet", [1, 2])
    keys = pa.table({"id": [1, 2], "p": pa.array([2, 7], pa.int32())})
    found = verdicts(tmp_path, ["id", "p"], keys)
    groups = {name.split("/")[0]: verdict.row_groups for name, verdict in found.items()}
    # What is no number is unknown; NULL is a value.
    assert groups == {
        "p=02": (0,),
        "p=1": (),
        "p=__HIVE_DEFAULT_PARTITION__": (),
        "p=many": (0,),
    }
    assert found["p=1/a.parquet"].evidence == Evidence("partition", ("p",), "1")


def test_files_of_different_types_are_compared_by_value(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", [1, 2], pa.int8())
    write(tmp_path / "b.parquet", [2**63], pa.uint64())
    write(tmp_path / "c.parquet", [-5, 2**40], pa.int64())
    assert candidates(tmp_path, [2]) == {"a.parquet": (0,), "b.parquet": (), "c.parquet": (0,)}
    assert candidates(tmp_path, [Decimal(2**63)]) == {
        "a.parquet": (),
        "b.parquet": (0,),
        "c.parquet": (),
    }


def test_no_keys_touch_nothing(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", [1, None, 2], row_group_size=1)
    assert candidates(tmp_path, pa.array([], pa.int64())) == {"a.parquet": ()}


def test_a_dataset_without_files_has_no_candidates(tmp_path: Path) -> None:
    assert candidates(tmp_path, [1]) == {}
