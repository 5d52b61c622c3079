"""Types that hold the values of several files."""

from __future__ import annotations

import pyarrow as pa
import pytest

from fsspeckit.core.schema_conform import (
    resolve_null_type,
    resolve_null_types,
    unify_types,
)
from fsspeckit.errors import SchemaMismatchError

NULLS = pa.list_(pa.null())
NUMBERS = pa.list_(pa.int64())
STAMP = pa.timestamp("us", "UTC")


def record(**fields: pa.DataType) -> pa.DataType:
    return pa.struct(list(fields.items()))


@pytest.mark.parametrize(
    ("found", "known", "expected"),
    [
        (pa.null(), pa.int8(), pa.int8()),
        (pa.null(), NUMBERS, NUMBERS),
        (NULLS, NUMBERS, NUMBERS),
        (pa.large_list(pa.null()), NUMBERS, pa.large_list(pa.int64())),
        (pa.list_(pa.null(), 2), pa.list_(pa.int8(), 2), pa.list_(pa.int8(), 2)),
        (
            record(a=pa.null(), b=pa.int8()),
            record(b=pa.int64(), a=NUMBERS),
            record(a=NUMBERS, b=pa.int8()),
        ),
        (
            pa.map_(pa.string(), pa.null()),
            pa.map_(pa.string(), STAMP),
            pa.map_(pa.string(), STAMP),
        ),
        (pa.dictionary(pa.int8(), pa.null()), pa.string(), pa.string()),
        (pa.int8(), pa.int64(), pa.int8()),
        (NULLS, pa.int64(), NULLS),
        (NULLS, record(a=pa.int64()), NULLS),
        (record(a=pa.null()), record(b=pa.int64()), record(a=pa.null())),
    ],
    ids=str,
)
def test_what_another_type_knows(
    found: pa.DataType, known: pa.DataType, expected: pa.DataType
) -> None:
    assert resolve_null_type(found, known) == expected


@pytest.mark.parametrize(
    ("first", "other", "expected"),
    [
        (pa.int8(), pa.int64(), pa.int64()),
        (pa.null(), NUMBERS, NUMBERS),
        (NUMBERS, NULLS, NUMBERS),
        (pa.int64(), pa.uint64(), pa.decimal128(20, 0)),
        (pa.timestamp("ms", "Europe/Berlin"), STAMP, STAMP),
        (
            pa.timestamp("us", "Asia/Tokyo"),
            pa.timestamp("ns", "Asia/Tokyo"),
            pa.timestamp("ns", "Asia/Tokyo"),
        ),
        (pa.dictionary(pa.int32(), pa.string()), pa.string(), pa.string()),
        (pa.list_(pa.int8()), NUMBERS, NUMBERS),
        (pa.list_(pa.string()), pa.large_list(pa.large_string()), pa.list_(pa.string())),
        (pa.large_list(pa.int8()), NUMBERS, pa.large_list(pa.int64())),
        (pa.list_(pa.int8(), 2), pa.list_(pa.int8(), 3), pa.list_(pa.int8())),
        (NUMBERS, pa.list_(pa.int8(), 3), NUMBERS),
        (
            record(a=pa.int8(), b=STAMP),
            record(b=STAMP, a=pa.int64()),
            record(a=pa.int64(), b=STAMP),
        ),
        (
            pa.map_(pa.string(), pa.int8()),
            pa.map_(pa.large_string(), pa.int64()),
            pa.map_(pa.string(), pa.int64()),
        ),
    ],
    ids=str,
)
def test_a_type_for_the_values_of_both(
    first: pa.DataType, other: pa.DataType, expected: pa.DataType
) -> None:
    assert unify_types(first, other) == expected


@pytest.mark.parametrize(
    ("first", "other"),
    [
        (pa.string(), pa.int64()),
        (NUMBERS, pa.int64()),
        (NUMBERS, record(item=pa.int64())),
        (record(a=pa.int64()), record(b=pa.int64())),
        (NUMBERS, pa.list_(pa.string())),
        (pa.decimal256(76, 0), pa.decimal256(76, 76)),
    ],
    ids=str,
)
def test_types_that_no_type_holds_together(first: pa.DataType, other: pa.DataType) -> None:
    with pytest.raises(SchemaMismatchError):
        unify_types(first, other)


def test_schemas_keep_their_order_metadata_and_nullability() -> None:
    first = pa.schema(
        [pa.field("id", pa.int8(), nullable=False), pa.field("v", pa.null())], {"about": "first"}
    )
    other = pa.schema([("v", pa.string()), ("id", pa.int64()), ("extra", pa.int64())])
    expected = pa.schema(
        [pa.field("id", pa.int8(), nullable=False), pa.field("v", pa.string())], {"about": "first"}
    )
    assert resolve_null_types(first, other).equals(expected, check_metadata=True)
