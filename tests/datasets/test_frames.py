"""Frames of pandas and Polars: what they become, and what is refused."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from fsspeckit.datasets.pipeline.source import from_pandas, from_stream
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from fsspeckit.errors import InvalidArgumentError, SchemaMismatchError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    "values",
    [
        ["a", None],
        [1, 2.5],
        [Decimal("1.5"), 2],
        [True, np.bool_(True)],
        [[1], np.array([2])],
        [{"a": 1}, None],
        [pd.Timestamp("2024-01-01"), pd.NaT],
        [pd.Timedelta(1, "s"), dt.timedelta(2), None],
    ],
)
def test_objects_of_one_kind_are_taken(values: list[Any]) -> None:
    frame = pd.DataFrame({"v": pd.Series(values, dtype=object)})
    expected = pa.Table.from_pandas(frame, preserve_index=False)
    assert from_pandas(frame).read_all().equals(expected)


def test_an_index_without_a_name_is_left_out() -> None:
    frame = pd.DataFrame({"id": [1]}, index=pd.Index([7]))
    assert from_pandas(frame).read_all().column_names == ["id"]


@pytest.mark.parametrize(
    "frame",
    [
        pd.DataFrame({"id": [1], "v": [2**70]}),
        pd.DataFrame({"id": [1], "v": [1j]}),
        pd.DataFrame({"id": [1], "v": [object()]}),
        pd.DataFrame({"id": [1], "v": pd.arrays.SparseArray([1])}),
        pd.DataFrame({"id": [1, 2], "v": pd.Categorical(["a", 1])}),
        pd.DataFrame({"id": [1], "v": pd.Categorical(pd.period_range("2024", periods=1))}),
    ],
)
def test_a_column_that_pyarrow_does_not_take_is_named(frame: Any) -> None:
    with pytest.raises(SchemaMismatchError, match=r"column 'v' [^\n]*\nHint: "):
        from_pandas(frame)


def test_names_that_occur_twice_are_refused() -> None:
    with pytest.raises(InvalidArgumentError, match=r"occur twice: \['id'\]"):
        from_pandas(pd.DataFrame([[1, 2]], columns=["id", "id"]))


def test_a_type_inside_of_a_polars_column_is_found() -> None:
    frame = pl.DataFrame({"id": [1], "v": [[1]]}, schema_overrides={"v": pl.List(pl.Int128)})
    with pytest.raises(SchemaMismatchError, match=r"'v' is of the Polars type List\(Int128\)"):
        from_stream(frame)


@pytest.mark.parametrize(
    ("kind", "hint"),
    [(pl.Object(), "Series"), (pl.List(pl.Int128), "List"), (pl.Int128(), "Int64")],
)
def test_the_hint_for_a_polars_type_fits_it(kind: Any, hint: str) -> None:
    values = [[1]] if kind == pl.List(pl.Int128) else [1]
    frame = pl.DataFrame({"v": pl.Series(values, dtype=kind)})
    with pytest.raises(SchemaMismatchError, match=rf"'v' is of the Polars.*\nHint: .*{hint}"):
        from_stream(frame)


def test_a_field_may_be_called_object() -> None:
    frame = pl.DataFrame({"v": [{"Object": 1}]})
    assert from_stream(frame).read_all().to_pylist() == [{"v": {"Object": 1}}]


def test_an_array_is_not_a_table() -> None:
    with pytest.raises(InvalidArgumentError, match=r"pyarrow\.ChunkedArray .*\nHint: pass a table"):
        from_stream(pa.chunked_array([[1]]))


@pytest.mark.parametrize(
    "values",
    [
        [["a"], None, [float("nan"), "b"]],
        [np.array([1, 2]), [3]],
        [{"a": [1]}, {"a": None}, {"a": [2.5]}],
        [pd.Timestamp("2024-01-01", tz="UTC"), pd.NaT, None],
    ],
)
def test_missing_values_are_of_every_kind(values: list[Any]) -> None:
    frame = pd.DataFrame({"v": pd.Series(values, dtype=object)})
    expected = pa.Table.from_pandas(frame, preserve_index=False)
    assert from_pandas(frame).read_all().equals(expected)


@pytest.mark.parametrize(
    "values",
    [
        [np.array(["2024-01-01"], "M8[us]"), [dt.date(2024, 1, 1)]],
        [{"a": [{"b": "x"}]}, {"a": [{"b": b"x"}]}],
        [np.timedelta64(1, "s"), 5],
        [[dt.datetime(2024, 1, 1)], [dt.datetime(2024, 1, 1, tzinfo=dt.UTC)]],
    ],
)
def test_kinds_that_mix_inside_are_refused(values: list[Any]) -> None:
    with pytest.raises(SchemaMismatchError, match=r"column 'v' mixes [^\n]*\nHint: "):
        from_pandas(pd.DataFrame({"v": pd.Series(values, dtype=object)}))


def test_a_frame_of_a_class_of_its_own_loses_its_index_too(tmp_path: Path) -> None:
    class Own(pd.DataFrame):
        pass

    path = str(tmp_path / "data")
    io = PyarrowDatasetIO()
    io.merge(Own({"id": [1]}, index=["x"]), path, "upsert", ["id"])
    assert io.read_dataset(path).to_pylist() == [{"id": 1}]
