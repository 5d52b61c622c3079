"""The writing half of the Thrift codec: a decoded struct, perhaps changed, as bytes again.

What was not decoded goes back as the bytes it was, so nothing is lost that this version of the
format does not know. An unchanged struct gives the bytes it was read from, unless these spelled a
number or a field header longer than needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fsspeckit.core.parquet.format.thrift import BYTE, FALSE, I16, I64, STRUCT, TRUE, Struct

if TYPE_CHECKING:
    from collections.abc import Collection

__all__ = ["drop_fields", "encode", "set_field", "varint"]

_SHORT_LIST = 15


def encode(struct: Struct) -> bytes:
    """Write a struct in the compact protocol.

    Args:
        struct: What `fsspeckit.core.parquet.format.thrift.decode` returned, perhaps changed.

    Returns:
        Its bytes, the stop byte included.

    Examples:
        >>> from fsspeckit.core.parquet.format.thrift import INT, decode
        >>> struct, _ = decode(bytes([0x15, 0x54, 0x11, 0x00]), {1: INT})
        >>> set_field(struct, 1, 43)
        >>> encode(struct).hex()
        '15561100'
    """
    out = bytearray()
    _write_struct(out, struct)
    return bytes(out)


def set_field(struct: Struct, number: int, value: Any, kind: int | None = None) -> None:
    """Set a decoded field, and put it in its place among the others if it is new.

    Args:
        struct: The struct to change.
        number: The id of the field.
        value: What `Struct.values` may hold.
        kind: The type on the wire; needed for a field that is not there yet.
    """
    struct.values[number] = value
    struct.raw.pop(number, None)
    if number in struct.kinds:
        return
    if kind is None:
        raise KeyError(f"field {number} is new, so its type is needed.")
    struct.kinds[number] = kind
    struct.kinds = dict(sorted(struct.kinds.items()))


def drop_fields(struct: Struct, numbers: Collection[int]) -> None:
    """Take fields out of a struct; those that are not there are no matter."""
    for number in numbers:
        struct.kinds.pop(number, None)
        struct.values.pop(number, None)
        struct.raw.pop(number, None)


def varint(number: int) -> bytes:
    """A number in as many bytes as it needs, seven bits in each, the lowest first."""
    out = bytearray()
    _write_varint(out, number)
    return bytes(out)


def _write_struct(out: bytearray, struct: Struct) -> None:
    last = 0
    values, raw = struct.values, struct.raw
    for number, kind in struct.kinds.items():
        wire = kind & 15
        value = values.get(number)
        if wire in (TRUE, FALSE) and value is not None:
            wire = TRUE if value else FALSE
        if 0 < number - last < 16:
            out.append((number - last) << 4 | wire)
        else:
            out.append(wire)
            _write_integer(out, number)
        last = number
        if value is None:
            out += raw[number]
        elif I16 <= kind <= I64:  # most fields are numbers: fewer calls for them
            _write_varint(out, value << 1 if value >= 0 else (-value << 1) - 1)
        elif wire > FALSE:
            _write_value(out, value, kind)
    out.append(0)


def _write_value(out: bytearray, value: Any, kind: int) -> None:
    if isinstance(value, int):
        if kind == BYTE:
            out.append(value & 255)
        else:
            _write_integer(out, value)
    elif isinstance(value, Struct):
        _write_struct(out, value)
    elif isinstance(value, list):
        _write_list(out, value, kind >> 4)
    elif kind == STRUCT:
        out += value  # a struct that was taken as its bytes
    else:
        _write_varint(out, len(value))
        out += value


def _write_list(out: bytearray, items: list[Any], kind: int) -> None:
    if len(items) < _SHORT_LIST:
        out.append(len(items) << 4 | kind)
    else:
        out.append(0xF0 | kind)
        _write_varint(out, len(items))
    for item in items:
        _write_value(out, item, kind)


def _write_varint(out: bytearray, number: int) -> None:
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)


def _write_integer(out: bytearray, number: int) -> None:
    _write_varint(out, number << 1 if number >= 0 else (-number << 1) - 1)
