"""Keys of every type: when they are equal, NULL, or there twice."""

# ruff: noqa: D102 - the names of the tests explain

from __future__ import annotations

import datetime as dt
import hashlib
import math
import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from fsspeckit import errors
from fsspeckit.testing.conformance.target import Target, numbers

if TYPE_CHECKING:
    from collections.abc import Iterable

_LONG = "x" * 70
_EARLY = dt.datetime(1500, 1, 1, 12, 30)
_TIMES = [dt.datetime(2024, 1, day, 1, 2, 3) for day in (1, 2, 3, 4, 5)]
_DATES = [dt.date(1, 1, 1), *(time.date() for time in _TIMES[1:]), dt.date(9999, 12, 31)]
_UUIDS = [bytes(15) + b"\1", b"\x7f" * 16, b"\x80" * 16, b"\xff" * 16, bytes(16)]
_FLOATS = [0.0, 1.5, math.nan, -math.inf, math.inf, -2.5]


def _decimals(digits: int, scale: int) -> pa.Array:
    # Not by arithmetic: that rounds to the 28 digits of the current context.
    numbers_ = [-(10**digits) + 1, -1, 0, 1, 10**digits - 1]
    values = [Decimal((int(n < 0), tuple(map(int, str(abs(n)))), -scale)) for n in numbers_]
    return pa.array(values, pa.decimal128(digits, scale))


def _integers(type_: pa.DataType) -> pa.Array:
    bits = type_.bit_width
    low, high = (
        (0, 2**bits - 1) if str(type_)[0] == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    )
    return pa.array([low, low + 1, 5, high - 1, high], type_)


KEYS: dict[str, pa.Array] = {
    **{
        str(type_): _integers(type_)
        for type_ in (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint32(), pa.uint64())
    },
    **{
        str(type_): pa.array(["", "a", "ä", "\uffff", "😀", _LONG, _LONG + "a"], type_)
        for type_ in (pa.string(), pa.large_string(), pa.string_view())
    },
    "dictionary": pa.array(["b", "", "a", _LONG, "ä"]).dictionary_encode(),
    **{
        str(type_): pa.array([b"", b"\0", b"\xff", b"\x80" * 70, b"a"], type_)
        for type_ in (pa.binary(), pa.large_binary())
    },
    "uuid": pa.array(_UUIDS, pa.binary(16)),
    "uuid by its own type": pa.ExtensionArray.from_storage(
        pa.uuid(), pa.array(_UUIDS, pa.binary(16))
    ),
    "decimal of 9 digits": _decimals(9, 2),
    "decimal of 18 digits": _decimals(18, 4),
    "decimal of 38 digits": _decimals(38, 10),
    "date": pa.array(_DATES, pa.date32()),
    **{
        f"timestamp in {unit}": pa.array(_TIMES, pa.timestamp(unit))
        for unit in ("s", "ms", "us", "ns")
    },
    "timestamp with zone": pa.array([_EARLY, *_TIMES], pa.timestamp("us", "UTC")),
    "timestamp with another zone": pa.array(_TIMES, pa.timestamp("us", "Europe/Berlin")),
    "float": pa.array(_FLOATS, pa.float32()),
    "double": pa.array(_FLOATS, pa.float64()),
    "bool": pa.array([True, False]),
}
"""Distinct values of each type; the last is the one that the target does not hold."""

COMPOSITE = [
    ("int32", "date"),
    ("string", "bool"),
    ("decimal of 38 digits", "uuid"),
    ("double", "dictionary"),
    ("timestamp with zone", "int8", "large_string"),
]

EQUAL: dict[str, tuple[pa.Array, pa.Array]] = {
    "int32 7 = int64 7": (pa.array([7, 8], pa.int32()), pa.array([7], pa.int64())),
    "int64 7 = int8 7": (pa.array([7, 8], pa.int64()), pa.array([7], pa.int8())),
    "uint64 7 = int16 7": (pa.array([7, 8], pa.uint64()), pa.array([7], pa.int16())),
    "decimal 1.0 = 1.00": (
        pa.array([Decimal("1.0"), Decimal("2.0")], pa.decimal128(9, 1)),
        pa.array([Decimal("1.00")], pa.decimal128(20, 2)),
    ),
    **{
        f"timestamp in {one} = in {other}": (
            pa.array(_TIMES, pa.timestamp(one)),
            pa.array(_TIMES[2:3], pa.timestamp(other)),
        )
        for one, other in [("s", "ns"), ("ms", "us"), ("us", "s"), ("ns", "ms")]
    },
    "an instant in two zones": (
        pa.array(_TIMES, pa.timestamp("us", "UTC")),
        pa.array(_TIMES[2:3], pa.timestamp("ms", "Asia/Tokyo")),
    ),
    **{
        f"string = {other}": (
            pa.array(["a", "b"], pa.string()),
            pa.array(["b"]).cast(other)
            if other != "dictionary"
            else pa.array(["b"]).dictionary_encode(),
        )
        for other in ("large_string", "string_view", "dictionary")
    },
    "dictionary = string": (pa.array(["a", "b"]).dictionary_encode(), pa.array(["b"])),
    "large_string = string": (pa.array(["a", "b"], pa.large_string()), pa.array(["b"])),
    "uuid by its own type = fixed binary": (
        pa.ExtensionArray.from_storage(pa.uuid(), pa.array(_UUIDS, pa.binary(16))),
        pa.array(_UUIDS[:1], pa.binary(16)),
    ),
    "uuid = binary": (pa.array(_UUIDS, pa.binary(16)), pa.array(_UUIDS[:1], pa.binary())),
    "NaN = NaN": (pa.array([math.nan, 1.0]), pa.array([math.inf - math.inf])),
    "-0.0 = 0.0": (pa.array([0.0, 1.0]), pa.array([-0.0])),
    "0.0 = -0.0": (pa.array([-0.0, 1.0]), pa.array([0.0])),
    "float 0.5 = double 0.5": (pa.array([0.5, 1.0], pa.float32()), pa.array([0.5])),
    "double 0.5 = float 0.5": (pa.array([0.5, 1.0]), pa.array([0.5], pa.float32())),
}
"""Keys of a target, and one source key that equals one of them."""

NEVER_EQUAL: dict[str, tuple[pa.Array, pa.Array]] = {
    "string and integer": (pa.array(["007", "7"]), pa.array([7])),
    "integer and string": (pa.array([7, 8]), pa.array(["7"])),
    "string and binary": (pa.array(["a"]), pa.array([b"a"])),
    "binary and string": (pa.array([b"a"]), pa.array(["a"])),
    "date and timestamp": (
        pa.array(_DATES[1:2], pa.date32()),
        pa.array(_TIMES[:1], pa.timestamp("us")),
    ),
    "timestamp and date": (
        pa.array(_TIMES[:1], pa.timestamp("us")),
        pa.array(_DATES[1:2], pa.date32()),
    ),
    "integer and float": (pa.array([7, 8]), pa.array([7.0])),
    "float and integer": (pa.array([7.0, 8.0]), pa.array([7])),
    "naive and zoned": (
        pa.array(_TIMES, pa.timestamp("us")),
        pa.array(_TIMES, pa.timestamp("us", "UTC")),
    ),
    "zoned and naive": (
        pa.array(_TIMES, pa.timestamp("us", "UTC")),
        pa.array(_TIMES, pa.timestamp("us")),
    ),
    "float 0.1 and double 0.1": (pa.array([0.1, 0.2], pa.float32()), pa.array([0.1])),
    "int8 and an int64 beyond it": (pa.array([7], pa.int8()), pa.array([7, 300])),
    "bool and integer": (pa.array([True]), pa.array([1])),
}
"""Keys of a target, and source keys that are refused."""


def keyed(keys: pa.Array | dict[str, pa.Array], v: str = "old") -> pa.Table:
    """A table of key columns and a ``v``."""
    columns = keys if isinstance(keys, dict) else {"k": keys}
    rows = len(next(iter(columns.values())))
    return pa.table({**columns, "v": pa.array([v] * rows, pa.string())})


def split(target: Target, columns: dict[str, pa.Array], **options: Any) -> pa.Table:
    """Write all keys but the last into two files; return a source of the first and the last."""
    rows = keyed(columns).num_rows
    for name, rows_of_file in {"a": range(0, rows - 1, 2), "b": range(1, rows - 1, 2)}.items():
        target.write(f"{name}.parquet", keyed(_select(columns, rows_of_file)), **options)
    return keyed(_select(columns, (0, rows - 1)), "new")


def _select(columns: dict[str, pa.Array], rows: Iterable[int]) -> dict[str, pa.Array]:
    # By slices: views have no `take`.
    return {
        name: pa.concat_arrays([values[:0], *(values.slice(row, 1) for row in rows)])
        for name, values in columns.items()
    }


class KeyTypeTests:
    """Equality of keys as values of the target's type."""

    @pytest.mark.parametrize("kind", KEYS)
    def test_keys_of_type(self, target: Target, kind: str) -> None:
        source = split(target, {"k": KEYS[kind]})
        result = target.merge(source, "upsert", ["k"])
        assert (result.updated, result.inserted) == (1, 1)

    @pytest.mark.parametrize("kind", KEYS)
    def test_slices_of_keys_of_type(self, target: Target, kind: str) -> None:
        """Arrays that begin in the middle of their buffers, in several chunks."""
        source = split(target, {"k": KEYS[kind]})
        padded = pa.concat_tables([source.slice(1), source, source.slice(0, 1)]).combine_chunks()
        given = pa.concat_tables([padded.slice(1, 1), padded.slice(2, 0), padded.slice(2, 1)])
        target.merge(source, "upsert", ["k"], data=given)

    @pytest.mark.parametrize("kinds", COMPOSITE, ids="+".join)
    def test_composite_keys_of_types(self, target: Target, kinds: tuple[str, ...]) -> None:
        length = min(len(KEYS[kind]) for kind in kinds)
        columns = {f"k{number}": KEYS[kind][:length] for number, kind in enumerate(kinds)}
        result = target.merge(split(target, columns), "upsert", list(columns))
        assert (result.updated, result.inserted) == (1, 1)

    def test_parts_of_a_composite_key_do_not_match_alone(self, target: Target) -> None:
        """Neither ``("a", "bc")`` and ``("ab", "c")`` nor parts of different rows are equal."""
        target.write("a.parquet", keyed({"x": pa.array(["a", "q"]), "y": pa.array(["bc", "r"])}))
        source = keyed({"x": pa.array(["ab", "a"]), "y": pa.array(["c", "r"])}, "new")
        assert target.merge(source, "upsert", ["x", "y"]).updated == 0

    @pytest.mark.parametrize("unit", ["us", "ns"])
    def test_int96_keys_match_zoned_sources(self, target: Target, unit: str) -> None:
        times = pa.array(_TIMES, pa.timestamp(unit, "UTC"))
        source = split(target, {"k": times}, use_deprecated_int96_timestamps=True)
        assert target.merge(source, "upsert", ["k"]).updated == 1

    def test_int96_keys_outside_the_range_of_nanoseconds(self, target: Target) -> None:
        times = pa.array([_EARLY, *_TIMES], pa.timestamp("us", "UTC"))
        source = split(target, {"k": times}, use_deprecated_int96_timestamps=True)
        assert target.merge(source, "upsert", ["k"]).updated == 1

    @pytest.mark.parametrize("unit", ["us", "ns"])
    def test_int96_keys_with_nanoseconds(self, target: Target, unit: str) -> None:
        """They equal keys with the same nanoseconds, and no others."""
        existing = pa.array([1_000, 1_001, None], pa.timestamp("ns", "UTC"))
        target.write("a.parquet", keyed({"k": existing}), use_deprecated_int96_timestamps=True)
        given = [1_001, 2_002] if unit == "ns" else [1, 2]
        source = keyed({"k": pa.array(given, pa.timestamp(unit, "UTC"))}, "new")
        assert target.merge(source, "upsert", ["k"]).updated == 1

    @pytest.mark.parametrize("case", EQUAL)
    def test_equal(self, target: Target, case: str) -> None:
        existing, given = EQUAL[case]
        target.write("a.parquet", keyed(existing))
        result = target.merge(keyed(given, "new"), "upsert", ["k"])
        assert (result.updated, result.inserted) == (1, 0)

    @pytest.mark.parametrize("case", NEVER_EQUAL)
    def test_never_equal(self, target: Target, case: str) -> None:
        existing, given = NEVER_EQUAL[case]
        target.write("a.parquet", keyed(existing))
        target.refuses(
            errors.SchemaMismatchError, keyed(given, "new"), "upsert", ["k"], match="'k'"
        )

    @pytest.mark.parametrize("kind", ["string", "large_string", "binary", "dictionary"])
    def test_many_identifiers_of_one_length(self, target: Target, kind: str) -> None:
        """So many that they are looked for in pages; one is there twice, some are NULL."""
        types = {"dictionary": pa.dictionary(pa.int32(), pa.string()), "binary": pa.binary()}
        texts = [hashlib.md5(b"%d" % n).hexdigest() for n in range(12_000)]
        existing = pa.array([*texts, None, texts[7000], None])
        existing = existing.cast(types.get(kind) or pa.type_for_alias(kind))
        target.write("a.parquet", keyed(existing), dictionary_pagesize_limit=100_000)
        new = [texts[0], texts[7000], texts[11_999], "f" * 32, "short"]
        source = keyed(pa.array(new).cast(existing.type), "new")
        result = target.merge(source, "upsert", ["k"])
        assert (result.updated, result.inserted) == (4, 2)

    def test_a_file_in_which_a_key_has_no_type(self, target: Target) -> None:
        """As pandas writes a column of nothing but None."""
        target.write("b.parquet", keyed(pa.nulls(2)))
        target.write("a.parquet", keyed(pa.array(["x", "y"])))
        result = target.merge(keyed(pa.array(["y", "z"]), "new"), "upsert", ["k"])
        assert (result.updated, result.inserted) == (1, 1)

    def test_files_that_disagree_about_the_type_of_a_key(self, target: Target) -> None:
        target.write("a.parquet", keyed(pa.array([1, 2], pa.int32())))
        target.write("b.parquet", keyed(pa.array([3, 4], pa.int64())))
        result = target.merge(keyed(pa.array([2, 3, 5], pa.int64()), "new"), "upsert", ["k"])
        assert (result.updated, result.inserted) == (2, 1)


class NullKeyTests:
    """NULL in key columns."""

    def test_null_source_keys_are_refused_with_column_and_count(self, target: Target) -> None:
        target.write("a.parquet", numbers(1))
        message = target.refuses(errors.NullKeyError, numbers(1, None, None), match="'id'")
        assert "2" in message

    @pytest.mark.parametrize("strategy", ["insert", "update", "upsert", "full_merge"])
    def test_null_equals_null_if_asked(self, target: Target, strategy: str) -> None:
        target.write("a.parquet", numbers(None, 1, None))
        target.write("b.parquet", numbers(2, 3))
        target.merge(numbers(None, 3, 4, v="new"), strategy, null_keys="match")

    def test_null_in_a_part_of_a_composite_key(self, target: Target) -> None:
        existing = {"x": pa.array([1, None, None]), "y": pa.array(["a", "a", None])}
        target.write("a.parquet", keyed(existing))
        source = keyed({"x": pa.array([None, 1]), "y": pa.array(["a", None])}, "new")
        result = target.merge(source, "upsert", ["x", "y"], null_keys="match")
        assert (result.updated, result.inserted) == (1, 1)

    @pytest.mark.parametrize("strategy", ["insert", "update", "upsert", "deduplicate"])
    def test_null_target_keys_are_never_lost(self, target: Target, strategy: str) -> None:
        target.write("a.parquet", numbers(None, 1, None))
        target.write("b.parquet", numbers(None, None))
        target.merge(numbers(1, 2, v="new"), strategy)


class DuplicateKeyTests:
    """A source that holds a key more than once."""

    SOURCE = pa.table({"id": [1, 2, 1, 2, 3], "v": ["a", "z", "c", "b", None]})

    def test_duplicates_are_refused_with_count_and_samples(self, target: Target) -> None:
        target.write("a.parquet", numbers(1))
        source = numbers(*range(10), *range(8), v="new")
        message = target.refuses(errors.DuplicateKeyError, source, match=r"\b8 key")
        samples = re.search(r"for example: ([\d, ]+)", message)
        assert samples
        assert len(samples[1].split(", ")) == 5

    def test_an_order_by_no_column_names_those_that_are_there(self, target: Target) -> None:
        target.write("a.parquet", numbers(1, 5))
        target.refuses(
            errors.InvalidArgumentError,
            self.SOURCE,
            order_by=["nope"],
            match=r"order_by \['nope'\] not found.*'id', 'v'",
        )

    @pytest.mark.parametrize("strategy", ["insert", "update", "upsert", "deduplicate"])
    @pytest.mark.parametrize(
        "options",
        [
            {"duplicate_keys": "first"},
            {"duplicate_keys": "last"},
            {"order_by": ["v"]},
            {"order_by": ["id", "v"], "duplicate_keys": "first"},
        ],
        ids=str,
    )
    def test_duplicates_are_resolved(
        self, target: Target, strategy: str, options: dict[str, Any]
    ) -> None:
        target.write("a.parquet", numbers(1, 5))
        target.merge(self.SOURCE, strategy, **options)

    def test_the_greatest_of_several_columns_wins(self, target: Target) -> None:
        source = pa.table(
            {"id": [1, 1, 1, 1], "day": [2, 3, 3, None], "hour": [9.0, 1.0, math.nan, 5.0]}
        )
        target.merge(source, "upsert", order_by=["day", "hour"])
        assert "nan" in next(iter(target.rows(source.schema)))

    @pytest.mark.parametrize("kind", KEYS)
    def test_order_by_a_column_of_type(self, target: Target, kind: str) -> None:
        existing = KEYS[kind]
        values = pa.concat_arrays([existing, pa.nulls(1, existing.type)])
        source = pa.table({"id": [1] * len(values), "o": values})
        target.write("a.parquet", source.slice(0, 1))
        target.merge(source, order_by=["o"])

    def test_duplicates_by_value_count_as_duplicates(self, target: Target) -> None:
        """-0.0 and 0.0 are one key, and so are two NaN."""
        target.write("a.parquet", keyed(pa.array([5.0])))
        for pair in ([0.0, -0.0], [math.nan, math.nan]):
            target.refuses(errors.DuplicateKeyError, keyed(pa.array(pair)), "upsert", ["k"])

    def test_deduplicate_keeps_the_last_without_being_asked(self, target: Target) -> None:
        target.write("a.parquet", numbers(1, 5))
        result = target.merge(self.SOURCE, "deduplicate")
        assert (result.source_count, result.updated, result.inserted) == (5, 1, 2)
