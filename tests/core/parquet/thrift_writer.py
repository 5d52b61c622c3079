"""A Thrift writer that knows only what the reader returns, and so proves that to be enough."""

from __future__ import annotations

from typing import Any

from fsspeckit.core.parquet.thrift import BYTE, FALSE, STRUCT, TRUE, Struct


def footer_of(file: bytes) -> bytes:
    """Cut the footer out of a Parquet file."""
    return file[-8 - int.from_bytes(file[-8:-4], "little") : -8]


def varint(number: int) -> bytes:
    result = bytearray()
    while number > 127:
        result.append(number & 127 | 128)
        number >>= 7
    return bytes([*result, number])


def zigzag(number: int) -> bytes:
    return varint(number << 1 if number >= 0 else (-number << 1) - 1)


def encode(struct: Struct) -> bytes:
    """Write a struct from nothing but what the reader returned."""
    result = bytearray()
    last = 0
    for number, kind in struct.kinds.items():
        delta = number - last
        if 0 < delta < 16:
            result.append(delta << 4 | kind & 15)
        else:
            result += bytes([kind & 15]) + zigzag(number)
        last = number
        result += struct.raw[number] if number in struct.raw else body(struct.values[number], kind)
    return bytes([*result, 0])


def body(value: Any, kind: int) -> bytes:
    if kind in (TRUE, FALSE):
        return b""
    if isinstance(value, Struct):
        return encode(value)
    if isinstance(value, list):
        item = kind >> 4
        size = len(value)
        header = bytes([size << 4 | item]) if size < 15 else bytes([0xF0 | item]) + varint(size)
        return header + b"".join(body(one, item) for one in value)
    if isinstance(value, bytes):
        return value if kind == STRUCT else varint(len(value)) + value
    return bytes([value & 255]) if kind == BYTE else zigzag(value)
