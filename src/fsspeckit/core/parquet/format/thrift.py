"""A selective codec of the Thrift compact protocol, the encoding of Parquet's own structures.

A *spec* names the fields that matter, nested like the structures themselves::

    CHUNK = {3: {3: [BYTES], 9: INT}}

Only those are decoded. Every other field stays a slice of the input, so a newer version of the
format loses nothing here, while generated code drops the fields it does not know. An unchanged
struct is encoded as the bytes it was read from, unless these had a number or a field header longer
than needed, which is legal.

Input is untrusted: whatever is wrong with it is a `ThriftError`, found in time linear in its
length.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from fsspeckit.errors import FsspeckitError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection


class ThriftError(FsspeckitError, ValueError):
    """Bytes are damaged or truncated, or are not the Thrift structure they should be."""


class Scalar(Enum):
    """How a spec asks for a value that is not a list or a struct."""

    INT = "an integer"
    BYTES = "a byte string"
    BOOL = "a boolean"
    RAW = "a struct"


INT: Final = Scalar.INT
BYTES: Final = Scalar.BYTES
BOOL: Final = Scalar.BOOL
RAW: Final = Scalar.RAW

Wanted: TypeAlias = "Scalar | list[Wanted] | Spec"
"""A scalar, a one-element list of what its items are, or the spec of a struct.

``RAW`` returns a struct as its bytes, so that ``[RAW]`` splits a list of structs into its items at
the price of skipping it. Lists of booleans stay raw: writers disagree on how false is stored there.
"""

Spec: TypeAlias = dict[int, Wanted]
"""The fields to decode, by id."""

# The types on the wire. A boolean field has no body: its type is its value.
TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT, UUID = range(1, 14)

# Parquet nests five deep. The limit keeps a forged input from exhausting the interpreter's stack.
_MAX_DEPTH: Final = 32


@dataclass(slots=True)
class Struct:
    """A struct: the fields of a spec are decoded, all others are kept as bytes."""

    values: dict[int, Any] = field(default_factory=dict)
    """Decoded fields: int, bytes, bool, `Struct`, or a list of int, bytes or `Struct`.

    Bytes where the type is a struct are that struct as it was (``RAW``).
    """

    raw: dict[int, bytes] = field(default_factory=dict)
    """All other fields: their bytes without the field header (none for a boolean)."""

    kinds: dict[int, int] = field(default_factory=dict)
    """The type of every field, in wire order; a decoded list adds its items' type times 16."""

    def copy(self) -> Struct:
        """The same fields; what is inside them is shared."""
        return Struct(dict(self.values), dict(self.raw), dict(self.kinds))


def decode(data: bytes, spec: Spec, start: int = 0) -> tuple[Struct, int]:
    """Read the struct that begins at ``start``.

    Args:
        data: Bytes that hold the struct; more may follow it.
        spec: The fields to decode.
        start: Where the struct begins.

    Returns:
        The struct and the position after it.

    Raises:
        ThriftError: The bytes end too early, or are not such a struct.

    Examples:
        >>> struct, end = decode(bytes([0x15, 0x54, 0x11, 0x00]), {1: INT})
        >>> struct.values, struct.raw, end
        ({1: 42}, {2: b''}, 4)
    """
    try:
        return _read_struct(data, start, spec, 0)
    except IndexError:
        # Lengths are not checked one by one: whatever points past the end meets this when the
        # stop byte of the enclosing struct is read.
        raise ThriftError(
            f"Thrift data ends too early: the struct at {start} is not complete after "
            f"{len(data):,} bytes."
        ) from None


def decode_field(struct: Struct, number: int, wanted: Wanted) -> Any:
    """Decode one field that was kept as bytes; None if the struct does not have it.

    Raises:
        ThriftError: It is of another type.
    """
    if number not in struct.raw:
        return None
    data, kind = struct.raw[number], struct.kinds[number]
    try:
        return _read_value(data, 0, kind, wanted, 0)[0]
    except IndexError:
        raise ThriftError(f"field {number} ends too early.") from None


def field_end(data: bytes, wanted: int) -> int:
    """Return the position after a field of a struct, without reading the fields behind it.

    Raises:
        ThriftError: The field is not there, or the bytes are not such a struct.
    """
    number, pos = 0, 0
    try:
        while header := data[pos]:
            pos += 1
            if header > 15:
                number += header >> 4
            else:
                number, pos = _read_integer(data, pos)
            pos = _SKIP[header & 15](data, pos, 0)
            if number == wanted:
                return pos
    except IndexError:
        pass
    raise ThriftError(f"the struct has no whole field {wanted}.")


def _read_struct(data: bytes, pos: int, spec: Spec, depth: int) -> tuple[Struct, int]:
    if depth > _MAX_DEPTH:
        raise _too_deep(pos)
    struct = Struct({}, {}, {})
    values, raw, kinds = struct.values, struct.raw, struct.kinds
    number = 0
    while header := data[pos]:
        pos += 1
        if header > 15:
            number += header >> 4
        else:
            number, pos = _read_integer(data, pos)
        if number in kinds:
            raise ThriftError(f"field {number} occurs twice in one struct, again at {pos}.")
        kind = header & 15
        wanted = spec.get(number)
        if wanted is None:
            kinds[number] = kind
            end = _SKIP[kind](data, pos, depth)
            raw[number] = data[pos:end]
            pos = end
        elif wanted is INT and I16 <= kind <= I64:
            kinds[number] = kind
            values[number], pos = _read_integer(data, pos)
        else:
            kinds[number] = kind | (data[pos] & 15) << 4 if kind in (LIST, SET) else kind
            values[number], pos = _read_value(data, pos, kind, wanted, depth)
    return struct, pos + 1


def _read_value(data: bytes, pos: int, kind: int, wanted: Wanted, depth: int) -> tuple[Any, int]:
    if wanted is INT and I16 <= kind <= I64:
        return _read_integer(data, pos)
    if isinstance(wanted, dict) and kind == STRUCT:
        return _read_struct(data, pos, wanted, depth + 1)
    if isinstance(wanted, list) and kind in (LIST, SET):
        return _read_list(data, pos, wanted[0], depth)
    if wanted is BYTES and kind == BINARY:
        size, pos = read_varint(data, pos)
        return data[pos : pos + size], pos + size
    return _read_rare_value(data, pos, kind, wanted, depth)


def _read_rare_value(
    data: bytes, pos: int, kind: int, wanted: Wanted, depth: int
) -> tuple[Any, int]:
    if wanted is RAW and kind == STRUCT:
        end = _skip_struct(data, pos, depth + 1)
        return data[pos:end], end
    if wanted is BOOL and kind in (TRUE, FALSE):
        return kind == TRUE, pos
    if wanted is INT and kind == BYTE:
        return (data[pos] ^ 0x80) - 0x80, pos + 1
    expected = wanted.value if isinstance(wanted, Scalar) else f"a {type(wanted).__name__}"
    raise ThriftError(f"expected {expected} at {pos}, found Thrift type {kind}.")


def _read_list(data: bytes, pos: int, wanted: Wanted, depth: int) -> tuple[list[Any], int]:
    if depth > _MAX_DEPTH:
        raise _too_deep(pos)
    kind, size, pos = _read_list_header(data, pos)
    items = []
    if size and kind in (TRUE, FALSE):
        raise ThriftError(f"a list of booleans at {pos} cannot be decoded, only kept raw.")
    for _ in range(size):
        item, pos = _read_value(data, pos, kind, wanted, depth + 1)
        items.append(item)
    return items, pos


def _read_list_header(data: bytes, pos: int) -> tuple[int, int, int]:
    """Return the type of the items, their number, and the position of the first."""
    header = data[pos]
    size = header >> 4
    if size < 15:
        return header & 15, size, pos + 1
    size, pos = _read_size(data, pos + 1)
    return header & 15, size, pos


def _read_size(data: bytes, pos: int) -> tuple[int, int]:
    """Return the number of items of a list or map, and the position after it."""
    size, pos = read_varint(data, pos)
    # No item is free, so more items than bytes is damage. Without this check a forged size would
    # keep a loop over fixed-width items, which reads no byte, running for years.
    if size > len(data) - pos:
        raise ThriftError(f"{size:,} items before {pos} do not fit into {len(data):,} bytes.")
    return size, pos


def read_varint(data: bytes, pos: int) -> tuple[int, int]:
    """Read a varint; returns it and the position after it, or raises IndexError if data ends."""
    byte = data[pos]
    pos += 1
    if byte < 128:
        return byte, pos
    number = byte & 127
    shift = 7
    while (byte := data[pos]) > 127:
        pos += 1
        number |= (byte & 127) << shift
        shift += 7
        if shift > 63:
            raise ThriftError(f"a number of more than 64 bits at {pos}.")
    return number | byte << shift, pos + 1


def _read_integer(data: bytes, pos: int) -> tuple[int, int]:
    byte = data[pos]
    if byte < 128:  # most numbers are small: no call for them
        return (byte >> 1) ^ -(byte & 1), pos + 1
    number, pos = read_varint(data, pos)
    return (number >> 1) ^ -(number & 1), pos


def _skip_fixed(size: int) -> Callable[[bytes, int, int], int]:
    return lambda data, pos, depth: pos + size


def _skip_varint(data: bytes, pos: int, depth: int) -> int:
    while data[pos] > 127:
        pos += 1
    return pos + 1


def _skip_binary(data: bytes, pos: int, depth: int) -> int:
    size = data[pos]
    if size < 128:
        return pos + 1 + size
    size, pos = read_varint(data, pos)
    return pos + size


def _skip_list(data: bytes, pos: int, depth: int) -> int:
    if depth > _MAX_DEPTH:
        raise _too_deep(pos)
    kind, size, pos = _read_list_header(data, pos)
    if kind <= BYTE and kind:
        return pos + size
    skip = _SKIP[kind]
    for _ in range(size):
        pos = skip(data, pos, depth + 1)
    return pos


def _skip_map(data: bytes, pos: int, depth: int) -> int:
    if depth > _MAX_DEPTH:
        raise _too_deep(pos)
    size, pos = _read_size(data, pos)
    if not size:
        return pos
    kinds = data[pos]
    pos += 1
    # A boolean that is not a field takes a byte.
    key, value = (_SKIP[max(kind, BYTE) if kind else 0] for kind in (kinds >> 4, kinds & 15))
    for _ in range(size):
        pos = value(data, key(data, pos, depth + 1), depth + 1)
    return pos


def _skip_struct(data: bytes, pos: int, depth: int) -> int:
    if depth > _MAX_DEPTH:
        raise _too_deep(pos)
    while header := data[pos]:
        pos += 1
        if header < 16:
            pos = _skip_varint(data, pos, depth)
        kind = header & 15
        if I16 <= kind <= I64:  # most fields are numbers: no call for them
            while data[pos] > 127:
                pos += 1
            pos += 1
        else:
            pos = _SKIP[kind](data, pos, depth + 1)
    return pos + 1


def _reject(data: bytes, pos: int, depth: int) -> int:
    raise ThriftError(f"unknown Thrift type before {pos}.")


_SKIP: Final[tuple[Callable[[bytes, int, int], int], ...]] = (
    _reject,
    *(_skip_fixed(0), _skip_fixed(0)),  # booleans
    _skip_fixed(1),
    *(_skip_varint, _skip_varint, _skip_varint),
    _skip_fixed(8),
    _skip_binary,
    *(_skip_list, _skip_list),  # lists and sets
    _skip_map,
    _skip_struct,
    _skip_fixed(16),  # UUIDs
    *(_reject, _reject),
)


def _too_deep(pos: int) -> ThriftError:
    return ThriftError(f"Thrift data nests more than {_MAX_DEPTH} levels at {pos}.")


_SHORT_LIST = 15


def encode(struct: Struct) -> bytes:
    """Write a struct in the compact protocol.

    Args:
        struct: What `decode` returned, perhaps changed.

    Returns:
        Its bytes, the stop byte included.

    Examples:
        >>> struct, _ = decode(bytes([0x15, 0x54, 0x11, 0x00]), {1: INT})
        >>> set_field(struct, 1, 43)
        >>> encode(struct).hex()
        '15561100'
    """
    out = bytearray()
    _write_struct(out, struct)
    return bytes(out)


def set_field(struct: Struct, number: int, value: Any, kind: int | None = None) -> None:
    """Set a decoded field; a new one is put among the others in the order of their ids.

    Args:
        struct: The struct to change.
        number: The id of the field.
        value: What `Struct.values` may hold.
        kind: The type on the wire; needed for a new field.
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
    """Remove fields of a struct, if it has them."""
    for number in numbers:
        struct.kinds.pop(number, None)
        struct.values.pop(number, None)
        struct.raw.pop(number, None)


def varint(number: int) -> bytes:
    """Encode a number with seven bits in each byte, the lowest first."""
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
        out += value  # a struct that was read as its bytes
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
