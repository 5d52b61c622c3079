"""A reader in a process of its own that reads a dataset on an object store again and again.

Started as ``python -m tests.storage.store_reader <reader>``, with its request as the first line of
standard input; it ends with standard input, and prints what it has seen. Every merge gives all rows
the same new value, so a read of one state has each row once, and one value.
"""

from __future__ import annotations

import json
import select
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

import fsspec
import pyarrow as pa
import pyarrow.dataset as pads

from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from fsspeckit.storage.fs.reads import meaning_of

if TYPE_CHECKING:
    from collections.abc import Callable

ONE_STATE, TOGETHER, GONE, MISSING = VERDICTS = (
    "one state",
    "old and new files together",
    "a listed file was gone",
    "a row was missing, or values were mixed",
)


def read_plainly(path: str, options: dict[str, Any]) -> pa.Table:
    """Read as a program does that knows nothing of us: it lists files, and opens them."""
    scheme = path.partition("://")[0]
    filesystem = fsspec.filesystem(scheme, **options, use_listings_cache=False)
    place = path.partition("://")[2]
    return pads.dataset(place, filesystem=filesystem, format="parquet").to_table()


def read_with_us(path: str, options: dict[str, Any]) -> pa.Table:
    with PyarrowDatasetIO(storage_options=options) as io:
        return io.read_dataset(path)


READERS: dict[str, Callable[[str, dict[str, Any]], pa.Table]] = {
    "plain": read_plainly,
    "read_dataset": read_with_us,
}


def verdict(table: pa.Table, rows: int) -> str:
    """Whether a read saw one state."""
    ids = table["id"].to_pylist()
    if len(ids) > len(set(ids)):
        return TOGETHER
    is_whole = sorted(ids) == list(range(rows)) and len(set(table["v"].to_pylist())) == 1
    return ONE_STATE if is_whole else MISSING


def main() -> None:
    read = READERS[sys.argv[1]]
    request = json.loads(sys.stdin.readline())
    seen: Counter[str] = Counter()
    while not select.select([sys.stdin], [], [], 0)[0]:
        try:
            seen[verdict(read(request["path"], request["options"]), request["rows"])] += 1
        except Exception as error:
            if meaning_of(error) != "missing":  # each library has its own error for that
                raise
            seen[GONE] += 1
        if seen.total() == 1:
            sys.stdout.write("reading\n")
            sys.stdout.flush()
    sys.stdout.write(json.dumps(seen) + "\n")


if __name__ == "__main__":
    main()
