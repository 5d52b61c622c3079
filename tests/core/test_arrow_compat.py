"""Kernels for tables of any types."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

from fsspeckit.core.arrow_compat import cast_array, copy_table, numbered_columns
from fsspeckit.testing.conformance.schemas import NESTED, PAYLOAD

if TYPE_CHECKING:
    from collections.abc import Iterator


class Kelvin(pa.ExtensionType):  # type: ignore[misc]
    """A type that nobody has registered, so that no file format knows it."""

    def __init__(self) -> None:
        super().__init__(pa.float64(), "tests.kelvin")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: pa.DataType, serialized: bytes) -> Kelvin:
        return cls()


ARRAYS: dict[str, pa.Array] = {
    **NESTED,
    **PAYLOAD,
    "numbers": pa.array(np.arange(4)),
    "dictionary of numbers": pa.DictionaryArray.from_arrays([0, 1, None, 0], np.arange(2)),
    "list of dictionaries": pa.ListArray.from_arrays(
        [0, 1, 2, 2, 3], pa.array(["a", "b", "a"]).dictionary_encode()
    ),
    "unregistered": pa.ExtensionArray.from_storage(Kelvin(), pa.array([1.5, None, 0.0, -1.0])),
}


def memory(array: pa.Array) -> Iterator[range]:
    """The addresses of all that an array holds, the values of its dictionary too."""
    storage = array.storage if isinstance(array, pa.ExtensionArray) else array
    yield from (range(b.address, b.address + b.size) for b in storage.buffers() if b and b.size)
    if pa.types.is_dictionary(storage.type):
        yield from memory(storage.dictionary)


@pytest.mark.parametrize("kind", ARRAYS)
def test_a_copy_holds_the_same_rows_in_other_memory(kind: str) -> None:
    table = pa.table({"v": pa.chunked_array([ARRAYS[kind], ARRAYS[kind].slice(1, 2)])})
    copy = copy_table(table)
    copy.validate(full=True)
    assert copy.schema.equals(table.schema, check_metadata=True)
    assert copy.column("v").to_pylist() == table.column("v").to_pylist()
    old = [part for chunk in table.column("v").chunks for part in memory(chunk)]
    new = [part for chunk in copy.column("v").chunks for part in memory(chunk)]
    assert not [a for a in old for b in new if a.start < b.stop and b.start < a.stop]


def test_a_copy_of_a_slice_is_as_small_as_the_slice() -> None:
    whole = pa.table({"v": np.arange(1_000_000)})
    copy = copy_table(whole.slice(500_000, 10))
    assert copy.column("v").to_pylist() == list(range(500_000, 500_010))
    assert copy.get_total_buffer_size() < 10_000


def test_a_copy_of_no_rows_keeps_the_schema() -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False)], {"about": "nothing"})
    assert copy_table(schema.empty_table()).schema.equals(schema, check_metadata=True)


def test_columns_are_named_by_numbers() -> None:
    table = pa.table({".x": [1], "x": [2]})
    assert numbered_columns(table).to_pydict() == {"0": [1], "1": [2]}


CODES = pa.dictionary(pa.int8(), pa.string())


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        (pa.array([[None, None], None, []]), pa.list_(pa.field("element", pa.null()))),
        (pa.array([[None, None], None, []]), pa.large_list(pa.int64())),
        (pa.array([[None, None], None], pa.list_(pa.null(), 2)), pa.list_(pa.int8())),
        (pa.array([[None, None], None]), pa.list_(pa.int8(), 2)),
        (
            pa.array([[{"a": 1, "b": None}, {"a": 2, "b": None}], None]),
            pa.list_(pa.field("element", pa.struct([("b", pa.null()), ("a", pa.int8())]))),
        ),
        (pa.array([{"q": [None, None]}, None]), pa.struct([("q", pa.list_(pa.string()))])),
        (
            pa.array([[("k", None), ("l", None)], None, []], pa.map_(pa.string(), pa.null())),
            pa.map_(pa.large_string(), pa.int8()),
        ),
        (pa.array([None, {"b": None}], pa.struct([("b", CODES)])), pa.struct([("b", pa.string())])),
        (pa.array([["x", None], None], pa.list_(CODES)), pa.list_(pa.string())),
    ],
    ids=str,
)
def test_casts_of_nested_values_without_a_type(values: pa.Array, wanted: pa.DataType) -> None:
    for part in (values, values.slice(1), values.slice(0, 0)):
        found = cast_array(part, wanted)
        found.validate(full=True)
        assert (found.type, found.to_pylist()) == (wanted, part.to_pylist())


def test_lists_of_another_length_do_not_become_lists_of_a_fixed_size() -> None:
    with pytest.raises(pa.ArrowInvalid, match="lengths"):
        cast_array(pa.array([[None], [None, None]]), pa.list_(pa.int8(), 2))
