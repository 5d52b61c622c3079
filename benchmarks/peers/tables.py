"""The rows of every table: each value is a function of its row's code and of a generation.

A row has a code, an integer. The rows that a table begins with have the even codes, in order, cut
into files; odd codes are keys that are not there yet, in the range of some file. Generation 0 is
what a table begins with, generation 1 what a merge brings. So the rows of any part of any table can
be made again at any time, and what a merge has to result in is known without running one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    import numpy.typing as npt

    Words = npt.NDArray[np.uint64]
    Codes = npt.NDArray[np.int64]

KEY = "id"
PARTITION = "part"
ROW_GROUP = 122_880
"""DuckDB's default, neither the smallest nor the largest of those in use."""

BLOOM_FPP = 0.001
"""A row group is ruled out if each of 100 keys is: with 1 in 20, as is usual, none would be."""

_HEX = np.frombuffer(b"".join(b"%02x" % byte for byte in range(256)), np.uint16)
_KINDS = ("book", "disc", "food", "game", "tool", "toy", "wear", "wine")


@dataclass(frozen=True)
class WriterProperties:
    """How the rows of a table are cut into files."""

    name: str
    rows: int
    files: int = 16
    keys: Literal["number", "uuid"] = "number"
    partitioned: bool = False
    """Whether each file is the only one of a hive partition."""

    bloom: bool = False
    """Whether the key column has bloom filters."""

    @property
    def rows_per_file(self) -> int:
        """How many rows each file has."""
        return max(1, self.rows // self.files)

    @property
    def total(self) -> int:
        """How many rows there are."""
        return self.rows_per_file * self.files

    def codes(self, file: int) -> Codes:
        """The codes of the rows of a file."""
        return 2 * np.arange(file * self.rows_per_file, (file + 1) * self.rows_per_file)


def schema_of(layout: WriterProperties) -> pa.Schema:
    """The 12 columns of a table."""
    return pa.schema(
        [
            (KEY, pa.int64() if layout.keys == "number" else pa.string()),
            (PARTITION, pa.string()),
            ("customer", pa.int64()),
            ("quantity", pa.int32()),
            ("price", pa.float64()),
            ("discount", pa.float64()),
            ("tax", pa.float64()),
            ("created", pa.timestamp("us")),
            ("shipped", pa.date32()),
            ("kind", pa.string()),
            ("city", pa.string()),
            ("note", pa.string()),
        ]
    )


def rows_of(
    layout: WriterProperties,
    codes: Codes,
    generation: int = 0,
    changed: Collection[str] | None = None,
) -> pa.Table:
    """The rows with these codes.

    Args:
        layout: The table.
        codes: Which rows.
        generation: Of which generation.
        changed: The columns that are of this generation, the others of the first; None for all.
    """
    schema = schema_of(layout)
    columns = [_key(layout, codes), _partition(layout, codes)]
    for number, field in enumerate(schema):
        if number < len(columns):
            continue
        own = generation if changed is None or field.name in changed else 0
        columns.append(_values(field, mix(codes.astype(np.uint64), 64 * own + number)))
    return pa.table(columns, schema=schema)


def write_files(
    layout: WriterProperties, directory: Path, row_group: int = ROW_GROUP
) -> list[Path]:
    """Write the files of a table as plain Parquet; gives their paths, in the order of the keys."""
    paths = []
    rows = min(row_group, layout.rows_per_file)
    blooms = {KEY: {"ndv": rows, "fpp": BLOOM_FPP}} if layout.bloom else None
    for number in range(layout.files):
        table = rows_of(layout, layout.codes(number))
        path = directory / f"part-{number:05}.parquet"
        if layout.partitioned:
            path = directory / f"{PARTITION}={table[PARTITION][0]}" / "part.parquet"
            table = table.drop_columns([PARTITION])
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, path, row_group_size=row_group, bloom_filter_options=blooms)
        paths.append(path)
    return paths


def mix(words: Words, salt: int = 0) -> Words:
    """Scatter words over all 64 bits (the finalizer of SplitMix64)."""
    z = words + np.uint64((salt + 1) * 0x9E3779B97F4A7C15 % 2**64)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def _key(layout: WriterProperties, codes: Codes) -> pa.Array:
    if layout.keys == "number":
        return pa.array(codes)
    words = codes.astype(np.uint64)
    digits = _hexadecimal(np.stack([mix(words, 1001), mix(words, 1002)], axis=1))
    # As a UUID is written, with its four dashes.
    parts = np.split(digits, [8, 12, 16, 20], axis=1)
    dash = np.full((len(codes), 1), ord("-"), np.uint8)
    joined = [piece for part in parts for piece in (part, dash)][:-1]
    return _strings(np.concatenate(joined, axis=1))


def _partition(layout: WriterProperties, codes: Codes) -> pa.Array:
    files = np.minimum(codes // 2 // layout.rows_per_file, layout.files - 1)
    names = pa.array([f"p{number:05}" for number in range(layout.files)])
    return names.take(pa.array(files))


def _values(field: pa.Field, words: Words) -> pa.Array:
    if field.name == "kind":
        return pa.array(_KINDS).take(pa.array(words % np.uint64(len(_KINDS))))
    if field.name == "city":
        cities = pa.array([f"city of {number}" for number in range(1000)])
        return cities.take(pa.array(words % np.uint64(1000)))
    if field.name == "note":
        return _strings(_hexadecimal(np.stack([words, mix(words)], axis=1))[:, :24])
    if field.name == "tax":
        # Twelve digits: DuckLake keeps few rows as text, and loses the last digit of more.
        return pa.array((words % np.uint64(10**12)) / 10**12)
    if field.type == pa.float64():
        return pa.array((words % np.uint64(100_000)) / 100)
    spans = {"customer": 2**62, "quantity": 1000, "created": 2**50, "shipped": 20_000}
    numbers = (words % np.uint64(spans[field.name])).astype(np.int64)
    width = np.int32 if field.type.bit_width == 32 else np.int64
    return pa.array(numbers.astype(width)).cast(field.type)


def _hexadecimal(words: Words) -> npt.NDArray[np.uint8]:
    """The digits of each row's words."""
    octets = np.ascontiguousarray(words).view(np.uint8)
    return _HEX[octets.reshape(len(words), 8 * words.shape[1])].view(np.uint8)


def _strings(characters: npt.NDArray[np.uint8]) -> pa.Array:
    """Strings of one length from the bytes of each row."""
    count, width = characters.shape
    offsets = np.arange(count + 1, dtype=np.int32) * width
    data = np.ascontiguousarray(characters)
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(data))
