"""Directories that four writers lay out for the same values parse back to those values."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.core.planning.edited_footers import verdicts

from fsspeckit.core.planning.target import parse_hive_partition_path, parse_partition_values
from fsspeckit.storage.listing import list_files
from fsspeckit.storage.roots import open_root
from fsspeckit.testing.strategies import PARTITION_STRINGS
from fsspeckit.testing.writers import WRITERS, write_hive

if TYPE_CHECKING:
    from pathlib import Path

STRINGS = [
    *("/", "a/b", "=", "k=v", "a b", " a ", "%", "100%", "%41", "%2F", "ünï", "日本", "😀"),
    *("a.b", "a..b", "007", "7", "-1", "1e5", "true", "False", "NULL", "null", "nan"),
    *("2024-01-01", "it's", 'q"', "a+b", "a:b", "a#b", "a?b", "a&b", "a*b", "[x]", "{y}", "\\"),
    None,
]
VALUES: dict[pa.DataType, list[Any]] = {
    pa.string(): STRINGS,
    pa.int32(): [-(2**31), -1, 0, 7, 2**31 - 1, None],
    pa.int64(): [-(2**63), 0, 2**63 - 1, None],
    pa.bool_(): [True, False, None],
    pa.date32(): [date(1, 1, 1), date(1969, 12, 31), date(2024, 2, 29), date(9999, 12, 31), None],
}
WRITER_NAMES = [
    "pyarrow",
    "duckdb",
    "polars",
    pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.slow]),
]


@pytest.fixture
def session(request: pytest.FixtureRequest, writer: str) -> None:
    """Start Spark for the tests of its writer alone."""
    if writer == "spark":
        request.getfixturevalue("spark")


def laid_out(directory: Path, writer: str, values: list[Any], type_: pa.DataType) -> dict[int, Any]:
    """Let a writer lay out rows; the typed partition value in the path of each row."""
    table = pa.table({"id": pa.array(range(len(values)), pa.int64()), "p": pa.array(values, type_)})
    write_hive(WRITERS[writer], table, str(directory), ["p"])
    root = open_root(directory)
    places: dict[int, Any] = {}
    for file in list_files(root).files:
        text = parse_hive_partition_path(file.path, root=root.path)["p"]
        typed, (known,) = parse_partition_values([text], type_)
        assert known, file.path
        ids = pq.ParquetFile(file.path).read(columns=["id"]).column("id").to_pylist()
        places.update(dict.fromkeys(ids, typed[0].as_py()))
    return places


@pytest.mark.usefixtures("session")
@pytest.mark.parametrize("type_", VALUES, ids=str)
@pytest.mark.parametrize("writer", WRITER_NAMES)
def test_a_path_says_what_was_written(tmp_path: Path, writer: str, type_: pa.DataType) -> None:
    values = VALUES[type_]
    assert laid_out(tmp_path / "t", writer, values, type_) == dict(enumerate(values))


@pytest.mark.usefixtures("session")
@pytest.mark.parametrize("writer", WRITER_NAMES)
def test_a_key_is_found_in_its_partition_and_no_other(tmp_path: Path, writer: str) -> None:
    values = [value for value in PARTITION_STRINGS if not value.startswith((".", "_"))]
    laid_out(tmp_path / "t", writer, values, pa.string())
    for number, value in enumerate(values):
        keys = pa.table({"p": [value], "id": pa.array([number], pa.int64())})
        found = verdicts(tmp_path / "t", ["p", "id"], keys)
        hits = [path for path, verdict in found.items() if verdict.row_groups]
        assert [parse_hive_partition_path(path)["p"] for path in hits] == [value]


@pytest.mark.usefixtures("session")
@pytest.mark.parametrize("writer", WRITER_NAMES)
def test_two_levels_with_null_in_either(tmp_path: Path, writer: str) -> None:
    rows = [("a/b", 1), (None, 2), ("c=d", None), (None, None), ("%20", -3)]
    table = pa.table(
        {
            "id": pa.array(range(len(rows)), pa.int64()),
            "p": pa.array([row[0] for row in rows], pa.string()),
            "q": pa.array([row[1] for row in rows], pa.int32()),
        }
    )
    write_hive(WRITERS[writer], table, str(tmp_path / "t"), ["p", "q"])
    for number in range(len(rows)):
        keys = table.slice(number, 1).select(["id", "q", "p"])
        found = verdicts(tmp_path / "t", ["id", "q", "p"], keys)
        (hit,) = (path for path, verdict in found.items() if verdict.row_groups)
        values = parse_hive_partition_path(hit)
        assert (values["p"], values["q"]) == (
            rows[number][0],
            None if rows[number][1] is None else str(rows[number][1]),
        )


def test_components_above_the_root_are_not_partitions(tmp_path: Path) -> None:
    root = tmp_path / "p=9" / "env=prod" / "table"
    (root / "p=1").mkdir(parents=True)
    pq.write_table(pa.table({"id": [1]}), root / "p=1" / "a.parquet")
    path = str(root / "p=1" / "a.parquet")
    assert parse_hive_partition_path(path, root=str(root)) == {"p": "1"}
    assert parse_hive_partition_path(path, root=f"{root}/") == {"p": "1"}
    keys = pa.table({"id": [1], "p": [9]})
    assert verdicts(root, ["id", "p"], keys)["p=1/a.parquet"].evidence.kind == "partition"
    keys = pa.table({"id": [1], "p": [1]})
    assert verdicts(root, ["id", "p"], keys)["p=1/a.parquet"].row_groups == (0,)


def test_the_name_of_a_file_is_not_a_partition() -> None:
    assert parse_hive_partition_path("/d/p=1/x=2.parquet") == {"p": "1"}
