"""Damaged files: a splice falls back, fails with an error, or is right; it is never wrong.

Run as a script by the tests: pyarrow ends the whole process at some kinds of damage.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from tests.core.parquet.altered import layout_of
from tests.core.parquet.thrift_writer import footer_of
from tests.core.rewrite.spliced import Edit, read, same

from fsspeckit.core.parquet.format.pages import pages_of
from fsspeckit.errors import FsspeckitError

ROWS = 60
TABLE = pa.table(
    {
        "id": pa.array(range(ROWS), pa.int64()),
        "s": [f"s{n % 5}" for n in range(ROWS)],
        "l": [[n] * (n % 3) for n in range(ROWS)],
    }
)
EDIT = Edit([25], TABLE.slice(25, 1).set_column(1, "s", pa.array(["new"])))
_ERRORS = (FsspeckitError, pa.ArrowException, OSError, ValueError)


def write(path: Path, **options: Any) -> bytes:
    asked = {"write_page_index": True, "bloom_filter_options": {"id": True}, **options}
    pq.write_table(TABLE, path, row_group_size=20, store_schema=False, **asked)
    return path.read_bytes()


def _read_or_none(path: Path) -> pa.Table | None:
    try:
        return read(path)
    except _ERRORS:
        return None


def outcome(directory: Path, data: bytes) -> str:
    """What becomes of a damaged file, after it was seen to be no wrong one."""
    path, new = directory / "old.parquet", directory / "new.parquet"
    path.write_bytes(data)
    new.unlink(missing_ok=True)
    before = _read_or_none(path)
    try:
        done = EDIT.on_disk(path, new)
    except _ERRORS:
        return "error"
    after = _read_or_none(new if done.is_new else path)
    if after is None:
        # What is copied is not decoded: a page that was damaged before is so afterwards.
        assert before is None, done
        return "as damaged as before"
    try:
        expected = EDIT.in_memory(TABLE if before is None else before)
    except _ERRORS:
        return "other columns"  # the schema is damaged: the rows are not those of the edit
    assert same(after, expected), done
    return done.method


def _flipped(data: bytes, place: int, bit: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 1 << bit]) + data[place + 1 :]


def places(path: Path, where: str) -> list[int]:
    """The places that are damaged: all of the footer, or the headers of pages and the indexes."""
    data = path.read_bytes()
    if where == "footer":
        return list(range(len(data) - 8 - len(footer_of(data)), len(data)))
    found: list[int] = []
    for group in layout_of(path).groups:
        for chunk in group.chunks:
            pages = pages_of(chunk, lambda start, n: data[start : start + n])
            found += [n for p in pages for n in range(p.part.start, p.part.start + 12)]
            for part in (chunk.column_index, chunk.offset_index):
                if part is not None:
                    found += range(part.start, part.end)
    return found


def main() -> None:
    """Flip one bit after the other; a line for each tells what became of the file."""
    directory, where, version, first, step = sys.argv[1:]
    scratch = Path(directory)
    data = write(scratch / "old.parquet", data_page_version=version, write_page_checksum=True)
    damaged = places(scratch / "old.parquet", where)
    for number in range(int(first), len(damaged), int(step)):
        flipped = _flipped(data, damaged[number], number // int(step) % 8)
        sys.stdout.write(f"{number} ")
        sys.stdout.flush()
        sys.stdout.write(f"{outcome(scratch, flipped)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
