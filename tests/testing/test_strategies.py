from __future__ import annotations

import math
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st
from hypothesis.errors import NoSuchExample

from fsspeckit.testing.model import merge_rows
from fsspeckit.testing.model_source import values_of
from fsspeckit.testing.strategies import (
    COLUMN_NAMES,
    KEY_TYPES,
    PARTITION_NAMES,
    PARTITION_TYPES,
    PAYLOAD_TYPES,
    DatasetSchema,
    GeneratedDataset,
    arrays,
    dataset_schemas,
    datasets,
    partition_values,
    source_keys,
    tables,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from hypothesis.strategies import SearchStrategy

T = TypeVar("T")
some = settings(max_examples=25)


def occurs(strategy: SearchStrategy[T], condition: Callable[[T], Any]) -> T:
    """Draw until the condition holds; fail when it does not. No time is spent on shrinking."""
    unshrunk = settings(max_examples=3000, phases=[Phase.generate], database=None)
    return find(strategy, lambda value: bool(condition(value)), settings=unshrunk)


@pytest.mark.parametrize("type_", [*KEY_TYPES, *PAYLOAD_TYPES], ids=str)
@given(data=st.data())
@some
def test_arrays_have_their_type_and_survive_parquet(
    type_: pa.DataType, data: st.DataObject
) -> None:
    array = data.draw(arrays(type_, 3))
    assert array.type == type_
    assert len(array) == 3
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"c": array}), sink)
    back = pq.read_table(pa.BufferReader(sink.getvalue()))["c"].cast(type_)
    assert repr(back.to_pylist()) == repr(array.to_pylist())


@pytest.mark.parametrize("type_", KEY_TYPES, ids=str)
def test_values_reach_the_edges_of_a_type(type_: pa.DataType) -> None:
    """NULL, and what comes first and last in the order of the type."""
    occurs(arrays(type_, 1), lambda array: array.null_count == 1)
    if pa.types.is_floating(type_):
        occurs(arrays(type_, 1), lambda array: pc.is_nan(array)[0].as_py() is True)
        occurs(arrays(type_, 1), lambda array: repr(array[0].as_py()) == "-0.0")
        occurs(arrays(type_, 1), lambda array: array[0].as_py() == math.inf)
    elif pa.types.is_integer(type_):
        bits = type_.bit_width - pa.types.is_signed_integer(type_)
        occurs(arrays(type_, 1), lambda array: array[0].as_py() == 2**bits - 1)
    elif pa.types.is_decimal(type_):
        nines = (9,) * type_.precision
        occurs(
            arrays(type_, 1), lambda a: a[0].is_valid and a[0].as_py().as_tuple().digits == nines
        )


def column_names(dataset: GeneratedDataset) -> set[str]:
    return set(dataset.schema.names)


def keys_of(table: pa.Table, dataset: GeneratedDataset) -> list[tuple[Any, ...]]:
    return [values_of(row, dataset.key_columns) for row in table.to_pylist()]


def shared(dataset: GeneratedDataset) -> set[tuple[Any, ...]]:
    return set(keys_of(dataset.source, dataset)) & set(keys_of(dataset.target, dataset))


def has_repeats(keys: list[tuple[Any, ...]]) -> bool:
    return len(set(keys)) < len(keys)


OCCURS: dict[str, Any] = {
    "a match": lambda d: shared(d),
    "a source key that is new": lambda d: set(keys_of(d.source, d)) - shared(d),
    "a target key that is not in the source": lambda d: set(keys_of(d.target, d)) - shared(d),
    "a duplicate target key": lambda d: has_repeats(keys_of(d.target, d)),
    "a NULL target key": lambda d: any(None in key for key in keys_of(d.target, d)),
    "a match in two files": lambda d: sum(bool(shared_with(d, f)) for f in d.files) > 1,
    "a match that changes nothing": lambda d: any(
        repr(row) in map(repr, d.target.to_pylist()) for row in d.source.to_pylist()
    ),
    "a match that changes something": lambda d: (
        shared(d) and not {*map(repr, d.source.to_pylist())} & {*map(repr, d.target.to_pylist())}
    ),
    "an empty source": lambda d: not len(d.source),
    "an empty file": lambda d: any(not len(table) for table in d.files),
    "several files": lambda d: len(d.files) > 1,
    "several row groups": lambda d: any(len(table) > d.row_group_size for table in d.files),
    "a composite key": lambda d: len(d.key_columns) == 3,
    "a partition column in the key": lambda d: {*d.key_columns} & {*d.partition_columns},
    "a partition column outside the key": lambda d: {*d.partition_columns} - {*d.key_columns},
    "two levels of partitions": lambda d: len(d.partition_columns) == 2,
    "a NULL partition": lambda d: any(d.target[name].null_count for name in d.partition_columns),
}


def shared_with(dataset: GeneratedDataset, table: pa.Table) -> set[tuple[Any, ...]]:
    return set(keys_of(dataset.source, dataset)) & set(keys_of(table, dataset))


def test_a_dataset_can_have_all_that_matters() -> None:
    missing = set(OCCURS)

    def removes_the_last(dataset: GeneratedDataset) -> bool:
        missing.difference_update([what for what in missing if OCCURS[what](dataset)])
        return not missing

    try:
        occurs(datasets(), removes_the_last)
    except NoSuchExample:
        pytest.fail(f"never: {sorted(missing)}")


@given(dataset=datasets())
@settings(max_examples=50)
def test_datasets_are_consistent(dataset: GeneratedDataset) -> None:
    assert all(table.schema.equals(dataset.schema) for table in [*dataset.files, dataset.source])
    assert column_names(dataset) >= {*dataset.key_columns, *dataset.partition_columns}
    for table in dataset.files:
        for name in dataset.partition_columns:
            assert len({*table[name].to_pylist()}) == 1
    keys = keys_of(dataset.source, dataset)
    assert not has_repeats(keys)
    assert not any(None in key for key in keys)


@given(dataset=datasets())
@settings(max_examples=50)
def test_every_dataset_can_be_merged(dataset: GeneratedDataset) -> None:
    """No NULL or duplicate source keys and no key that moves, unless asked for."""
    target, source = dataset.target.to_pylist(), dataset.source.to_pylist()
    result = merge_rows(
        target, source, "upsert", dataset.key_columns, partition_columns=dataset.partition_columns
    )
    assert len(result.rows) == len(target) + result.inserted


def raises(dataset: GeneratedDataset, **options: Any) -> str:
    target, source = dataset.target.to_pylist(), dataset.source.to_pylist()
    parts = dataset.partition_columns
    try:
        merge_rows(
            target, source, "upsert", dataset.key_columns, partition_columns=parts, **options
        )
    except ValueError as error:
        return type(error).__name__
    return ""


@pytest.mark.parametrize(
    ("option", "error"),
    [
        ({"null_source_keys": True}, "NullKeyError"),
        ({"duplicate_source_keys": True}, "DuplicateKeyError"),
        ({"moving_keys": True}, "PartitionMoveError"),
    ],
)
def test_what_a_merge_refuses_can_be_asked_for(option: dict[str, Any], error: str) -> None:
    occurs(datasets(**option), lambda dataset: raises(dataset) == error)


def partition_schema(dataset: GeneratedDataset) -> pa.Schema:
    return pa.schema([dataset.schema.field(name) for name in dataset.partition_columns])


@given(dataset=datasets())
@settings(max_examples=50)
def test_a_written_dataset_reads_back(dataset: GeneratedDataset) -> None:
    with TemporaryDirectory() as root:
        paths = dataset.write(root)
        assert len(paths) == len(dataset.files)
        for path, table in zip(paths, dataset.files, strict=True):
            groups = pq.read_metadata(path).num_row_groups
            assert groups == max(1, math.ceil(len(table) / dataset.row_group_size))
            hive = pads.partitioning(partition_schema(dataset), flavor="hive")
            read = pads.dataset(path, partitioning=hive, partition_base_dir=root).to_table()
            back = read.select(dataset.schema.names).cast(dataset.schema)
            assert repr(back.to_pylist()) == repr(table.to_pylist())


def test_a_dataset_shows_its_rows(tmp_path: Path) -> None:
    table = pa.table({"k": [1], "p": ["a"]})
    dataset = GeneratedDataset(table.schema, ("k",), ("p",), [table], table.slice(1), 2)
    assert "{'k': 1, 'p': 'a'}" in repr(dataset)
    assert dataset.write(tmp_path) == [str(tmp_path / "p=a" / "part-0.parquet")]


@given(shape=dataset_schemas(key_types=[pa.int8()], max_keys=1, partitioned=False))
@some
def test_a_schema_can_be_narrowed(shape: DatasetSchema) -> None:
    (key,) = shape.key_columns
    assert shape.schema.field(key).type == pa.int8()
    assert shape.partition_columns == ()


@given(data=st.data())
@some
def test_tables_take_their_keys_from_a_domain(data: st.DataObject) -> None:
    shape = DatasetSchema(pa.schema([("k", pa.int64()), ("v", pa.string())]), ("k",))
    domain = {"k": st.sampled_from([1, 2, 3])}
    table = data.draw(tables(shape, domain, min_rows=1, unique=True))
    assert 1 <= len(table) == len({*table["k"].to_pylist()})
    assert {*table["k"].to_pylist()} <= {1, 2, 3}


@pytest.mark.parametrize("type_", PARTITION_TYPES, ids=str)
@given(data=st.data())
@some
def test_partition_values_are_never_empty(type_: pa.DataType, data: st.DataObject) -> None:
    assert data.draw(partition_values(type_)) not in ("", None)


def test_names_do_not_collide_by_case() -> None:
    names = [name.casefold() for name in (*COLUMN_NAMES, *PARTITION_NAMES)]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("type_", KEY_TYPES, ids=str)
@given(data=st.data())
@some
def test_source_keys_fit_their_column(type_: pa.DataType, data: st.DataObject) -> None:
    column = data.draw(arrays(type_, 2))
    keys = data.draw(source_keys(column))
    assert keys.type == type_
    assert not keys.null_count


@pytest.mark.parametrize(
    ("type_", "present", "wanted"),
    [
        (pa.int32(), [10, 20], [9, 10, 20, 21, 0]),
        (pa.uint8(), [10, 255], [9, 255, 0]),
        (pa.decimal128(38, 10), ["7.0000000001"], ["7.0000000000", "7.0000000002"]),
        (pa.timestamp("ns"), [10, 20], [9, 21]),
        (pa.float32(), [1.0], [1.0000001192092896, 0.9999999403953552]),
        (pa.string(), ["mm"], ["m", "mm\0", "b"]),
        (pa.binary(2), [b"mm"], [b"ml", b"mn"]),
        (pa.bool_(), [True], [False]),
    ],
)
def test_source_keys_lie_inside_at_and_outside_the_range(
    type_: pa.DataType, present: list[Any], wanted: list[Any]
) -> None:
    column = (
        pa.array(present).cast(type_) if isinstance(present[0], str) else pa.array(present, type_)
    )
    for value in pa.array(wanted).cast(type_):
        occurs(source_keys(column), lambda keys, value=value: value in list(keys))  # type: ignore[misc]
