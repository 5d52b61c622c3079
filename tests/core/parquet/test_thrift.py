"""The Thrift reader: what it decodes, what it keeps, and how it fails."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.parquet.thrift_writer import encode, footer_of

from fsspeckit.core.parquet.format import thrift
from fsspeckit.core.parquet.format.thrift import (
    BOOL,
    BYTES,
    INT,
    RAW,
    Spec,
    Struct,
    ThriftError,
    Wanted,
    decode,
    decode_field,
    field_end,
)

CHUNK_META: Spec = {2: [INT], 3: [BYTES], 4: INT, 5: INT, 7: INT, 9: INT, 11: INT, 12: {8: BOOL}}
FILE: Spec = {1: INT, 3: INT, 4: [{1: [{2: INT, 3: CHUNK_META, 4: INT}], 3: INT, 7: INT}], 6: BYTES}
RAW_CHUNKS: Spec = {4: [{1: [RAW]}]}


def parquet_footer(**options: Any) -> bytes:
    table = pa.table(
        {
            "number": pa.array(range(40), pa.int64()),
            "text": [f"text {number}" for number in range(40)],
            "nested": [[{"a": number}] for number in range(40)],
        }
    ).replace_schema_metadata({"key": "value"})
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=2, **options)
    return footer_of(sink.getvalue())


FOOTER = parquet_footer(
    write_page_index=True,
    bloom_filter_options={"number": {"ndv": 2}},
    sorting_columns=[pq.SortingColumn(0)],
)


@pytest.mark.parametrize(
    ("data", "wanted", "expected"),
    [
        pytest.param("15 54 00", INT, 42, id="i32"),
        pytest.param("16 53 00", INT, -42, id="negative"),
        pytest.param("14 01 00", INT, -1, id="i16"),
        pytest.param("13 ff 00", INT, -1, id="byte"),
        pytest.param("16 ff ff ff ff ff ff ff ff ff 01 00", INT, -(2**63), id="smallest"),
        pytest.param("16 fe ff ff ff ff ff ff ff ff 01 00", INT, 2**63 - 1, id="largest"),
        pytest.param("11 00", BOOL, True, id="true"),
        pytest.param("12 00", BOOL, False, id="false"),
        pytest.param("18 03 61 62 63 00", BYTES, b"abc", id="bytes"),
        pytest.param("18 00 00", BYTES, b"", id="no bytes"),
        pytest.param("19 25 02 04 00", [INT], [1, 2], id="list"),
        pytest.param("1a 25 02 04 00", [INT], [1, 2], id="set"),
        pytest.param("19 00 00", [INT], [], id="empty list"),
        pytest.param("19 28 01 61 00 00", [BYTES], [b"a", b""], id="list of bytes"),
        pytest.param("19 f5 10" + "02" * 16 + "00", [INT], [1] * 16, id="long list"),
        pytest.param("19 2c 15 02 00 00 00", [RAW], [b"\x15\x02\x00", b"\x00"], id="raw structs"),
        pytest.param("1c 15 02 00 00", RAW, b"\x15\x02\x00", id="raw struct"),
        pytest.param("05 02 54 00", INT, 42, id="long header"),
    ],
)
def test_a_field_is_decoded(data: str, wanted: Wanted, expected: object) -> None:
    raw = bytes.fromhex(data)

    struct, end = decode(raw, {1: wanted})

    assert struct.values == {1: expected}
    assert struct.raw == {}
    assert end == len(raw)
    kept, _ = decode(raw, {})
    assert decode_field(kept, 1, wanted) == expected
    assert decode_field(kept, 2, wanted) is None


@pytest.mark.parametrize(
    "value",
    [
        pytest.param("01", id="true"),
        pytest.param("02", id="false"),
        pytest.param("03 07", id="byte"),
        pytest.param("05 80 01", id="number"),
        pytest.param("07 0102030405060708", id="double"),
        pytest.param("08 02 6162", id="bytes"),
        pytest.param("08 80 01" + "61" * 128, id="long bytes"),
        pytest.param("09 22 01 00", id="list of booleans"),
        pytest.param("09 f1 10" + "01" * 16, id="long list of booleans"),
        pytest.param("0a 25 02 04", id="set"),
        pytest.param("09 19 15 02", id="list of lists"),
        pytest.param("09 27" + "00" * 16, id="list of doubles"),
        pytest.param("09 1d" + "00" * 16, id="list of uuids"),
        pytest.param("0b 00", id="empty map"),
        pytest.param("0b 02 58 02 01 61 04 00", id="map"),
        pytest.param("0b 01 11 01 02", id="map of booleans"),
        pytest.param("0c 15 02 1c 00 00", id="struct"),
        pytest.param("0c 05 02 04 00", id="struct with a long header"),
        pytest.param("0d" + "00" * 16, id="uuid"),
    ],
)
def test_a_field_that_is_not_asked_for_is_kept_as_it_is(value: str) -> None:
    kind, *rest = bytes.fromhex(value)
    data = bytes([0x15, 0x02, 0x10 | kind, *rest, 0x15, 0x04, 0x00])

    struct, end = decode(data, {1: INT, 3: INT})

    assert struct.values == {1: 1, 3: 2}
    assert struct.raw == {2: bytes(rest)}
    assert list(struct.kinds) == [1, 2, 3]
    assert end == len(data)


@pytest.mark.parametrize(
    ("struct", "wanted", "message"),
    [
        pytest.param(Struct({}, {1: b"\x54"}, {1: thrift.I32}), BYTES, "expected", id="type"),
        pytest.param(Struct({}, {1: b""}, {1: thrift.BYTE}), INT, "too early", id="no byte"),
        pytest.param(Struct({}, {1: b"\x15"}, {1: thrift.STRUCT}), {1: INT}, "early", id="struct"),
    ],
)
def test_a_kept_field_of_another_type_is_an_error(
    struct: Struct, wanted: Wanted, message: str
) -> None:
    with pytest.raises(ThriftError, match=message):
        decode_field(struct, 1, wanted)


def test_fields_may_come_in_any_order_and_far_apart() -> None:
    original = Struct({300: 1, 2: True}, {20: b"\x01x"}, {300: 5, 2: 1, 20: thrift.BINARY})

    assert decode(encode(original), {300: INT, 2: BOOL})[0] == original


@pytest.mark.parametrize("spec", [FILE, RAW_CHUNKS, {}], ids=["decoded", "cut", "raw"])
@pytest.mark.parametrize(
    "footer",
    [FOOTER, parquet_footer(version="1.0"), parquet_footer(write_statistics=False)],
    ids=["all features", "version 1", "no statistics"],
)
def test_nothing_of_a_footer_is_lost(footer: bytes, spec: Spec) -> None:
    struct, end = decode(footer, spec)

    assert end == len(footer)
    assert encode(struct) == footer


def test_a_footer_is_decoded_as_pyarrow_does() -> None:
    struct, _ = decode(FOOTER, FILE)

    assert struct.values[3] == 40
    assert struct.values[6].startswith(b"parquet-cpp")
    group = struct.values[4][7]
    assert group.values[3] == 2
    assert group.values[1][2].values[3].values[3] == [b"nested", b"list", b"element", b"a"]


@pytest.mark.parametrize(
    ("data", "wanted", "message"),
    [
        pytest.param("", INT, "ends too early", id="empty"),
        pytest.param("15 54", INT, "ends too early", id="no stop"),
        pytest.param("18 05 61 00", BYTES, "ends too early", id="long bytes"),
        pytest.param("15 02 05 02 04 00", INT, "field 1 occurs twice", id="twice"),
        pytest.param("18 01 61 00", INT, "expected an integer .* type 8", id="other type"),
        pytest.param("15 02 00", [INT], "expected a list .* type 5", id="no list"),
        pytest.param("15 02 00", {1: INT}, "expected a dict .* type 5", id="no struct"),
        pytest.param("15 02 00", RAW, "expected a struct .* type 5", id="no raw struct"),
        pytest.param("19 21 01 02 00", [BOOL], "list of booleans", id="booleans"),
        pytest.param("15" + "80" * 10 + "00 00", INT, "more than 64 bits", id="long number"),
        pytest.param("1f 00 00", INT, "expected an integer .* type 15", id="unknown type"),
        pytest.param("2e 00 00", INT, "unknown Thrift type", id="unknown type, skipped"),
        pytest.param("20 00", INT, "unknown Thrift type", id="stop with an id"),
        pytest.param("29 f0 ff ff ff ff 7f 00", INT, "do not fit", id="huge list of nothing"),
        pytest.param("29 10 00 00", INT, "unknown Thrift type", id="list of nothing"),
        pytest.param("2b 01 50 02 00 00", INT, "unknown Thrift type", id="map of nothing"),
        pytest.param("29 f1 ff ff ff ff ff ff ff ff 7f 00", INT, "do not fit", id="huge list"),
        pytest.param(
            "29 f5 ff ff ff ff ff ff ff ff 7f 00", INT, "do not fit", id="huge list of numbers"
        ),
        pytest.param("2b ff ff ff ff ff ff ff ff 7f 11 00", INT, "do not fit", id="huge map"),
        pytest.param("29 f7 ff ff ff ff ff ff ff ff 7f 00", INT, "do not fit", id="huge doubles"),
        pytest.param("19 f8 ff ff ff ff ff ff ff ff 7f 00", [BYTES], "do not fit", id="huge bytes"),
        pytest.param(
            "29 29" + "f7 03 00 00 00 00" * 2, INT, "too early", id="doubles past the end"
        ),
        pytest.param("2c" * 5000, INT, "nests more than", id="deep structs"),
        pytest.param("29" + "19" * 5000, INT, "nests more than", id="deep lists"),
        pytest.param("2b" + "01bb" * 5000, INT, "nests more than", id="deep maps"),
    ],
)
def test_damage_is_one_kind_of_error(data: str, wanted: Wanted, message: str) -> None:
    with pytest.raises(ThriftError, match=message):
        decode(bytes.fromhex(data), {1: wanted})


def test_a_recursive_spec_does_not_exhaust_the_stack() -> None:
    structs: Spec = {}
    structs[1] = structs
    lists: list[Wanted] = []
    lists.append(lists)

    with pytest.raises(ThriftError, match="nests more than"):
        decode(b"\x1c" * 5000, structs)
    with pytest.raises(ThriftError, match="nests more than"):
        decode(b"\x19" * 5000, {1: lists})


@given(st.integers(0, len(FOOTER) - 1), st.sampled_from([FILE, RAW_CHUNKS, {}]))
def test_every_truncation_is_noticed(length: int, spec: Spec) -> None:
    with pytest.raises(ThriftError):
        decode(FOOTER[:length], spec)


@given(
    st.lists(st.tuples(st.integers(0, len(FOOTER) - 1), st.integers(1, 255)), min_size=1),
    st.sampled_from([FILE, RAW_CHUNKS, {}]),
)
def test_flipped_bytes_are_decoded_or_refused(flips: list[tuple[int, int]], spec: Spec) -> None:
    damaged = bytearray(FOOTER)
    for position, bits in flips:
        damaged[position] ^= bits
    _decode_or_refuse(bytes(damaged), spec)


@given(st.binary(max_size=200), st.sampled_from([FILE, RAW_CHUNKS, {}]))
def test_any_bytes_are_decoded_or_refused(data: bytes, spec: Spec) -> None:
    _decode_or_refuse(data, spec)


def _decode_or_refuse(data: bytes, spec: Spec) -> None:
    try:
        struct, end = decode(data, spec)
    except ThriftError:
        return
    assert 0 < end <= len(data)
    # Damage may spell a number longer than needed; once rewritten, nothing changes any more.
    rewritten = encode(struct)
    assert len(rewritten) <= end
    assert decode(rewritten, spec) == (struct, len(rewritten))


def test_the_end_of_a_field_is_found_without_those_behind_it() -> None:
    data = bytes([0x15, 0x54, 0x11, 0x06, 0x12, 0x08, 0x15])  # 1: 42, 2: true, 9: true, cut off
    assert [field_end(data, number) for number in (1, 2, 9)] == [2, 3, 6]
    for broken, number in ((data, 3), (data, 10), (b"\x15", 1), (bytes([0x15, 0x54, 0]), 2)):
        with pytest.raises(ThriftError, match=f"no whole field {number}"):
            field_end(broken, number)
