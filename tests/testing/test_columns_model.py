"""The model of schema changes, which every engine is compared with."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import find

from fsspeckit.testing.columns_model import ColumnsModel, evolutions_of, tables_of

ROWS = pa.table({"id": pa.array([1, 2], pa.int64()), "a": pa.array([5, None], pa.int8())})


@pytest.fixture
def model() -> ColumnsModel:
    model = ColumnsModel()
    model.upsert(ROWS)
    return model


CHANGES: dict[str, tuple[dict[str, Any], list[str], list[dict[str, Any]]]] = {
    "add": (
        {"add": {"b": pa.int16()}},
        ["id", "a", "b"],
        [{"id": 1, "a": 5}, {"id": 2, "a": None}],
    ),
    "widen": ({"widen": {"a": pa.int64()}}, ["id", "a"], ROWS.to_pylist()),
    "drop": ({"drop": "a"}, ["id"], [{"id": 1}, {"id": 2}]),
    "rename": ({"rename": {"a": "e"}}, ["id", "e"], [{"id": 1, "e": 5}, {"id": 2, "e": None}]),
    "order": ({"order": ["a", "id"]}, ["a", "id"], ROWS.to_pylist()),
}


@pytest.mark.parametrize("kind", CHANGES)
def test_a_change_of_the_columns(model: ColumnsModel, kind: str) -> None:
    change, names, rows = CHANGES[kind]
    model.evolve(**change)
    assert model.schema().names == names
    assert [*model.rows.values()] == rows


def test_an_upsert_adds_columns_and_widens_types(model: ColumnsModel) -> None:
    model.upsert(pa.table({"id": [2], "a": pa.array([7], pa.int32()), "b": [True]}))
    assert model.types == {"id": pa.int64(), "a": pa.int32(), "b": pa.bool_()}
    assert model.rows == {1: {"id": 1, "a": 5}, 2: {"id": 2, "a": 7, "b": True}}


@pytest.mark.parametrize("kind", CHANGES)
def test_every_kind_of_change_is_drawn(model: ColumnsModel, kind: str) -> None:
    assert [*find(evolutions_of(model), lambda change: kind in change)] == [kind]


def test_rows_are_drawn_with_and_without_new_columns(model: ColumnsModel) -> None:
    assert find(tables_of(model), lambda _: True).column_names == ["id", "a"]
    wide = find(tables_of(model, more=True), lambda table: "c" in table.column_names)
    assert wide.num_rows >= 1
