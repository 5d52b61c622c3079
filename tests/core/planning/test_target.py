"""The target as planning sees it, from its paths and footers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fsspeckit.core.keys.canonical import KeyColumn
from fsspeckit.core.keys.source import no_keys, source_keys
from fsspeckit.core.planning.target import Target, read_target
from fsspeckit.errors import (
    InvalidArgumentError,
    NullKeyError,
    SchemaMismatchError,
    UnsupportedLayoutError,
)
from fsspeckit.storage.listing import list_files
from fsspeckit.storage.roots import open_root

if TYPE_CHECKING:
    from pathlib import Path


def write(directory: Path, relative: str, **columns: Any) -> None:
    path = directory / relative
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)


def target_of(
    directory: Path,
    key_columns: Any,
    schema: pa.Schema | None = None,
    partition_columns: Any = None,
) -> Target:
    root = open_root(str(directory))
    return read_target(root, list_files(root).files, key_columns, schema, partition_columns)


def ints(*values: int | None, bits: int = 64) -> pa.Array:
    return pa.array(values, {8: pa.int8(), 32: pa.int32(), 64: pa.int64()}[bits])


def test_a_target_knows_its_rows_keys_and_partitions(tmp_path: Path) -> None:
    write(tmp_path, "day=2024-01-01/a.parquet", id=[1, 2])
    write(tmp_path, "day=2024-01-02/b.parquet", id=[3])
    target = target_of(tmp_path, ["id"], pa.schema([("day", pa.date32())]))
    assert target.rows == 3
    assert target.key_columns == (KeyColumn("id", pa.int64()),)
    assert target.partition_columns == (KeyColumn("day", pa.date32()),)
    assert [texts["day"] for texts in target.partition_texts] == ["2024-01-01", "2024-01-02"]
    assert [str(value) for value in target.partitions["day"].values] == ["2024-01-01", "2024-01-02"]


def test_a_directory_above_the_root_is_not_a_partition(tmp_path: Path) -> None:
    write(tmp_path, "env=prod/data/p=1/a.parquet", id=[1])
    target = target_of(tmp_path / "env=prod" / "data", ["id"])
    assert [column.name for column in target.partition_columns] == ["p"]


def test_partition_columns_have_the_source_s_type_and_text_without_one(tmp_path: Path) -> None:
    write(tmp_path, "p=007/q=1/a.parquet", id=[1])
    target = target_of(tmp_path, ["id"], pa.schema([("p", pa.int32())]))
    assert [column.type for column in target.partition_columns] == [pa.int32(), pa.string()]
    assert target.partitions["p"].values.to_pylist() == [7]
    assert target.partitions["q"].values.to_pylist() == ["1"]


@pytest.mark.parametrize(
    ("keys", "holds"),
    [(["id"], False), (["id", "p"], False), (["id", "q", "p"], True), (["p", "q"], True)],
)
def test_whether_the_key_determines_the_partition(
    tmp_path: Path, keys: list[str], holds: bool
) -> None:
    write(tmp_path, "p=1/q=2/a.parquet", id=[1])
    assert target_of(tmp_path, keys).key_holds_partitions is holds


def test_the_key_of_a_target_without_partitions_determines_everything(tmp_path: Path) -> None:
    write(tmp_path, "a.parquet", id=[1])
    assert target_of(tmp_path, ["id"]).key_holds_partitions


def test_key_columns_have_the_type_that_holds_the_values_of_all_files(tmp_path: Path) -> None:
    write(tmp_path, "a.parquet", id=ints(1, bits=8), s=["x"])
    write(tmp_path, "b.parquet", id=ints(1, bits=32), s=pa.array(["x"]).dictionary_encode())
    target = target_of(tmp_path, ["id", "s"])
    assert [column.type for column in target.key_columns] == [pa.int32(), pa.string()]


def test_a_key_column_without_any_value_takes_the_source_s_type(tmp_path: Path) -> None:
    write(tmp_path, "a.parquet", id=pa.nulls(2))
    schema = pa.schema([("id", pa.string())])
    target = target_of(tmp_path, ["id"], schema)
    assert target.key_columns == (KeyColumn("id", pa.string()),)
    keys = source_keys(pa.table({"id": ["x"]}), target)  # not refused as another type
    assert keys.keys.column("id").to_pylist() == [b"x"]


def test_a_null_typed_file_among_others_does_not_decide_the_type(tmp_path: Path) -> None:
    write(tmp_path, "a.parquet", id=pa.nulls(2))
    write(tmp_path, "b.parquet", id=["x"])
    assert target_of(tmp_path, ["id"]).key_columns == (KeyColumn("id", pa.string()),)


def test_key_columns_that_cannot_be_compared_with_each_other_are_refused(tmp_path: Path) -> None:
    write(tmp_path, "a.parquet", id=[1])
    write(tmp_path, "b.parquet", id=["1"])
    with pytest.raises(SchemaMismatchError, match=r"key column 'id' has types .*: int64, string"):
        target_of(tmp_path, ["id"])


def test_a_key_column_that_is_nested_in_one_file_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "a.parquet", id=[1])
    write(tmp_path, "b.parquet", id=[{"x": 1}])
    with pytest.raises(SchemaMismatchError, match=r"'id' is struct<x: int64> in '.*b.parquet'"):
        target_of(tmp_path, ["id"])


def test_a_nested_column_called_like_the_key_is_not_the_key(tmp_path: Path) -> None:
    write(tmp_path, "a.parquet", s=[{"id": 5}], v=[1])
    with pytest.raises(InvalidArgumentError, match=r"\['id'\] not found. Available.*\['s', 'v'\]"):
        target_of(tmp_path, ["id"])
    with pytest.raises(SchemaMismatchError, match=r"'s' of type struct<.*> cannot be a key"):
        target_of(tmp_path, ["s"])


def test_key_columns_are_compared_with_upper_and_lower_case(tmp_path: Path) -> None:
    write(tmp_path, "a.parquet", Id=[1])
    with pytest.raises(InvalidArgumentError, match="upper and lower case"):
        target_of(tmp_path, ["id"])


@pytest.mark.parametrize(
    ("keys", "parts", "message"),
    [
        ("id", None, "key_columns must be a sequence .* got the string 'id'"),
        (["id", "id"], None, "once"),
        (["id"], "p", "partition_columns must be a sequence .* got the string 'p'"),
        (["id"], ["q"], r"partition_columns is \['q'\], but the dataset is .* \['p'\]"),
        (["id"], [], r"partition_columns is \[\], but the dataset is partitioned by \['p'\]"),
        (["id"], ["p", "p"], "once"),
    ],
)
def test_columns_that_are_not_the_target_s_are_refused(
    tmp_path: Path, keys: Any, parts: Any, message: str
) -> None:
    write(tmp_path, "p=1/a.parquet", id=[1])
    with pytest.raises(InvalidArgumentError, match=message):
        target_of(tmp_path, keys, partition_columns=parts)


def test_a_write_reads_a_target_without_key_columns(tmp_path: Path) -> None:
    write(tmp_path, "p=1/a.parquet", id=[1])
    target = target_of(tmp_path, [])
    assert (target.key_columns, target.rows) == ((), 1)


def test_partition_columns_may_be_given_for_a_dataset_to_be_made(tmp_path: Path) -> None:
    target = target_of(tmp_path / "none", ["id"], pa.schema([("p", pa.int8())]), ["p"])
    assert target.partition_columns == (KeyColumn("p", pa.int8()),)
    assert (target.rows, target.footers) == (0, ())


def test_files_that_disagree_about_the_partitions_are_refused(tmp_path: Path) -> None:
    write(tmp_path, "p=1/a.parquet", id=[1])
    write(tmp_path, "b.parquet", id=[1])
    with pytest.raises(UnsupportedLayoutError, match="disagree"):
        target_of(tmp_path, ["id"])


def test_an_unreadable_file_has_an_error_and_the_others_their_footers(tmp_path: Path) -> None:
    write(tmp_path, "a.parquet", id=[1])
    (tmp_path / "b.parquet").write_bytes(b"no parquet at all")
    good, bad = target_of(tmp_path, ["id"]).footers
    assert good.error is None
    assert bad.error is not None
    assert "b.parquet" in bad.error


# The keys of a source for a target.


def test_source_keys_are_the_key_and_partition_columns_of_every_row(tmp_path: Path) -> None:
    write(tmp_path, "p=1/a.parquet", id=[1])
    target = target_of(tmp_path, ["id"], pa.schema([("p", pa.int64())]))
    source = pa.table({"v": [0, 0], "p": [1, None], "id": ints(5, 6, bits=8)})
    keys = source_keys(source, target).keys
    assert keys.to_pydict() == {"id": [5, 6], "p": [1, None]}
    assert no_keys(target).keys.schema == keys.schema


def test_null_keys_of_a_source_are_refused_unless_they_match(tmp_path: Path) -> None:
    write(tmp_path, "a.parquet", id=[1])
    target = target_of(tmp_path, ["id"])
    source = pa.table({"id": ints(1, None)})
    with pytest.raises(NullKeyError, match="'id' has 1"):
        source_keys(source, target)
    assert source_keys(source, target, "match").keys.to_pydict() == {"id": [1, None]}
    with pytest.raises(InvalidArgumentError, match="null_keys must be one of 'error', 'match'"):
        source_keys(source, target, "ignore")  # type: ignore[arg-type]


def test_a_source_without_a_key_or_partition_column_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "p=1/a.parquet", id=[1])
    target = target_of(tmp_path, ["id"])
    with pytest.raises(InvalidArgumentError, match=r"key_columns \['id'\] not found"):
        source_keys(pa.table({"p": ["1"]}), target)
    with pytest.raises(InvalidArgumentError, match=r"partition_columns \['p'\] not found"):
        source_keys(pa.table({"id": [1]}), target)


def test_a_source_key_that_does_not_fit_the_target_s_type_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "a.parquet", id=ints(1, bits=8))
    target = target_of(tmp_path, ["id"])
    with pytest.raises(SchemaMismatchError, match="column 'id': the value 300"):
        source_keys(pa.table({"id": [1, 300]}), target)
    with pytest.raises(SchemaMismatchError, match="never equal"):
        source_keys(pa.table({"id": ["1"]}), target)
